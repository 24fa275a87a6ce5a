"""Verdicts and tables of numbers that are written down here."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from quantus_concepts.studies._kit.results import load_paper, pick
from quantus_concepts.studies.concepts.report import (
    above_random,
    baseline_name,
    clm_table,
    intervention_rows,
    join_seeds,
    setting_name,
    settings_table,
    shown_names,
    verdicts,
)
from quantus_concepts.studies.concepts.study import COLUMNS

POST_HOC, TRADITIONAL, RANDOM = "post-hoc CBM", "traditional CBM", "random directions"
EMPTY = {"explanation": "", "set": "all", "l": None, "alpha": math.nan, "item_kind": "", "item": "", "chance": math.nan}
PAPER = load_paper("quantus_concepts.studies.concepts", l=float, alpha=float)


def row(model: str, metric: str, value: float, half: float = 0.01, **fields: Any) -> dict[str, Any]:
    ends = {"low": value - half, "high": value + half}
    known = {"model": model, "metric": metric, "value": value, "n": 90, "undefined": 10, "seed": 4}
    return EMPTY | known | ends | fields


def cem(model: str, value: float, explanation: str = "contribution", **fields: Any) -> dict[str, Any]:
    return row(model, "CEM", value, **{"explanation": explanation, "l": 1, "chance": 0.23} | fields)


def clm(model: str, value: float, **fields: Any) -> dict[str, Any]:
    return row(model, "CLM", value, explanation="contribution", l=1, alpha=1.0, chance=1 / 12, **fields)


def specific(model: str, value: float, explanation: str, **fields: Any) -> dict[str, Any]:
    return row(model, "part specificity", value, explanation=explanation, l=1, alpha=1.0, **fields)


def cgim(scores: dict[str, float], model: str, explanation: str, **fields: Any) -> list[dict[str, Any]]:
    """The rows of some concepts, and first the one of their mean, which has no interval."""
    fields = {"low": math.nan, "high": math.nan, "explanation": explanation, "item_kind": "concept"} | fields
    mean = row(model, "CGIM", float(np.nanmean([*scores.values()])), **fields)
    return [mean, *(row(model, "CGIM", value, item=name, **fields) for name, value in scores.items())]


def joined(*rows: Any) -> pd.DataFrame:
    return join_seeds(pd.DataFrame(list(rows), columns=COLUMNS).astype({"l": "Int64"}))


def told(rows: pd.DataFrame) -> dict[str, str]:
    return {verdict.question: verdict.verdict for verdict in verdicts(rows, "in the image")}


def test_a_verdict_says_where_the_interval_lies_and_no_more():
    wide = {"low": 0.87, "high": 1.0}
    rows = [cem(POST_HOC, 1.0, "value", **wide), cem(POST_HOC, 0.1), cem(POST_HOC, 0.5, "weight")]
    rows += [cem(POST_HOC, 0.9, set="correct"), cem(RANDOM, 0.6, set="correct", low=0.5, high=0.7)]
    for ranking, low, high in (("value", 0.6, 0.9), ("contribution", 0.2, 0.3), ("weight", 0.4, 0.6)):
        rows.append(cem(RANDOM, (low + high) / 2, ranking, low=low, high=high))
    rows += [row(POST_HOC, "accuracy", 0.75), row(RANDOM, "accuracy", 0.5, low=0.4, high=0.6)]
    rows += [row("plain backbone", "accuracy", 0.8)]
    assert told(joined(*rows)) == {
        "First concept in the image (CEM, by value)?": "within",
        "First concept in the image (CEM, by contribution)?": "below",
        "In correctly classified images (CEM, by contribution)?": "above",
        "Important where it belongs (CGIM, by value; 0 of 0 concepts above random)?": "–",
        "Important where it belongs (CGIM, by contribution; 0 of 0 concepts above random)?": "–",
        "Class accuracy (plain backbone: 80.0 %)": "above",
    }


@pytest.mark.parametrize(("by_value", "by_weight", "better"), [(0.4, 0.1, "value"), (0.1, 0.4, "weight")])
def test_the_best_ranking_is_not_left_out(by_value, by_weight, better):
    rows = [specific(POST_HOC, by_value, "value"), specific(POST_HOC, by_weight, "weight")]
    rows += [specific(POST_HOC, 0.0, "contribution")]
    for name in ("value", "weight", "contribution"):
        rows.append(specific(RANDOM, 0.0, name, low=-0.15, high=0.12))
    found = told(joined(*rows))
    question = "Map at its own part, not at others (part specificity, α = 1, by {})?"
    assert found[question.format(better)] == "above"
    assert found[question.format("contribution")] == "within"


def test_concepts_are_counted_against_their_own_random_range():
    ours = {"red beak": 0.9, "blue wing": 0.5, "long tail": math.nan}
    low = cgim({"red beak": 0.3, "blue wing": 0.3, "long tail": 0.3}, RANDOM, "value")
    for place, end in enumerate((0.4, 0.4, 0.6, 0.6)):
        low[place] |= {"low": 0.0, "high": end}
    rows = joined(*cgim(ours, POST_HOC, "value"), *low)
    assert above_random(pick(rows, model=POST_HOC), "value") == "1 of 2 concepts above random"
    # Without an interval a mean stands for itself.
    assert told(rows)["Important where it belongs (CGIM, by value; 1 of 2 concepts above random)?"] == "above"


def test_one_accuracy_has_one_interval():
    fields = {"explanation": "uncertainty"}
    rows = joined(
        row(POST_HOC, "accuracy", 0.6, half=0.05),
        row(POST_HOC, "accuracy after interventions", 0.6, half=0.2, l=0, **fields),
        row(POST_HOC, "accuracy after interventions", 0.7, half=0.2, l=1, **fields),
        row(baseline_name("wrong labels", TRADITIONAL), "accuracy after interventions", 0.4, half=0.2, l=1, **fields),
    )
    curves = intervention_rows(rows)
    ours = curves[curves["model"] == POST_HOC]
    assert ours[["count", "low", "high"]].to_numpy().tolist() == pytest.approx(
        np.array([[0, 0.55, 0.65], [1, 0.5, 0.9]])
    )
    assert curves.iloc[-1][["model", "labels"]].tolist() == [TRADITIONAL, "wrong labels"]


def test_tables_hold_the_paper_beside_ours_and_chance_last():
    frame = joined(clm(POST_HOC, 0.133), clm("centred Gaussian", 0.2), clm(RANDOM, 0.14, low=0.1, high=0.2))
    cells = clm_table(frame, PAPER).frame
    assert [*cells["model"].cat.categories] == [POST_HOC, "paper", RANDOM, "chance"]
    line = cells.query("alpha == 'α = 1' and level == 'l = 1'").set_index(["explanation", "model"])["value"]
    assert line["contribution θ·u", POST_HOC] == line["contribution θ·u", "paper"] == 0.133
    # A baseline of the maps is a row of its model, and is held against no random range.
    gaussian = cells.query("explanation == 'centred Gaussian'").iloc[0]
    assert (gaussian["model"], gaussian["value"]) == (POST_HOC, 0.2)
    assert math.isnan(gaussian["random_low"])
    assert cells.query("model == 'chance'")["value"].tolist() == [1 / 12]


def test_settings_of_the_bank_beside_the_papers():
    swept = row(POST_HOC, "accuracy", 0.6, item_kind="setting", item=setting_name(1, 100))
    (table,) = settings_table(joined(swept, row("plain backbone", "accuracy", 0.75)), PAPER)
    cells = table.frame.set_index(["row", "model", "column"])["value"].sort_index()
    assert cells["C = 1", POST_HOC, "n = 100"] == 0.6
    assert cells["C = 1", "paper", "n = 100"] == 0.591
    assert (cells["plain backbone", POST_HOC].item(), cells["plain backbone", "paper"].item()) == (0.75, 0.754)
    assert settings_table(joined(row(POST_HOC, "accuracy", 0.6)), PAPER) == []


def test_names_that_would_become_the_same_stay():
    assert shown_names(["has_bill_shape::needle", "size"]) == {
        "has_bill_shape::needle": "bill shape: needle",
        "size": "size",
    }
    assert shown_names(["has_size", "size"]) == {"has_size": "has_size", "size": "size"}


def test_the_papers_figures_are_those_its_text_quotes():
    # Section 4.3.2: present "around 55% of the times", "drops to 49%"; 4.4.2: "only 13.3% of the time", at
    # alpha = 6 "not in the correct concept locations 41% of the time"; appendix C: 59.1% at 100 and 1.
    first = PAPER[(PAPER["explanation"] == "contribution") & (PAPER["l"] == 1)]
    assert first.loc[first["metric"] == "CEM", "value"].tolist() == [0.493, 0.554]
    assert first.loc[first["metric"] == "CLM", "value"].tolist() == [0.133, 0.334, 0.590]
    accuracy = PAPER[PAPER["item_kind"] == "setting"]
    assert accuracy.loc[accuracy["value"].idxmax(), "item"] == setting_name(1, 100)
    assert PAPER["metric"].value_counts().to_dict() == {"CLM": 27, "CEM": 18, "accuracy": 11}
