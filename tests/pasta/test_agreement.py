from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from quantus_concepts.functional.statistics.votes import join_votes
from quantus_concepts.pasta.agreement import ceiling, figures, human_figures, quadratic_kappa
from reference import ratings as reference
from refusals import refusals

NAN = np.nan


def noisy_votes(n_items, n_annotators, noise, seed=0):
    """Votes of raters whose expected vote is known, and that vote."""
    generator = np.random.default_rng(seed)
    truth = np.clip(3 + 1.1 * generator.standard_normal(n_items), 1, 5)

    def vote(n):
        return np.clip(np.rint(truth[:, None] + noise * generator.standard_normal((n_items, n))), 1, 5)

    return vote(n_annotators), vote(500).mean(1)


def test_figures_agree_with_the_reference():
    generator = np.random.default_rng(0)
    targets = generator.integers(1, 6, 120).astype(float)
    scores = np.clip(targets + generator.standard_normal(120), 1, 5)
    measured, rounded = figures(scores, torch.as_tensor(targets)), np.rint(scores)
    assert measured.mse == pytest.approx(reference.squared_loss(scores, targets))
    assert measured.qwk == pytest.approx(reference.kappa(rounded, targets))
    assert measured.spearman == pytest.approx(reference.spearman(scores, targets))
    assert measured.spearman_rounded == pytest.approx(reference.spearman(rounded, targets))


def test_halves_are_rounded_up_on_both_sides():
    # As the release rounds; NumPy and torch round 2.5 to 2.
    assert figures([2.5, 1, 4.5], [3, 1, 5]).qwk == figures([3, 1, 5], [2.5, 1, 4.5]).qwk == 1
    assert figures([2.5, 3.5, 1.0], [1.0, 2.0, 3.0]).spearman_rounded == figures([3, 4, 1], [1, 2, 3]).spearman


def test_figures_by_hand_best_worst_and_undefined():
    measured = figures([1.4, 2.0, 3.6, NAN, 5.0], [1, 3, 4, 2, NAN])
    # rounded 1, 2, 4 against 1, 3, 4; squared cost 1 / 3, expected over the nine pairs 29 / 9
    assert (measured.mse, measured.qwk) == pytest.approx(((0.16 + 1 + 0.16) / 3, 1 - (1 / 3) / (29 / 9)))
    assert (measured.n, measured.missing) == (3, 2)
    best = figures([1, 2, 5], [1, 2, 5])
    assert (best.mse, best.qwk, best.spearman) == (0, 1, pytest.approx(1))
    assert figures([5, 3, 1], [1, 3, 5]).qwk == pytest.approx(-1)
    constant = figures([3, 3, 3], [1, 3, 5])
    assert constant.qwk == 0
    assert math.isnan(constant.spearman)
    assert math.isnan(figures([3, 3], [3, 3]).qwk)
    assert math.isnan(figures([NAN], [3]).mse)


def test_fast_kappa_agrees_with_the_reference():
    generator = torch.Generator().manual_seed(0)
    votes = torch.randint(1, 6, (4, 300), generator=generator).double()
    predicted = (votes + torch.randint(-1, 3, (4, 300), generator=generator)).clamp(1, 5)
    votes[1, ::3] = torch.nan
    predicted[2] = 3
    votes[3], predicted[3] = 2, 2
    kappas = quadratic_kappa(predicted, votes)
    for q in range(3):
        voted = ~votes[q].isnan()
        expected = reference.kappa(predicted[q, voted].tolist(), votes[q, voted].tolist())
        assert kappas[q].item() == pytest.approx(expected, abs=1e-12)
    assert kappas[3].isnan()


def test_human_by_hand():
    votes = np.array([[1, 1, 2], [3, 3, 3], [5, 4, 5], [2, NAN, NAN], [NAN, 4, 4]], dtype=float)
    human = human_figures(votes)
    # the fourth item has one vote; joined 1, 3, 5, 4; differences 0, 0, 0 / 0, 0, -1, 0 / 1, 0, 0, 0
    assert human.mse == pytest.approx(2 / 11)
    assert (human.n, human.missing) == (4, 1)
    assert human_figures(np.array([[3.0, NAN], [NAN, 4.0]])) is None
    columns = [[0, 1, 2], [0, 1, 2, 4], [0, 1, 2, 4]]
    joined = join_votes(votes)
    expected = sum(len(rows) * reference.spearman(votes[rows, a], joined[rows]) for a, rows in enumerate(columns)) / 11
    assert human.spearman == pytest.approx(expected)


@pytest.mark.parametrize(("how", "noise"), [("mode", 0.4), ("mean", 0.8), ("median", 1.3)])
def test_ceiling_is_what_a_perfect_predictor_reaches(how, noise):
    votes, expected = noisy_votes(2000, 5, noise)
    perfect, highest = figures(expected, join_votes(votes, how)), ceiling(votes, how, n_splits=5)
    assert highest.spearman == pytest.approx(perfect.spearman, abs=0.05)
    assert highest.qwk == pytest.approx(perfect.qwk, abs=0.08)
    assert highest.reliability == pytest.approx(figures(expected, join_votes(votes, "mean")).spearman ** 2, abs=0.05)


def test_ceiling_of_chance_of_agreement_and_with_gaps():
    random = np.random.default_rng(0).integers(1, 6, (3000, 5)).astype(float)
    assert ceiling(random, n_splits=5).spearman < 0.25
    assert ceiling(np.repeat(random[:300, :1], 5, axis=1), n_splits=2).spearman == pytest.approx(1)
    votes, _ = noisy_votes(500, 5, 0.8)
    full = ceiling(votes, seed=1, n_splits=5)
    assert full == ceiling(votes, seed=1, n_splits=5)
    votes[np.random.default_rng(0).random(500) < 0.3, 3:] = NAN
    fewer = ceiling(votes, seed=1, n_splits=5)
    assert fewer.n == 500
    assert 0 < full.reliability - fewer.reliability < 0.1


def test_votes_joined_by_hand():
    votes = np.array([[1, 2, 2, 5, 5], [3, NAN, 4, NAN, NAN], [NAN] * 5, [5, 5, 5, 1, 1], [2, 4, 1, 3, NAN]])
    np.testing.assert_array_equal(join_votes(votes), [2, 3, NAN, 5, 1])
    np.testing.assert_array_equal(join_votes(votes, "mean"), [3, 3.5, NAN, 17 / 5, 2.5])
    np.testing.assert_array_equal(join_votes(votes, "median"), [2, 3.5, NAN, 5, 2.5])


@pytest.mark.parametrize("how", ["mode", "mean", "median"])
def test_votes_joined_agree_with_the_reference(how):
    generator = np.random.default_rng(0)
    votes = generator.integers(1, 6, (200, 5)).astype(float)
    votes[generator.random(votes.shape) < 0.3] = NAN
    np.testing.assert_allclose(join_votes(votes, how), reference.join(votes, how))
    shaped = join_votes(votes.reshape(20, 10, 5), how)
    np.testing.assert_array_equal(shaped.ravel(), join_votes(votes[:, ::-1], how))


def test_without_two_annotators_or_any_there_is_nothing_to_compare():
    assert human_figures(np.array([[3.0], [4.0]])) is None
    assert ceiling(np.array([[3.0, NAN], [NAN, 4.0]])) is None
    for how in ("mode", "mean", "median"):
        np.testing.assert_array_equal(join_votes(np.zeros((2, 0)), how), [NAN, NAN])


test_refused = refusals(
    (lambda: join_votes(3), r"`votes` to have shape \(..., A\)"),
    (lambda: figures([1, 2, 3], [1, 2]), r"`targets` to have shape \(N,\) = \(3,\) but got \(2,\)"),
    (lambda: figures([0.5, 2], [1, 2]), r"`scores` to lie in \[1, 5\], .* 1 of 2 do not, the first is 0.5"),
    (lambda: human_figures(np.array([[1.0, 7.0]])), "`votes` to hold whole votes"),
    (lambda: join_votes(np.array([[1, 2.5, 3]])), "`votes` to hold whole votes"),
    (lambda: join_votes(np.ones((1, 2)), "medain"), "`how` to be one of"),
)
