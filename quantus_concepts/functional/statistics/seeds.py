"""The interval of a mean over several trainings on the same images."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import expit

from captum_concepts.support.checks import check_axes, to_array
from quantus_concepts.functional.arguments import Numbers, to_clusters
from quantus_concepts.functional.statistics.intervals import (
    UNBOUNDED,
    ClusterEstimate,
    are_equal,
    check_bounds,
    clipped_interval,
    cluster_estimate,
    interval,
    is_bounded,
    t_quantile,
)


def seeds_interval(
    scores: Numbers, clusters: Numbers | None = None, bounds: tuple[float, float] = (0.0, 1.0)
) -> tuple[float, float]:
    """Return the 95 % interval of the mean score of several seeds on the *same* images.

    More seeds average the trainings but not the images: an interval over the seeds' means alone shrinks as if the
    images were drawn anew for each seed, and covers .39 to .62 in place of .95 with ten seeds. The variance is the sum
    of two parts: v1, the leave-one-cluster-out variance of the scores averaged over seeds by image, with the
    pseudo-clusters of `interval` if both bounds are finite, and v2, the variance of the seeds' means divided by S. The
    degrees of freedom are Satterthwaite's, (v1 + v2)^2 / (v1^2 / df1 + v2^2 / (S - 1)), but S - 1 where v2 > v1. If
    both bounds are finite the interval is symmetric about the logit of the mean, with the variance by the delta method.

    Parameters
    ----------
    scores : array_like
        (S, N): the score of each image with each seed; NaN are left out. From tables of `score_concepts` with
        ``per_image=True`` and a column for the seed, of one metric and variant, it is
        ``table.pivot(index="seed", columns="image", values="value")``; of two models the difference of both, with
        ``bounds=(-1, 1)``.
    clusters : array_like, optional
        (N,) the cluster of each image, its true class for instance; each image is one by itself if None.
    bounds : tuple of float
        Smallest and largest score possible; the interval lies within them.

    Returns
    -------
    tuple of float
        Low and high. Simulated coverage is .93 and more from three seeds on (``docs/coverage.md``), and
        .87 to .98 with two seeds, for which nothing is promised. With one seed it is `interval`, which holds within
        that seed only: it does not cover another training. NaN for fewer than two images or clusters, and if unbounded
        scores are all the same.

    Raises
    ------
    ValueError
        If `scores` is not (S, N), `clusters` not (N,), or a score lies outside `bounds`.

    Notes
    -----
    If the images are drawn anew for each seed, as painted data are, the seeds alone are right: `interval` of their
    means.

    Examples
    --------
    >>> from quantus_concepts.functional import interval, seeds_interval
    >>> scores = [
    ...     [0.2, 0.4, 0.9, 0.7, 0.3],
    ...     [0.3, 0.4, 0.8, 0.8, 0.3],
    ...     [0.2, 0.5, 0.9, 0.6, 0.3],
    ... ]
    >>> low, high = seeds_interval(scores)
    >>> round(low, 2), round(high, 2)  # the five images differ more than the three seeds
    (0.18, 0.82)
    """
    values = to_array("scores", scores).astype(np.float64)
    check_axes(scores=(values, "S N"))
    groups = to_clusters(clusters, values.shape[1], "image")
    if len(values) == 1:
        return interval(values[0], bounds, clusters)
    check_bounds("scores", values, bounds)
    estimate = seeds_estimate(values, groups, bounds)
    if math.isnan(estimate.variance):
        return math.nan, math.nan
    if estimate.has_equal_means or are_equal(values[~np.isnan(values)]):
        # All seeds have the same scores: none says more than another.
        images = ~np.isnan(values).all(0)
        return interval(np.nanmean(values[:, images], 0), bounds, groups[images])
    if not is_bounded(bounds):
        return clipped_interval(estimate.mean, math.sqrt(estimate.variance), estimate.freedom, bounds)
    return _logit_interval(estimate, bounds, values.size)


def _logit_interval(estimate: ClusterEstimate, bounds: tuple[float, float], n: int) -> tuple[float, float]:
    """Return the interval of a mean of n scores that is symmetric on the logit scale of its bounds."""
    width = bounds[1] - bounds[0]
    share = min(max((estimate.mean - bounds[0]) / width, 0.5 / n), 1 - 0.5 / n)
    logit = math.log(share / (1 - share))
    half = t_quantile(estimate.freedom) * math.sqrt(estimate.variance) / width / (share * (1 - share))
    low, high = (bounds[0] + width * float(expit(end)) for end in (logit - half, logit + half))
    return low, high


def seeds_estimate(values: np.ndarray, groups: np.ndarray, bounds: tuple[float, float] = UNBOUNDED) -> ClusterEstimate:
    """Return mean, variance over images and seeds, and degrees of freedom of scores (S, N)."""
    defined = ~np.isnan(values)
    images, seeds = defined.any(0), defined.any(1)
    if seeds.sum() < 2:
        return cluster_estimate(np.empty(0), None)
    by_image, by_seed = np.nanmean(values[:, images], 0), np.nanmean(values[seeds], 1)
    estimate = cluster_estimate(by_image, groups[images], bounds)
    of_images, of_seeds = estimate.variance, float(by_seed.var(ddof=1)) / len(by_seed)
    both = of_images + of_seeds
    freedom = both**2 / (of_images**2 / estimate.freedom + of_seeds**2 / (len(by_seed) - 1)) if both else math.nan
    if of_seeds > of_images:
        # Satterthwaite's rule takes the variance of a few seeds as better known than it is.
        freedom = len(by_seed) - 1
    return estimate._replace(variance=both, freedom=freedom)
