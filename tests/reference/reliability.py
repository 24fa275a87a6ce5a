"""Do models differ by more than their seeds, with loops, from the formulas; scores are lists of seeds of each model."""

from __future__ import annotations

import math

from scipy import integrate, stats


def mean(values):
    return sum(values) / len(values)


def variance(values):
    return sum((value - mean(values)) ** 2 for value in values) / (len(values) - 1)


def two_way(scores):
    """Return sd between models, sd over seeds, and p by Greenhouse and Geisser (1959)."""
    n_models, n_seeds = len(scores), len(scores[0])
    models, seeds = range(n_models), range(n_seeds)
    rows, columns = [mean(row) for row in scores], [mean([row[s] for row in scores]) for s in seeds]
    grand = mean(rows)
    residual = sum((scores[m][s] - rows[m] - columns[s] + grand) ** 2 for m in models for s in seeds)
    error = residual / ((n_models - 1) * (n_seeds - 1))
    f = n_seeds * variance(rows) / error
    # Box's epsilon of the covariance over seeds, by Greenhouse and Geisser's formula of its means.
    covariance = [
        [sum((scores[a][s] - rows[a]) * (scores[b][s] - rows[b]) for s in seeds) / (n_seeds - 1) for b in models]
        for a in models
    ]
    of_rows, diagonal = [mean(row) for row in covariance], mean([covariance[m][m] for m in models])
    numerator = (n_models * (diagonal - mean(of_rows))) ** 2
    squares = sum(cell**2 for row in covariance for cell in row)
    epsilon = numerator / (
        (n_models - 1) * (squares - 2 * n_models * sum(row**2 for row in of_rows) + n_models**2 * mean(of_rows) ** 2)
    )
    freedom = epsilon * (n_models - 1), epsilon * (n_models - 1) * (n_seeds - 1)
    between, over = variance(rows) - error / n_seeds, mean([variance(row) for row in scores])
    return math.sqrt(max(0, between)), math.sqrt(over), stats.f.sf(f, *freedom)


def welch(scores):
    """Return sd between models, sd over seeds, and p by Welch (1951)."""
    k = len(scores)
    weights = [len(row) / variance(row) for row in scores]
    centre = sum(w * mean(row) for w, row in zip(weights, scores, strict=True)) / sum(weights)
    between = sum(w * (mean(row) - centre) ** 2 for w, row in zip(weights, scores, strict=True)) / (k - 1)
    lost = sum((1 - w / sum(weights)) ** 2 / (len(row) - 1) for w, row in zip(weights, scores, strict=True))
    f = between / (1 + 2 * (k - 2) / (k**2 - 1) * lost)
    own = variance([mean(row) for row in scores]) - mean([variance(row) / len(row) for row in scores])
    over = mean([variance(row) for row in scores])
    return math.sqrt(max(0, own)), math.sqrt(over), stats.f.sf(f, k - 1, (k**2 - 1) / (3 * lost))


def power(n_seeds, difference):
    """Return how often a two-sided t test at .05 finds this difference, in deviations, to the right side.

    The noncentral t by its definition: a normal number over the root of a chi-square number.
    """
    freedom, shift = 2 * n_seeds - 2, difference * math.sqrt(n_seeds / 2)
    critical = stats.t.ppf(0.975, freedom)
    # A share q of the chi-square numbers lies below its quantile.
    found, _ = integrate.quad(
        lambda q: stats.norm.cdf(shift - critical * math.sqrt(stats.chi2.ppf(q, freedom) / freedom)), 0, 1
    )
    return found


def seeds_needed(ratio):
    """Count up to the first number of seeds that finds a difference of sqrt(2) sd between models in 80 %."""
    return next(n_seeds for n_seeds in range(2, 300) if power(n_seeds, math.sqrt(2) * ratio) >= 0.8)
