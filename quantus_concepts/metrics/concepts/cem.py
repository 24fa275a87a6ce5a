"""The concept existence metric: are the most important concepts in the image?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Unpack, cast

import numpy as np
import pandas as pd
import torch
from quantus.helpers.enums import EvaluationCategory, ScoreDirection
from torch import Tensor, nn

from captum_concepts.support.checks import check_choice, check_whole, to_presence
from quantus_concepts.functional.arguments import Numbers
from quantus_concepts.functional.concepts.cem import ranked_presence
from quantus_concepts.functional.concepts.cem_gain import gain_over_others
from quantus_concepts.functional.concepts.ranking import rank_concepts
from quantus_concepts.metrics.concepts import names as col
from quantus_concepts.metrics.host.batch import Batch
from quantus_concepts.metrics.host.checks import Truth, to_classes
from quantus_concepts.metrics.host.explanations import Explanations
from quantus_concepts.metrics.host.metric import ConceptMetric, nanmean
from quantus_concepts.metrics.host.model import IMPORTANCES, check_concept_count
from quantus_concepts.metrics.host.observing import (
    Counted,
    Known,
    Observed,
    Result,
    UsualMetrics,
    counted,
    same,
    total,
)
from quantus_concepts.metrics.host.record import QuantusArguments

#: Why a sample ranks no concept.
ZERO = "importance is zero throughout"


def labels_shown(labels: Tensor, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return whether samples show concepts, and a column of ones, (n, L + 1) in float32, and the counts (n,)."""
    shows = labels > 0
    ones = torch.cat([shows, torch.ones_like(shows[:, :1])], 1).float()
    return ones.to(device), shows.sum(1, dtype=torch.int32)


@dataclass(frozen=True, kw_only=True)
class Ranked(Observed):
    """The first T concepts of E kinds of importance: 5 bytes for each, and a few for each sample."""

    kinds: tuple[str, ...] = same()
    #: (n, E, T): whether samples show them (0 or 1), and their indices.
    presence: Tensor
    order: Tensor
    #: (n, E), the largest importance, and (n,) whether samples are classified correctly; None where nothing asks.
    norms: Tensor
    correct: Tensor | None
    #: (n,): how many concepts samples show, and the classes explained and, for recitals, the true ones.
    n_shown: Tensor
    clusters: Tensor
    labels: Tensor | None
    #: (2, E + 1, L + 1): how many of all samples, and of the correct ones, of which a kind ranks concepts show each
    #: concept, and last how many they are; the last kind ranks all.
    counts: Tensor | None = total()
    n_concepts: int = same()
    reason: np.ndarray | None = None
    explained: bool | None = None
    n_wrong: Tensor | None = total(default=None)

    @cached_property
    def density(self) -> np.ndarray:
        """The share of the concepts that samples show (n,), which is chance."""
        return (self.n_shown.double() / self.n_concepts).numpy()

    def shown(self, place: int, only_correct: bool) -> Tensor:
        """Return whether samples show the concepts of a kind (n, T); NaN where it ranks none, or they are left out."""
        known = vars(self).setdefault("_shown", {})
        if (place, only_correct) not in known:
            out = ~(self.norms[:, place] > 0)
            out = out | ~cast(Tensor, self.correct) if only_correct else out
            known[place, only_correct] = ranked_presence(self.presence[:, place].float(), ~out)
        return known[place, only_correct]


class CEM(ConceptMetric):
    """Concept existence metric: share of the `top_l` most important concepts that the image shows.

    Aysel et al. (2025), Equations 9 and 10. Concepts are ranked by *signed* importance for the explained
    class, largest first (the paper's text says magnitude; a strong negative contribution is no reason for a
    class), ties by concept index.

    - **At the bottleneck** ``model`` is the head, ``x_batch`` the concept values (N, L), and the
      importance comes from the explanation method: Gradient gives the paper's weights theta, the values
      themselves give u, InputXGradient gives theta times u. Concept models of tables and of texts are evaluated
      here too, as ``cbm.head`` and ``cbm.concept_predictor(inputs)``.
    - **On images** ``model`` is a concept model (`ConceptModel`), and the metric
      computes values and importance itself. The explanation method then plays no role: every row of
      ``quantus.evaluate`` shows the same scores.

    ``y_batch`` is the explained class, in the paper the predicted one.

    Parameters
    ----------
    concept_labels : array_like, optional
        (N, L) of 0 and 1: the concepts each image shows, aligned with ``x_batch``. May be left out where
        every call passes ``custom_batch={"concept_labels": ...}``. The columns of a DataFrame have to be in the
        order of the model's concepts, ``model.bank.names``.
    top_l : int
        How many concepts count, 1 to L; the paper uses 1, 3 and 5.
    only_correct : bool
        Whether wrongly classified samples are NaN.
    labels : array_like, optional
        (N,) true classes, for `only_correct`; ``y_batch`` if None, with a warning where it is the predicted
        class of all.
    importance : str
        On images: "effect", what the logit of the explained class, less the mean of all, loses if the concept is set to
        its absent level (see the notes); or, as the paper has it, "contribution" (theta times u), "value" (u)
        or "weight" (theta), which depend on what a value of 0 means.
    gain : bool
        Whether to subtract prevalence: the score is then the presence of each named concept less the share of the
        *other* samples that show it (`functional.cem_gain`), in [-1, 1], over all samples of the call or of the updates
        that have a score. 0 is a model that names concepts without looking, however common they are.
    **quantus : Unpack[QuantusArguments]
        `abs`, `normalise` and what else every Quantus metric takes, by keyword. Off by default: ``abs`` would rank
        negative contributions first, and no positive scaling changes a rank. The default aggregate is the mean of the
        defined scores.

    Raises
    ------
    ValueError
        If labels are not 0 or 1, or `top_l` is not between 1 and the number of concepts; or with the importance
        "effect" if the model does not know the level of absent concepts.

    Notes
    -----
    The *effect* is (theta - mean of theta over the classes)(u - a), with a the absent level of each concept: the mean
    value of the training images without it (``model.absent_values``, which `captum_concepts.PostHocCBM.fit` sets), 0
    of probabilities, and where only their mean is known the mean of the training values (``model.mean_values``), which
    is linear SHAP. If the head is not linear, it is the difference of the head's output with the concept and at its
    level. Where a value lies below its level the effect counts by minus its size: an absence is no reason to name a
    concept. It does not change if predictions stay: under a constant added to a concept's values and taken off the
    head's bias, one vector added to all rows of the head, or values times a factor and their weights divided by it.
    Weight, value and contribution do.

    Higher is better. An image that shows fewer than `top_l` concepts cannot reach 1. Chance, in ``records[-1].chance``,
    is the mean density of the labels of the images scored. Images explained for one class are not independent (by
    weight they have the same first concepts, and labels are often given by class): ``records[-1].clusters`` holds
    their classes, for intervals. NaN, counted by reason in ``records[-1].reasons``: misclassified samples with
    `only_correct`, explanations that cannot be used, and those that are zero throughout, which rank no concept.
    Importances are compared in float32; a model in half precision gives other, coarser values, and with them ties. A
    model that always names the commonest concept has a high CEM (74 to 84 % on real birds) and a gain of 0; chance of
    the gain is 0. The paper's Table 1, ranked by contribution, correct class set: 55.4 %.

    Examples
    --------
    >>> import numpy as np
    >>> from torch import nn
    >>> from quantus_concepts import CEM
    >>> values = np.array([[3.0, 2.0, 1.0], [0.0, 1.0, 5.0]], dtype="float32")
    >>> metric = CEM(concept_labels=[[1, 0, 1], [1, 0, 0]], top_l=2)
    >>> metric(nn.Linear(3, 2), values, y_batch=np.array([0, 1]), a_batch=values)
    [0.5, 0.0]
    >>> metric.records[-1].chance
    0.5
    >>> CEM([[1, 0, 1], [1, 0, 0]], gain=True)(
    ...     nn.Linear(3, 2), values, y_batch=np.array([0, 1]), a_batch=values
    ... )
    [0.0, -1.0]
    """

    name = "CEM"
    score_direction = ScoreDirection.HIGHER
    evaluation_category = EvaluationCategory.NONE
    bounds = (0.0, 1.0)
    asks_concept_models = True
    sample_truth = ("concept_labels", "labels")
    needed = ("concept_labels",)
    family = ()
    # Each sample that is zero has its reason.
    zero_is_undefined = False
    #: "", or in place of the model's importance the commonest concepts of all samples, or of the true class.
    baseline = ""
    class_concepts: np.ndarray | None = None
    #: Whether `top_l` is one of the usual ones, which is left out where there are fewer concepts.
    usual_top: bool = False
    concept_labels: np.ndarray | None

    def __init__(
        self,
        concept_labels: Numbers | pd.DataFrame | None = None,
        top_l: int = 1,
        only_correct: bool = False,
        labels: Numbers | None = None,
        importance: str = "effect",
        gain: bool = False,
        **quantus: Unpack[QuantusArguments],
    ) -> None:
        """Bind the labels. A score of 1 says that all of the most important concepts are in the image.

        A score of 0 says that none is; a gain of 0, that they are there as often as in other images.
        """
        super().__init__(**quantus)
        check_choice("importance", importance, IMPORTANCES)
        self.top_l, self.only_correct = check_whole("top_l", top_l, 1), only_correct
        self.importance, self.gain = importance, gain
        if gain:
            self.bounds = (-1.0, 1.0)
        self._bind(concept_labels=concept_labels, labels=labels)

    def check_truth(self, name: str, value: Numbers) -> np.ndarray:
        """Return labels of concepts (N, L) or of classes (N,), or raise."""
        if name == "labels":
            return to_classes(name, value)
        labels = to_presence(name, value)
        if self.top_l > labels.shape[1]:
            raise ValueError(
                f"Expected argument `top_l` to be at most the number of concepts, {labels.shape[1]}, but got "
                f"{self.top_l}."
            )
        return labels

    def check_call(
        self, model: nn.Module | None, x_batch: np.ndarray, y_batch: np.ndarray, truth: Truth, explain: Explanations
    ) -> Truth:
        """Raise where it is not known which samples are correct."""
        if self.only_correct and model is None:
            raise ValueError("only_correct=True needs argument `model`, to know which samples are correct.")
        return truth

    @property
    def reads_correctness(self) -> bool:  # type: ignore[override]
        """Whether scores depend on which samples are classified correctly."""
        return self.only_correct

    @property
    def label(self) -> str:
        """What it is called in a table."""
        return col.CEM_GAIN if self.gain else self.name

    @classmethod
    def usual(cls, known: Known) -> Sequence[CEM]:
        """Return the usual variants for a table."""
        variants, metrics = known.variants, list[CEM]()
        for only_correct in (False, True):
            own = cls().vary(only_correct=only_correct)
            is_usual = variants.top_l == UsualMetrics.top_l
            by_top = [own.vary(top_l=top, usual_top=is_usual) for top in variants.top_l]
            of_all = [each.vary(importance=kind) for kind in variants.explanations for each in by_top]
            gains = [each.vary(gain=True, bounds=(-1.0, 1.0)) for each in of_all]
            others = [baseline for each in by_top for baseline in each.baselines(known)]
            recitals = [each for each in others if each.baseline == col.CLASS_RECITAL]
            metrics += [*of_all, *recitals, *gains, *(each for each in others if each not in recitals)]
        return metrics

    def missing(self, batch: Batch) -> str:
        """Return the name of what a stream does not have, "" for nothing."""
        too_few = self.usual_top and self.top_l > batch.values.shape[1]
        return super().missing(batch) or ("top_l" if too_few else "")

    def baselines(self, known: Known) -> Sequence[CEM]:
        """Return the commonest concepts of all samples, and those of the true class, in place of the model's."""
        training = known.truth("training_concepts")
        table = known.truth("class_concepts") if training is None else training
        if self.gain or not known.baselines:
            return ()
        other = self.vary(importance="", class_concepts=table)
        names = (col.COMMONEST_CONCEPT,) if table is None else (col.COMMONEST_CONCEPT, col.CLASS_RECITAL)
        return [other.vary(baseline=name) for name in names]

    @classmethod
    def observe(cls, metrics: Sequence[CEM], batch: Batch) -> Ranked:
        """Rank the concepts of some samples by their importances, given or computed from images."""
        labels, top = batch.truth["concept_labels"], max(metric.top_l for metric in metrics)
        kinds = tuple(dict.fromkeys(metric.importance for metric in metrics if not metric.baseline)) or IMPORTANCES[:1]
        found = batch.importance(kinds, labels.shape[1], "concept_labels")
        if batch.has_concepts:
            check_concept_count("concept_labels", "(N, L)", labels, found.values.shape[2])
        ones, n_shown = batch.prepared_truth("shows", "concept_labels", found.values.device, labels_shown)
        _check_tops(top, labels.shape[1])
        order, largest = found.order[..., :top], found.norms
        correct = batch.correct.to(order.device) if any(metric.only_correct for metric in metrics) else None
        counts = None
        if any(metric.gain or metric.baseline == col.COMMONEST_CONCEPT for metric in metrics):
            scored = torch.cat([largest > 0, ones[None, :, -1] > 0])
            # How many of the scored samples show each concept, and how many they are; below 2^24 exactly.
            counts = (torch.stack([scored, scored if correct is None else scored & correct]).float() @ ones).long()
        recital = next((metric for metric in metrics if metric.baseline == col.CLASS_RECITAL), None)
        if recital is not None:
            # Ranked where they are: on the host.
            theirs = torch.as_tensor(recital.class_concepts)[batch.true_classes.cpu()][None]
            kinds, order = (*kinds, col.CLASS_RECITAL), torch.cat([order, rank_concepts(theirs, top).to(order.device)])
            largest = torch.cat([largest, torch.linalg.vector_norm(theirs, torch.inf, 2).to(largest)])
        return Ranked(
            kinds=kinds,
            presence=ones.expand(len(kinds), -1, -1).gather(2, order).transpose(0, 1).to(torch.int8),
            order=order.transpose(0, 1).to(torch.int32),
            norms=largest.T,
            correct=correct,
            n_shown=n_shown,
            clusters=batch.clusters,
            labels=None if recital is None else batch.true_classes.int(),
            counts=counts,
            n_concepts=labels.shape[1],
            reason=found.reason,
            explained=found.explained,
            n_wrong=None if correct is None else batch.n_wrong,
        )

    def finish(self, observed: Ranked) -> Result:
        """Return the scores, or the gains over the prevalence in all batches."""
        kind, n, correct = self.baseline or self.importance, observed.n_samples, self.only_correct
        if kind == col.COMMONEST_CONCEPT:
            return self._commonest(observed)
        place, chance = observed.kinds.index(kind), observed.density
        presence = observed.shown(place, correct)[:, : self.top_l]
        scores, norms = presence.mean(1).double(), observed.norms[:, place]
        first_scores = scores
        if self.gain:
            counts = cast(Tensor, observed.counts)[int(correct), place]
            order = observed.order[:, place, : self.top_l].long()
            scores = gain_over_others(presence.double(), order, counts[:-1], counts[-1])
            chance = np.zeros(n)
        clusters = cast(Tensor, observed.labels if self.baseline else observed.clusters)

        def reasons() -> dict[str, Counted]:
            masks = {"the model's importances are NaN": norms.isnan()} if observed.explained is None else {}
            masks[ZERO] = norms == 0
            if correct:
                masks["they are misclassified"] = ~cast(Tensor, observed.correct)
            masks["no other sample has a score"] = scores.isnan() & ~first_scores.isnan()
            return counted(masks, n, observed.reason)

        return Result(scores.numpy(), reasons, chance=chance, clusters=clusters.numpy())

    def _commonest(self, observed: Ranked) -> Result:
        """Return CEM of the l commonest concepts, named for all samples."""
        chance = observed.density[cast(Tensor, observed.correct).numpy()] if self.only_correct else observed.density
        counts = cast(Tensor, observed.counts)[int(self.only_correct), -1]
        shown, n = counts[:-1].sort(descending=True).values[: self.top_l], int(counts[-1])
        value = int(shown.sum()) / (self.top_l * n) if n else math.nan
        summary = {"value": value, "n": n, "undefined": observed.n_samples - n}
        return Result(np.empty(0), {}, chance=nanmean(chance), summary=summary)


def _check_tops(top: int, n_concepts: int) -> None:
    """Raise for an l that is larger than the number of concepts."""
    if top > n_concepts:
        fitting = [usual for usual in UsualMetrics().top_l if usual <= n_concepts]
        raise ValueError(
            f"Expected argument `top_l` to lie in [1, {n_concepts}] but got {top}. Pass CEM(top_l={n_concepts}), or "
            f"UsualMetrics(top_l={fitting}) to `score_concepts` as `metrics`."
        )
