"""Paired differences, CGIM's jackknife, corrections and discoveries: by hand, by the reference, by their coverage."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats

from quantus_concepts.functional import (
    adjust_p_values,
    cgim,
    cgim_difference,
    find_discoveries,
    paired_difference,
)
from reference import comparisons
from refusals import refusals

UNBOUNDED = (-math.inf, math.inf)


def test_by_hand() -> None:
    # Two clusters with differences 0 and 1, as in test_intervals: standard error 1/2, 1 degree of freedom, t = 1.
    first, second, clusters = [1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 0.0, 0.0], ["a", "a", "b", "b"]
    result = paired_difference(first, second, clusters, UNBOUNDED)
    assert (result.first, result.second, result.difference, result.n, result.undefined) == (1, 0.5, 0.5, 4, 0)
    assert (result.low, result.high) == pytest.approx((0.5 - 12.7062 / 2, 0.5 + 12.7062 / 2), rel=1e-4)
    assert result.p == pytest.approx(0.5)  # arctan(1) is an eighth of the circle


def test_hits_by_hand() -> None:
    # Five images, all won: with a pair more on each side (Bonett and Price) the mean is 5/7; deviations 5 x (2/7)^2,
    # (2/7)^2 and (12/7)^2 sum to 168/49, over 7 x 6 images 4/49. t of 4 degrees of freedom: 2.7764.
    result = paired_difference([1, 1, 1, 1, 1], [0, 0, 0, 0, 0])
    assert (result.difference, result.low, result.high) == (1, pytest.approx(5 / 7 - 2.7764 * 2 / 7, abs=1e-4), 1)
    assert result.p == pytest.approx(2 * stats.t.sf(2.5, 4))
    # Five clusters with one sign are two of 32 patterns; a hit of .9999 is nearly one.
    assert 1 / 32 < result.p < 3 / 32
    nearly = paired_difference([1, 1, 0.9999, 1, 1], [0, 0, 0, 0, 0])
    assert nearly.p == pytest.approx(result.p, abs=1e-4)
    # Two models that agree on 30 images of 3 classes: 3 clusters and 2 of a third, all but the last two at 0.
    none = paired_difference(np.ones(30), np.ones(30), np.arange(30) % 3)
    error = math.sqrt(4 / 5 * 2 * (1 / 10) ** 2)  # shares 1/11, w = 1/10
    assert (none.difference, none.p) == (0, 1)
    assert (none.low, none.high) == pytest.approx((-4.3027 * error, 4.3027 * error), abs=1e-4)


@pytest.mark.parametrize("n_clusters", [2, 7])
def test_against_the_reference(n_clusters: int) -> None:
    rng = np.random.default_rng(n_clusters)
    clusters = rng.permutation(np.repeat(np.arange(n_clusters), rng.integers(1, 9, n_clusters)))
    first, second = rng.normal(size=(2, len(clusters))) + clusters % 3
    hits = (rng.random((2, len(clusters))) < 0.8).astype(float)
    for (a, b), bounded in (((first, second), False), ((first[::-1], second), False), (hits, True)):
        result = paired_difference(a, b, clusters)
        expected = comparisons.paired_difference(a.tolist(), b.tolist(), clusters.tolist(), bounded)
        assert (result.difference, result.low, result.high, result.p) == pytest.approx(expected, rel=1e-9)
        assert result.first - result.second == pytest.approx(result.difference)
        turned = paired_difference(b, a, clusters)
        assert (turned.difference, turned.low, turned.high) == pytest.approx(
            (-result.difference, -result.high, -result.low)
        )
    # A pair of which one side is undefined is left out of both means.
    result = paired_difference(first, second, clusters)
    further = paired_difference([*first, 3.0], [*second, math.nan], [*clusters, 99])
    assert further == result._replace(undefined=1)


def test_a_copy_differs_by_nothing() -> None:
    scores = np.random.default_rng(0).random(30)
    result = paired_difference(scores, scores.copy(), np.arange(30) % 5)
    assert (result.difference, result.p) == (0, 1)
    assert np.isnan([result.low, result.high]).all()
    matrix, truth = torch.randn(2, 6, 4, generator=torch.Generator().manual_seed(0))
    result = cgim_difference(matrix, matrix.clone(), truth.sigmoid())
    assert (result.difference, result.p) == (0, 1)
    assert np.isnan([result.low, result.high]).all()


def test_ends() -> None:
    # Unbounded differences that are all the same say nothing of others.
    same = paired_difference(np.full(10, 7.5), np.full(10, 5.0), np.arange(10) % 5)
    assert np.isnan([same.low, same.high, same.p]).all()
    assert same.difference == 2.5
    # The clusters' means are equal; the images differ.
    first, second = [0.0, 1.0] * 4, [0.5] * 8
    alternating = paired_difference(first, second, np.arange(8) // 2, UNBOUNDED)
    assert alternating == paired_difference(first, second, None, UNBOUNDED)
    assert alternating.p == 1
    for few in (paired_difference([1.0], [0.0]), paired_difference([1.0, 0.5], [0.0, 0.0], [1, 1])):
        assert np.isnan([few.low, few.high, few.p]).all()
        assert few.difference > 0
    assert np.isnan(paired_difference([math.nan], [1.0])[:5]).all()


def test_interval_and_p_value_are_of_one_estimate() -> None:
    rng = np.random.default_rng(4)
    excluded = 0
    for _ in range(400):
        n, n_clusters = rng.integers(2, 80), rng.integers(2, 12)
        first, second = (rng.random((2, n)) < rng.random((2, 1))).astype(float)
        clusters = rng.integers(0, n_clusters, n) if rng.random() < 0.5 else None
        result = paired_difference(first, second, clusters)
        if clusters is not None and len({*clusters}) < 2:
            continue
        assert result.high > result.low
        assert -1 <= result.low <= result.difference <= result.high <= 1
        assert (result.low > 0 or result.high < 0) == (result.p < 0.05)
        excluded += result.p < 0.05
    assert 50 < excluded < 350


@pytest.mark.parametrize("share", [0.01, 0.1])
@pytest.mark.parametrize(("n_classes", "size", "rho"), [(3, 10, 0), (10, 20, 0.3), (40, 1, 0)])
def test_coverage_of_hits_that_seldom_differ(n_classes: int, size: int, rho: float, share: float) -> None:
    rng = np.random.default_rng([n_classes, int(100 * share)])
    covered, rejected = [], []
    for _ in range(150):
        clusters = np.repeat(np.arange(n_classes), rng.geometric(1 / size, n_classes))
        chances = (
            rng.beta(*(p * (1 / rho - 1) for p in (share, 1 - share)), n_classes) if rho else np.full(n_classes, share)
        )
        lost = rng.random(len(clusters)) < chances[clusters]
        result = paired_difference(np.ones(len(clusters)), 1.0 - lost, clusters)
        covered.append(result.low <= share <= result.high)
        null = paired_difference(lost * rng.choice([-1.0, 1.0], len(clusters)), np.zeros(len(clusters)), clusters)
        rejected.append(null.p < 0.05)
        assert result.low < result.high
    # Two standard errors of a count of 150 are 3.6 %; it was .03 to .96 without pseudo-clusters.
    assert np.mean(covered) >= 0.93 - 0.036
    assert np.mean(rejected) <= 0.05 + 0.036


@pytest.mark.parametrize(("n_classes", "rho"), [(5, 0.3), (10, 0.0), (30, 0.1)])
def test_coverage_under_dependence(n_classes: int, rho: float) -> None:
    rng = np.random.default_rng([n_classes, int(10 * rho)])
    truth, covered, small = 0.1, [], []
    for _ in range(400):
        clusters = np.repeat(np.arange(n_classes), rng.geometric(1 / 15, n_classes))
        # Both models find the same images hard; the difference depends on the class.
        hard = rng.normal(size=len(clusters))
        effect = math.sqrt(rho) * rng.normal(size=n_classes)[clusters]
        first = hard + truth + effect + math.sqrt(1 - rho) * rng.normal(size=len(clusters))
        result = paired_difference(first, hard, clusters)
        covered.append(result.low <= truth <= result.high)
        null = paired_difference(first - truth, hard, clusters)
        small.append(null.p <= 0.05)
    # Two standard errors of a count of 400 are 2.2 %.
    assert 0.93 - 0.022 <= np.mean(covered) <= 0.97 + 0.022
    assert np.mean(small) == pytest.approx(1 - np.mean(covered))


def test_what_is_rounding_and_what_is_not() -> None:
    unbounded, scores = (-math.inf, math.inf), np.array([0.7, 1.3, 0.9, 1.1, 0.2])
    # Nothing anywhere: no difference, without a spread.
    nothing = paired_difference(np.zeros(5), np.zeros(5), bounds=unbounded)
    assert nothing.p == 1
    assert np.isnan([nothing.low, nothing.high]).all()
    # A constant: the differences are 0.1 but for their last bits, which say nothing of a spread.
    constant = paired_difference(scores + 0.1, scores, bounds=unbounded)
    assert np.ptp((scores + 0.1) - scores) > 0
    assert np.isnan([constant.low, constant.high, constant.p]).all()
    # Ten thousand times as much as rounding is a spread, however small.
    spread = 1e-11 * np.array([1, 2, 3, 4, 5])
    small = paired_difference(scores + spread, scores, bounds=unbounded)
    assert small.p == pytest.approx(stats.ttest_1samp(spread, 0).pvalue, rel=1e-3)
    assert small.low < small.difference < small.high
    # One cluster: nothing is known, not even of no difference.
    alone = paired_difference(scores, scores, np.zeros(5), bounds=unbounded)
    assert np.isnan([alone.low, alone.high, alone.p]).all()


@pytest.mark.parametrize(("per", "centred"), [("concept", True), ("class", False)])
def test_jackknife_against_the_reference(per: str, centred: bool) -> None:
    generator = torch.Generator().manual_seed(3)
    first, second = torch.randn(2, 7, 5, generator=generator)
    truth = torch.rand(7, 5, generator=generator)
    first[2, 0] = torch.nan
    truth[:, 4] = 0
    result = cgim_difference(first, second, truth, per, centred)
    kept = [0, 1, 3, 4, 5, 6]
    expected = comparisons.cgim_difference(*(m.double().numpy()[kept] for m in (first, second, truth)), per, centred)
    assert (result.difference, result.low, result.high, result.p) == pytest.approx(expected, rel=1e-6)
    assert (result.n, result.undefined) == ((4, 1) if per == "concept" else (6, 1))
    scores = cgim(first.double()[kept], truth.double()[kept], per, centred)
    assert result.first == pytest.approx(scores.nanmean().item())
    # No class is predicted correctly by both.
    first[:4], second[4:] = torch.nan, torch.nan
    nothing = cgim_difference(first, second, truth, per, centred)
    assert np.isnan([*nothing[:5], nothing.p]).all()
    assert (nothing.n, nothing.undefined) == (0, 5 if per == "concept" else 7)


def test_a_class_that_decides_the_jackknife() -> None:
    # One class has all truth: without it nothing is left to compare, and how far the difference may vary is unknown.
    truth = torch.zeros(6, 1)
    truth[0] = 1
    noise = torch.randn(2, 6, 1, generator=torch.Generator().manual_seed(0))
    result = cgim_difference(truth + 0.3 * noise[0], truth + 0.6 * noise[1], truth)
    assert result.n == 1
    assert math.isfinite(result.difference)
    assert np.isnan([result.low, result.high, result.p]).all()


def test_coverage_of_the_jackknife() -> None:
    covered = []
    rng = np.random.default_rng(0)

    def draw(n: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        truth = rng.random((n, 6))
        noise = rng.normal(size=(2, n, 6))
        return *(torch.as_tensor(truth + s * e) for s, e in zip((0.5, 0.3), noise, strict=True)), torch.as_tensor(truth)

    expected = np.mean([cgim_difference(*draw(20)).difference for _ in range(100)])
    for _ in range(200):
        result = cgim_difference(*draw(20))
        covered.append(result.low <= expected <= result.high)
    assert 0.93 <= np.mean(covered) <= 0.985


@pytest.mark.parametrize(("adjust", "reference"), [("holm", comparisons.holm), ("bh", comparisons.benjamini_hochberg)])
def test_corrections(adjust: str, reference) -> None:
    # By hand, m = 3: Holm 3 x .01, 2 x .02, max(.04, .03); Benjamini-Hochberg 3 x .01, 1.5 x .02, .03.
    by_hand = {"holm": [0.03, 0.04, 0.04], "bh": [0.03, 0.03, 0.03]}[adjust]
    np.testing.assert_allclose(adjust_p_values([0.01, 0.02, 0.03], adjust), by_hand)
    p = np.random.default_rng(0).random(40).round(2)
    np.testing.assert_allclose(adjust_p_values([*p, math.nan], adjust), [*reference(p.tolist()), math.nan])
    np.testing.assert_array_equal(adjust_p_values(p, "none"), p)


def test_discoveries_by_hand() -> None:
    draws = np.arange(1.0, 40)[:, None] + np.zeros(4)
    found = find_discoveries([0.0, 40.0, 20.5, math.nan], draws)
    # Nothing is as low as 0 or as high as 40: 2 (1 + 0) / 40. 19 draws are above 20.5.
    np.testing.assert_allclose(found.p, [0.05, 0.05, 2 * 20 / 40, math.nan])
    np.testing.assert_allclose(found.p_adjusted, [0.075, 0.075, 1, math.nan])
    assert not found.passed.any()
    assert (found.n_above, found.n_below, found.fewest) == (1, 1, 3)
    assert found.n_by_luck == pytest.approx(3 / 40)
    assert find_discoveries([0.0, 40.0, 20.5, math.nan], draws, alpha=0.1).passed.tolist() == [True, True, False, False]


def test_discoveries_with_ties_and_draws_that_are_not_known() -> None:
    draws = np.arange(1.0, 40)[:, None] + np.zeros(5)
    draws[:, 0] = 3
    # Of 9 known draws, 1 to 9, one is as high as 9.
    draws[9:, 1] = math.nan
    draws[:, 2] = math.nan
    found = find_discoveries([3.0, 9.0, 1.0, 38.0, 2.0], draws)
    # All 39 draws are as high as 3 and as low: at most 1. A draw of the same value counts, on both sides.
    np.testing.assert_allclose(found.p, [1, 2 * 2 / 10, math.nan, 2 * 3 / 40, 2 * 3 / 40])
    assert not found.passed.any()


def test_discoveries_under_the_null_and_with_planted_concepts() -> None:
    false, among, outside = 0, [], []
    rng = np.random.default_rng(1)
    for _ in range(50):
        draws, scores = rng.normal(size=(399, 40)), rng.normal(size=40)
        null = find_discoveries(scores, draws)
        false += null.passed.any()
        outside.append(null.n_above + null.n_below)
        scores[:10] += 5
        planted = find_discoveries(scores, draws)
        assert planted.passed[:10].sum() >= 8
        among.append(planted.passed[10:].sum() / max(1, planted.passed.sum()))
    assert false <= stats.binom.ppf(0.999, 50, 0.05)
    assert np.mean(among) <= 0.05
    assert np.mean(outside) == pytest.approx(2 * null.n_by_luck, rel=0.3)
    assert 2 * null.n_by_luck == pytest.approx(0.05 * 40)


test_refused = refusals(
    (lambda: paired_difference([1.0, 0.0], [1.0]), r"`second` .*\(N,\) = \(2,\) but got \(1,\)"),
    (
        lambda: paired_difference([1.0, 90.0], [0.0, 0.5], bounds=(0, 1)),
        "`first` to lie within .* but 1 of 2",
    ),
    (lambda: cgim_difference(torch.ones(2, 3), torch.ones(2, 2), torch.ones(2, 3)), "`second` to have shape"),
    (lambda: paired_difference([1.0, 0.0], [0.0, 0.0], [1]), r"`clusters` .*\(N,\) = \(2,\)"),
    (lambda: find_discoveries([1.0, 0.0], [[1.0], [0.0]]), r"`draws` .*\(n, L\) = \(\*, 2\)"),
)
