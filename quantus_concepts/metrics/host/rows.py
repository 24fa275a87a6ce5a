"""The row of a result table: value, low, high, n and undefined."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from captum_concepts._support.checks import to_numpy
from quantus_concepts.functional.intervals import interval

Row = dict[str, Any]


def score_row(
    scores: Any,
    bounds: tuple[float, float],
    clusters: Any,
    *,
    intervals: bool = True,
    **fields: Any,
) -> Row:
    """Return fields with the mean of the defined scores, its 95 % interval, and the counts of defined and undefined.

    `clusters` (N,) tells which scores depend on each other; None if all are independent.
    """
    values = np.asarray(to_numpy(scores), dtype=np.float64).ravel()
    defined = values[~np.isnan(values)]
    low, high = interval(values, bounds, clusters) if intervals else (math.nan, math.nan)
    return fields | {
        "value": float(defined.mean()) if defined.size else math.nan,
        "low": low,
        "high": high,
        "n": int(defined.size),
        "undefined": int(values.size - defined.size),
    }
