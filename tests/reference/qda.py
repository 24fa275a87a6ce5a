"""Quadratic discriminant analysis and the smallest change of one value, in loops and float64, from the formulas."""

import math

import numpy as np


def log_posteriors(values, labels, rows):
    """Of rows (n, L), after a fit to values (N, L) and labels (N,)."""
    values, labels = np.asarray(values, dtype=np.float64), np.asarray(labels)
    classes = sorted(set(labels.tolist()))
    scores = np.zeros((len(rows), len(classes)))
    for k in classes:
        own = values[labels == k]
        mean = own.sum(0) / len(own)
        covariance = sum(np.outer(row - mean, row - mean) for row in own) / len(own)
        _, log_determinant = np.linalg.slogdet(covariance)
        for i, row in enumerate(np.asarray(rows, dtype=np.float64)):
            distance = (row - mean) @ np.linalg.inv(covariance) @ (row - mean)
            scores[i, k] = math.log(len(own) / len(values)) - log_determinant / 2 - distance / 2
    return (
        scores
        - np.log(np.exp(scores - scores.max(1, keepdims=True)).sum(1, keepdims=True))
        - scores.max(1, keepdims=True)
    )


def smallest_change(decide, row, j, k, furthest=50.0, steps=20_000):
    """Of value j, by small steps to either side and halving; `decide` gives the class of a row."""

    def wins(change):
        moved = np.array(row, dtype=np.float64)
        moved[j] += change
        return decide(moved) == k

    now = wins(0.0)
    for step in range(1, steps + 1):
        for sign in (1, -1):
            low, high = sign * furthest * (step - 1) / steps, sign * furthest * step / steps
            if wins(high) != now:
                for _ in range(60):
                    middle = (low + high) / 2
                    low, high = (low, middle) if wins(middle) != now else (middle, high)
                return high
    return math.nan
