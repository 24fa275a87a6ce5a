"""The premises of the ground truth of MCS and IDR, and whether a model meets them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from captum_concepts.support.checks import check_finite, check_range
from captum_concepts.support.running import evaluation_mode, predict_logits, progress
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


def premise_rows(quantities: Mapping[str, float], limits: Limits) -> list[dict[str, Any]]:
    """Return what was measured, and each premise with its limit and whether it holds, as rows of a table."""
    drop = quantities["accuracy with"] - quantities["accuracy without"]
    alone = quantities["accuracy only"] - quantities["chance"]
    remain, learned = quantities["remains correct"], quantities["accuracy with"] - quantities["chance"]
    # The first three are the paper's. The last is ours: a model that has learned nothing ignores the common feature,
    # but does not look at anything else either.
    premises = [
        ("removed", drop, limits.drop, drop <= limits.drop + _ROUNDING),
        ("remain correct", remain, limits.remain, remain >= limits.remain - _ROUNDING),
        ("alone", alone, limits.above_chance, alone <= limits.above_chance + _ROUNDING),
        ("learned", learned, limits.above_chance, learned > limits.above_chance + _ROUNDING),
    ]
    measured = [(name, value, math.nan, None) for name, value in quantities.items()]
    return [dict(zip(("metric", "value", "limit", "holds"), row, strict=True)) for row in (*measured, *premises)]


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
) -> pd.DataFrame:
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
    DataFrame
        A row for each premise: ``metric`` "removed" (accuracy that removing the feature costs), "remain correct" (share
        of the correct predictions that stay correct without it), "alone" and "learned" (accuracy above chance from the
        feature alone, and with it), with ``value`` in [0, 1], ``limit``, and whether it ``holds``. Before them a row
        for each quantity of Figure 3 (top), without a limit: "accuracy with", "accuracy without", "remains correct",
        "accuracy only", "chance", "median KL same" and "median KL changed" (Kullback-Leibler divergence of the
        prediction with the feature from that without it, where both name one class, and where they do not). All with
        ``model``, ``feature`` and ``n`` images. The ground truth is verified if ``table["holds"].all()``.

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
    premises_bar = progress(description=f"premises of {name}", show=display_progressbar, total=n, unit="image")
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
    quantities = {
        "accuracy with": _share(correct),
        "accuracy without": _share(predicted[1] == truth),
        "remains correct": _share(predicted[1][correct] == truth[correct]),
        "accuracy only": _share(predicted[2] == truth),
        "chance": chance,
        "median KL same": _median(divergence[same]),
        "median KL changed": _median(divergence[~same]),
    }
    table = pd.DataFrame(premise_rows(quantities, Limits() if limits is None else limits))
    return table.assign(model=name, feature=feature, n=n, holds=table["holds"].astype("boolean"))


def _logits(model: nn.Module, name: str, images: Tensor) -> Tensor:
    """Return logits (n, K) in float64 on the CPU."""
    logits = check_outputs(predict_logits(model, images), len(images)).cpu().double()
    check_finite(f"logits of {name}", logits)
    return logits


def _share(right: np.ndarray) -> float:
    return float(right.mean()) if right.size else math.nan


def _median(values: np.ndarray) -> float:
    return float(np.median(values)) if values.size else math.nan
