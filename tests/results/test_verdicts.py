"""The rule for verdicts, on rows that are written down here."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
import pytest

from quantus_concepts.metrics.bottleneck.concept_quality import LABELS
from quantus_concepts.results.verdicts import difference_verdict, with_verdicts


def row(metric: str, value: float, half: float = 0.05, **fields: Any) -> dict[str, Any]:
    known = {"model": "m", "metric": metric, "what": "score", "value": value, "low": value - half, "high": value + half}
    known |= {"explanation": "", "baseline": "", "set": "all", "item_kind": "", "l": 1.0, "alpha": math.nan, "item": ""}
    return known | {"random_low": 0.4, "random_high": 0.6} | fields


def judged(*rows: dict[str, Any]) -> list[tuple[str, str]]:
    found = with_verdicts(pd.DataFrame(rows))
    return [*zip(found["verdict"], found["why"], strict=True)]


GAIN = row("CEM gain", 0.9, explanation="effect")


@pytest.mark.parametrize(
    ("auc", "said"),
    [
        # Its low end is above both its banks and .55.
        (row("concept AUC", 0.7), "above"),
        (row("concept AUC", 0.62), "no verdict"),
        (row("concept AUC", 0.59, random_high=0.5), "no verdict"),
        (row("concept AUC", 0.61, random_high=0.5), "above"),
        # Where it is not measured, or without banks, nothing is withheld.
        (None, "above"),
        (row("concept AUC", 0.5, random_low=math.nan, random_high=math.nan), "above"),
    ],
)
def test_praise_asks_for_concepts_that_are_known(auc, said):
    rows = [GAIN, row("CEM gain", 0.5, explanation="effect"), row("CEM gain", 0.1, explanation="effect")]
    rows += [row("head gap", 0.9), row("accuracy", 0.9), *([] if auc is None else [auc])]
    verdicts = judged(*rows)
    assert verdicts[0][0] == said
    assert verdicts[0][1].startswith("concept AUC from") == (said == "no verdict")
    # Neither "within" nor blame is withheld, nor what is said of the classes.
    assert [verdict for verdict, _ in verdicts[1:5]] == ["within", "below", "above", "above"]


def test_a_model_is_judged_by_its_own_concepts():
    rows = [row("concept AUC", 0.9), GAIN, row("concept AUC", 0.5, model="b"), GAIN | {"model": "b"}]
    assert [verdict for verdict, _ in judged(*rows)] == ["above", "above", "within", "no verdict"]


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"metric": "CEM", "explanation": "effect"}, "commonest concepts score high"),
        ({"metric": "CGIM", "explanation": "effect", "item_kind": "concept"}, "a cosine: 0 is not its zero"),
        ({"metric": "CEM gain", "explanation": "contribution"}, "moves with the zero of the values"),
        ({"metric": "CGIM correlation", "explanation": "weight"}, "moves with the zero of the values"),
        ({"metric": "CEM gain", "explanation": "value"}, "moves with the zero of the values"),
        ({"metric": "CLM", "explanation": "value"}, "moves with the zero of the values"),
        (
            {"metric": "CGIM correlation", "explanation": "value", "set": "correct"},
            "the choice of images alone correlates",
        ),
        (
            {"metric": "CGIM correlation", "explanation": "value", "item_kind": "class"},
            "moves with the zero of the values",
        ),
        ({"metric": "negative first"}, "neither more nor less is better"),
        ({"metric": "coverage", "explanation": "effect"}, "neither more nor less is better"),
        ({"low": math.nan, "high": math.nan}, "no interval"),
        ({"random_low": math.nan, "random_high": math.nan}, "no random banks"),
        ({"value": math.nan}, "undefined"),
        (
            {"convention": "absent level", "random_convention": "training mean"},
            "the banks count from the training mean",
        ),
    ],
)
def test_there_is_no_verdict_without_an_interval_or_a_baseline_that_holds(fields, why):
    assert judged(GAIN | fields) == [("–", why)]


def test_what_is_blamed_is_not_praised():
    gap, leakage = row("head gap", 0.9), row("concept-task leakage", 0.7, low=math.nan, high=math.nan)
    # Leakage has no interval: its number.
    assert judged(gap, leakage) == [("above", ""), ("above", "")]
    below = [gap | {"value": 0.1, "low": 0.05, "high": 0.15}, leakage | {"value": 0.1}]
    assert judged(*below) == [("–", "less is better, and not praised")] * 2
    errors = [below[0] | {"metric": name} for name in (LABELS["brier"], LABELS["calibration_error"])]
    assert judged(*errors) == [("–", "less is better, and not praised")] * 2
    assert judged(gap | {"value": 0.5, "low": 0.4, "high": 0.6}) == [("within", "")]


def test_cgim_has_a_second_range():
    fields = {"explanation": "effect", "item_kind": "concept", "set": "correct"}
    own = row("CGIM correlation", 0.9, **fields)
    shuffled = row("CGIM correlation", 0.1, **fields) | {
        "what": "baseline",
        "baseline": "fitted to shuffled images",
        "random_low": math.nan,
        "random_high": math.nan,
    }
    assert judged(own) == [("above", "random banks alone")]
    assert judged(own, shuffled | {"high": 0.8})[0] == ("above", "")
    assert judged(own, shuffled | {"high": 0.87})[0] == ("within", "fitted to shuffled images: to 0.87")
    # That of another ranking, or another model, is none.
    for other in ({"explanation": "value"}, {"model": "b"}, {"set": "all"}):
        assert judged(own, shuffled | {"high": 0.87} | other)[0] == ("above", "random banks alone")


@pytest.mark.parametrize(
    ("metric", "place"),
    [("CLM", "place"), ("part specificity", "place"), ("region IoU", "region"), ("energy inside", "region")],
)
def test_places_have_to_be_above_the_mean_place_of_their_part(metric, place):
    own = row(metric, 0.9, explanation="effect", alpha=1.0)
    prior = own | {"what": "baseline", "baseline": f"mean {place} of the part", "random_low": math.nan}
    assert judged(own) == [("above", "")]
    assert judged(own, prior | {"value": 0.8})[0] == ("above", "")
    assert judged(own, prior | {"value": 0.86})[0] == ("within", f"mean {place} of the part: to 0.86")
    assert judged(own, prior | {"value": 0.86, "alpha": 3.0})[0] == ("above", "")


def test_concepts_above_their_own_range_are_counted():
    items = [
        row("concept AUC", value, what="item", item=name, low=math.nan, high=math.nan, random_high=high)
        for name, value, high in (("a", 0.9, 0.6), ("b", 0.9, 0.95), ("c", 0.3, 0.6), ("d", math.nan, 0.6))
    ]
    verdicts = judged(row("concept AUC", 0.7), *items)
    assert verdicts[0] == ("above", "1 of 3 concepts above their own range, 1 below")
    # Single concepts have no interval, and no verdict.
    assert verdicts[1:] == [("–", "")] * 4


@pytest.mark.parametrize(
    ("value", "half", "said"),
    [(0.7, 0.05, "above"), (0.61, 0.05, "within"), (0.3, 0.05, "below")],
)
def test_above_is_the_whole_interval(value, half, said):
    found = with_verdicts(pd.DataFrame([row("accuracy", 0.9), row("CEM gain", value, half, explanation="effect")]))
    assert found["verdict"].iloc[1] == said
    assert found["against"].tolist() == ["random banks"] * 2


@pytest.mark.parametrize(
    ("difference", "p", "said"),
    [(0.15, 0.07, "not shown"), (0.15, 0.04, "above 0"), (-0.1, 0.04, "below 0"), (0.1, math.nan, "–")],
)
def test_a_difference_that_may_be_luck_is_not_shown(difference, p, said):
    assert difference_verdict({"difference": difference, "p_adjusted": p}) == said
