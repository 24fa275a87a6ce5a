"""Intervals of means, and what they allow to be said."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import stats

from captum_concepts.checks import to_numpy

CONFIDENCE = 0.95


def interval(scores: Any, bounds: tuple[float, float] = (0.0, 1.0), clusters: Any = None) -> tuple[float, float]:
    """Return the 95 % interval of a mean over samples."""
    # Without `clusters` the samples are taken to be independent: Wilson's interval where every score is 0 or 1, for
    # it stays inside [0, 1] and is honest at the ends; otherwise Student's t interval of the mean, clipped to
    # `bounds`. With them only the clusters are independent. Images of one predicted class are no independent
    # samples where they share the class's concept labels or its ranking of the concepts.
    values = np.asarray(to_numpy(scores), dtype=np.float64).ravel()
    defined = ~np.isnan(values)
    if clusters is not None:
        groups = np.asarray(to_numpy(clusters)).ravel()
        if groups.shape != values.shape:
            raise ValueError(
                f"Expected argument `clusters` to have shape (N,) = {values.shape}, one for each score, but got "
                f"{groups.shape}."
            )
        return _cluster_interval(values[defined], groups[defined], bounds)
    values = values[defined]
    if values.size == 0:
        return math.nan, math.nan
    if bounds == (0.0, 1.0) and bool(np.all((values == 0) | (values == 1))):
        return _wilson(float(values.sum()), values.size)
    return t_interval(values, bounds)


def distribution(scores: Any) -> tuple[float, float, float]:
    """Return what many controls that know nothing score: their mean, and where 95 % of them lie."""
    # A score is "above chance" where it lies above the third number, and "below" where it lies below the second.
    values = np.asarray(to_numpy(scores), dtype=np.float64).ravel()
    values = values[~np.isnan(values)]
    if not values.size:
        return math.nan, math.nan, math.nan
    tail = 50 * (1 - CONFIDENCE)
    low, high = np.percentile(values, (tail, 100 - tail))
    return float(values.mean()), float(low), float(high)


def _wilson(successes: float, n: int) -> tuple[float, float]:
    wilson = stats.binomtest(round(successes), n).proportion_ci(CONFIDENCE, method="wilson")
    return float(wilson.low), float(wilson.high)


def _cluster_interval(values: np.ndarray, clusters: np.ndarray, bounds: tuple[float, float]) -> tuple[float, float]:
    """Return the interval of a mean from the cluster-robust variance, with clusters - 1 degrees of freedom."""
    names, members = np.unique(clusters, return_inverse=True)
    n_clusters = names.size
    if n_clusters < 2:
        return math.nan, math.nan
    mean = values.mean()
    if bounds == (0.0, 1.0) and mean in (0.0, 1.0):
        # No spread at all: what is known of the end is what so many independent clusters tell.
        return _wilson(mean * n_clusters, n_clusters)
    residuals = np.bincount(members, weights=values - mean)
    error = math.sqrt(n_clusters / (n_clusters - 1) * float((residuals**2).sum())) / values.size
    half = stats.t.ppf((1 + CONFIDENCE) / 2, n_clusters - 1) * error
    return float(max(bounds[0], mean - half)), float(min(bounds[1], mean + half))


def t_interval(values: np.ndarray, bounds: tuple[float, float]) -> tuple[float, float]:
    """Return Student's 95 % t interval of a mean."""
    if values.size < 2:
        return math.nan, math.nan
    half = stats.t.ppf((1 + CONFIDENCE) / 2, values.size - 1) * values.std(ddof=1) / math.sqrt(values.size)
    mean = values.mean()
    return float(max(bounds[0], mean - half)), float(min(bounds[1], mean + half))


def relation(ours: tuple[float, float], other: tuple[float, float]) -> str:
    """Say whether an interval lies above, at or below another."""
    if any(math.isnan(end) for end in (*ours, *other)):
        return ""
    if ours[0] > other[1]:
        return "above"
    return "below" if ours[1] < other[0] else "at"
