"""Confidence intervals of means, and ranges of random draws."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy import stats

from captum_concepts.models.random_banks import N_BANKS
from captum_concepts.support.checks import to_array
from quantus_concepts.functional.arguments import Numbers, to_clusters

CONFIDENCE = 0.95
UNBOUNDED = (-math.inf, math.inf)


#: Draws of a baseline whose smallest and largest value enclose 95 % of further draws.
N_DRAWS = N_BANKS


def interval(
    scores: Numbers, bounds: tuple[float, float] = (0.0, 1.0), clusters: Numbers | None = None
) -> tuple[float, float]:
    """Return the 95 % confidence interval of the mean of scores.

    Without `clusters` the samples are independent: Wilson's interval if every score is 0 or 1, else Student's t
    interval. With `clusters` only the clusters are independent, as for images of one predicted class, which share the
    ranking of the concepts. The variance is then the leave-one-cluster-out (CR3, jackknife) variance, with
    Satterthwaite degrees of freedom under a working model of independent observations. If both bounds are finite two
    pseudo-clusters are added first, one of scores at the lower bound and one at the higher: without them the interval
    of a mean of .95 or .98 covers 30 to 90 % in place of 95 %.

    Parameters
    ----------
    scores : array_like
        (N,) scores; NaN are left out.
    bounds : tuple of float
        Smallest and largest score possible; the interval is clipped to them.
    clusters : array_like, optional
        (N,) the cluster of each score: numbers or names.

    Returns
    -------
    tuple of float
        Low and high; NaN for fewer than two scores or clusters (one score of 0 or 1 has Wilson's interval), if a score
        is infinite, and if unbounded scores are all the same: they do not say how far others may lie.

    Raises
    ------
    ValueError
        If `clusters` is not (N,), or a score lies outside `bounds`.

    Notes
    -----
    With cluster sizes n_g, shares a_g = n_g / N, cluster means y_g, m = sum a_g y_g and w_g = a_g / (1 - a_g) the
    variance is (G - 1) / G sum w_g^2 (y_g - m)^2 = y' A y, and the degrees of freedom are tr(A S)^2 / tr(A S A S) with
    S = diag(1 / n_g) (Bell and McCaffrey, 2002). The pseudo-clusters are the idea of Agresti and Coull (1998) for
    clusters: m and the variance are then those of G + 2 clusters, the degrees of freedom those of the G real ones, and
    the interval is not centred at the mean of the scores. Each has a third of the mean cluster size, at least one
    score; less where the largest deviation D of a cluster, max n_g abs(y_g - m) in halves of the range, is small: 2 D
    scores, unless D is below 1/2. ``docs/coverage.md`` has the coverage. Bounded scores that
    are all the same (with clusters: all at one bound) have Wilson's interval of as many scores (clusters). If unbounded
    clusters all have the same mean, which leaves no variance between them, it is the interval without clusters.

    Examples
    --------
    >>> from quantus_concepts.functional import interval
    >>> low, high = interval([1, 0, 1, 1])
    >>> round(low, 2), round(high, 2)
    (0.3, 0.95)
    """
    values = to_array("scores", scores).astype(np.float64).ravel()
    defined = ~np.isnan(values)
    if np.isinf(values).any():
        return math.nan, math.nan
    check_bounds("scores", values, bounds)
    if clusters is not None:
        groups = to_clusters(clusters, values.size, "score")
        return _cluster_interval(values[defined], groups[defined], bounds)
    values = values[defined]
    if values.size == 0:
        return math.nan, math.nan
    if bounds == (0.0, 1.0) and bool(np.all((values == 0) | (values == 1))):
        return wilson(float(values.mean()), values.size, bounds)
    return t_interval(values, bounds)


def baseline_range(draws: Numbers) -> tuple[float, float]:
    """Return the range in which 95 % of further draws of a random baseline lie.

    Parameters
    ----------
    draws : array_like
        (n,) what n random banks, maps or directions score; NaN are left out.

    Returns
    -------
    tuple of float
        The order statistics at ranks 0.025 (n + 1) and 0.975 (n + 1), interpolated between neighbours; with 39 draws
        the smallest and the largest. With fewer also the smallest and the largest, which enclose a share of
        (n - 1) / (n + 1) of further draws only (`baseline_coverage`). NaN without draws.

    Notes
    -----
    The k-th smallest of n draws lies above a share k / (n + 1) of further draws on average, whatever their
    distribution. A score is above the baseline if it is above the higher end.

    Examples
    --------
    >>> from quantus_concepts.functional import baseline_range
    >>> low, high = baseline_range(range(39))
    >>> round(low, 2), round(high, 2)
    (0.0, 38.0)
    """
    values = to_array("draws", draws).astype(np.float64).ravel()
    values = values[~np.isnan(values)]
    if not values.size:
        return math.nan, math.nan
    low, high = np.quantile(values, ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2), method="weibull")
    return float(low), float(high)


def baseline_coverage(n_draws: int) -> float:
    """Return the share of further draws that `baseline_range` of so many draws encloses."""
    return CONFIDENCE if n_draws >= N_DRAWS else max(0, n_draws - 1) / (n_draws + 1)


def distribution(scores: Numbers) -> tuple[float, float, float]:
    """Return the mean of the draws of a random baseline, and their `baseline_range`."""
    values = to_array("scores", scores).astype(np.float64).ravel()
    values = values[~np.isnan(values)]
    return (float(values.mean()) if values.size else math.nan, *baseline_range(values))


def check_bounds(name: str, values: np.ndarray, bounds: tuple[float, float]) -> None:
    """Raise if a score lies outside its bounds by more than rounding; NaN are ignored."""
    low, high = bounds
    rounding = 1e-6 * (high - low) if is_bounded(bounds) else 0.0
    outside = (values < low - rounding) | (values > high + rounding)
    if outside.any():
        raise ValueError(
            f"Expected argument `{name}` to lie within the bounds {low:g} to {high:g} but {int(outside.sum())} of "
            f"{values.size} scores do not: they reach from {np.nanmin(values):g} to {np.nanmax(values):g}. Divide "
            "percentages by 100, or pass the `bounds` of the scores, (-inf, inf) for none."
        )


def are_equal(values: np.ndarray) -> bool:
    """Return whether values differ by rounding at most."""
    return bool(np.ptp(values) <= 8 * np.finfo(float).eps * np.abs(values).max())


def is_bounded(bounds: tuple[float, float]) -> bool:
    """Return whether scores have both a smallest and a largest value."""
    return math.isfinite(bounds[0]) and math.isfinite(bounds[1])


def wilson(mean: float, n: int, bounds: tuple[float, float]) -> tuple[float, float]:
    """Return Wilson's interval of n scores with this mean; scores between the bounds vary less than those at them."""
    low, high = bounds
    p = (mean - low) / (high - low)
    z = float(stats.norm.ppf((1 + CONFIDENCE) / 2))
    denominator = 2 * (n + z**2)
    centre, half = (2 * n * p + z**2) / denominator, z / denominator * math.sqrt(max(0.0, 4 * n * p * (1 - p)) + z**2)
    ends = (0.0 if p <= 0 else centre - half, 1.0 if p >= 1 else centre + half)
    return low + (high - low) * ends[0], low + (high - low) * ends[1]


def _cluster_interval(values: np.ndarray, clusters: np.ndarray, bounds: tuple[float, float]) -> tuple[float, float]:
    """Return the leave-one-cluster-out interval of a mean."""
    estimate = cluster_estimate(values, clusters, bounds)
    if math.isnan(estimate.variance):
        return math.nan, math.nan
    if is_bounded(bounds) and any((values == end).all() for end in bounds):
        # No spread: G independent clusters tell how far the mean may be from the end.
        return wilson(float(values[0]), estimate.n_clusters, bounds)
    if estimate.has_equal_means:
        return interval(values, bounds)
    return clipped_interval(estimate.mean, math.sqrt(estimate.variance), estimate.freedom, bounds)


class ClusterEstimate(NamedTuple):
    """A mean with its leave-one-cluster-out (CR3) variance and Satterthwaite degrees of freedom."""

    mean: float
    variance: float
    freedom: float
    n_clusters: int

    @property
    def has_equal_means(self) -> bool:
        """Whether the clusters' means differ by rounding at most."""
        return self.variance <= (float(np.finfo(float).eps) * self.mean) ** 2


def cluster_estimate(
    values: np.ndarray, clusters: np.ndarray | None, bounds: tuple[float, float] = UNBOUNDED
) -> ClusterEstimate:
    """Return mean, variance and degrees of freedom of values (N,); each is a cluster by itself if `clusters` is None.

    With finite bounds mean and variance are those of two clusters more, one at each bound; the degrees of freedom are
    those of the real ones. Variance and degrees of freedom are NaN for fewer than two clusters.
    """
    means, counts = _cluster_means(values, np.arange(values.size) if clusters is None else clusters)
    if means.size < 2:
        return ClusterEstimate(float(values.mean()) if values.size else math.nan, math.nan, math.nan, means.size)
    n = values.size
    # B S B' of the docstring's A = (G - 1) / G B'B is diag(w) (diag(1 / n_g) - 1 / N) diag(w).
    squares, diagonal = (counts / (n - counts)) ** 2, 1 / counts - 1 / n
    trace = float((squares * diagonal).sum())
    trace_of_square = float((squares**2 * (diagonal**2 - 1 / n**2)).sum()) + float(squares.sum()) ** 2 / n**2
    n_clusters = means.size
    if is_bounded(bounds):
        pseudo_count = _pseudo_count(means, counts, bounds)
        means, counts = np.append(means, bounds), np.append(counts, (pseudo_count, pseudo_count))
    mean, variance = _leave_one_out(means, counts)
    return ClusterEstimate(mean, variance, trace**2 / trace_of_square, n_clusters)


def _pseudo_count(means: np.ndarray, counts: np.ndarray, bounds: tuple[float, float]) -> float:
    """Return the size of the cluster that is added at each bound."""
    third = max(1.0, float(counts.mean()) / 3)
    deviations = counts * np.abs(means - (counts * means).sum() / counts.sum())
    largest = 2 * float(deviations.max()) / (bounds[1] - bounds[0])
    # Clusters that hardly differ say nothing about how much others may.
    return third if largest < 0.5 else min(third, 2 * largest)


def _cluster_means(values: np.ndarray, clusters: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and size of each cluster."""
    _, members, counts = np.unique(clusters, return_inverse=True, return_counts=True)
    return np.bincount(members, weights=values) / counts, counts


def _leave_one_out(means: np.ndarray, counts: np.ndarray) -> tuple[float, float]:
    """Return the mean over clusters of these means and sizes, and its leave-one-cluster-out variance."""
    n_clusters, n = means.size, counts.sum()
    mean = float((counts * means).sum() / n)
    squares = (counts / (n - counts)) ** 2
    return mean, (n_clusters - 1) / n_clusters * float((squares * (means - mean) ** 2).sum())


def jackknife_estimate(value: float, left_out: np.ndarray) -> ClusterEstimate:
    """Return a statistic with the variance of its values (K,) without each class in turn, and K - 1 freedoms."""
    n_classes = len(left_out)
    variance = (n_classes - 1) / n_classes * float(((left_out - left_out.mean()) ** 2).sum())
    return ClusterEstimate(value, variance, n_classes - 1, n_classes)


def t_quantile(freedom: float) -> float:
    """Return how many standard errors the end of a 95 % interval lies from its middle."""
    return float(stats.t.ppf((1 + CONFIDENCE) / 2, freedom))


def t_interval(values: np.ndarray, bounds: tuple[float, float]) -> tuple[float, float]:
    """Return Student's 95 % t interval of a mean; of values that are all the same Wilson's, or NaN without bounds."""
    if values.size < 2:
        return math.nan, math.nan
    if are_equal(values):
        return wilson(float(values.mean()), values.size, bounds) if is_bounded(bounds) else (math.nan, math.nan)
    # Not by `clipped_interval`: the order of the factors decides the last digit.
    half = t_quantile(values.size - 1) * values.std(ddof=1) / math.sqrt(values.size)
    return float(max(bounds[0], values.mean() - half)), float(min(bounds[1], values.mean() + half))


def clipped_interval(mean: float, error: float, freedom: float, bounds: tuple[float, float]) -> tuple[float, float]:
    """Return the interval of a mean with its standard error and degrees of freedom, clipped to its bounds."""
    half = t_quantile(freedom) * error
    return float(max(bounds[0], mean - half)), float(min(bounds[1], mean + half))


def relation(ours: tuple[float, float], other: tuple[float, float]) -> str:
    """Say whether an interval lies above, at or below another."""
    if any(math.isnan(end) for end in (*ours, *other)):
        return ""
    if ours[0] > other[1]:
        return "above"
    return "below" if ours[1] < other[0] else "at"
