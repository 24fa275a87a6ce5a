"""CEM in plain loops, from Equations 9 and 10."""

import math

import numpy as np


def rank(importance, eligible=None):
    """Indices in descending order; the lower index first among equals. Selection, one maximum at a time."""
    remaining = [j for j in range(len(importance)) if eligible is None or eligible[j]]
    order = []
    while remaining:
        best = remaining[0]
        for j in remaining[1:]:
            if float(importance[j]) > float(importance[best]):
                best = j
        order.append(best)
        remaining.remove(best)
    return order


def cem(importance, labels, top_l):
    importance = np.asarray(importance, dtype=np.float64)
    scores = []
    for row, present in zip(importance, np.asarray(labels), strict=True):
        if any(math.isnan(value) for value in row) or all(value == 0 for value in row):
            scores.append(math.nan)
            continue
        count = 0
        for j in rank(row)[:top_l]:
            if present[j] == 1:
                count += 1
        scores.append(count / top_l)
    return np.array(scores)
