"""The premises of the ground truth of MCS and IDR, and whether a model meets them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn
from tqdm.auto import tqdm

from captum_concepts.support.checks import check_finite, check_range
from captum_concepts.support.running import evaluation_mode, predict_logits
from captum_concepts.support.shown import one_line
from quantus_concepts.functional.arguments import Numbers
from quantus_concepts.metrics.contrast.regions import ImageSource, Subject, batches
from quantus_concepts.metrics.host.checks import check_classes, check_outputs

# Accuracies are quotients: a drop of exactly the limit must not exceed it by rounding.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Limits:
    """How far from ideal a model may be for its ground truth to count as verified.

    Parameters
    ----------
    drop : float
        Accuracy that removing the common feature may cost, in [0, 1].
    remain : float
        Share of the correct predictions that must stay correct without it.
    above_chance : float
        Accuracy above chance that the feature alone may have.

    Raises
    ------
    ValueError
        If one does not lie in [0, 1].
    """

    drop: float = 0.02
    remain: float = 0.95
    above_chance: float = 0.05

    def __post_init__(self) -> None:
        for name, limit in vars(self).items():
            check_range(name, limit, 0, 1)


@dataclass(frozen=True)
class Premise:
    """One thing that must hold.

    Attributes
    ----------
    name : str
        "removed" (accuracy that removing the feature costs), "remain correct" (share of the correct predictions that
        stay correct without it), "alone" and "learned" (accuracy above chance from the feature alone, and with it).
    value : float
        Measured share; NaN if unknown.
    limit : float
        Limit of the value.
    holds : bool
        Whether it does.
    """

    name: str
    value: float
    limit: float
    holds: bool

    def __repr__(self) -> str:
        return one_line(self)


@dataclass(frozen=True)
class PremiseCheck:
    """Predictions of a model without the common feature, and with this feature only.

    The quantities are those of Figure 3 (top) of Yang and Kim (2019), "BIM".

    Attributes
    ----------
    model : str
        Name of the model.
    feature : str
        Name of the feature that is in every class, and so tells nothing.
    accuracy_with : float
        Accuracy on the images with the feature, in [0, 1].
    accuracy_without : float
        On the images without it.
    accuracy_only : float
        On the images of the feature alone.
    remains_correct : float
        Share of the correct predictions that stay correct without the feature.
    median_kl_same : float
        Median Kullback-Leibler divergence of the prediction with the feature from that without it, where both name
        one class.
    median_kl_changed : float
        The same where they do not.
    chance : float
        1 / K.
    n : int
        Images.
    limits : Limits
        Limits of the premises.
    """

    model: str
    feature: str
    accuracy_with: float
    accuracy_without: float
    accuracy_only: float
    remains_correct: float
    median_kl_same: float
    median_kl_changed: float
    chance: float
    n: int
    limits: Limits = field(default_factory=Limits)

    def __repr__(self) -> str:
        return one_line(self)

    @property
    def premises(self) -> list[Premise]:
        """The premises, each with its verdict."""
        drop, alone = self.accuracy_with - self.accuracy_without, self.accuracy_only - self.chance
        remain, learned = self.remains_correct, self.accuracy_with - self.chance
        limits = self.limits
        # The first three are the paper's. The last is ours: a model that has learned nothing ignores the common
        # feature, but does not look at anything else either.
        return [
            Premise("removed", drop, limits.drop, drop <= limits.drop + _ROUNDING),
            Premise("remain correct", remain, limits.remain, remain >= limits.remain - _ROUNDING),
            Premise("alone", alone, limits.above_chance, alone <= limits.above_chance + _ROUNDING),
            Premise("learned", learned, limits.above_chance, learned > limits.above_chance + _ROUNDING),
        ]

    @property
    def verified(self) -> bool:
        """Whether all premises hold."""
        return all(premise.holds for premise in self.premises)


def check_premise(
    model: nn.Module,
    with_feature: ImageSource,
    without_feature: ImageSource,
    only_feature: ImageSource,
    labels: Numbers,
    *,
    name: str = "the model",
    feature: str = "common feature",
    limits: Limits | None = None,
    batch_size: int = 128,
    display_progressbar: bool = False,
) -> PremiseCheck:
    """Verify that a model ignores a feature: the ground truth that MCS and IDR rest on.

    Yang and Kim (2019), "BIM", Section 3: a feature that is equally frequent in all classes tells nothing, and a model
    should have learned to ignore it; the benchmark verifies it before it calls importance of the feature false. Their
    three premises, and one of ours: a model that has learned nothing ignores the feature too, but all else with it.

    Parameters
    ----------
    model : nn.Module
        A classifier; it is run in eval mode on its own device and left as it was.
    with_feature : array_like or callable
        (N, C, H, W) images with the feature, or a function from a list of n rows to (n, C, H, W), as in `Subject`.
    without_feature : array_like or callable
        The same images without it.
    only_feature : array_like or callable
        The feature without what the model should look at.
    labels : array_like
        (N,) of int: the classes that the model has to find.
    name : str
        Name of the model.
    feature : str
        Name of the feature.
    limits : Limits, optional
        How much may be missing; 2 points, 95 % and 5 points if None.
    batch_size : int
        Images that are run together.
    display_progressbar : bool
        Whether to show how many images are done.

    Returns
    -------
    PremiseCheck
        The quantities, the premises and whether all of them hold.

    Raises
    ------
    TypeError
        If `model` is no module, `labels` are no whole numbers, or an argument is of the wrong kind.
    ValueError
        If images and labels differ in number, a label names no class, or the logits are not finite.
    """
    sources = {"with_feature": with_feature, "without_feature": without_feature, "only_feature": only_feature}
    for source, images in sources.items():
        if not callable(images):
            check_finite(source, images)
    sets = [Subject(model, images, labels) for images in sources.values()]
    truth = sets[0].labels.numpy()
    n = len(truth)
    predicted = np.empty((3, n), dtype=np.int64)
    divergence = np.empty(n)
    chance = math.nan
    hidden = None if display_progressbar else True
    premises_bar = tqdm(desc=f"premises of {name}", total=n, unit="image", disable=hidden, leave=False)
    # Divergences are computed in float64: those of a model that ignores the feature are about 1e-8.
    with evaluation_mode(model), premises_bar as bar:
        for rows in batches(n, batch_size):
            here = slice(rows[0], rows[-1] + 1)
            logits = [_logits(model, name, subject.batch(rows)) for subject in sets]
            chance = 1 / logits[0].shape[1]
            check_classes("labels", truth[here], logits[0].shape[1])
            predicted[:, here] = torch.stack(logits).argmax(2).numpy()
            first, second = (scores.log_softmax(1) for scores in logits[:2])
            divergence[here] = (first.exp() * (first - second)).sum(1).clamp(min=0).numpy()
            bar.update(len(rows))
    correct = predicted[0] == truth
    same = predicted[0] == predicted[1]
    return PremiseCheck(
        model=name,
        feature=feature,
        accuracy_with=_share(correct),
        accuracy_without=_share(predicted[1] == truth),
        accuracy_only=_share(predicted[2] == truth),
        remains_correct=_share(predicted[1][correct] == truth[correct]),
        median_kl_same=_median(divergence[same]),
        median_kl_changed=_median(divergence[~same]),
        chance=chance,
        n=n,
        limits=Limits() if limits is None else limits,
    )


def _logits(model: nn.Module, name: str, images: Tensor) -> Tensor:
    """Return logits (n, K) in float64 on the CPU."""
    logits = check_outputs(predict_logits(model, images), len(images)).cpu().double()
    check_finite(f"logits of {name}", logits)
    return logits


def _share(right: np.ndarray) -> float:
    return float(right.mean()) if right.size else math.nan


def _median(values: np.ndarray) -> float:
    return float(np.median(values)) if values.size else math.nan
