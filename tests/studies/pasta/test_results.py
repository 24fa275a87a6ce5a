import math

import numpy as np
import pytest

from quantus_concepts.studies.pasta.results import (
    CEILING,
    SCORER,
    SHUFFLED,
    Record,
    Summary,
    models_of,
    of_ceiling,
    questions_of,
    seed_interval,
    summary,
)


def over_seeds(model, values, question="Q1", measure="SCC", **fields):
    return [Record(model, question, measure, value, 50, seed, **fields) for seed, value in enumerate(values)]


def test_mean_and_sample_deviation_over_seeds():
    found = summary(over_seeds(SCORER, [0.4, 0.5, 0.6]), SCORER, "Q1", "SCC")
    assert found.mean == pytest.approx(0.5)
    assert found.deviation == pytest.approx(0.1)
    assert (found.n_seeds, found.values) == (3, (0.4, 0.5, 0.6))


def test_undefined_seeds_are_left_out_and_one_seed_has_no_deviation():
    found = summary(over_seeds(SCORER, [math.nan, 0.3]), SCORER, "Q1", "SCC")
    assert (found.mean, found.n_seeds) == (0.3, 1)
    assert math.isnan(found.deviation)
    nothing = summary(over_seeds(SCORER, [math.nan]), SCORER, "Q1", "SCC")
    assert math.isnan(nothing.mean)
    assert nothing.n_seeds == 0
    assert summary([], SCORER, "Q1", "SCC") is None


def test_a_summary_is_of_one_question_measure_and_kind():
    records = [
        *over_seeds(SCORER, [0.1]),
        *over_seeds(SCORER, [0.2], "Q2"),
        *over_seeds(SCORER, [0.3], measure="QWK"),
        *over_seeds(SCORER, [0.4], modality="map"),
    ]
    assert summary(records, SCORER, "Q1", "SCC").mean == 0.1
    assert summary(records, SCORER, "Q1", "SCC", "map").mean == 0.4


def test_share_of_the_ceiling_is_taken_seed_by_seed():
    records = over_seeds(SCORER, [0.4, 0.6]) + over_seeds(CEILING, [0.8, 0.6])
    found = of_ceiling(records, "Q1")
    assert found.values == pytest.approx((0.5, 1.0))
    assert found.mean == pytest.approx(0.75)  # the ratio of the means would be 0.714


@pytest.mark.parametrize("limits", [[], [0.0, -0.1], [math.nan, math.nan]])
def test_no_share_without_a_ceiling_above_zero(limits):
    assert of_ceiling(over_seeds(SCORER, [0.4, 0.6]) + over_seeds(CEILING, limits), "Q1") is None


def test_interval_over_seeds_is_students_on_fishers_z():
    # Student's t of 2 degrees of freedom is 4.302653; Fisher's z of .4, .5, .6 is .42365, .54931, .69315.
    low, high = seed_interval(Summary(0.5, 0.1, 3, (0.4, 0.5, 0.6)))
    assert (low, high) == pytest.approx((0.21687845, 0.71156986), abs=1e-6)
    # Of a share, which may exceed 1, Student's as it is.
    ends = 0.5 - 4.302653 * 0.1 / 3**0.5, 0.5 + 4.302653 * 0.1 / 3**0.5
    assert seed_interval(Summary(0.5, 0.1, 3, (0.4, 0.5, 0.6), share=True)) == pytest.approx(ends, abs=1e-6)
    # Two splits once gave -4.81 to 5.42.
    for share in (False, True):
        assert np.isnan(seed_interval(Summary(0.3, 0.57, 2, (-0.1, 0.7), share=share))).all()
    assert -1 < seed_interval(Summary(0.3, 0.5, 3, (-0.9, 0.9, 0.9)))[0] < 1
    assert np.isnan(seed_interval(Summary(0.5, math.nan, 1, (0.5,)))).all()
    assert np.isnan(seed_interval(None)).all()


def test_rows_and_columns_are_in_order():
    records = [
        *over_seeds(CEILING, [1], "Q3"),
        *over_seeds(SHUFFLED, [1]),
        *over_seeds("SVM", [1]),
        *over_seeds(SCORER, [1]),
    ]
    assert models_of(records) == [SCORER, "SVM", SHUFFLED, CEILING]
    assert questions_of(records) == ["Q1", "Q3"]
