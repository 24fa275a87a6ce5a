"""Intervals of means over concepts by leaving out one class at a time: of CGIM, concept AUC and concept quality."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from captum_concepts.support.checks import check_axes
from captum_concepts.support.running import widest_float
from quantus_concepts.functional.arguments import Numbers, to_floats
from quantus_concepts.functional.bottleneck.concept_quality import (
    AVERAGE_PRECISION,
    checked_quality,
    concept_chunks,
    defined_concepts,
    weighted_quality,
)
from quantus_concepts.functional.concepts.cgim import cgim, compared_side
from quantus_concepts.functional.concepts.concept_auc import (
    checked_values,
    class_members,
    concepts_at_once,
    others_below,
    pairs_won,
    pairs_won_by_class,
    ranked,
    share_won,
    sums_by_class,
)
from quantus_concepts.functional.statistics.intervals import clipped_interval, jackknife_estimate, wilson

#: Share of a sum of squares that is left without a class, below which it is summed again.
_LOST = 1e-3


@torch.no_grad()
def cgim_interval(
    importance: Numbers, class_concepts: Numbers, per: str = "concept", centred: bool = True
) -> tuple[float, float]:
    """Return the 95 % interval of a mean CGIM by the delete-one-class jackknife, with K - 1 degrees of freedom.

    As in `cgim_difference`: the scores of concepts share their classes, which are the sample.

    Parameters
    ----------
    importance : array_like
        (K, L) importance, as in `cgim`.
    class_concepts : array_like
        (K, L) in [0, 1].
    per : str
        "concept" or "class": which scores are averaged.
    centred : bool
        Whether it is of the correlation, in place of the paper's cosine.

    Returns
    -------
    tuple of float
        Low and high, within [-1, 1]; NaN for fewer than three classes with an importance, if no score is defined any
        more without one of them, and if the mean is the same without any. Where all scores are 1, or -1, it is Wilson's
        interval of as many classes.

    Raises
    ------
    ValueError
        As `cgim`.

    Examples
    --------
    >>> import torch
    >>> from quantus_concepts.functional import cgim_interval
    >>> truth = torch.tensor([[1.0, 0.0], [0.8, 0.3], [0.1, 0.9], [0.0, 1.0]])
    >>> noise = torch.tensor([[0.3, 0.1], [-0.4, 0.2], [0.2, -0.3], [0.4, 0.3]])
    >>> low, high = cgim_interval(truth + noise, truth)
    >>> round(low, 2), round(high, 2)
    (0.02, 1.0)
    """
    own, truth = to_floats("importance", importance), to_floats("class_concepts", class_concepts)
    check_axes(importance=(own, "K L"), class_concepts=(truth, "K L"))
    own, truth = own.cpu().double(), truth.cpu().double()
    scored = ~own.isnan().any(-1)
    own, truth = own[scored], truth[scored]
    value = float(cgim(own, truth, per, centred).nanmean())
    if len(own) < 3 or math.isnan(value):
        return math.nan, math.nan
    estimate = jackknife_estimate(value, _cgim_without(own, truth, per, centred).numpy())
    # What is left of equal numbers is rounding.
    is_equal = estimate.variance <= 1e-24
    if is_equal and abs(value) > 1 - 1e-9:
        # No spread: so many classes agree.
        return wilson(float(round(value)), len(own), (-1.0, 1.0))
    if math.isnan(estimate.variance) or is_equal:
        return math.nan, math.nan
    return clipped_interval(value, math.sqrt(estimate.variance), estimate.freedom, (-1.0, 1.0))


def _cgim_without(own: Tensor, truth: Tensor, per: str, centred: bool) -> Tensor:
    """Return the mean CGIM (K,) without each class: by sums, since computing it again K times takes K (K L)."""
    if per == "class":
        # Of each class by itself.
        scores = cgim(own, truth, per, centred)
        defined = ~scores.isnan()
        return (scores.nansum() - scores.nan_to_num()) / (defined.sum() - defined.int())
    n_classes, none_missing = len(own), torch.zeros(len(own), 1, dtype=torch.bool)
    sides = [compared_side(of, none_missing, -2, centred) for of in (own, truth)]
    sides = [of / torch.where((top := of.abs().amax(0)) > 0, top, 1.0) for of in sides]
    # Without a class the mean moves, too.
    share = n_classes / (n_classes - 1) if centred else 1.0
    sums = [(of.sum(0), of.sum(0) - share * of) for of in (sides[0] * sides[1], sides[0] ** 2, sides[1] ** 2)]
    (_, rest), (first, first_left), (second, second_left) = sums
    scores = (rest / (first_left * second_left).sqrt()).clamp(-1, 1)
    # Of what is almost all of one side a difference of sums keeps too few digits.
    lost = ((first_left <= _LOST * first) & (first > 0)) | ((second_left <= _LOST * second) & (second > 0))
    for deleted in lost.any(1).nonzero().flatten().tolist():
        rows, columns = torch.arange(n_classes) != deleted, lost[deleted]
        scores[deleted, columns] = cgim(own[rows][:, columns], truth[rows][:, columns], per, centred)
    return scores.nanmean(1)


@torch.no_grad()
def concept_auc_interval(values: Numbers, concepts: Numbers, classes: Numbers) -> tuple[float, float]:
    """Return the 95 % interval of the mean concept AUC, by the delete-one-class jackknife with K - 1 freedoms.

    The images of a class depend on each other, and so do the scores of the concepts; classes are the sample.

    Parameters
    ----------
    values : array_like
        (N, L) concept values.
    concepts : array_like
        (N, L) of 0/1, the true concepts.
    classes : array_like
        (N,) of int, the true classes.

    Returns
    -------
    tuple of float
        Low and high, within [0, 1]; NaN for fewer than two classes, and if no score is defined, also without one of the
        classes. If no class makes a difference, as for values that are all right, it is Wilson's interval of as many
        images as the rarer side of a concept has on average.

    Raises
    ------
    ValueError
        As `concept_auc`.

    Examples
    --------
    >>> from quantus_concepts.functional import concept_auc_interval
    >>> values = [[0.1], [0.4], [0.6], [0.5], [0.7], [0.9]]
    >>> concepts, classes = [[0], [1], [0], [1], [0], [1]], [0, 0, 1, 1, 2, 2]
    >>> low, high = concept_auc_interval(values, concepts, classes)
    >>> round(low, 2), round(high, 2)
    (0.0, 1.0)
    """
    values, shown, n = checked_values(values, concepts)
    check_axes(values=(values, "L N"))
    members, n_classes = class_members(classes, shown)
    scores, rarer = [], []
    sums, known = torch.zeros(2, n_classes, dtype=widest_float(values.device), device=values.device)
    for part in concepts_at_once(values):
        own, here = values[part].contiguous(), shown[part].contiguous()
        places, ranks = ranked(own)
        won, pairs = pairs_won(ranks, here)
        scores.append(share_won(won, pairs).masked_fill(own.isnan().any(1), torch.nan))
        # Pairs without class k: all, less those in which one of its images is either side, plus those within it.
        below, count = others_below(places, ranks, here), here.sum(1, keepdim=True)
        above = sums_by_class(torch.where(here, below, 2 * count - below), members, n_classes)
        within, with_it, without = pairs_won_by_class(places, here, members, n_classes)
        rest = (count - with_it) * (n - count - without)
        left_out = share_won(won[:, None] - above + within, rest)[~own.isnan().any(1)]
        sums, known = sums + left_out.nansum(0), known + (~left_out.isnan()).sum(0)
        rarer.append(torch.minimum(count, n - count)[:, 0])
    every = torch.cat(scores)
    mean = float(every.nanmean())
    if n_classes < 2 or math.isnan(mean):
        return math.nan, math.nan
    estimate = jackknife_estimate(mean, (sums / known).cpu().numpy())
    if math.isnan(estimate.variance):
        return math.nan, math.nan
    if estimate.has_equal_means:
        size = torch.cat(rarer)[~every.isnan()].double().mean()
        return wilson(mean, max(1, round(float(size))), (0.0, 1.0))
    return clipped_interval(mean, math.sqrt(estimate.variance), estimate.freedom, (0.0, 1.0))


def concept_quality_interval(
    values: Numbers,
    concepts: Numbers,
    classes: Numbers,
    score: str = AVERAGE_PRECISION,
    threshold: float = 0.5,
    n_bins: int = 15,
) -> tuple[float, float]:
    """Return the 95 % interval of the mean `concept_quality`, by the jackknife over classes with K - 1 freedoms.

    What the mean is without a class is read from its derivative by the weights of the images (the infinitesimal
    jackknife), which for a mean over images, as "brier", is exact: scoring again without each of 1,000 classes would
    take 1,000 times as long.

    Parameters
    ----------
    values : array_like
        (N, L) concept values.
    concepts : array_like
        (N, L) of 0/1, the true concepts.
    classes : array_like
        (N,) of int, the true classes.
    score : str
        As in `concept_quality`, like the others.
    threshold : float
        Value from which on a concept is present.
    n_bins : int
        Bins of "calibration_error", those of all images.

    Returns
    -------
    tuple of float
        Low and high, within [0, 1]; NaN for fewer than two classes, and if no score is defined. If no class makes a
        difference it is Wilson's interval of as many images as the rarer side of a concept has on average.

    Raises
    ------
    ValueError
        As `concept_quality`.

    Examples
    --------
    >>> from quantus_concepts.functional import concept_quality_interval
    >>> values = [[0.1], [0.4], [0.6], [0.5], [0.7], [0.9]]
    >>> concepts, classes = [[0], [1], [0], [1], [0], [1]], [0, 0, 1, 1, 2, 2]
    >>> low, high = concept_quality_interval(values, concepts, classes, "brier")
    >>> round(low, 3), round(high, 3)
    (0.097, 0.396)
    """
    values, shown = checked_quality(values, concepts, score, threshold, n_bins)
    members, n_classes = class_members(classes, shown)
    defined = defined_concepts(values, shown, score)
    n_concepts = int(defined.sum())
    if n_classes < 2 or not n_concepts:
        return math.nan, math.nan
    weights = torch.ones(n_classes, dtype=widest_float(values.device), device=values.device)
    mean, slopes = 0.0, torch.zeros_like(weights)
    for part, labels in concept_chunks(values[defined], shown[defined]):
        with torch.enable_grad():
            of_classes = weights.clone().requires_grad_()
            total = weighted_quality(part, labels, of_classes[members], score, threshold, n_bins).sum() / n_concepts
            slopes += torch.autograd.grad(total, of_classes)[0]
        mean += float(total.detach())
    sizes = members.bincount(minlength=n_classes)
    left_out = mean - slopes * len(members) / (len(members) - sizes)
    estimate = jackknife_estimate(mean, left_out.cpu().numpy())
    # What is left of equal numbers is rounding.
    if estimate.variance <= 1e-24:
        count = shown[defined].sum(1)
        rarer = torch.minimum(count, shown.shape[1] - count).double().mean()
        return wilson(min(max(mean, 0.0), 1.0), max(1, round(float(rarer))), (0.0, 1.0))
    return clipped_interval(mean, math.sqrt(estimate.variance), estimate.freedom, (0.0, 1.0))
