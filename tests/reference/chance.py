"""Is a score at chance? One rule for all controls."""

import numpy as np


def at_chance(scores, chance):
    """Tell whether at least 17 of 20 repetitions (20, n) have `chance` in their own 99 % interval.

    A correct score leaves each interval with probability 0.01, so that more than 3 of 20 do with probability
    4e-5 (binomial): with under 20 such checks a suite with free seeds fails less than once in a thousand runs.
    """
    scores = np.asarray(scores, dtype=float)
    assert scores.shape[0] == 20
    half = 2.576 * scores.std(1, ddof=1) / np.sqrt(scores.shape[1])
    return (np.abs(scores.mean(1) - chance) <= half).sum() >= 17
