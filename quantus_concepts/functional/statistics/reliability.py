"""Whether models differ by more than seeds of the same model do, and how many seeds show it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

from captum_concepts.texts import in_one_line
from quantus_concepts.functional.statistics.intervals import are_equal

#: Level of the test for which seeds are counted, and how often it is to find the difference.
_ALPHA, _POWER = 0.05, 0.8
#: Seeds from which the power is a normal one: scipy's noncentral t fails at many degrees of freedom.
_MANY = 200
#: Shift of the noncentral t from which the power is 1, as far as is asked.
_CERTAIN = 30


@in_one_line
class Separation(NamedTuple):
    """Models compared with their seeds.

    Attributes
    ----------
    sd_models : float
        Standard deviation between models, without what luck of the seeds adds to it; 0 where that explains all.
    sd_seeds : float
        Standard deviation over the seeds of one model, the root of the mean variance.
    p : float
        P-value of no difference between models; NaN where nothing varies over seeds that could make one.
    """

    sd_models: float
    sd_seeds: float
    p: float


def crossed_models(scores: np.ndarray) -> Separation:
    """Compare models (M, S) that share their seeds: two-way, with Greenhouse and Geisser's (1959) correction.

    The correction of the degrees of freedom lets models differ in how much they vary over seeds.
    """
    n_models, n_seeds = scores.shape
    # What a seed does to all models is no difference between them.
    centred = scores - scores.mean(0)
    means = centred.mean(1)
    rest = centred - means[:, None]
    error = float((rest**2).sum()) / ((n_models - 1) * (n_seeds - 1))
    between, over = means.var(ddof=1), scores.var(1, ddof=1).mean()
    deviations = math.sqrt(max(0.0, between - error / n_seeds)), math.sqrt(over)
    if np.abs(rest).max() <= 8 * np.finfo(float).eps * np.abs(scores).max():
        return Separation(*deviations, math.nan)
    covariance = rest @ rest.T / (n_seeds - 1)
    # Epsilon (n_models - 1) by its own formula: the trace squared, over the trace of the square.
    freedom = (error * (n_models - 1)) ** 2 / float((covariance**2).sum())
    return Separation(*deviations, float(stats.f.sf(n_seeds * between / error, freedom, freedom * (n_seeds - 1))))


def separate_models(groups: Sequence[np.ndarray]) -> Separation:
    """Compare models whose seeds are their own, an array (S,) each: Welch's (1951) test, models may vary unequally."""
    n = len(groups)
    sizes, means, variances = (
        np.array([measure(group) for group in groups], dtype=np.float64)
        for measure in (len, np.mean, lambda group: np.var(group, ddof=1))
    )
    between = means.var(ddof=1) - (variances / sizes).mean()
    deviations = math.sqrt(max(0.0, between)), math.sqrt(variances.mean())
    if any(map(are_equal, groups)):
        return Separation(*deviations, math.nan)
    weights = sizes / variances
    shares = weights / weights.sum()
    weighted = (weights * (means - shares @ means) ** 2).sum() / (n - 1)
    lost = ((1 - shares) ** 2 / (sizes - 1)).sum()
    f = weighted / (1 + 2 * (n - 2) / (n**2 - 1) * lost)
    return Separation(*deviations, float(stats.f.sf(f, n - 1, (n**2 - 1) / (3 * lost))))


def seeds_needed(ratio: float) -> float:
    """Return how many seeds of each of two models find their typical difference in 80 %, by a t test at .05.

    `ratio` is the deviation between models over that of seeds; two models differ by sqrt(2) of the former.
    """
    if not ratio > 0:
        return math.inf
    difference, tail = math.sqrt(2) * ratio, stats.norm.isf(_ALPHA / 2)
    # With Guenther's (1981) term of the t test.
    n = 2 * ((tail + stats.norm.ppf(_POWER)) / difference) ** 2 + tail**2 / 4
    if n > _MANY:
        return math.ceil(n)
    # Upward, since power by scipy is wrong far above the number wanted.
    return next(n_seeds for n_seeds in range(2, 2 * _MANY) if _power(n_seeds, difference) >= _POWER)


def _power(n_seeds: int, difference: float) -> float:
    """Return how often a t test of two groups finds a difference, in deviations; 1 where scipy's power overflows."""
    freedom, shift = 2 * n_seeds - 2, difference * math.sqrt(n_seeds / 2)
    return 1.0 if shift > _CERTAIN else float(stats.nct.sf(stats.t.isf(_ALPHA / 2, freedom), freedom, shift))
