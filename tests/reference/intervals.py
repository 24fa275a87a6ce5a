"""The cluster-robust interval with loops and matrices, from its formula, and ranges of draws by ranks."""

from __future__ import annotations

import math

import numpy as np
from scipy import stats


def cluster_interval(scores, clusters):
    """Return mean, variance, degrees of freedom and the 95 % interval."""
    names = sorted(set(clusters))
    groups = [[s for s, c in zip(scores, clusters, strict=True) if c == name] for name in names]
    n, n_groups = len(scores), len(groups)
    mean = sum(scores) / n
    variance = 0.0
    for left_out in range(n_groups):
        other_scores = [s for g, group in enumerate(groups) if g != left_out for s in group]
        variance += (sum(other_scores) / len(other_scores) - mean) ** 2
    variance *= (n_groups - 1) / n_groups
    shares = np.array([len(group) / n for group in groups])
    weights = shares / (1 - shares)
    b = np.diag(weights) @ (np.eye(n_groups) - np.outer(np.ones(n_groups), shares))
    a = (n_groups - 1) / n_groups * b.T @ b
    s = np.diag([1 / len(group) for group in groups])
    freedom = np.trace(a @ s) ** 2 / np.trace(a @ s @ a @ s)
    half = stats.t.ppf(0.975, freedom) * math.sqrt(variance)
    return mean, variance, freedom, (mean - half, mean + half)


def wilson_interval(scores):
    """Return the 95 % interval of the share of ones among independent zeros and ones."""
    n, p, z = len(scores), sum(scores) / len(scores), stats.norm.ppf(0.975)
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return (p + z * z / (2 * n) - half) / (1 + z * z / n), (p + z * z / (2 * n) + half) / (1 + z * z / n)


def range_of_draws(draws):
    """Return the order statistics at ranks 0.025 (n + 1) and 0.975 (n + 1)."""
    ordered = sorted(draws)

    def at(rank):
        rank = min(max(rank, 1), len(ordered))
        below = math.floor(rank)
        above = min(below + 1, len(ordered))
        return ordered[below - 1] + (rank - below) * (ordered[above - 1] - ordered[below - 1])

    return at(0.025 * (len(ordered) + 1)), at(0.975 * (len(ordered) + 1))
