"""Gains, paired differences, jackknife, corrections and the interval over seeds, with loops, from their formulas."""

from __future__ import annotations

import math

import numpy as np
from scipy import stats

from reference.cem import rank
from reference.cgim import cgim
from reference.intervals import cluster_interval


def cem_gain(importance, labels, top_l):
    importance, labels = np.asarray(importance, dtype=np.float64), np.asarray(labels, dtype=np.float64)
    ranked = [
        i for i, row in enumerate(importance) if not any(map(math.isnan, row)) and any(value != 0 for value in row)
    ]
    gains = []
    for i in range(len(labels)):
        others = [k for k in ranked if k != i]
        if i not in ranked or not others:
            gains.append(math.nan)
            continue
        parts = [labels[i, j] - sum(labels[k, j] for k in others) / len(others) for j in rank(importance[i])[:top_l]]
        gains.append(sum(parts) / top_l)
    return np.array(gains)


def bounded_mean(scores, clusters, bounds):
    """Mean and variance with two clusters more, one at each bound.

    Of a third of the mean size (at least one score), or twice the largest deviation D in halves of the range, if it is
    smaller; not where D is below one half.
    """
    names = sorted(set(clusters))
    groups = [[s for s, c in zip(scores, clusters, strict=True) if c == name] for name in names]
    size = max(1, len(scores) / len(groups) / 3)
    centre, half_range = sum(scores) / len(scores), (bounds[1] - bounds[0]) / 2
    largest = max(abs(sum(score - centre for score in group)) / half_range for group in groups)
    if largest >= 0.5 and 2 * largest < size:
        size = 2 * largest
    cells = [(sum(group) / len(group), len(group)) for group in groups] + [(end, size) for end in bounds]

    def mean_of(chosen):
        return sum(mean * weight for mean, weight in chosen) / sum(weight for _, weight in chosen)

    mean, n = mean_of(cells), len(cells)
    return mean, (n - 1) / n * sum((mean_of(cells[:g] + cells[g + 1 :]) - mean) ** 2 for g in range(n))


def bounded_cluster_interval(scores, clusters, bounds=(0.0, 1.0)):
    """The interval of `bounded_mean`, with the degrees of freedom of the real clusters."""
    mean, variance = bounded_mean(scores, clusters, bounds)
    _, _, freedom, _ = cluster_interval(scores, clusters)
    half = stats.t.ppf(0.975, freedom) * math.sqrt(variance)
    return max(bounds[0], mean - half), min(bounds[1], mean + half)


def paired_difference(first, second, clusters, bounded=False):
    """Return difference, low, high and p; with `bounded` of scores in [0, 1]."""
    rows = [(a - b, c) for a, b, c in zip(first, second, clusters, strict=True) if not math.isnan(a - b)]
    differences, groups = [d for d, _ in rows], [c for _, c in rows]
    mean, variance, freedom, (low, high) = cluster_interval(differences, groups)
    centre = mean
    if bounded:
        centre, variance = bounded_mean(differences, groups, (-1.0, 1.0))
        low, high = bounded_cluster_interval(differences, groups, (-1.0, 1.0))
    return mean, low, high, 2 * stats.t.sf(abs(centre) / math.sqrt(variance), freedom)


def seeds_interval(scores, clusters, bounds=None):
    n_seeds, n_images = scores.shape
    by_image = [sum(scores[s, i] for s in range(n_seeds)) / n_seeds for i in range(n_images)]
    centre, v1, df1, _ = cluster_interval(by_image, clusters)
    means = [sum(scores[s]) / n_images for s in range(n_seeds)]
    v2 = sum((m - centre) ** 2 for m in means) / (n_seeds - 1) / n_seeds
    if bounds is not None:
        centre, v1 = bounded_mean(by_image, clusters, bounds)
    freedom = n_seeds - 1 if v2 > v1 else (v1 + v2) ** 2 / (v1**2 / df1 + v2**2 / (n_seeds - 1))
    half = stats.t.ppf(0.975, freedom) * math.sqrt(v1 + v2)
    if bounds is None:
        return centre - half, centre + half
    # The derivative of log(p / (1 - p)) is 1 / p + 1 / (1 - p).
    low, width = bounds[0], bounds[1] - bounds[0]
    p = (centre - low) / width
    half *= (1 / p + 1 / (1 - p)) / width
    odds = p / (1 - p)
    return tuple(low + width * (1 - 1 / (1 + odds * math.exp(end))) for end in (-half, half))


def centred_cgim(importance, truth, per):
    """Pearson's correlation by definition."""
    importance, truth = np.asarray(importance, dtype=np.float64), np.asarray(truth, dtype=np.float64)
    defined = [k for k in range(len(importance)) if not any(map(math.isnan, importance[k]))]
    if per == "concept":
        pairs = [(importance[defined, j], truth[defined, j]) for j in range(importance.shape[1])]
    else:
        pairs = [(importance[k], truth[k]) for k in range(len(importance))]
    scores = []
    for a, b in pairs:
        a, b = [x - sum(a) / len(a) for x in a], [x - sum(b) / len(b) for x in b]
        lengths = math.sqrt(sum(x * x for x in a) * sum(x * x for x in b))
        scores.append(sum(x * y for x, y in zip(a, b, strict=True)) / lengths if lengths > 0 else math.nan)
    return np.array(scores)


def cgim_difference(first, second, truth, per, centred):
    """Return difference, low, high and p of the delete-one-class jackknife."""
    score = centred_cgim if centred else cgim

    def difference(classes):
        a, b = (score(matrix[classes], truth[classes], per) for matrix in (first, second))
        both = [x - y for x, y in zip(a, b, strict=True) if not math.isnan(x - y)]
        return sum(both) / len(both)

    classes = list(range(len(truth)))
    n, estimate = len(classes), difference(classes)
    left_out = [difference([k for k in classes if k != deleted]) for deleted in classes]
    centre = sum(left_out) / n
    error = math.sqrt((n - 1) / n * sum((value - centre) ** 2 for value in left_out))
    half = stats.t.ppf(0.975, n - 1) * error
    return estimate, estimate - half, estimate + half, 2 * stats.t.sf(abs(estimate) / error, n - 1)


def holm(p_values):
    """Reject while the k-th smallest of m is at most alpha / (m - k + 1): the smallest such alpha for each."""
    m, adjusted, largest = len(p_values), {}, 0.0
    for k, i in enumerate(sorted(range(m), key=lambda i: p_values[i])):
        largest = max(largest, min(1.0, (m - k) * p_values[i]))
        adjusted[i] = largest
    return [adjusted[i] for i in range(m)]


def benjamini_hochberg(p_values):
    """The smallest alpha with p at most some p_(k) that is at most alpha k / m."""
    m, ordered = len(p_values), sorted(p_values)
    return [min(1.0, *(m * ordered[k - 1] / k for k in range(1, m + 1) if ordered[k - 1] >= p)) for p in p_values]


def permutation_p(observed, drawn):
    extreme = sum(1 for value in drawn if abs(value) >= abs(observed))
    return (1 + extreme) / (len(drawn) + 1)
