"""Intervals of means and ranges of random baselines: by hand, by a slow reference, and by their coverage."""

from __future__ import annotations

import math

import numpy as np
import pytest

from quantus_concepts.functional import baseline_range, interval
from quantus_concepts.functional.intervals import baseline_coverage
from reference.intervals import cluster_interval, range_of_draws

UNBOUNDED = (-math.inf, math.inf)


def test_two_equal_clusters_by_hand():
    # Cluster means 0 and 1, a = 1/2, w = 1: variance 1/2 (1/4 + 1/4) = 1/4. With n_g = 2, N = 4: B S B' =
    # diag(1/2) - 1/4, whose trace is 1/2 and the trace of its square 1/4: 1 degree of freedom, t = 12.706.
    low, high = interval([0.0, 0.0, 1.0, 1.0], UNBOUNDED, [0, 0, 1, 1])
    assert (low, high) == pytest.approx((0.5 - 12.7062 / 2, 0.5 + 12.7062 / 2), rel=1e-4)


@pytest.mark.parametrize("n_clusters", [2, 3, 7, 40])
def test_clusters_against_the_reference(n_clusters):
    rng = np.random.default_rng(n_clusters)
    clusters = rng.permutation(np.repeat(np.arange(n_clusters), rng.integers(1, 9, n_clusters)))
    scores = rng.normal(size=len(clusters)) + clusters % 3
    *_, expected = cluster_interval(scores.tolist(), clusters.tolist())
    assert interval(scores, UNBOUNDED, clusters) == pytest.approx(expected, rel=1e-9)
    # NaN are left out with their clusters.
    assert interval([*scores, math.nan], UNBOUNDED, [*clusters, 99]) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("n_clusters", [3, 5, 10, 30])
@pytest.mark.parametrize("kind", ["cluster effects", "independent", "0 and 1"])
def test_coverage_of_clusters_of_unequal_size(kind, n_clusters):
    rng = np.random.default_rng([n_clusters, len(kind)])
    covered = []
    for _ in range(800):
        clusters = np.repeat(np.arange(n_clusters), rng.geometric(1 / 20, n_clusters))
        if kind == "0 and 1":
            scores = rng.random(len(clusters)) < rng.beta(4, 4, n_clusters)[clusters]
        else:
            effects = rng.normal(size=n_clusters) * (kind == "cluster effects")
            scores = effects[clusters] + rng.normal(size=len(clusters)) + 0.5
        low, high = interval(scores, (0.0, 1.0) if kind == "0 and 1" else UNBOUNDED, clusters)
        covered.append(low <= 0.5 <= high)
    # Two standard errors of a count of 800 are 1.5 %.
    assert np.mean(covered) >= 0.93 - 0.015
    assert np.mean(covered) <= 0.995


@pytest.mark.parametrize(("n", "scores"), [(10, "normal"), (40, "0 and 1"), (200, "0 and 1")])
def test_coverage_without_clusters(n, scores):
    rng = np.random.default_rng(n)
    samples = rng.normal(0.5, 1, (2000, n)) if scores == "normal" else (rng.random((2000, n)) < 0.5).astype(float)
    bounds = UNBOUNDED if scores == "normal" else (0.0, 1.0)
    ends = np.array([interval(row, bounds) for row in samples])
    assert np.mean((ends[:, 0] <= 0.5) & (ends[:, 1] >= 0.5)) == pytest.approx(0.95, abs=0.02)


def test_too_few_scores_have_no_interval():
    assert np.isnan(interval([])).all()
    assert np.isnan(interval([math.nan])).all()
    assert np.isnan(interval([0.5], UNBOUNDED)).all()
    assert np.isnan(interval([0.2, 0.4], UNBOUNDED, [3, 3])).all()
    # All at the end of the scale: five clusters tell as much as five scores.
    assert interval(np.ones(50), clusters=np.arange(50) % 5) == interval(np.ones(5))
    # Clusters of equal means: the samples vary all the same.
    scores = [0.0, 1.0] * 4
    assert interval(scores, clusters=np.arange(8) // 2) == interval(scores)


@pytest.mark.parametrize("n", [1, 2, 10, 38, 39, 40, 79, 1000])
def test_ranges_against_ranks(n):
    draws = np.random.default_rng(n).normal(size=n)
    assert baseline_range([*draws, math.nan]) == pytest.approx(range_of_draws(draws.tolist()))
    if n <= 39:
        assert baseline_range(draws) == (draws.min(), draws.max())


@pytest.mark.parametrize("n", [5, 20, 39, 79])
def test_a_range_encloses_its_share_of_further_draws(n):
    # Of uniform draws the share below a number is the number.
    draws = np.random.default_rng(n).random((4000, n))
    low, high = np.transpose([baseline_range(row) for row in draws])
    assert np.mean(high - low) == pytest.approx(baseline_coverage(n), abs=0.012)
    assert np.mean(1 - high) == pytest.approx(np.mean(low), abs=0.012)
    assert baseline_coverage(39) == baseline_coverage(79) == 0.95
    assert baseline_coverage(20) == pytest.approx(19 / 21)


def test_no_draws_have_no_range():
    assert np.isnan(baseline_range([])).all()
    assert baseline_coverage(0) == baseline_coverage(1) == 0
