"""Intervals of means and ranges of random baselines: by hand, by a slow reference, and by their coverage."""

from __future__ import annotations

import math

import numpy as np
import pytest

from quantus_concepts.functional import baseline_range, interval, seeds_interval
from quantus_concepts.functional.statistics.intervals import baseline_coverage
from reference.comparisons import bounded_cluster_interval
from reference.comparisons import seeds_interval as seeds_reference
from reference.intervals import cluster_interval, range_of_draws
from refusals import refusals

UNBOUNDED = (-math.inf, math.inf)


def test_two_equal_clusters_by_hand():
    # Cluster means 0 and 1, a = 1/2, w = 1: variance 1/2 (1/4 + 1/4) = 1/4. With n_g = 2, N = 4: B S B' =
    # diag(1/2) - 1/4, whose trace is 1/2 and the trace of its square 1/4: 1 degree of freedom, t = 12.706.
    low, high = interval([0.0, 0.0, 1.0, 1.0], UNBOUNDED, [0, 0, 1, 1])
    assert (low, high) == pytest.approx((0.5 - 12.7062 / 2, 0.5 + 12.7062 / 2), rel=1e-4)


@pytest.mark.parametrize("n_clusters", [2, 3, 40])
def test_clusters_against_the_reference(n_clusters):
    rng = np.random.default_rng(n_clusters)
    clusters = rng.permutation(np.repeat(np.arange(n_clusters), rng.integers(1, 9, n_clusters)))
    scores = rng.normal(size=len(clusters)) + clusters % 3
    *_, expected = cluster_interval(scores.tolist(), clusters.tolist())
    assert interval(scores, UNBOUNDED, clusters) == pytest.approx(expected, rel=1e-9)
    # NaN are left out with their clusters.
    assert interval([*scores, math.nan], UNBOUNDED, [*clusters, 99]) == pytest.approx(expected, rel=1e-9)
    scores = rng.random(len(clusters)).round(1)
    expected = bounded_cluster_interval(scores.tolist(), clusters.tolist())
    assert interval(scores, clusters=clusters) == pytest.approx(expected, rel=1e-9)
    expected = bounded_cluster_interval(scores.tolist(), clusters.tolist(), (-1.0, 2.0))
    assert interval(scores, (-1, 2), clusters) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("n_clusters", [3, 10])
@pytest.mark.parametrize("kind", ["cluster effects", "independent", "0 and 1"])
def test_coverage_of_clusters_of_unequal_size(kind, n_clusters):
    rng = np.random.default_rng([n_clusters, len(kind)])
    covered = []
    for _ in range(400):
        clusters = np.repeat(np.arange(n_clusters), rng.geometric(1 / 20, n_clusters))
        if kind == "0 and 1":
            scores = rng.random(len(clusters)) < rng.beta(4, 4, n_clusters)[clusters]
        else:
            effects = rng.normal(size=n_clusters) * (kind == "cluster effects")
            scores = effects[clusters] + rng.normal(size=len(clusters)) + 0.5
        low, high = interval(scores, (0.0, 1.0) if kind == "0 and 1" else UNBOUNDED, clusters)
        covered.append(low <= 0.5 <= high)
    # Two standard errors of a count of 400 are 2.2 %.
    assert np.mean(covered) >= 0.93 - 0.022
    # With few clusters the pseudo-clusters make an interval that hardly ever misses.
    assert kind == "0 and 1" or np.mean(covered) <= 0.995


@pytest.mark.parametrize(("n", "scores"), [(10, "normal"), (40, "0 and 1")])
def test_coverage_without_clusters(n, scores):
    rng = np.random.default_rng(n)
    samples = rng.normal(0.5, 1, (1000, n)) if scores == "normal" else (rng.random((1000, n)) < 0.5).astype(float)
    bounds = UNBOUNDED if scores == "normal" else (0.0, 1.0)
    ends = np.array([interval(row, bounds) for row in samples])
    assert np.mean((ends[:, 0] <= 0.5) & (ends[:, 1] >= 0.5)) == pytest.approx(0.95, abs=0.02)


def test_too_few_scores_have_no_interval():
    assert np.isnan(interval([])).all()
    assert np.isnan(interval([math.nan])).all()
    assert np.isnan(interval([0.5], UNBOUNDED)).all()
    assert np.isnan(interval([0.2, 0.4], UNBOUNDED, [3, 3])).all()
    # All at the end of the scale: five clusters tell as much as five scores, whatever the scale.
    assert interval(np.ones(50), clusters=np.arange(50) % 5) == interval(np.ones(5))
    five_ends = interval([5, 5, 5], (1, 5))
    assert five_ends == pytest.approx([1 + 4 * end for end in interval([1, 1, 1])])
    # Clusters of equal means: the samples vary all the same.
    scores = [0.0, 1.0] * 4
    assert interval(scores, UNBOUNDED, np.arange(8) // 2) == interval(scores, UNBOUNDED)


@pytest.mark.parametrize("n", [2, 3, 20])
@pytest.mark.parametrize("score", [0.0, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("bounds", [(0.0, 1.0), (-1.0, 1.0), (1 - 1e9, 1.0)])
def test_equal_scores_have_a_wide_interval(score, n, bounds):
    for clusters in (None, range(n), np.arange(n) % 2):
        low, high = interval([score] * n, bounds, clusters)
        assert low <= score <= high
        # n draws that are all alike do not exclude a share of others of 1 / n.
        assert high - low > (bounds[1] - bounds[0]) / n / 4
    low, high = seeds_interval([[score] * n] * 3, bounds=bounds)
    assert low <= score <= high
    assert high - low > (bounds[1] - bounds[0]) / n / 4


def test_equal_scores_without_bounds_have_no_interval():
    # .1 + .2 - .3 is rounding.
    for scores in ([0.5] * 3, [3.0] * 3, [0.1 + 0.2, 0.3, 0.3]):
        assert np.isnan(interval(scores, UNBOUNDED)).all()
        assert np.isnan(interval(scores, UNBOUNDED, [0, 1, 2])).all()
        assert np.isnan(seeds_interval([scores] * 2, bounds=UNBOUNDED)).all()


@pytest.mark.parametrize("n", [1, 10, 39, 40, 79, 1000])
def test_ranges_against_ranks(n):
    draws = np.random.default_rng(n).normal(size=n)
    assert baseline_range([*draws, math.nan]) == pytest.approx(range_of_draws(draws.tolist()))


@pytest.mark.parametrize("n", [5, 39, 79])
def test_a_range_encloses_its_share_of_further_draws(n):
    # Of uniform draws the share below a number is the number.
    draws = np.random.default_rng(n).random((2000, n))
    low, high = np.transpose([baseline_range(row) for row in draws])
    assert np.mean(high - low) == pytest.approx(baseline_coverage(n), abs=0.012)
    assert np.mean(1 - high) == pytest.approx(np.mean(low), abs=0.012)
    assert baseline_coverage(39) == baseline_coverage(79) == 0.95
    assert baseline_coverage(20) == pytest.approx(19 / 21)
    assert baseline_coverage(0) == baseline_coverage(1) == 0
    assert np.isnan(baseline_range([])).all()


def test_bounded_clusters_by_hand():
    # Twenty clusters of three scores, ten of them 1, and pseudo-clusters of one score: shares 3/62 and 1/62, w 3/59 and
    # 1/61, all at 1/2 from the mean. Twenty equal clusters have 19 degrees of freedom, t = 2.0930.
    clusters = np.repeat(np.arange(20), 3)
    error = math.sqrt(21 / 22 * (20 * (3 / 59) ** 2 + 2 * (1 / 61) ** 2) / 4)
    low, high = interval([0] * 30 + [1] * 30, clusters=clusters)
    assert (low, high) == pytest.approx((0.5 - 2.0930 * error, 0.5 + 2.0930 * error), abs=1e-4)
    # With 19 clusters of ones the mean of real and pseudo-clusters is 58 / 62, not 19 / 20.
    ones, zeros = (4 / 62) ** 2, (58 / 62) ** 2
    error = math.sqrt(21 / 22 * ((3 / 59) ** 2 * (19 * ones + zeros) + (1 / 61) ** 2 * (ones + zeros)))
    assert interval([0] * 3 + [1] * 57, clusters=clusters) == (pytest.approx(58 / 62 - 2.0930 * error, abs=1e-4), 1)
    # Two clusters of 60 with 30 and 33 ones: each deviates by 1.5 scores, 3 halves of the range, so that the
    # pseudo-clusters have 6 scores, not 20. Shares 60/132 and 6/132, w 60/72 and 6/126, mean 69/132.
    mean = 69 / 132
    error = math.sqrt(
        3
        / 4
        * ((60 / 72) ** 2 * ((0.5 - mean) ** 2 + (0.55 - mean) ** 2) + (6 / 126) ** 2 * (mean**2 + (1 - mean) ** 2))
    )
    two = interval([0] * 30 + [1] * 30 + [0] * 27 + [1] * 33, clusters=np.repeat([0, 1], 60))
    assert two == pytest.approx((max(0, mean - 12.7062 * error), min(1, mean + 12.7062 * error)), abs=1e-4)
    # Single scores have pseudo-clusters of one, not of a third: 22 equal clusters, ten and eleven ones.
    error = math.sqrt(21 / 22 * 22 * (1 / 21) ** 2 / 4)
    low, high = interval([0] * 10 + [1] * 10, clusters=range(20))
    assert (low, high) == pytest.approx((0.5 - 2.0930 * error, 0.5 + 2.0930 * error), abs=1e-4)


@pytest.mark.parametrize(("mean", "rho", "n_clusters"), [(0.95, 0.3, 10), (0.98, 0.1, 10), (0.98, 0.3, 30)])
def test_coverage_near_the_end(mean, rho, n_clusters):
    rng = np.random.default_rng([int(100 * mean), int(10 * rho), n_clusters])
    covered, without = [], []
    strength = 1 / rho - 1
    for _ in range(300):
        clusters = np.repeat(np.arange(n_clusters), rng.geometric(1 / 20, n_clusters))
        chances = rng.beta(mean * strength, (1 - mean) * strength, n_clusters)
        scores = (rng.random(len(clusters)) < chances[clusters]).astype(float)
        for bounds, hits in (((0.0, 1.0), covered), (UNBOUNDED, without)):
            low, high = interval(scores, bounds, clusters)
            hits.append(low <= mean <= high)
    # Two standard errors of a count of 300 are 2.5 %.
    assert np.mean(covered) >= 0.93 - 0.025
    # Without the pseudo-clusters.
    assert np.mean(without) < 0.93


def test_seeds_against_the_reference():
    rng = np.random.default_rng(0)
    clusters = rng.permutation(np.repeat(np.arange(6), rng.integers(2, 9, 6)))
    scores = rng.random((4, len(clusters))) + rng.normal(0, 0.1, (4, 1))
    expected = seeds_reference(scores, clusters.tolist())
    assert seeds_interval(scores, clusters, UNBOUNDED) == pytest.approx(expected, rel=1e-9)
    for spread in (1, 20):  # with the second one v2 > v1
        apart = (scores + spread * scores.mean(1, keepdims=True) - spread * scores.mean()).clip(0, 1)
        for bounds in ((0.0, 1.0), (-1.0, 1.0), (-0.5, 2.0)):
            expected = seeds_reference(apart, clusters.tolist(), bounds)
            assert seeds_interval(apart, clusters, bounds) == pytest.approx(expected, rel=1e-9)
    # NaN are left out, an image that has no score with it.
    expected = seeds_reference(scores, clusters.tolist())
    further = np.concatenate([scores, np.full((4, 1), math.nan)], 1)
    assert seeds_interval(further, [*clusters, 9], UNBOUNDED) == pytest.approx(expected, rel=1e-9)


def test_seeds_by_hand():
    # Images 0 and 1, seeds that agree: only the images vary, as for one seed. Then only the seeds vary.
    assert seeds_interval([[0.0, 1.0]] * 3, bounds=UNBOUNDED) == pytest.approx(interval([0.0, 1.0], UNBOUNDED))
    assert seeds_interval([[0.0, 0.0], [1.0, 1.0]], bounds=UNBOUNDED) == pytest.approx(interval([0.0, 1.0], UNBOUNDED))
    assert seeds_interval([[0.25, 1.0, 0.5]], [0, 1, 1]) == interval([0.25, 1.0, 0.5], clusters=[0, 1, 1])
    assert seeds_interval(np.ones((2, 20))) == interval(np.ones(20))
    assert np.isnan(seeds_interval([[0.1, 0.2], [0.3, 0.4]], [1, 1])).all()


@pytest.mark.parametrize(("n_seeds", "n_classes"), [(3, 30), (10, 10)])
def test_coverage_over_seeds(n_seeds, n_classes):
    rng = np.random.default_rng([n_seeds, n_classes])
    covered, seeds_alone = [], []
    for _ in range(300):
        clusters = np.repeat(np.arange(n_classes), rng.geometric(1 / 15, n_classes))
        images = 0.3 * rng.normal(size=n_classes)[clusters] + 0.5 * rng.normal(size=len(clusters))
        seeds = 0.1 * rng.normal(size=(n_seeds, 1))
        scores = images + seeds + 0.3 * rng.normal(size=(n_seeds, len(clusters)))
        low, high = seeds_interval(scores, clusters, UNBOUNDED)
        covered.append(low <= 0 <= high)
        low, high = interval(scores.mean(1), UNBOUNDED)
        seeds_alone.append(low <= 0 <= high)
    assert 0.92 - 0.025 <= np.mean(covered) <= 0.97 + 0.025
    assert np.mean(seeds_alone) < 0.93


def test_seeds_that_differ_more_than_the_images_by_hand():
    # Of one accuracy on 200 images each the seeds' means are .7, .8 and .9: v2 is .01 / 3, and the images hardly vary.
    # t with 2 degrees of freedom is 4.3027; on the logit scale an error e of .8 is e / .16.
    scores = np.stack([np.full(200, mean) for mean in (0.7, 0.8, 0.9)])
    half = 4.3027 * math.sqrt(0.01 / 3) / 0.16
    expected = [1 / (1 + math.exp(-math.log(4) - end)) for end in (-half, half)]
    assert seeds_interval(scores) == pytest.approx(expected, abs=0.005)
    # Without bounds on their own scale.
    half = 4.3027 * math.sqrt(0.01 / 3)
    assert seeds_interval(scores + np.linspace(-1e-6, 1e-6, 200), bounds=UNBOUNDED) == pytest.approx(
        (0.8 - half, 0.8 + half), abs=1e-4
    )


@pytest.mark.parametrize(("n_seeds", "deviation"), [(3, 0.6), (5, 0.6), (3, 0.3)])
def test_coverage_over_seeds_that_differ_much(n_seeds, deviation):
    rng = np.random.default_rng([n_seeds, int(10 * deviation)])
    clusters = np.repeat(np.arange(40), 10)
    # Accuracies of the seeds have a deviation of .13 with .6; .82 to .91 was covered before.
    truth = 0.5 * (1 + math.erf(1.2 / math.sqrt(0.25 + 0.49 + deviation**2 + 0.25) / math.sqrt(2)))
    covered = []
    for _ in range(300):
        images = rng.normal(0, 0.5, 40)[clusters] + rng.normal(0, 0.7, 400)
        trainings = rng.normal(0, deviation, (n_seeds, 1)) + rng.normal(0, 0.5, (n_seeds, 400))
        low, high = seeds_interval((images + trainings > -1.2).astype(float), clusters)
        covered.append(low <= truth <= high)
    assert np.mean(covered) >= 0.94 - 0.025


@pytest.mark.parametrize(("mean", "n_classes", "rho"), [(0.95, 5, 0.3), (0.98, 10, 0.1), (0.98, 25, 0.3)])
def test_coverage_over_seeds_near_one(mean, n_classes, rho):
    rng = np.random.default_rng([int(100 * mean), n_classes])
    strength = 1 / rho - 1
    covered = []
    for _ in range(300):
        clusters = np.repeat(np.arange(n_classes), rng.geometric(1 / 20, n_classes))
        chances = rng.beta(mean * strength, (1 - mean) * strength, n_classes)[clusters]
        # Four fifths of the images have one score with all seeds.
        images = rng.random(len(clusters)) < chances
        anew = rng.random((3, len(clusters))) < chances
        scores = np.where(rng.random(anew.shape) < 0.8, images, anew).astype(float)
        low, high = seeds_interval(scores, clusters)
        covered.append(low <= mean <= high)
    # It was .65 to .85 without pseudo-clusters.
    assert np.mean(covered) >= 0.93 - 0.025


test_refused = refusals(
    (
        lambda: interval([85, 90, 95, 99]),
        "`scores` to lie within .* 0 to 1 but 4 of 4 .* from 85 to 99",
    ),
    (lambda: interval([-0.2, 0.1, 0.3], clusters=[0, 1, 1]), "`scores` to lie within the bounds 0 to 1 but 1 of 3"),
    (lambda: seeds_interval([[-0.2, 0.1], [0.3, math.nan]]), "`scores` to lie within the bounds 0 to 1 but 1 of 4"),
    (lambda: interval([0.5, 1.0], clusters=[0]), r"`clusters` to have shape \(N,\) = \(2,\)"),
    (lambda: seeds_interval([[0.1, 0.2], [0.3, 0.4]], [1]), r"`clusters` to have shape \(N,\) = \(2,\)"),
    (lambda: seeds_interval([0.5, 1.0]), r"`scores` to have shape \(S, N\) but got \(2,\)"),
)
