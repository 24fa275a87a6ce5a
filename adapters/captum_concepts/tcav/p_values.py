"""Corrections of p-values for the number of tests."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from captum_concepts.support.checks import check_choice, to_array

ADJUSTMENTS = ("holm", "bh", "none")


def adjust_p_values(p_values: ArrayLike, adjust: str = "holm") -> np.ndarray:
    """Correct p-values for the number of tests.

    Parameters
    ----------
    p_values : array_like
        (m,) in [0, 1]; NaN are no tests, and stay NaN.
    adjust : str
        "holm" (Holm, 1979): at most 5 % of such families of tests have *any* false rejection at .05, however the tests
        depend on each other. "bh" (Benjamini and Hochberg, 1995): of what is rejected at .05, at most 5 % is false on
        average, if the tests are independent or positively dependent. "none" returns them as they are.

    Returns
    -------
    np.ndarray
        (m,) adjusted p-values: what is at most .05 is rejected.

    Raises
    ------
    ValueError
        If one is outside [0, 1], or `adjust` is something else.

    Examples
    --------
    >>> from quantus_concepts.functional import adjust_p_values
    >>> adjust_p_values([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.06, 0.06]
    """
    check_choice("adjust", adjust, ADJUSTMENTS)
    values = to_array("p_values", p_values).astype(np.float64).ravel()
    if ((values < 0) | (values > 1)).any():
        raise ValueError(
            f"Expected argument `p_values` to lie in [0, 1], with NaN for no test, but got values from "
            f"{np.nanmin(values):g} to {np.nanmax(values):g}."
        )
    adjusted = values.copy()
    defined = ~np.isnan(values)
    n_tests = int(defined.sum())
    if adjust == "bh" and n_tests:
        adjusted[defined] = stats.false_discovery_control(values[defined])
    elif adjust == "holm":
        order = np.flatnonzero(defined)[values[defined].argsort(kind="stable")]
        steps = values[order] * np.arange(n_tests, 0, -1)
        adjusted[order] = np.minimum(1, np.maximum.accumulate(steps))
    return adjusted
