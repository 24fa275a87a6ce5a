"""Leakage of concept models: what values say about classes, and about other concepts, beyond their own concept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from captum_concepts.support.checks import check_whole
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
from quantus_concepts.metrics.host.batch import Batch
from quantus_concepts.metrics.host.observing import Counted, Observed, Observer, Result, Scored

#: Draws of the null distribution for each random bank, which has no p-value: enough for a mean.
_DRAWS_OF_BANKS = 3
NOT_FINITE = "a concept value is not finite"
#: What follows the name of a metric in the rows that say which share of wrong labels would explain it.
AS_WRONG_LABELS = "as wrong labels"
UNIQUE_CONCEPTS = "images with unique concepts"


@dataclass(frozen=True)
class ValuesAndTruth(Observed):
    """Concept values (n, L), true concepts (n, L) and classes (n,) of some samples."""

    values: Tensor
    concepts: Tensor
    labels: Tensor

    def finite(self) -> tuple[ValuesAndTruth, dict[str, Counted]]:
        """Return the samples whose values are finite, and how many are left out."""
        finite = self.values.isfinite().all(1)
        left_out = Counted(int((~finite).sum()), len(finite))
        rows = (part[finite] for part in (self.values, self.concepts, self.labels))
        return ValuesAndTruth(*rows), {NOT_FINITE: left_out} if left_out.n else {}


class ConceptTaskLeakage(Observer):
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

    Raises
    ------
    ValueError
        If a number is too small.

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
    >>> table["value"][0].item()
    0.0
    """

    name = "concept-task leakage"
    bounds = (-1.0, 1.0)
    of_samples = only_correct = False
    per = "concept"
    sample_truth = needed = ("concept_labels",)

    def __init__(self, n_bins: int = 8, n_permutations: int = 39, seed: int = 0) -> None:
        self.n_bins, self.seed = check_whole("n_bins", n_bins, 2), check_whole("seed", seed, 0)
        self.n_permutations = check_whole("n_permutations", n_permutations, 1)

    def for_model(self, name: str, model: Any, control: int | None) -> Self:
        """Return the same; for a random bank with a few draws and without p."""
        return self if control is None else self.vary(n_permutations=_DRAWS_OF_BANKS)

    @classmethod
    def observe(cls, metrics: Sequence[Self], batch: Batch) -> ValuesAndTruth:
        """Keep the values of some samples."""
        concepts = (batch.tensor("concept_labels") > 0.5).to(torch.uint8)
        return ValuesAndTruth(batch.values.float(), concepts, batch.labels)

    def leakage(self, seen: ValuesAndTruth) -> tuple[Leakage, np.ndarray, np.ndarray, float]:
        """Return the leakage with scores and p of each concept (L,), and the mean."""
        drawn = (self.n_bins, self.n_permutations, self.seed)
        leakage = concept_task_leakage(seen.values, seen.labels, seen.concepts, *drawn)
        scores = leakage.scores.double().numpy()
        return leakage, scores, leakage.p.double().numpy(), float(scores.mean())

    def numbers(self, observed: ValuesAndTruth) -> list[tuple[dict[str, Any], Result]]:
        """Return leakage and p of all concepts and of each."""
        seen, reasons = observed.finite()
        if not len(seen.values):
            return [(self.fields(), Result(np.full(observed.values.shape[1], np.nan), reasons))]
        leakage, scores, p, mean = self.leakage(seen)
        count = {"n": int(np.isfinite(scores).sum()), "undefined": int(np.isnan(scores).sum())}
        rows = [(self.fields(), Result(scores, reasons, summary=count | {"value": mean}))]
        if self.n_permutations > _DRAWS_OF_BANKS:
            p = np.where(np.isnan(scores), np.nan, p)
            own = Result(p, reasons, summary=count | {"value": leakage.mean_p if count["n"] else np.nan})
            rows.append((self.fields() | {"metric": f"{self.name} p"}, own))
            rows += self.as_wrong_labels(seen, mean)
        return rows

    def as_wrong_labels(self, seen: ValuesAndTruth, leakage: float) -> list[tuple[dict[str, Any], Result]]:
        """Return the row of the share of wrong labels that would give as much leakage."""
        share = noise_equivalent(seen.values, seen.labels, seen.concepts, leakage, self.n_bins)
        return [_share_row(f"{self.name} {AS_WRONG_LABELS}", share)]


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

    Raises
    ------
    ValueError
        If a number is too small.

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

    def leakage(self, seen: ValuesAndTruth) -> tuple[Leakage, np.ndarray, np.ndarray, float]:
        """Return the leakage with scores and p of each concept (L,), and the mean."""
        drawn = (self.n_bins, self.n_permutations, self.seed)
        leakage = interconcept_leakage(seen.values, seen.concepts, *drawn)
        pairs = len(leakage.p) - 1
        smallest = (leakage.p.amin(1) * max(1, pairs)).clamp(max=1)
        scores = leakage.scores.double()
        return leakage, scores.nanmean(1).numpy(), smallest.double().numpy(), float(scores.nanmean())

    def as_wrong_labels(self, seen: ValuesAndTruth, leakage: float) -> list[tuple[dict[str, Any], Result]]:
        """Return nothing: it is not known."""
        return []


class ConceptSetCeiling(Observer):
    """Whether the best head on the *true* concepts is right: the commonest class of the images with the same concepts.

    The row "concept-set ceiling" is `functional.concept_set_ceiling`, the best accuracy that the labelled concepts
    allow. It is the same for every model. One whose accuracy is higher leaks, or labels are wrong: the row
    "concept-set ceiling as wrong labels" is the share of them that would explain its accuracy
    (`functional.ceiling_noise_equivalent`), .3 also for what is beyond. "images with unique concepts" is the share of
    images whose concepts no other image has; above a quarter the ceiling says nothing about the accuracy, and the row
    before is NaN. Classes that are equally common share the hit, so that each image has a score, and `compare` holds it
    against the accuracy.

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
    sample_truth = needed = ("concept_labels",)

    def for_model(self, name: str, model: Any, control: int | None) -> Self | None:
        """Return the same; nothing for random banks, which have the same truth."""
        return self if control is None else None

    @classmethod
    def observe(cls, metrics: Sequence[Self], batch: Batch) -> ValuesAndTruth:
        """Keep the truth of some samples."""
        concepts = (batch.tensor("concept_labels") > 0.5).to(torch.uint8)
        right = batch.predicted == batch.labels.to(batch.predicted.device)
        return ValuesAndTruth(right[:, None].float(), concepts, batch.labels)

    def finish(self, observed: ValuesAndTruth) -> Result:
        """Return the score of each image."""
        hits = commonest_classes(observed.concepts, observed.labels)
        return replace(super().finish(Scored(hits)), clusters=observed.labels.numpy())

    def numbers(self, observed: ValuesAndTruth) -> list[tuple[dict[str, Any], Result]]:
        """Return the ceiling, the share of wrong labels that explains the accuracy, and that of unique concepts."""
        accuracy, unique = float(observed.values.mean()), unique_share(observed.concepts)
        share = ceiling_noise_equivalent(observed.concepts, observed.labels, accuracy)
        reason = (
            f"{100 * unique:.0f} % of the images have concepts that no other image has, above {100 * MOST_UNIQUE:g} %"
        )
        return [
            *super().numbers(observed),
            _share_row(f"{self.name} {AS_WRONG_LABELS}", share, reason),
            _share_row(UNIQUE_CONCEPTS, unique),
        ]


def _share_row(metric: str, share: float, reason: str = "") -> tuple[dict[str, Any], Result]:
    """Return the row of one share; the largest that is considered stands for an infinite one, which has no mean."""
    undefined = int(np.isnan(share))
    if np.isinf(share):
        share, reason = MOST_WRONG, f"beyond {100 * MOST_WRONG:.0f} % wrong labels"
    elif not undefined:
        reason = ""
    summary = {"value": share, "n": 1 - undefined, "undefined": undefined, "reason": reason}
    return {"metric": metric}, Result(np.empty(0), {}, summary=summary)
