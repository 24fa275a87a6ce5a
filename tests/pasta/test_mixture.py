"""The mixture of explainers: who wins, what its explanations are, and how it compares with each alone."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats

from quantus_concepts.datasets.ratings.explanations import Question
from quantus_concepts.pasta.applications.mixture import UNDEFINED, best_explainer, plot_mixture

NAN = math.nan
SCORES = {"a": [3.0, 2.0, 4.0, NAN, NAN, 1.0], "b": [3.0, 5.0, NAN, 1.0, NAN, 2.0], "c": [1.0, 4.0, 5.0, 2.0, NAN, 2.0]}


def test_choice_by_hand():
    mixture = best_explainer(SCORES)
    # A tie, a clear best, two with a NaN, all NaN, a tie of the last two.
    assert mixture.names == ("a", "b", "c")
    assert mixture.choice.tolist() == [0, 1, 2, 2, UNDEFINED, 1]
    np.testing.assert_array_equal(mixture.scores, [3, 5, 5, 2, NAN, 2])
    # The first and the last image have no winner.
    assert mixture.wins == {"a": 0, "b": 1, "c": 2}
    assert mixture.ties == {"a": 1, "b": 2, "c": 1}
    assert mixture.undefined == 1
    assert mixture.share == {"a": 0.0, "b": 0.2, "c": 0.4}


def test_low_is_good_of_a_question_of_ones_own():
    scores = {"a": [3.0, 2.0], "b": [2.5, 4.0]}
    assert best_explainer(scores, Question("change", low_is_good=True)).choice.tolist() == [1, 0]
    mixture = best_explainer(scores, Question("clarity"))
    assert (mixture.choice.tolist(), mixture.question) == ([0, 1], "clarity")


def test_low_is_good_of_question_5():
    mixture = best_explainer(SCORES, question="Q5")
    assert mixture.choice.tolist() == [2, 0, 0, 1, UNDEFINED, 0]
    np.testing.assert_array_equal(mixture.scores, [1, 2, 4, 1, NAN, 1])
    negated = {name: [-value for value in values] for name, values in SCORES.items()}
    assert best_explainer(negated).choice.tolist() == mixture.choice.tolist()


@pytest.mark.parametrize("kind", [np.array, torch.tensor])
def test_explanations_of_the_mixture(kind):
    mixture = best_explainer(SCORES)
    maps = {name: kind(np.full((6, 2, 2), i)) for i, name in enumerate("abc")}
    np.testing.assert_array_equal(np.asarray(mixture.chosen(maps))[:, 0, 1], [0, 1, 2, 2, NAN, 1])


def test_comparison_by_hand():
    mixture = best_explainer({"a": [1.0, 4.0, 3.0, NAN], "b": [2.0, 3.0, 1.0, NAN]})
    values = {"a": [0.0, 0.2, 0.4, 1.0], "b": [0.3, NAN, 0.1, 1.0]}
    table = mixture.compare(values)
    assert table.index.tolist() == ["mixture", "average of explainers", "a", "b"]
    # The mixture is b, a, a and nobody: 0.3, 0.2, 0.4.
    np.testing.assert_allclose(table["mean"], [0.3, (0.15 + 0.2 + 0.25 + 1) / 4, 0.4, 1.4 / 3])
    assert table["n"].tolist() == [3, 4, 4, 3]
    expected = stats.t.interval(0.95, 2, loc=0.3, scale=stats.sem([0.3, 0.2, 0.4]))
    np.testing.assert_allclose(table.loc["mixture", ["low", "high"]].astype(float), expected)
    # Differences from a are 0.3, 0, 0; from b 0 and 0.3.
    np.testing.assert_allclose(table["difference"], [NAN, 0.1, 0.1, 0.15])
    paired = stats.t.interval(0.95, 2, loc=0.1, scale=stats.sem([0.3, 0.0, 0.0]))
    np.testing.assert_allclose(table.loc["a", ["difference_low", "difference_high"]].astype(float), paired)


def test_choice_by_what_is_compared_is_best_and_choice_by_noise_is_average():
    rng = np.random.default_rng(0)
    values = {name: rng.normal(size=400) + shift for name, shift in (("a", 0), ("b", 0.2), ("c", 0.4))}
    best = best_explainer(values).compare(values)
    assert (best["difference_low"][1:] > 0).all()
    noise = best_explainer({name: rng.normal(size=400) for name in values}).compare(values)
    low, high = noise.loc["average of explainers", ["difference_low", "difference_high"]]
    assert low < 0 < high
    assert noise["difference"]["a"] > 0 > noise["difference"]["c"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: best_explainer({"a": [1.0], "b": [1.0, 2.0]}), r"`scores\['b'\]` to have shape \(N,\) = \(1,\)"),
        (lambda: best_explainer({"a": [math.inf]}), r"`scores\['a'\]` to be finite"),
        (lambda: best_explainer({}), "`scores` to have at least one explainer"),
        (lambda: best_explainer(SCORES).compare({"a": [1.0]}), "`values` to have an entry for each explainer"),
    ],
)
def test_bad_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_wins_are_drawn_on_axes_of_the_user():
    mixture = best_explainer(SCORES)
    figure, ax = plot_mixture(mixture)
    # Alone and shared.
    assert [bar.get_width() for bar in ax.patches] == [2, 1, 0, 1, 2, 1]
    assert plot_mixture(mixture, ax) == (figure, ax)
