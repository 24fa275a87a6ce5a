"""Paired differences of two sets of scores on the same images, and of CGIM on the same classes."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from scipy import stats

from captum_concepts.support.checks import check_axes, to_array
from captum_concepts.texts import in_one_line
from quantus_concepts.functional.arguments import Numbers, check_within, to_clusters, to_floats
from quantus_concepts.functional.concepts.cgim import cgim
from quantus_concepts.functional.statistics.intervals import (
    UNBOUNDED,
    ClusterEstimate,
    check_bounds,
    clipped_interval,
    cluster_estimate,
    is_bounded,
    jackknife_estimate,
)
from quantus_concepts.functional.statistics.seeds import seeds_estimate


@in_one_line
class Difference(NamedTuple):
    """A paired difference with its 95 % interval.

    Attributes
    ----------
    first : float
        Mean of the first scores, over the pairs in which both are defined.
    second : float
        Mean of the second scores, over the same pairs.
    difference : float
        The first less the second.
    low : float
        Lower end of the interval.
    high : float
        Higher end.
    n : int
        Pairs.
    undefined : int
        Pairs of which one score is NaN, which are left out.
    p : float
        Two-sided p-value of no difference, from the same t as the interval.
    """

    first: float
    second: float
    difference: float
    low: float
    high: float
    n: int
    undefined: int
    p: float


_UNDEFINED = Difference(math.nan, math.nan, math.nan, math.nan, math.nan, 0, 0, math.nan)


def paired_difference(
    first: Numbers,
    second: Numbers,
    clusters: Numbers | None = None,
    bounds: tuple[float, float] | None = None,
) -> Difference:
    """Compare two sets of scores of the same images: mean difference, 95 % interval and p-value.

    The difference of each image is taken first, so that what makes an image easy or hard for both cancels: two
    intervals that overlap say nothing about it. Its mean has the leave-one-cluster-out (CR3) variance and Satterthwaite
    degrees of freedom of `interval`, and for bounded scores its pseudo-clusters, at the smallest and the largest
    difference possible: two models that seldom differ would else have an interval of width 0. Interval and p-value are
    of one estimate: the interval excludes 0 if and only if p is below .05.

    Parameters
    ----------
    first : array_like
        (N,) scores; NaN are undefined.
    second : array_like
        (N,) scores of the same images in the same order.
    clusters : array_like, optional
        (N,) the cluster of each image, its true class for instance: numbers or names. Each image is one if None.
    bounds : tuple of float, optional
        Smallest and largest score possible, ``(-inf, inf)`` for none. By default scores of 0 and 1, and others in
        [-1, 1] of which fewer than half are distinct, as shares, may differ by 1 (or by the largest difference there
        is); all others have no bounds.

    Returns
    -------
    Difference
        With NaN for interval and p-value if there are fewer than two pairs or clusters, and if unbounded differences
        are all the same; if these are 0, p is 1. The interval of bounded scores is clipped, and not centred at the
        difference.

    Raises
    ------
    ValueError
        If shapes differ, or a score lies outside `bounds`.

    Notes
    -----
    Without clusters it is the interval of Bonett and Price (2012), which adds one pair to each side, with Student's t.
    If the classes of two models hardly differ, a difference of less than 1 / G may be within the interval: it could be
    that of one class. Coverage is in ``docs/coverage.md``.

    Examples
    --------
    >>> from quantus_concepts.functional import paired_difference
    >>> first, second = [0.9, 0.5, 0.7, 0.2], [0.7, 0.4, 0.4, 0.1]
    >>> result = paired_difference(first, second)
    >>> [round(value, 3) for value in (result.difference, result.low, result.high, result.p)]
    [0.175, 0.023, 0.327, 0.035]
    """
    a, b = to_array("first", first).astype(np.float64), to_array("second", second).astype(np.float64)
    check_axes(first=(a, "N"), second=(b, "N"))
    groups = to_clusters(clusters, a.size, "pair")
    return _compare(a[None], b[None], groups, bounds)


def seeds_difference(first: np.ndarray, second: np.ndarray, clusters: np.ndarray) -> Difference:
    """Compare the scores (S, N) of two models over several seeds on the same images, with the two parts of variance.

    `clusters` (N,) are those of the images; the variance is that of `seeds_interval`, the bounds are those of
    `paired_difference`.
    """
    return _compare(first, second, clusters, None)


def _compare(a: np.ndarray, b: np.ndarray, clusters: np.ndarray, bounds: tuple[float, float] | None) -> Difference:
    """Compare scores (S, N) of one or several seeds."""
    differences = a - b
    paired = ~np.isnan(differences)
    n, undefined = int(paired.any(0).sum()), int((~paired).all(0).sum())
    if not n:
        return _UNDEFINED._replace(undefined=undefined)
    scores = np.stack([a[paired], b[paired]])
    limits = _limits(scores, bounds)
    by_image = np.nanmean(differences[:, paired.any(0)], 0)
    difference = float(by_image.mean())
    if len(differences) > 1:
        estimate = seeds_estimate(differences, clusters, limits)
    else:
        estimate = cluster_estimate(by_image, clusters[paired[0]], limits)
        if estimate.n_clusters > 1 and estimate.has_equal_means and np.ptp(by_image) > 0:
            # Clusters of equal means: the images vary all the same.
            estimate = cluster_estimate(by_image, None)
    rounding = 8 * np.finfo(float).eps * float(np.abs(scores).max())
    low, high, p = _t_test(difference, estimate, rounding, limits)
    return Difference(float(scores[0].mean()), float(scores[1].mean()), difference, low, high, n, undefined, p)


def _limits(scores: np.ndarray, bounds: tuple[float, float] | None) -> tuple[float, float]:
    """Return the smallest and the largest difference of scores (2, n)."""
    if bounds is not None:
        for name, values in zip(("first", "second"), scores, strict=True):
            check_bounds(name, values, bounds)
        return (bounds[0] - bounds[1], bounds[1] - bounds[0]) if is_bounded(bounds) else UNBOUNDED
    distinct = np.unique(scores)
    if distinct.max() > 1 or distinct.min() < -1 or not (2 * distinct.size < scores.size or {*distinct} <= {0.0, 1.0}):
        return UNBOUNDED
    largest = max(1.0, float(np.abs(scores[0] - scores[1]).max()))
    return -largest, largest


def _t_test(
    difference: float, estimate: ClusterEstimate, rounding: float, bounds: tuple[float, float] = UNBOUNDED
) -> tuple[float, float, float]:
    """Return low, high and p of a difference; without variance NaN, but p = 1 for no difference at all."""
    if math.isnan(estimate.variance) or estimate.variance <= rounding**2:
        same = not math.isnan(estimate.variance) and abs(difference) <= rounding
        return math.nan, math.nan, 1.0 if same else math.nan
    error = math.sqrt(estimate.variance)
    low, high = clipped_interval(estimate.mean, error, estimate.freedom, bounds)
    return low, high, float(2 * stats.t.sf(abs(estimate.mean) / error, estimate.freedom))


@torch.no_grad()
def cgim_difference(
    first: Numbers, second: Numbers, class_concepts: Numbers, per: str = "concept", centred: bool = True
) -> Difference:
    """Compare the mean CGIM of two models by the delete-one-class jackknife of the difference.

    The scores of concepts share their classes, so that they are not a sample; classes are. The difference is computed
    again without each class in turn: the variance is (K - 1) / K times the sum of squares of these differences about
    their mean, with K - 1 degrees of freedom.

    Parameters
    ----------
    first : array_like
        (K, L) importance of the first model, as in `cgim`.
    second : array_like
        (K, L) of the second model, for the same classes and concepts.
    class_concepts : array_like
        (K, L) in [0, 1].
    per : str
        "concept" or "class": which scores are averaged.
    centred : bool
        Whether to compare correlations, in place of the paper's cosines.

    Returns
    -------
    Difference
        Means and difference are over the concepts (or classes) that are defined for both models, ``n`` of them. A class
        that one model never predicts correctly is left out of both. Interval and p-value are NaN for fewer than three
        such classes, if no concept (or class) is defined any more without one of them, as where a single class has all
        truth, so that nothing is known of the spread, and if the difference is the same without any; p is 1 if it is 0.

    Raises
    ------
    ValueError
        As `cgim`.

    Examples
    --------
    >>> import torch
    >>> from quantus_concepts.functional import cgim_difference
    >>> truth = torch.tensor([[1.0, 0.0], [0.8, 0.3], [0.1, 0.9], [0.0, 1.0]])
    >>> noise = torch.tensor([[0.3, 0.1], [-0.4, 0.2], [0.2, -0.3], [0.4, 0.3]])
    >>> result = cgim_difference(truth, truth + noise, truth)
    >>> result.n, round(result.difference, 3), round(result.low, 2), round(result.high, 2)
    (2, 0.209, -0.56, 0.98)
    """
    matrices = {"first": to_floats("first", first), "second": to_floats("second", second)}
    matrices["class_concepts"] = to_floats("class_concepts", class_concepts)
    check_axes(**{name: (matrix, "K L") for name, matrix in matrices.items()})
    check_within("class_concepts", matrices["class_concepts"], 0, 1, remedy="Divide percentages by 100.")
    one, two, truth = (matrix.cpu().double() for matrix in matrices.values())
    pair = torch.stack([one, two])
    scored = ~pair.isnan().any(-1).any(0)
    pair, truth = pair[:, scored], truth[scored]
    n_classes = len(truth)
    scores = cgim(pair, truth, per, centred)
    defined = ~scores.isnan().any(0)
    n, undefined = int(defined.sum()), int((~defined).sum()) + (int((~scored).sum()) if per == "class" else 0)
    if not n:
        return _UNDEFINED._replace(undefined=undefined)
    a, b = scores[:, defined].mean(1).tolist()
    difference = a - b
    if n_classes < 3:
        return _UNDEFINED._replace(first=a, second=b, difference=difference, n=n, undefined=undefined)
    rest = [[row for row in range(n_classes) if row != deleted] for deleted in range(n_classes)]
    # (K, 2, K - 1, L): without each class in turn.
    left_out = torch.stack([cgim(pair[:, rows], truth[rows], per, centred) for rows in rest])
    both = left_out.masked_fill(left_out.isnan().any(1, keepdim=True), torch.nan).nanmean(-1)
    estimate = jackknife_estimate(difference, (both[:, 0] - both[:, 1]).numpy())
    low, high, p = _t_test(difference, estimate, 8 * np.finfo(float).eps)
    return Difference(a, b, difference, low, high, n, undefined, p)
