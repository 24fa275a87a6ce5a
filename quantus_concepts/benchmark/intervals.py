"""Intervals of means, and what they allow to be said."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import stats

from quantus_concepts.checks import to_numpy

CONFIDENCE = 0.95


def interval(scores: Any, bounds: tuple[float, float] = (0.0, 1.0)) -> tuple[float, float]:
    """Return the 95 % interval of a mean over independent samples.

    Wilson's interval where every score is 0 or 1, for it stays inside [0, 1] and is honest at the ends;
    otherwise Student's t interval of the mean, clipped to `bounds`.

    Parameters
    ----------
    scores : array
        (N,) scores; NaN are left out.
    bounds : tuple of float
        Smallest and largest value the score can take.

    Returns
    -------
    tuple of float
        Low and high end; NaN where there are not enough scores (one 0/1 score, two others).
    """
    values = np.asarray(to_numpy(scores), dtype=np.float64).ravel()
    values = values[~np.isnan(values)]
    if values.size == 0:
        return math.nan, math.nan
    if bounds == (0.0, 1.0) and bool(np.all((values == 0) | (values == 1))):
        test = stats.binomtest(int(values.sum()), values.size)
        wilson = test.proportion_ci(CONFIDENCE, method="wilson")
        return float(wilson.low), float(wilson.high)
    return t_interval(values, bounds)


def t_interval(values: np.ndarray, bounds: tuple[float, float]) -> tuple[float, float]:
    """Return Student's 95 % t interval of a mean.

    Parameters
    ----------
    values : array
        (N,) values, none of them NaN.
    bounds : tuple of float
        Smallest and largest value possible; the interval is clipped to them.

    Returns
    -------
    tuple of float
        Low and high end; NaN for fewer than two values.
    """
    if values.size < 2:
        return math.nan, math.nan
    half = stats.t.ppf((1 + CONFIDENCE) / 2, values.size - 1) * values.std(ddof=1) / math.sqrt(values.size)
    mean = values.mean()
    return float(max(bounds[0], mean - half)), float(min(bounds[1], mean + half))


def relation(ours: tuple[float, float], other: tuple[float, float]) -> str:
    """Say whether an interval lies above, at or below another.

    Parameters
    ----------
    ours : tuple of float
        Low and high end.
    other : tuple of float
        Of the other; twice the same number for a fixed value.

    Returns
    -------
    str
        "above" or "below" where the two do not overlap, "at" where they do, "" where an end is NaN.
    """
    if any(math.isnan(end) for end in (*ours, *other)):
        return ""
    if ours[0] > other[1]:
        return "above"
    return "below" if ours[1] < other[0] else "at"
