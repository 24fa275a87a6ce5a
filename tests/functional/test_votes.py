"""Differences of the votes on two explainers: by hand, against loops, and without a difference."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from quantus_concepts.functional.statistics.votes import vote_difference


def by_loops(first: np.ndarray, second: np.ndarray) -> tuple[float, float, float, float]:
    """Return difference, low, high and p: the widest of three intervals."""
    n_raters, n_images = first.shape
    pairs = [
        (rater, image, first[rater, image] - second[rater, image])
        for rater in range(n_raters)
        for image in range(n_images)
        if not math.isnan(first[rater, image] - second[rater, image])
    ]
    means = []
    for place in (1, 0):
        names = sorted({pair[place] for pair in pairs})
        means.append(
            [sum(p[2] for p in pairs if p[place] == name) / sum(p[place] == name for p in pairs) for name in names]
        )
    variances = []
    for values in means:
        middle = sum(values) / len(values)
        spread = sum((value - middle) ** 2 for value in values) / (len(values) - 1) / len(values)
        variances.append(max(spread, 1 / 6 / len(pairs)))
    frees = [len(values) - 1 for values in means]
    larger = frees[0] if variances[0] > variances[1] else frees[1]
    difference = sum(means[0]) / len(means[0])
    halves, ps = [], []
    for variance, free in ((variances[0], frees[0]), (variances[1], frees[1]), (sum(variances), larger)):
        halves.append(stats.t.ppf(0.975, free) * math.sqrt(variance))
        ps.append(2 * stats.t.sf(abs(difference) / math.sqrt(variance), free))
    return difference, max(-4, difference - max(halves)), min(4, difference + max(halves)), max(ps)


def draw(rng: np.random.Generator, n_raters: int, n_images: int, planted: float = 0.0) -> np.ndarray:
    """Return votes (2, A, N) of raters that differ on images that differ, in how much better they find the first."""
    level = rng.normal(3, 0.7, n_images) + rng.normal(0, 0.5, (n_raters, 1))
    liking = planted + rng.normal(0, 0.3, (n_raters, 1)) + rng.normal(0, 0.3, n_images)
    meant = np.stack([level + liking, level]) + rng.normal(0, 0.6, (2, n_raters, n_images))
    return np.clip(np.rint(meant), 1, 5)


@pytest.mark.parametrize("seed", range(12))
def test_difference_is_that_of_loops(seed: int) -> None:
    rng = np.random.default_rng(seed)
    votes = draw(rng, 2 + seed % 5, 3 + seed, planted=0.5)
    votes[rng.random(votes.shape) < 0.2] = np.nan
    found = vote_difference(*votes)
    assert (found.difference, found.low, found.high, found.p) == pytest.approx(by_loops(*votes), rel=1e-9)
    assert found.n == int((~np.isnan(votes).any(0)).sum())
    assert found.undefined == int((np.isnan(votes[0]) != np.isnan(votes[1])).sum())
    assert (found.p < 0.05) == (found.low > 0 or found.high < 0)
    assert found.first - found.second == pytest.approx(found.difference)


def test_difference_by_hand() -> None:
    # Differences 1, 1, 2, 2 of one rater and 1, 1, 2, 0 of another: by image 1, 1, 2, 1, by rater 1.5 and 1.
    first, second = np.array([[3, 4, 5, 5], [3, 4, 5, 3.0]]), np.array([[2, 3, 3, 3], [2, 3, 3, 3.0]])
    found = vote_difference(first, second)
    assert (found.first, found.second, found.difference, found.n, found.undefined) == (4, 2.75, 1.25, 8, 0)
    # Variances 0.25 / 4 of images and 0.125 / 2 of raters, which have one degree of freedom: that of the sum, too.
    assert (found.low, found.high) == pytest.approx((1.25 - 12.7062 * math.sqrt(0.125), 4.0), abs=1e-4)


def test_equal_differences_have_an_interval() -> None:
    level = np.array([[1, 2, 3], [2, 3, 4.0]])
    found = vote_difference(np.tile(level, (5, 4)) + 1, np.tile(level, (5, 4)))
    # 120 votes on each: neither part is below 1 / 720; the sum has the fewer degrees of freedom, those of ten raters.
    assert found.difference == 1
    assert (found.low, found.high) == pytest.approx([1 + sign * 2.262157 * math.sqrt(2 / 720) for sign in (-1, 1)])
    assert 0 < found.p < 1e-7
    same = vote_difference(level, level)
    assert (same.difference, same.p) == (0, 1)
    assert same.low < 0 < same.high


def test_what_has_no_pair_has_no_interval() -> None:
    nan = np.nan
    alone = vote_difference([[1, nan], [nan, 2.0]], [[nan, 3.0], [4.0, nan]])
    assert (alone.n, alone.undefined) == (0, 4)
    assert math.isnan(alone.difference)
    one = vote_difference([[1, nan], [2, 2.0]], [[3.0, 3.0], [4.0, nan]])
    assert (one.n, one.undefined, one.difference) == (2, 2, -2)
    assert np.isnan([one.low, one.high, one.p]).all()


def test_without_raters_images_alone_vary() -> None:
    first, second = np.array([[3.5, 4, 4.5, 2]]), np.array([[3, 3, 3, 3.0]])
    found = vote_difference(first, second)
    result = stats.ttest_rel(first[0], second[0])
    ends = result.confidence_interval()
    assert (found.low, found.high, found.p) == pytest.approx((ends.low, ends.high, result.pvalue))


@pytest.mark.parametrize(("n_raters", "n_images"), [(3, 12), (10, 12), (30, 40)])
def test_size_and_power(n_raters: int, n_images: int) -> None:
    rng = np.random.default_rng(0)
    null = np.mean([vote_difference(*draw(rng, n_raters, n_images)).p < 0.05 for _ in range(150)])
    assert null <= 0.09
    planted = np.mean([vote_difference(*draw(rng, n_raters, n_images, 1.0)).p < 0.05 for _ in range(30)])
    assert planted > (0.5 if n_raters == 3 else 0.9)


def test_bad_votes() -> None:
    with pytest.raises(ValueError, match="`second` to have shape"):
        vote_difference(np.ones((2, 3)), np.ones((2, 4)))
    with pytest.raises(ValueError, match=r"`first` to lie in \[1, 5\]"):
        vote_difference(np.zeros((2, 3)), np.ones((2, 3)))
