"""The answers, findings and tables of numbers that are written down here."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from captum_concepts.bank.directions import METHODS
from captum_concepts.models.cbm import VALUES
from quantus_concepts.functional.intervals import N_DRAWS
from quantus_concepts.studies._kit.findings import NO_NUMBER
from quantus_concepts.studies._kit.results import load_paper
from quantus_concepts.studies.concepts import options
from quantus_concepts.studies.concepts.findings import answers, baseline_name, findings, setting_name
from quantus_concepts.studies.concepts.report import is_whole_cub, join_seeds, metric_tables, settings_table
from quantus_concepts.studies.concepts.study import COLUMNS

POST_HOC, TRADITIONAL, RANDOM = "post-hoc CBM", "traditional CBM", "random directions"
EMPTY = {"explanation": "", "set": "all", "l": None, "alpha": math.nan, "item_kind": "", "item": "", "chance": math.nan}
PAPER = load_paper("quantus_concepts.studies.concepts", l=float, alpha=float)


def row(model: str, metric: str, value: float, half: float = 0.01, **fields: Any) -> dict[str, Any]:
    ends = {"low": value - half, "high": value + half}
    return (
        EMPTY | {"model": model, "metric": metric, "value": value, "n": 90, "undefined": 10, "seed": 4} | ends | fields
    )


def cem(model: str, value: float, explanation: str = "contribution", **fields: Any) -> dict[str, Any]:
    return row(model, "CEM", value, **{"explanation": explanation, "set": "correct", "l": 1, "chance": 0.23} | fields)


def clm(model: str, value: float, alpha: float = 1.0, **fields: Any) -> dict[str, Any]:
    where = {"explanation": "contribution", "l": 1, "alpha": alpha, "chance": alpha / 12}
    return row(model, "CLM", value, **where | fields)


def specific(model: str, value: float, **fields: Any) -> dict[str, Any]:
    where = {"explanation": "contribution", "l": 1, "alpha": 1.0, "chance": 0.0}
    return row(model, "part specificity", value, **where | fields)


def items(scores: dict[str, float], model: str = POST_HOC, metric: str = "CGIM", **fields: Any) -> list[dict[str, Any]]:
    """The rows of some concepts or classes, and first the one of their mean."""
    values = list(scores.values())
    fields = {"explanation": "contribution", "set": "correct", "item_kind": "concept"} | fields
    missing = int(np.isnan(values).sum())
    mean = row(model, metric, float(np.nanmean(values)), n=len(values) - missing, undefined=missing, **fields)
    unknown = {"low": math.nan, "high": math.nan}
    single = [
        row(model, metric, value, item=name, n=int(value == value), undefined=int(value != value), **unknown, **fields)
        for name, value in scores.items()
    ]
    return [mean, *single]


CONCEPTS = {"red beak": 0.9, "blue <b>wing</b>": -0.63, "long tail": math.nan}


@pytest.fixture
def rows() -> list[dict[str, Any]]:
    scores = [cem(POST_HOC, 0.55), cem(POST_HOC, 0.85, "value"), cem(TRADITIONAL, 0.71), cem("oracle", 0.99)]
    scores += [cem(RANDOM, 0.2, low=0.15, high=0.26), clm(RANDOM, 0.14, low=0.1, high=0.2)]
    scores += [clm(POST_HOC, 0.133), clm("parts of another image", 0.128), clm("centred Gaussian", 0.2)]
    scores += [clm("oracle", 1.0, half=0.0)]
    for kind in ("concept", "class"):
        scores += items(CONCEPTS, item_kind=kind)
    scores += [row(POST_HOC, "accuracy", 0.6, item_kind="setting", item=setting_name(1, 100))]
    return [*scores, row(POST_HOC, "accuracy", 0.6), row("plain backbone", "accuracy", 0.75)]


def frame_of(rows: list[dict[str, Any]]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=COLUMNS).astype({"l": "Int64"})


def finding_texts(rows: list[dict[str, Any]], by_class: bool = False) -> list[str]:
    return [finding.text for finding in findings(join_seeds(frame_of(rows)), by_class)]


def test_answers_in_one_line_each(rows):
    scores = [cem(POST_HOC, 0.21, "weight"), cem(RANDOM, 0.25, "value", low=0.2, high=0.3)]
    rows += [*scores, cem(RANDOM, 0.22, "weight", low=0.15, high=0.3)]
    rows += [specific(POST_HOC, 0.06), specific(RANDOM, 0.01, low=-0.02, high=0.03)]
    assert {finding.topic: finding.text for finding in answers(join_seeds(frame_of(rows)))} == {
        "Present": "yes by value (85 %, random 25 %) and by contribution (55 %, random 20 %); "
        "not distinguishable from random directions by weight (21 %, random 22 %), in correctly classified images",
        "In the right place": "yes by contribution, own part minus other parts of the image at α = 1 "
        "(6.0 %, random 1.0 %)",
        "Important where it belongs": "by contribution (0.14)",
        "Class accuracy": "60 % (the backbone alone 75 %)",
    }
    # Without any number each question says so.
    assert {finding.text for finding in answers(join_seeds(frame_of(rows[:0])))} == {NO_NUMBER}


def test_findings_hold_numbers_against_their_baselines(rows):
    sentences = finding_texts(rows)
    assert sentences[0] == (
        "The concept the post-hoc CBM ranks first by contribution is present in 55 % (95 % interval 54–56) of the "
        "correctly classified images: above random directions (20 %, 95 % of them 15–26); the share of labelled "
        "concepts is 23 %."
    )
    assert "one of its class in 55 %" in finding_texts(rows, by_class=True)[0]
    assert "compared with other models: below the traditional CBM (71 %); below the oracle (99.0 %)." in sentences[2]
    assert (
        "in 13.3 % (95 % interval 12.3–14.3) of the cases: not distinguishable from random directions (14.0 %, 95 % of "
        "them 10.0–20.0); not distinguishable from the parts of another image (12.8 %); below a centred Gaussian "
        "(20 %); a point anywhere would be in it in 8.3 %."
    ) in sentences[3]
    assert "“blue <b>wing</b>” is worst with −0.63." in sentences[-3]
    assert sentences[-2].endswith("correctly: below the backbone alone (75 %).")
    # Nothing was corrected.
    assert sentences[-1] == NO_NUMBER


def test_what_is_missing_is_said(rows):
    without = [score for score in rows if (score["metric"], score["explanation"]) != ("CEM", "value")]
    text = "Ranked by value alone, which does not decide the class, it is so in –: there is no such number in this run."
    assert text in finding_texts(without)
    assert text not in finding_texts(rows)
    assert text in finding_texts([cem(POST_HOC, math.nan)])


def test_no_map_is_better(rows):
    phrase = "At no α do the maps of a trained model prefer the concept's part to the other parts of the same image"
    random = specific(RANDOM, 0.0, low=-0.03, high=0.03)
    # An interval that holds 0; one that the random banks reach; one above both.
    for value, said_so in ((0.005, True), (0.02, True), (0.08, False)):
        texts = finding_texts([*rows, random, specific(POST_HOC, value)])
        assert any(phrase in sentence for sentence in texts) is said_so
    assert not any(phrase in sentence for sentence in finding_texts([*rows, random, specific(TRADITIONAL, 0.9)]))


def test_the_finding_on_places_is_about_the_paired_difference(rows):
    baselines = [specific("centred Gaussian", -0.01), specific("feature norm", 0.0)]
    texts = finding_texts([*rows, specific(POST_HOC, 0.06), specific(RANDOM, 0.01, low=-0.02, high=0.03), *baselines])
    assert (
        "Part specificity at α = 1, how much more often the map of the post-hoc CBM's first concept contains its own "
        "part than the other visible parts of the same image, is 6.0 % (95 % interval 5.0–7.0): above random "
        "directions (1.0 %, 95 % of them −2.0 to 3.0); above the norm of the features (0 %); above a centred Gaussian "
        "(−1.0 %); a map that is anywhere on the object has 0."
    ) in texts


def test_baselines_of_a_models_maps_are_named(rows):
    baseline = clm(baseline_name("centred Gaussian", TRADITIONAL), 0.5)
    assert "below a centred Gaussian (50 %)" in " ".join(finding_texts([*rows, clm(TRADITIONAL, 0.4), baseline]))


def intervened(after: dict[int, float], **fields: Any) -> list[dict[str, Any]]:
    fields = {"model": POST_HOC, "explanation": "uncertainty"} | fields
    return [row(metric="accuracy after interventions", value=mean, l=count, **fields) for count, mean in after.items()]


def test_corrections_are_held_against_wrong_ones(rows):
    scores = intervened({0: 0.6, 1: 0.65, 2: 0.7, 8: 0.9})
    scores += intervened({0: 0.6, 1: 0.62, 2: 0.64, 8: 0.9}, explanation="random")
    scores += intervened({0: 0.6, 1: 0.5, 2: 0.3, 8: 0.1}, model=baseline_name("wrong labels"))
    assert finding_texts([*rows, *scores])[-1] == (
        "With the 2 concepts of an image that the post-hoc CBM is least sure of set to what people say of them, the "
        "share it classifies correctly goes from 60 % (95 % interval 59–61) to 70 % (95 % interval 69–71), above where "
        "it began (in random order 64 %; all 8 90 %; set to the opposite, the control, 30 %)."
    )


def written_cells(table: Any) -> dict[tuple[str, str], list[str]]:
    return {(group, row.label): [c.mark + c.text for c in row.cells] for group, rows in table.groups for row in rows}


def test_tables_hold_the_paper_beside_ours_and_chance_last(rows):
    frame = join_seeds(frame_of([*rows, cem(POST_HOC, 0.4, set="all")]))
    tables = metric_tables(frame, PAPER, by_class=False)
    (table,) = tables["CEM"]
    assert table.column_keys[:4] == [(POST_HOC, "l = 1"), *(("paper", f"l = {level}") for level in (1, 3, 5))]
    assert table.column_keys[-2:] == [(RANDOM, "l = 1"), ("chance", "")]
    line = written_cells(table)["correctly classified", "contribution θ·u"]
    assert line == ["55.0", "55.4", "49.1", "45.8", "71.0", "99.0", "20.0", "23.0"]
    # Each baseline is a row of its model.
    location = written_cells(tables["CLM"][0])
    assert location["α = 1", "contribution θ·u"][:2] == ["≈13.3", "13.3"]
    assert location["α = 1", "centred Gaussian"][:2] == ["20.0", ""]
    settings = written_cells(settings_table(frame, PAPER)[0])
    assert settings[POST_HOC, "C = 1"] == ["", "60.0", "25.5", "59.1"]
    assert settings["plain backbone", ""] == ["75.0", "", "75.4", ""]


def test_the_papers_figures_are_those_its_text_quotes():
    # Section 4.3.2: present "around 55% of the times", "drops to 49%"; 4.4.2: "only 13.3% of the time", at
    # alpha = 6 "not in the correct concept locations 41% of the time"; appendix C: 59.1% at 100 and 1.
    first = PAPER[(PAPER["explanation"] == "contribution") & (PAPER["l"] == 1)]
    assert first.loc[first["metric"] == "CEM", "value"].tolist() == [0.493, 0.554]
    assert first.loc[first["metric"] == "CLM", "value"].tolist() == [0.133, 0.334, 0.590]
    accuracy = PAPER[PAPER["item_kind"] == "setting"]
    assert accuracy.loc[accuracy["value"].idxmax(), "item"] == setting_name(1, 100)
    assert PAPER["metric"].value_counts().to_dict() == {"CLM": 27, "CEM": 18, "accuracy": 11}


def test_the_options_have_what_is_known_where_it_takes_time_to_load():
    assert (options.N_BANKS, options.METHODS, options.VALUES) == (N_DRAWS, METHODS, VALUES)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"training images": "5994", "test images": "5794", "classes": "200"}, True),
        ({"training images": "750", "test images": "652", "classes": "25"}, False),
        ({}, False),
    ],
)
def test_only_all_of_cub_is_the_papers_data(settings, expected):
    assert is_whole_cub(settings) == expected
