"""Which of many scores lie outside their own random range, corrected for their number."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from captum_concepts.support.checks import check_axes, check_range, to_array
from captum_concepts.tcav.p_values import adjust_p_values
from captum_concepts.texts import in_one_line
from quantus_concepts.functional.arguments import Numbers
from quantus_concepts.functional.statistics.intervals import baseline_coverage, baseline_range


@in_one_line
class Discoveries(NamedTuple):
    """Scores compared with their own random draws.

    Attributes
    ----------
    p : np.ndarray
        (L,) two-sided p-value of each score by its rank among its draws; NaN where the score or all draws are.
    p_adjusted : np.ndarray
        (L,) the same by Benjamini and Hochberg's procedure.
    passed : np.ndarray
        (L,) of bool: the adjusted p-value is at most `alpha`. Of these at most a share `alpha` is there by luck.
    n_above : int
        Scores above their own range of 95 % of the draws (`baseline_range`).
    n_below : int
        Scores below it.
    n_by_luck : float
        How many scores luck alone brings to each side: one in 40 from 39 draws on.
    fewest : int
        How many scores must have the smallest p-value that so many draws can give before any passes. If it is more
        than 1, more draws help.
    """

    p: np.ndarray
    p_adjusted: np.ndarray
    passed: np.ndarray
    n_above: int
    n_below: int
    n_by_luck: float
    fewest: int


def find_discoveries(scores: Numbers, draws: Numbers, alpha: float = 0.05) -> Discoveries:
    """Find the scores that lie outside the range of their own random draws, corrected for their number.

    Of 100 concepts that mean nothing, five lie outside their own 95 % range by luck. Benjamini and Hochberg's
    procedure marks only what luck does not explain.

    Parameters
    ----------
    scores : array_like
        (L,) a score for each concept.
    draws : array_like
        (n, L) what n random banks or directions score for the same concepts; NaN are left out.
    alpha : float
        Largest share of false ones among those that pass, on average.

    Returns
    -------
    Discoveries
        P-values, which scores pass, how many lie above and below their range, and how many luck explains.

    Raises
    ------
    ValueError
        If shapes differ, or `alpha` is not in (0, 1].

    Notes
    -----
    p = min(1, 2 (1 + r) / (n + 1)), r being the number of draws at least as high as the score, or at least as low if
    these are fewer. 39 draws give p-values of .05 and more, so that nothing passes unless all do; for 100 concepts, of
    which five are to pass, take 799 draws.

    Examples
    --------
    >>> import numpy as np
    >>> from quantus_concepts.functional import find_discoveries
    >>> draws = np.random.default_rng(0).normal(size=(199, 3))
    >>> found = find_discoveries([0.1, 4.0, -5.0], draws)
    >>> found.passed.tolist(), found.n_above, found.n_below, round(found.n_by_luck, 3)
    ([False, True, True], 1, 1, 0.075)
    """
    values, drawn = to_array("scores", scores).astype(np.float64), to_array("draws", draws).astype(np.float64)
    check_axes(scores=(values, "L"), draws=(drawn, "n L"))
    check_range("alpha", alpha, 0, 1, open_low=True)
    counts = (~np.isnan(drawn)).sum(0)
    defined = ~np.isnan(values) & (counts > 0)
    fewer = np.minimum((drawn >= values).sum(0), (drawn <= values).sum(0))
    p = np.where(defined, np.minimum(1, 2 * (1 + fewer) / (counts + 1)), np.nan)
    adjusted = adjust_p_values(p, "bh")
    ends = np.array([baseline_range(column) for column in drawn.T]).reshape(-1, 2)
    n_defined = int(defined.sum())
    # k scores of the smallest p-value pass if it is at most alpha k / L.
    needed = 2 * n_defined / (counts.max(initial=0) + 1) / alpha
    return Discoveries(
        p,
        adjusted,
        adjusted <= alpha,
        int((values > ends[:, 1]).sum()),
        int((values < ends[:, 0]).sum()),
        float(sum((1 - baseline_coverage(int(count))) / 2 for count in counts[defined])),
        math.ceil(round(needed, 9)),
    )
