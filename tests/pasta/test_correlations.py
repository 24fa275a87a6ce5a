"""Correlations of metrics with ratings, and sparseness of maps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import pytest
import torch

from quantus_concepts.datasets.ratings.explanations import (
    QUESTIONS,
    ConceptExplanation,
    DrawingExplanation,
    MapExplanation,
)
from quantus_concepts.pasta.applications.correlations import RatingCorrelation, rating_correlations, sparseness

NAN = np.nan


def correlate_one(values: Sequence[float], ratings: Sequence[float]) -> RatingCorrelation:
    (record,) = rating_correlations({"m": values}, np.asarray(ratings, dtype=float)[:, None], ("Q1",))
    return record


def test_correlations_by_hand() -> None:
    # deviations -3, -2, -1, 6 and -1.5, -0.5, 0.5, 1.5: 14 / sqrt(50 * 5)
    correlation = correlate_one([1, NAN, 2, 3, np.inf, 10, 7], [1, 5, 2, 3, 5, 4, NAN])
    assert correlation.pearson == pytest.approx(14 / 250**0.5)
    assert correlation.spearman == pytest.approx(1)
    assert (correlation.n, correlation.missing) == (4, 3)
    assert correlate_one([0.5, 0.4, 0.3], [1, 1.5, 2]).pearson == pytest.approx(-1)
    # two neighbours swapped twice: 1 - 6 * 4 / (5 * 24), t = 0.8 sqrt(3 / 0.36) with 3 degrees of freedom
    correlation = correlate_one([1, 2, 3, 4, 5], [2, 1, 4, 3, 5])
    assert (correlation.pearson, correlation.spearman) == pytest.approx((0.8, 0.8))
    assert (correlation.pearson_p, correlation.spearman_p) == pytest.approx((0.1041, 0.1041), abs=1e-4)


def test_a_planted_correlation_is_found_and_no_other() -> None:
    rng = np.random.default_rng(0)
    z, e = rng.normal(size=(2, 4000))
    ratings = rng.integers(1, 6, (4000, 6)).astype(float)
    ratings[:, 0] = np.clip(np.rint(3 + 0.6 * z + 0.8 * e), 1, 5)
    ratings[:, 4] = 6 - ratings[:, 0]
    by_question = {r.question: r for r in rating_correlations({"planted": z}, ratings)}
    # rounding and clipping take a little of the 0.6
    assert 0.5 < by_question["Q1"].pearson < 0.6
    assert by_question["Q1"].pearson_p < 1e-100
    # signs are those of the answers, also where low is good
    assert by_question["Q5"].pearson == pytest.approx(-by_question["Q1"].pearson)
    for question in ("Q2", "Q3", "Q4", "Q6"):
        assert abs(by_question[question].pearson) < 3.3 / 4000**0.5


@pytest.mark.parametrize(
    ("values", "ratings", "n"), [([2] * 4, [1, 2, 3, 4], 4), ([1, 2, 3, 4], [3] * 4, 4), ([1, 2, NAN, NAN], [1] * 4, 2)]
)
def test_undefined_correlations(values: list[float], ratings: list[float], n: int) -> None:
    correlation = correlate_one(values, ratings)
    assert np.isnan([correlation.pearson, correlation.pearson_p, correlation.spearman, correlation.spearman_p]).all()
    assert (correlation.n, correlation.missing) == (n, 4 - n)


def test_votes_are_joined() -> None:
    votes = np.random.default_rng(0).integers(1, 6, (30, 5, 6)).astype(float)
    votes[3, :, 2] = NAN
    values = {"m": np.arange(30.0), "n": torch.arange(30) % 7}
    correlations = rating_correlations(values, votes, how="mean")
    of_means = rating_correlations(values, votes.mean(1))
    pd.testing.assert_frame_equal(pd.DataFrame(correlations), pd.DataFrame(of_means))
    assert [(r.metric, r.question) for r in correlations] == [(m, q) for m in "mn" for q in QUESTIONS]
    assert [r.missing for r in correlations] == [0, 0, 1, 0, 0, 0] * 2


def test_sparseness_by_hand() -> None:
    # (-3 * 1 - 1 * 2 + 1 * 3 + 3 * 4) / (4 * 10), whatever order and sign
    steps = np.array([[4.0, -1.0], [3.0, 2.0]])
    maps = [
        steps,
        100 * steps,
        np.full((3, 5), 0.2),
        np.zeros((2, 2)),
        np.array([[NAN, 1.0]]),
        np.array([[np.inf, 1.0]]),
    ]
    np.testing.assert_allclose(sparseness(maps), [0.25, 0.25, 0, NAN, NAN, NAN], atol=1e-6)
    eye = torch.eye(2)
    explanations = [
        MapExplanation(torch.zeros(3, 4, 4), eye),
        ConceptExplanation({"wing": 0.5}),
        eye.expand(3, 2, 2),
        DrawingExplanation(torch.ones(3, 4, 4)),
    ]
    np.testing.assert_allclose(sparseness(explanations), [0.5, NAN, 0.5, NAN], atol=1e-6)


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match="`how` to be one of"):
        rating_correlations({"a": np.arange(4)}, np.ones((4, 6)), how="median vote")
    with pytest.raises(ValueError, match="`ratings` to have shape"):
        rating_correlations({"a": np.arange(4)}, np.ones((4, 5)))
