"""Leakage of concept models: what values say about classes, and about other concepts, beyond their own concept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack, cast

import numpy as np
import torch
from quantus.helpers.enums import EvaluationCategory, ScoreDirection
from torch import Tensor

from captum_concepts.support.checks import check_whole, to_presence
from quantus_concepts.functional.arguments import Numbers
from quantus_concepts.functional.bottleneck.leakage import (
    Leakage,
    commonest_classes,
    concept_task_leakage,
    interconcept_leakage,
)
from quantus_concepts.functional.bottleneck.wrong_labels import (
    MOST_UNIQUE,
    MOST_WRONG,
    ceiling_noise_equivalent,
    noise_equivalent,
    unique_share,
)
from quantus_concepts.metrics.host.checks import to_classes
from quantus_concepts.metrics.host.concept_metric import ConceptMetric
from quantus_concepts.metrics.host.predictions import ConceptPredictions
from quantus_concepts.metrics.host.record import QuantusArguments
from quantus_concepts.metrics.host.scores import Counted, Counts, MetricScores

#: Draws of the null distribution for each random bank, which has no p-value: enough for a mean.
_DRAWS_OF_BANKS = 3
NOT_FINITE = "a concept value is not finite"
ONE_CLASS = "all images are of one class"
NO_PAIR = "the value, or that of every other concept, does not vary"
#: What follows the name of a metric in the rows that say which share of wrong labels would explain it.
AS_WRONG_LABELS = "as wrong labels"
UNIQUE_CONCEPTS = "images with unique concepts"


class OfValues(ConceptMetric):
    """Base of the metrics of concept values and true classes, into which no explanation enters."""

    evaluation_category = EvaluationCategory.NONE
    bounds = (0.0, 1.0)
    sample_truth: tuple[str, ...] = ("concept_labels", "labels")
    needed: tuple[str, ...] = ("concept_labels",)
    #: True classes are those of the samples and not those predicted.
    reads_correctness = True

    def check_truth(self, name: str, value: Any) -> np.ndarray:
        """Return labels of concepts (N, L), or classes (N,), or raise."""
        return to_presence(name, value) if name == "concept_labels" else to_classes(name, value)


def true_concepts(rows: ConceptPredictions) -> Tensor:
    """Return true concepts (N, L), 0 or 1."""
    return (rows.truth["concept_labels"] > 0.5).to(torch.uint8)


def finite_values(rows: ConceptPredictions) -> tuple[Tensor, Tensor, Counts]:
    """Return finite concept values (n, L), where they are (N,), and how many are left out."""
    values = cast(Tensor, rows.values)
    finite = values.isfinite().all(1)
    left_out = Counted(int((~finite).sum()), len(finite))
    return values[finite].float(), finite, {NOT_FINITE: left_out} if left_out.n else {}


class ConceptTaskLeakage(OfValues):
    """How much each concept value says about the class that its true concept does not: CTL.

    The rows "concept-task leakage" are `functional.concept_task_leakage` of all images, the mean over concepts and that
    of each, 0 on average without leakage; "concept-task leakage p" are the p-values of its permutation test, in which
    the values of images with the same true concept change places. Its random range is that of random banks.

    Wrong concept labels look like leakage. "concept-task leakage as wrong labels" is the share of them that would give
    as much with an honest model (`functional.noise_equivalent`), .3 also for what is beyond. A small one does not
    exclude a small leak.

    Parameters
    ----------
    n_bins : int
        Bins of equal frequency of a value.
    n_permutations : int
        Draws of the null distribution; the smallest p is ``1 / (n_permutations + 1)``.
    seed : int
        Random seed of the draws.
    concept_labels : array_like, optional
        (N, L) of 0 and 1: the true concepts of the samples of a call. Batches, or the `truth` of `score_concepts`, may
        have them under this name.
    labels : array_like, optional
        (N,) true classes; ``y_batch`` of a call if None.
    **quantus : Unpack[QuantusArguments]
        What every Quantus metric takes, by keyword; no attribution enters.

    Raises
    ------
    ValueError
        If a number is too small, or labels are not 0 or 1.

    Notes
    -----
    Lower is better; scores are about concepts. A call of Quantus gives the score of each concept, of images with a
    concept model, or at the bottleneck of concept values (N, L) with the head as ``model``; the explanation method
    plays no role.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from captum_concepts import ConceptBank, PostHocCBM
    >>> from quantus_concepts import ConceptTaskLeakage, score_concepts
    >>> classes = torch.arange(60) % 3
    >>> concepts = nn.functional.one_hot(classes, 3)
    >>> head = nn.Linear(3, 3)
    >>> model = PostHocCBM(nn.Identity(), ConceptBank(torch.eye(3)), head, values="raw")
    >>> batches = [(concepts.float(), classes, concepts)]
    >>> table = score_concepts(model, batches, metrics=[ConceptTaskLeakage(n_permutations=99)])
    >>> abs(round(table["value"][0].item(), 3))
    0.0
    """

    name = "concept-task leakage"
    why_undefined = ONE_CLASS
    score_direction = ScoreDirection.LOWER
    bounds = (-1.0, 1.0)
    of_samples = False

    def __init__(
        self,
        n_bins: int = 8,
        n_permutations: int = 39,
        seed: int = 0,
        concept_labels: Numbers | None = None,
        labels: Numbers | None = None,
        **quantus: Unpack[QuantusArguments],
    ) -> None:
        """Set bins and draws. A score of 1 says that a value tells all of the class that its concept does not.

        A score of 0 says that it tells no more than the concept does.
        """
        super().__init__(**quantus)
        self.n_bins, self.seed = check_whole("n_bins", n_bins, 2), check_whole("seed", seed, 0)
        self.n_permutations = check_whole("n_permutations", n_permutations, 1)
        self._bind(concept_labels=concept_labels, labels=labels)

    def for_model(self, name: str, rows: ConceptPredictions, control: int | None) -> ConceptTaskLeakage:
        """Return the same; for a random bank with a few draws and without p."""
        return self if control is None else self.vary(n_permutations=_DRAWS_OF_BANKS)

    def leakage(
        self, values: Tensor, concepts: Tensor, labels: Tensor
    ) -> tuple[Leakage, np.ndarray, np.ndarray, float]:
        """Return the leakage with scores and p of each concept (L,), and the mean."""
        leakage = concept_task_leakage(values, labels, concepts, self.n_bins, self.n_permutations, self.seed)
        scores = leakage.scores.double().numpy()
        return leakage, scores, leakage.p.double().numpy(), float(scores.mean())

    def table_scores(self, rows: ConceptPredictions) -> Sequence[MetricScores]:
        """Return leakage and p, and the share of wrong labels that would give as much leakage."""
        found = self.score_rows(rows)
        return [found] if len(found.fields) < 2 else [found, *self.as_wrong_labels(rows, float(found.means[0][0]))]

    def as_wrong_labels(self, rows: ConceptPredictions, leakage: float) -> list[MetricScores]:
        """Return the share of wrong labels that would give as much leakage."""
        values, finite, _ = finite_values(rows)
        concepts, labels = true_concepts(rows)[finite], rows.labels[finite]
        share = noise_equivalent(values, labels, concepts, leakage, self.n_bins)
        return [_share(f"{self.name} {AS_WRONG_LABELS}", share)]

    def score_rows(self, rows: ConceptPredictions) -> MetricScores:
        """Return the leakage of each concept and, with enough draws, its p."""
        values, finite, reasons = finite_values(rows)
        names = [self.name, f"{self.name} p"] if self.n_permutations > _DRAWS_OF_BANKS and len(values) else [self.name]
        numbers, totals = np.full((rows.shape[1], len(names)), np.nan), None
        if len(values):
            leakage, scores, p, mean = self.leakage(values, true_concepts(rows)[finite], rows.labels[finite])
            undefined = np.isnan(scores)
            if undefined.any():
                reasons |= {self.why_undefined: Counted(int(undefined.sum()), len(scores), "concepts")}
            numbers = np.stack([scores, np.where(undefined, np.nan, p)][: len(names)], 1)
            totals = [mean, np.nan if undefined.all() else leakage.mean_p][: len(names)]
        fields = [{"metric": name, "item_kind": "concept"} for name in names]
        return MetricScores(fields, numbers, bounds=self.bounds, reasons=lambda _: reasons, totals=totals)


class InterconceptLeakage(ConceptTaskLeakage):
    """How much two concept values say about each other beyond their true concepts: ICL.

    The rows "inter-concept leakage" are `functional.interconcept_leakage` of all images: the mean over pairs, and that
    of the pairs of each concept; "inter-concept leakage p" is that of the mean, and the smallest of the pairs of each
    concept, times their number. Wrong concept labels look like this leakage, too; which share would give as much is not
    known.

    Parameters
    ----------
    n_bins : int
        As in `ConceptTaskLeakage`, like the others.
    n_permutations : int
        Draws of the null distribution.
    seed : int
        Random seed of the draws.
    concept_labels : array_like, optional
        (N, L) of 0 and 1: the true concepts of the samples of a call. Batches, or the `truth` of `score_concepts`, may
        have them under this name.
    labels : array_like, optional
        (N,) true classes; ``y_batch`` of a call if None.
    **quantus : Unpack[QuantusArguments]
        What every Quantus metric takes, by keyword; no attribution enters.

    Raises
    ------
    ValueError
        If a number is too small, or labels are not 0 or 1.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from captum_concepts import ConceptBank, PostHocCBM
    >>> from quantus_concepts import InterconceptLeakage, score_concepts
    >>> classes = torch.arange(60) % 3
    >>> concepts = nn.functional.one_hot(classes, 3)
    >>> head = nn.Linear(3, 3)
    >>> model = PostHocCBM(nn.Identity(), ConceptBank(torch.eye(3)), head, values="raw")
    >>> batches = [(concepts.float(), classes, concepts)]
    >>> table = score_concepts(model, batches, metrics=[InterconceptLeakage()])
    >>> abs(round(table["value"][0].item(), 3))
    0.0
    """

    name = "inter-concept leakage"
    why_undefined = NO_PAIR

    def leakage(
        self, values: Tensor, concepts: Tensor, labels: Tensor
    ) -> tuple[Leakage, np.ndarray, np.ndarray, float]:
        """Return the leakage with scores and p of each concept (L,), and the mean."""
        leakage = interconcept_leakage(values, concepts, self.n_bins, self.n_permutations, self.seed)
        pairs = len(leakage.p) - 1
        smallest = (leakage.p.amin(1) * max(1, pairs)).clamp(max=1)
        scores = leakage.scores.double()
        return leakage, scores.nanmean(1).numpy(), smallest.double().numpy(), float(scores.nanmean())

    def as_wrong_labels(self, rows: ConceptPredictions, leakage: float) -> list[MetricScores]:
        """Return nothing: it is not known."""
        return []


class ConceptSetCeiling(OfValues):
    """Whether the best head on the *true* concepts is right: the commonest class of the images with the same concepts.

    The row "concept-set ceiling" is `functional.concept_set_ceiling`, the best accuracy that the labelled concepts
    allow. It is the same for every model. One whose accuracy is higher leaks, or labels are wrong: the row
    "concept-set ceiling as wrong labels" is the share of them that would explain its accuracy
    (`functional.ceiling_noise_equivalent`), .3 also for what is beyond. "images with unique concepts" is the share of
    images whose concepts no other image has; above a quarter the ceiling is no limit on accuracy, and the row
    before is NaN. Classes that are equally common share the hit, so that each image has a score, and `compare` holds it
    against the accuracy.

    Parameters
    ----------
    concept_labels : array_like, optional
        (N, L) of 0 and 1: the true concepts of the samples of a call. Batches, or the `truth` of `score_concepts`, may
        have them under this name.
    labels : array_like, optional
        (N,) true classes; ``y_batch`` of a call if None.
    **quantus : Unpack[QuantusArguments]
        What every Quantus metric takes, by keyword; no attribution enters.

    Raises
    ------
    ValueError
        If labels are not 0 or 1.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from captum_concepts import ConceptBank, PostHocCBM
    >>> from quantus_concepts import ConceptSetCeiling, score_concepts
    >>> classes = torch.arange(60) % 3
    >>> concepts = nn.functional.one_hot(classes, 3)
    >>> head = nn.Linear(3, 3)
    >>> model = PostHocCBM(nn.Identity(), ConceptBank(torch.eye(3)), head, values="raw")
    >>> batches = [(concepts.float(), classes, concepts)]
    >>> table = score_concepts(model, batches, metrics=[ConceptSetCeiling()])
    >>> table["value"][0].item()
    1.0
    """

    name = "concept-set ceiling"
    score_direction = ScoreDirection.HIGHER

    def __init__(
        self,
        concept_labels: Numbers | None = None,
        labels: Numbers | None = None,
        **quantus: Unpack[QuantusArguments],
    ) -> None:
        """Bind the labels. A score of 1 says that true concepts tell the class of every image.

        A score of 0 says that they point to another one.
        """
        super().__init__(**quantus)
        self._bind(concept_labels=concept_labels, labels=labels)

    def for_model(self, name: str, rows: ConceptPredictions, control: int | None) -> ConceptSetCeiling | None:
        """Return the same; nothing for random banks, which have the same truth."""
        return self if control is None else None

    def score_rows(self, rows: ConceptPredictions) -> MetricScores:
        """Return the score of each image."""
        hits = commonest_classes(true_concepts(rows), rows.labels).double().numpy()
        return MetricScores([{"metric": self.name}], hits[:, None], clusters=rows.labels.numpy())

    def table_scores(self, rows: ConceptPredictions) -> Sequence[MetricScores]:
        """Return the ceiling, the share of wrong labels that explains the accuracy, and that of unique concepts."""
        concepts, accuracy = true_concepts(rows), float(rows.correct.float().mean())
        unique, share = unique_share(concepts), ceiling_noise_equivalent(concepts, rows.labels, accuracy)
        reason = (
            f"{100 * unique:.0f} % of the images have concepts that no other image has, above {100 * MOST_UNIQUE:g} %"
        )
        wrong = _share(f"{self.name} {AS_WRONG_LABELS}", share, reason)
        return [self.score_rows(rows), wrong, _share(UNIQUE_CONCEPTS, unique)]


def _share(metric: str, share: float, reason: str = "") -> MetricScores:
    """Return one share; the largest that is considered stands for an infinite one, which has no mean."""
    if np.isinf(share):
        share, reason = MOST_WRONG, f"beyond {100 * MOST_WRONG:.0f} % wrong labels"
    elif not np.isnan(share):
        reason = ""
    return MetricScores([{"metric": metric}], np.array([[share]]), intervals=False, note=reason)
