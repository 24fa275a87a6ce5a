"""The rule for verdicts, on rows that are written down here."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
import pytest

from quantus_concepts.verdicts import difference_verdict, with_verdicts


def row(metric: str, value: float, half: float = 0.05, **fields: Any) -> dict[str, Any]:
    known = {"model": "m", "metric": metric, "what": "score", "value": value, "low": value - half, "high": value + half}
    return known | {"random_low": 0.4, "random_high": 0.6} | fields


@pytest.mark.parametrize(
    ("accuracy", "held_out", "said"),
    [
        (row("accuracy", 0.7), None, "above"),
        (row("accuracy", 0.62), None, "no verdict"),
        (row("accuracy", 0.62), 0.6, "above"),
        (row("accuracy", 0.62), 0.59, "no verdict"),
        # Below random banks, and without a range.
        (row("accuracy", 0.3), None, "no verdict"),
        (row("accuracy", 0.9, random_low=math.nan, random_high=math.nan), None, "no verdict"),
    ],
)
def test_no_verdict_where_neither_classes_nor_concepts_are_known(accuracy, held_out, said):
    rows = [accuracy, row("CEM gain", 0.9), row("CEM gain", 0.9, random_low=math.nan, random_high=math.nan)]
    if held_out is not None:
        rows.append(row("CAV accuracy", held_out, random_low=math.nan, random_high=math.nan))
    found = with_verdicts(pd.DataFrame(rows))
    assert found["verdict"].tolist()[1:3] == [said, "–"]
    assert found["against"].tolist()[1:3] == ["random banks", ""]
    # The accuracy has its verdict all the same.
    assert found["verdict"].iloc[0] != "no verdict"


def test_a_model_is_judged_by_its_own_accuracy():
    rows = [
        row("accuracy", 0.9),
        row("CEM gain", 0.9),
        row("accuracy", 0.5, model="b"),
        row("CEM gain", 0.9, model="b"),
    ]
    assert with_verdicts(pd.DataFrame(rows))["verdict"].tolist() == ["above", "above", "within", "no verdict"]


@pytest.mark.parametrize(
    ("value", "half", "said"),
    [(0.7, 0.05, "above"), (0.61, 0.05, "within"), (0.3, 0.05, "below"), (0.61, math.nan, "above")],
)
def test_above_is_the_whole_interval(value, half, said):
    rows = pd.DataFrame([row("accuracy", 0.9), row("CEM gain", value, half)])
    assert with_verdicts(rows)["verdict"].iloc[1] == said


@pytest.mark.parametrize(
    ("difference", "p", "said"),
    [(0.15, 0.07, "not shown"), (0.15, 0.04, "above 0"), (-0.1, 0.04, "below 0"), (0.1, math.nan, "–")],
)
def test_a_difference_that_may_be_luck_is_not_shown(difference, p, said):
    assert difference_verdict({"difference": difference, "p_adjusted": p}) == said
