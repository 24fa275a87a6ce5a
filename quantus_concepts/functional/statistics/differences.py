"""Paired differences of two sets of scores on the same images, and of CGIM on the same classes."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from scipy import stats

from captum_concepts.support.checks import check_axes, to_array
from captum_concepts.support.shown import one_line
from quantus_concepts.functional.arguments import Numbers, to_clusters
from quantus_concepts.functional.concepts.cgim import agreement, checked_matrices
from quantus_concepts.functional.statistics.intervals import cluster_estimate, t_quantile
from quantus_concepts.functional.statistics.seeds import seeds_estimate


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

    def __repr__(self) -> str:
        return one_line(self)


_UNDEFINED = Difference(math.nan, math.nan, math.nan, math.nan, math.nan, 0, 0, math.nan)


def paired_difference(first: Numbers, second: Numbers, clusters: Numbers | None = None) -> Difference:
    """Compare two sets of scores of the same images: mean difference, 95 % interval and p-value.

    The difference of each image is taken first, so that what makes an image easy or hard for both cancels: two
    intervals that overlap say nothing about it. Its mean has the leave-one-cluster-out (CR3) variance and Satterthwaite
    degrees of freedom of `interval`; it is not clipped.

    Parameters
    ----------
    first : array_like
        (N,) scores; NaN are undefined.
    second : array_like
        (N,) scores of the same images in the same order.
    clusters : array_like, optional
        (N,) the cluster of each image, its true class for instance: numbers or names. Each image is one if None.

    Returns
    -------
    Difference
        With NaN for interval and p-value if there are fewer than two pairs or clusters. If all differences are 0 the
        interval is 0 to 0 and p = 1. If all are the same other number there is no t, and p = 2^(1 - G), that of G
        clusters with one sign.

    Raises
    ------
    ValueError
        If shapes differ.

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
    paired = ~np.isnan(a - b)
    n, undefined = int(paired.sum()), int((~paired).sum())
    if not n:
        return _UNDEFINED._replace(undefined=undefined)
    differences, groups = (a - b)[paired], groups[paired]
    estimate = cluster_estimate(differences, groups)
    if estimate.n_clusters > 1 and estimate.has_equal_means and np.ptp(differences) > 0:
        # Clusters of equal means: the images vary all the same.
        estimate = cluster_estimate(differences, None)
    rounding = 8 * np.finfo(float).eps * float(max(np.abs(a[paired]).max(), np.abs(b[paired]).max()))
    low, high, p = _t_test(estimate.mean, estimate.variance, estimate.freedom, estimate.n_clusters, rounding)
    return Difference(float(a[paired].mean()), float(b[paired].mean()), estimate.mean, low, high, n, undefined, p)


def seeds_difference(first: np.ndarray, second: np.ndarray, clusters: np.ndarray) -> Difference:
    """Compare the scores (S, N) of two models over several seeds on the same images, with the two parts of variance.

    `clusters` (N,) are those of the images; the variance is that of `seeds_interval`.
    """
    differences = first - second
    paired = ~np.isnan(differences)
    n, undefined = int(paired.any(0).sum()), int((~paired).all(0).sum())
    if not n:
        return _UNDEFINED._replace(undefined=undefined)
    estimate = seeds_estimate(differences, clusters)
    rounding = 8 * np.finfo(float).eps * float(max(np.abs(first[paired]).max(), np.abs(second[paired]).max()))
    low, high, p = _t_test(estimate.mean, estimate.variance, estimate.freedom, estimate.n_clusters, rounding)
    return Difference(
        float(first[paired].mean()), float(second[paired].mean()), estimate.mean, low, high, n, undefined, p
    )


def _t_test(
    difference: float, variance: float, freedom: float, n_clusters: int, rounding: float
) -> tuple[float, float, float]:
    """Return low, high and p of a difference; of one that has no variance the p-value of its clusters' signs."""
    if math.isnan(variance):
        return math.nan, math.nan, math.nan
    if variance <= rounding**2:
        return difference, difference, 1.0 if abs(difference) <= rounding else 2.0 ** (1 - n_clusters)
    error = math.sqrt(variance)
    half = t_quantile(freedom) * error
    return difference - half, difference + half, float(2 * stats.t.sf(abs(difference) / error, freedom))


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
        that one model never predicts correctly is left out of both. NaN for fewer than three such classes.

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
    a_matrix, b_matrix, truth = checked_matrices(class_concepts, per, first=first, second=second)
    pair = torch.stack([a_matrix.double(), b_matrix.to(a_matrix.device).double()])
    truth = truth.to(a_matrix.device).double()
    pair, truth = pair.cpu(), truth.cpu()
    scored = ~pair.isnan().any(-1).any(0)
    pair, truth = pair[:, scored], truth[scored]
    n_classes = len(truth)
    scores = agreement(pair, truth, per, centred)
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
    left_out = torch.stack([agreement(pair[:, rows], truth[rows], per, centred) for rows in rest])
    both = left_out.masked_fill(left_out.isnan().any(1, keepdim=True), torch.nan).nanmean(-1)
    estimates = (both[:, 0] - both[:, 1]).numpy()
    estimates = estimates[~np.isnan(estimates)]
    variance = (n_classes - 1) / n_classes * float(((estimates - estimates.mean()) ** 2).sum())
    low, high, p = _t_test(difference, variance, n_classes - 1, n_classes, 8 * np.finfo(float).eps)
    return Difference(a, b, difference, low, high, n, undefined, p)
