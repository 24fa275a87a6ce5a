"""Models and seeds: by hand, by the reference, and how often noise separates models and a difference is found."""

from __future__ import annotations

import math

import numpy as np
import pytest

from quantus_concepts.functional.statistics.reliability import Separation, crossed_models, seeds_needed, separate_models
from reference import reliability


def test_two_way_by_hand() -> None:
    # Means 1, 3, 5; every seed's mean is 3; rests -1 0 1, 0 0 0, 1 0 -1: error 4/4, F = 3 x 4 / 1. The covariance has
    # rank one, so that epsilon is 1/2: F of 1 and 2 degrees of freedom, t = sqrt(12), p = 1 - t / sqrt(2 + t^2).
    result = crossed_models(np.array([[0.0, 1, 2], [3, 3, 3], [6, 5, 4]]))
    assert result == pytest.approx(Separation(math.sqrt(4 - 1 / 3), math.sqrt(2 / 3), 1 - math.sqrt(12 / 14)))


def test_welch_by_hand() -> None:
    # Means 0, 1, 2, all variances 1: 3 / (1 + 2/8 x 2/3) = 18/7, with 2 and 8 / (3 x 2/3) = 4 degrees of freedom, of
    # which the tail is (1 + 2 x 18/7 / 4)^-2 = (7/16)^2.
    result = separate_models([np.array([-1.0, 0, 1]), np.array([0.0, 1, 2]), np.array([1.0, 2, 3])])
    assert result == pytest.approx(Separation(math.sqrt(1 - 1 / 3), 1, (7 / 16) ** 2))


@pytest.mark.parametrize(("n_models", "n_seeds"), [(2, 3), (3, 3), (4, 5), (7, 4)])
def test_against_the_reference(n_models: int, n_seeds: int) -> None:
    rng = np.random.default_rng([n_models, n_seeds])
    for size in (0.0, 2.0):
        deviations = 4 ** rng.uniform(-1, 1, (n_models, 1))
        scores = size * rng.normal(size=(n_models, 1)) + rng.normal(size=n_seeds)
        scores = scores + deviations * rng.normal(size=(n_models, n_seeds))
        assert crossed_models(scores) == pytest.approx(reliability.two_way(scores.tolist()))
        groups = [row[: n_seeds - (place == 0)] for place, row in enumerate(scores)]
        assert separate_models(groups) == pytest.approx(reliability.welch([group.tolist() for group in groups]))


def test_two_models_by_t_tests() -> None:
    # The paired t test over seeds, and Welch's: differences 1, 2, 3 have t = 2 / sqrt(1/3).
    paired = crossed_models(np.array([[1.0, 4, 3], [0.0, 2, 0]]))
    assert paired.p == pytest.approx(1 - math.sqrt(12 / 14))


def test_shift_and_unit_change_nothing() -> None:
    scores = np.random.default_rng(0).normal(size=(4, 5)) + np.arange(4)[:, None]
    for test in (crossed_models, separate_models):
        result, other = test(scores), test(7 - 100 * scores)
        assert other == pytest.approx(Separation(100 * result.sd_models, 100 * result.sd_seeds, result.p))
    # What a seed does to all models is no part of the difference between them.
    shared = crossed_models(scores + 10 * np.arange(5))
    assert (shared.sd_models, shared.p) == pytest.approx(crossed_models(scores)[::2])


def test_without_spread_there_is_no_test() -> None:
    for add in (np.zeros(3), np.array([0.1, 0.7, 0.3])):  # every difference is the same in all seeds, but for rounding
        result = crossed_models(np.array([[0.1], [0.2], [0.4]]) + add)
        assert math.isnan(result.p)
        assert result.sd_models == pytest.approx(np.std([0.1, 0.2, 0.4], ddof=1))
    constant = separate_models([np.array([0.1 + 0.2, 0.3, 0.3]), np.array([0.0, 1, 2]), np.array([1.0, 2, 3])])
    assert math.isnan(constant.p)


@pytest.mark.parametrize(("difference", "n"), [(2.0, 6), (1.2, 12), (1.0, 17), (0.8, 26), (0.5, 64), (0.2, 394)])
def test_seeds_needed_of_textbooks(difference: float, n: int) -> None:
    # Cohen's tables (1988): two groups, two-sided .05, power .8.
    assert seeds_needed(difference / math.sqrt(2)) == n


def test_seeds_needed() -> None:
    for ratio in (0.8, 1.3, 2.0, 5.0):
        assert seeds_needed(ratio) == reliability.seeds_needed(ratio)
    # Many and few: never fewer for a smaller difference.
    counted = [seeds_needed(ratio) for ratio in np.geomspace(0.01, 1000, 200)]
    assert counted == sorted(counted, reverse=True)
    assert counted[-1] == seeds_needed(1e300) == 2
    assert seeds_needed(0) == math.inf


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("deviations", [(1.0, 1, 1, 1), (0.2, 0.2, 0.2, 1)])
def test_noise_does_not_separate_models(deviations: tuple[float, ...], shared: bool) -> None:
    rng = np.random.default_rng([len(deviations), shared, int(10 * deviations[0])])
    scores = np.array(deviations)[:, None] * rng.normal(size=(800, 4, 4)) + shared * rng.normal(size=(800, 1, 4))
    # At most 6 %, with two standard errors of a count of 800; one-way F rejects 16 % where one model varies.
    assert np.mean([crossed_models(draw).p <= 0.05 for draw in scores]) <= 0.06 + 0.017


def test_models_are_found() -> None:
    rng = np.random.default_rng(1)
    between, seeds = 2 * rng.normal(size=(400, 4, 1)), rng.normal(size=(400, 1, 4))
    scores = between + math.sqrt(0.5) * (seeds + rng.normal(size=(400, 4, 4)))
    results = [crossed_models(draw) for draw in scores]
    assert np.mean([result.p <= 0.05 for result in results]) >= 0.85
    assert np.sqrt(np.mean([result.sd_models**2 for result in results])) == pytest.approx(2, rel=0.1)
    assert np.sqrt(np.mean([result.sd_seeds**2 for result in results])) == pytest.approx(1, rel=0.1)
