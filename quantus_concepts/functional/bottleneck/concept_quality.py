"""Concept quality: how well values name their concepts, by average precision, F1, Brier score and calibration."""

from __future__ import annotations

import torch
from torch import Tensor

from captum_concepts.support.checks import check_choice, check_range, check_whole
from captum_concepts.support.running import widest_float
from quantus_concepts.functional.arguments import Numbers, check_within
from quantus_concepts.functional.bottleneck.leakage import discretise
from quantus_concepts.functional.concepts.concept_auc import checked_values

AVERAGE_PRECISION, F1, BRIER, CALIBRATION_ERROR = "average_precision", "f1", "brier", "calibration_error"
QUALITIES = (AVERAGE_PRECISION, F1, BRIER, CALIBRATION_ERROR)
#: Scores of probabilities, which are best at 0; the others need images with the concept and without it.
OF_PROBABILITIES = (BRIER, CALIBRATION_ERROR)
#: So many numbers are scored at a time.
_AT_A_TIME = 2**20


@torch.no_grad()
def concept_quality(
    values: Numbers,
    concepts: Numbers,
    score: str = AVERAGE_PRECISION,
    threshold: float = 0.5,
    n_bins: int = 15,
) -> Tensor:
    r"""Return how well the values of each concept name the images that show it, by one of four scores.

    - "average_precision": over thresholds from high to low, the precision weighted with the recall gained; equal values
      are one threshold (as scikit-learn's). 1 is best; a value that is the same for all images has the prevalence.
    - "f1": of "present" from the threshold on, with images that show a concept and others weighted alike,
      :math:`2 t / (1 + t + f)` with the rates t of hits and f of false alarms. 1 is best; a guess that says "present"
      as often, :math:`q = (t + f) / 2`, has :math:`2 q / (1 + 2 q)`.
    - "brier": mean squared difference of probability and label (Brier 1950). 0 is best; the prevalence p for all images
      has p (1 - p).
    - "calibration_error": in bins of equal frequency, the difference of mean probability and share of images that show
      the concept, weighted with the images of the bin (expected calibration error). 0 is best, which the prevalence for
      all images has too: it does not ask whether a value knows its concept. Of few images in a bin noise remains.

    Parameters
    ----------
    values : array_like
        (N, L) concept values; of "brier" and "calibration_error" probabilities.
    concepts : array_like
        (N, L) of 0/1, the true concepts.
    score : str
        One of the four.
    threshold : float
        Value from which on a concept is present, for "f1".
    n_bins : int
        Bins of "calibration_error". Equal values share one.

    Returns
    -------
    Tensor
        (L,) on the device of `values`. NaN for a concept with a value that is NaN, and, of "average_precision" and
        "f1", for a concept that all images show or none.

    Raises
    ------
    ValueError
        If shapes do not match, concepts are not 0/1, probabilities are not in [0, 1], or `score`, `threshold` or
        `n_bins` is out of its range.

    Examples
    --------
    >>> from quantus_concepts.functional import concept_quality
    >>> values, concepts = [[0.1], [0.4], [0.6], [0.9]], [[0], [1], [0], [1]]
    >>> concept_quality(values, concepts).tolist()  # 1/2 (1 / 1) + 1/2 (2 / 3)
    [0.8333333333333333]
    >>> concept_quality(values, concepts, "f1").tolist()
    [0.5]
    >>> round(concept_quality(values, concepts, "brier").item(), 4)
    0.185
    >>> round(concept_quality(values, concepts, "calibration_error", n_bins=2).item(), 4)
    0.25
    """
    values, shown = checked_quality(values, concepts, score, threshold, n_bins)
    weights = torch.ones(values.shape[1], dtype=widest_float(values.device), device=values.device)
    parts = [weighted_quality(*part, weights, score, threshold, n_bins) for part in concept_chunks(values, shown)]
    scores = torch.cat(parts) if parts else weights.new_zeros(0)
    return scores.masked_fill(~defined_concepts(values, shown, score), torch.nan)


@torch.no_grad()
def chance_quality(values: Tensor, concepts: Tensor, score: str, threshold: float = 0.5) -> Tensor:
    """Return the score (L,) of values that know nothing, as `concept_quality` says it; NaN for calibration error."""
    values, shown = checked_quality(values, concepts, score, threshold, 2)
    wide = widest_float(values.device)
    prevalence = shown.to(wide).mean(1)
    if score == F1:
        named = (values >= threshold).to(wide)
        rate = ((named * shown).sum(1) / shown.sum(1) + (named * ~shown).sum(1) / (~shown).sum(1)) / 2
        return 2 * rate / (1 + 2 * rate)
    if score == CALIBRATION_ERROR:
        return torch.full_like(prevalence, torch.nan)
    return prevalence if score == AVERAGE_PRECISION else prevalence * (1 - prevalence)


def checked_quality(
    values: Numbers, concepts: Numbers, score: str, threshold: float, n_bins: int
) -> tuple[Tensor, Tensor]:
    """Return values and whether concepts are shown, (L, N) both, or raise."""
    check_choice("score", score, QUALITIES)
    check_range("threshold", threshold, -torch.inf, torch.inf, open_low=True, open_high=True)
    check_whole("n_bins", n_bins, 2)
    values, shown, n = checked_values(values, concepts)
    if values.ndim != 2 or not n:
        raise ValueError(f"Expected argument `values` to be (N, L) with at least one row but got {values.mT.shape}.")
    if score in OF_PROBABILITIES:
        check_within("values", values, 0.0, 1.0, nan=True, remedy=f"{score!r} is of probabilities.")
    return values, shown


def defined_concepts(values: Tensor, shown: Tensor, score: str) -> Tensor:
    """Return which concepts (L,) have a score."""
    known = ~values.isnan().any(1)
    return known if score in OF_PROBABILITIES else known & shown.any(1) & ~shown.all(1)


def concept_chunks(values: Tensor, shown: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Return values and labels (l, N) of some concepts at a time."""
    size = max(1, _AT_A_TIME // values.shape[1])
    return list(zip(values.split(size), shown.split(size), strict=True))


def weighted_quality(
    values: Tensor, shown: Tensor, weights: Tensor, score: str, threshold: float, n_bins: int
) -> Tensor:
    """Return the score of each concept (l,) of values (l, N), differentiable by the weights (N,) of the images."""
    wide = weights.dtype
    labels = shown.to(wide)
    if score == AVERAGE_PRECISION:
        ordered, order = values.contiguous().sort(1)
        first = torch.searchsorted(ordered, ordered)
        of_images, of_shown = weights[order], weights[order] * labels.gather(1, order)
        # Of all images whose value is as high.
        named, hits = (_up_to_the_last(part).gather(1, first) for part in (of_images, of_shown))
        return (of_shown * hits / named).sum(1) / of_shown.sum(1)
    if score == F1:
        named = (values >= threshold).to(wide)
        hits = (named * labels) @ weights / (labels @ weights)
        false_alarms = (named * (1 - labels)) @ weights / ((1 - labels) @ weights)
        return 2 * hits / (1 + hits + false_alarms)
    off = values.to(wide) - labels
    if score == BRIER:
        return off**2 @ weights / weights.sum()
    sums = weights.new_zeros(len(values), n_bins).scatter_add(1, discretise(values, n_bins), off * weights)
    return sums.abs().sum(1) / weights.sum()


def _up_to_the_last(values: Tensor) -> Tensor:
    """Return the sum of each entry and all after it along the second axis."""
    return values.flip(1).cumsum(1).flip(1)
