"""What is said of numbers that are written down here, and the page of such numbers."""

from __future__ import annotations

import math
from html.parser import HTMLParser
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from captum_concepts.bank.directions import METHODS
from captum_concepts.models.cbm import VALUES
from golden.runs import NO_FIGURES
from quantus_concepts.functional.intervals import N_DRAWS
from quantus_concepts.studies._kit import charts
from quantus_concepts.studies._kit.page import render
from quantus_concepts.studies._kit.results import against_control, over_seeds, published
from quantus_concepts.studies.concepts import options
from quantus_concepts.studies.concepts.charts import interventions
from quantus_concepts.studies.concepts.findings import answers, findings
from quantus_concepts.studies.concepts.names import baseline_name, setting_name
from quantus_concepts.studies.concepts.page import is_whole_cub, page
from quantus_concepts.studies.concepts.study import COLUMNS
from quantus_concepts.studies.concepts.tables import accuracy_table, cem_table, cgim_table, clm_table, settings_table

POST_HOC, TRADITIONAL, RANDOM = "post-hoc CBM", "traditional CBM", "random directions"
EMPTY = {"explanation": "", "set": "all", "l": None, "alpha": math.nan, "item_kind": "", "item": "", "chance": math.nan}
PAPER = published("quantus_concepts.studies.concepts", l=float, alpha=float)


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


def items(scores: dict[str, float], model: str = POST_HOC, metric: str = "CGIM", **fields: Any) -> list[dict[str, Any]]:
    """The rows of some concepts or classes, and first the one of their mean."""
    values = list(scores.values())
    fields = {"explanation": "contribution", "set": "correct", "item_kind": "concept"} | fields
    missing = int(np.isnan(values).sum())
    mean = row(model, metric, float(np.nanmean(values)), n=len(values) - missing, undefined=missing, **fields)
    unknown = {"low": math.nan, "high": math.nan}
    single = [
        row(model, metric, each, item=name, n=int(each == each), undefined=int(each != each), **unknown, **fields)
        for name, each in scores.items()
    ]
    return [mean, *single]


CONCEPTS = {"red beak": 0.9, "blue <b>wing</b>": -0.63, "long tail": math.nan}


@pytest.fixture(autouse=True)
def _small_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(charts, "DPI", 30)


@pytest.fixture
def rows() -> list[dict[str, Any]]:
    found = [cem(POST_HOC, 0.55), cem(POST_HOC, 0.85, "value"), cem(TRADITIONAL, 0.71), cem("oracle", 0.99)]
    found += [cem(RANDOM, 0.2, low=0.15, high=0.26), clm(RANDOM, 0.14, low=0.1, high=0.2)]
    found += [clm(POST_HOC, 0.133), clm("parts of another image", 0.128), clm("centred Gaussian", 0.2)]
    found += [clm("oracle", 1.0, half=0.0)]
    for kind in ("concept", "class"):
        found += items(CONCEPTS, item_kind=kind)
    found += [row(POST_HOC, "accuracy", 0.6, item_kind="setting", item=setting_name(1, 100))]
    return [*found, row(POST_HOC, "accuracy", 0.6), row("plain backbone", "accuracy", 0.75)]


def frame_of(rows: list[dict[str, Any]]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=COLUMNS).astype({"l": "Int64"})


def joined(rows: list[dict[str, Any]]) -> pd.DataFrame:
    frame = over_seeds(frame_of(rows).astype({"l": float}), controls=[RANDOM])
    return frame.assign(mark=against_control(frame, RANDOM))


def said(rows: list[dict[str, Any]], by_class: bool = False) -> list[str]:
    return [finding.text for finding in findings(joined(rows), by_class)]


def test_existence(rows):
    sentences = said(rows)
    assert sentences[0] == (
        "The concept the post-hoc CBM ranks first by contribution is present in 55 % (95 % interval 54–56) of the "
        "correctly classified images, above random directions (mean 20 %, 95 % of the banks 15–26); the share of "
        "labelled concepts is 23 %. Ranked by concept value alone it is 85 %, but the value alone does not decide the "
        "class."
    )
    assert "one of its class in 55 %" in said(rows, by_class=True)[0]
    assert "71 % for the traditional CBM, above it; 99.0 % for the oracle, above it." in sentences[1]


def test_answers_in_one_line_each(rows):
    rows += [cem(POST_HOC, 0.21, "weight"), cem(RANDOM, 0.22, "weight", low=0.1, high=0.3)]
    rows += [cem(RANDOM, 0.25, "value", low=0.2, high=0.3)]
    assert {answer.topic: answer.text for answer in answers(joined(rows))} == {
        "Present": "yes by value (85 %, random 25 %) and by contribution (55 %, random 20 %); "
        "not distinguishable from random directions by weight (21 %, random 22 %)",
        "In the right place": "not distinguishable from random directions at α = 1 (13.3 %, random 14.0 %)",
        "Important where it belongs": "by contribution (0.14)",
        "Class accuracy": "60 % (the backbone alone 75 %)",
    }
    assert not answers(joined(rows[:0]))


@pytest.mark.parametrize(
    ("value", "half", "relation"),
    [
        (0.5, 0.1, "above"),
        (0.25, 0.01, "not distinguishable from"),
        (0.1, 0.04, "below"),
        # Where its own interval reaches into it, another run may say the opposite.
        (0.3, 0.05, "not distinguishable from"),
        (0.1, 0.06, "not distinguishable from"),
        (0.27, math.nan, "above"),
    ],
)
def test_existence_goes_by_the_distribution_of_random_banks(value, half, relation):
    found = [cem(POST_HOC, value, half=half), cem(RANDOM, 0.2, low=0.15, high=0.26)]
    assert f", {relation} random directions (mean 20 %, 95 % of the banks 15–26); " in said(found)[0]


def test_nothing_is_said_of_chance_without_a_distribution():
    sentence = said([cem(POST_HOC, 0.5)])[0]
    assert not any(word in sentence for word in ("above", "below", "distinguishable", "random"))


def test_location_names_the_honest_baselines(rows):
    assert (
        "in 13.3 % (95 % interval 12.3–14.3) of the cases: not distinguishable from random directions (mean 14.0 %, "
        "95 % of the banks 10.0–20.0), not distinguishable from the parts of another image (12.8 %), below a centred "
        "Gaussian (20 %), a point anywhere would be in it in 8.3 %."
    ) in said(rows)[2]


def test_no_map_is_better(rows):
    phrase = "No trained model's maps rise above both honest baselines and the maps of random directions"
    assert any(phrase in sentence for sentence in said(rows))
    assert not any(phrase in sentence for sentence in said([*rows, clm(TRADITIONAL, 0.9)]))


def test_a_model_is_compared_with_the_baseline_of_its_own_ranking(rows):
    own = clm(baseline_name("centred Gaussian", TRADITIONAL), 0.5)
    assert "below a centred Gaussian (50 %)" in " ".join(said([*rows, clm(TRADITIONAL, 0.4), own]))


def test_importance_and_accuracy(rows):
    sentences = said(rows)
    assert "mean cosine of 0.14 per concept (CGIM₃); “blue <b>wing</b>” is worst with −0.63." in sentences[-2]
    assert sentences[-1] == (
        "The post-hoc CBM classifies 60 % of the test images correctly, the backbone without a bottleneck 75 %."
    )


def test_importance_is_held_against_its_own_random_banks(rows):
    fields = {"explanation": "contribution", "item_kind": "concept", "set": "correct", "low": 0.25, "high": 0.4}
    random = [row(RANDOM, "CGIM", 0.32, item=name, **fields) for name in ("", "red beak", "blue <b>wing</b>")]
    text = " ".join(said([*rows, *random]))
    assert "(CGIM₃), below random directions (mean 0.32, 95 % of the banks 0.25 to 0.40); 1 of 2 concepts" in text


def test_concepts_that_speak_by_being_absent(rows):
    absent = row(POST_HOC, "negative first", 0.61, 0.02, explanation="contribution", l=1)
    found = [sentence for sentence in said([*rows, absent]) if "absent" in sentence]
    assert found[0].startswith("In 61 % (95 % interval 59–63) of the images that first concept has a negative value")
    # sigmoid values are never negative, and then there is nothing to say
    assert not any("absent" in sentence for sentence in said([*rows, absent | {"value": 0.0}]))


def intervened(after: dict[int, float], **fields: Any) -> list[dict[str, Any]]:
    fields = {"model": POST_HOC, "explanation": "uncertainty"} | fields
    return [row(metric="accuracy after interventions", value=each, l=count, **fields) for count, each in after.items()]


def test_corrections_are_held_against_wrong_ones(rows):
    found = intervened({0: 0.6, 1: 0.65, 2: 0.7, 8: 0.9})
    found += intervened({0: 0.6, 1: 0.62, 2: 0.64, 8: 0.9}, explanation="random")
    found += intervened({0: 0.6, 1: 0.5, 2: 0.3, 8: 0.1}, model=baseline_name("wrong labels"))
    assert said([*rows, *found])[-1] == (
        "With the 2 concepts of an image that the post-hoc CBM is least sure of set to what people say of them, it "
        "classifies 70 % (95 % interval 69–71) correctly, above the 60 % (95 % interval 59–61) without (as many in "
        "random order: 64 %; all 8: 90 %); set to the opposite, the control, 30 %."
    )
    found += intervened({0: 0.4, 2: 0.2, 8: 0.05}, model=RANDOM, explanation="random")
    assert "(as many in random order: 64 %, of random banks 20 %; all 8: 90 %)" in said([*rows, *found])[-1]
    found += intervened({0: 0.8, 8: 1.0}, model=TRADITIONAL)
    found += intervened({0: 0.8, 8: 0.0}, model=baseline_name("wrong labels", TRADITIONAL))
    panels = interventions(joined(found)).axes
    assert [panel.get_title() for panel in panels] == [POST_HOC, TRADITIONAL]
    # What random banks give is in every panel.
    assert [line.get_ydata().tolist() for line in panels[1].get_lines()] == [[40, 20, 5], [80, 100], [80, 0]]


def test_nothing_is_said_of_nothing():
    assert said([cem(POST_HOC, math.nan)]) == []


def shown(table: Any) -> dict[tuple[str, str], list[str]]:
    return {(group, each.label): [c.mark + c.text for c in each.cells] for group, rows in table.groups for each in rows}


def test_tables_hold_the_paper_beside_ours_and_chance_last(rows):
    frame = joined([*rows, cem(POST_HOC, 0.4, set="all")])
    table = cem_table(frame, PAPER, by_class=False)
    assert table.column_keys[:4] == [(POST_HOC, "l = 1"), *(("paper", f"l = {level}") for level in (1, 3, 5))]
    assert table.column_keys[-2:] == [(RANDOM, "l = 1"), ("chance", "")]
    line = shown(table)["correctly classified", "contribution θ·u"]
    assert line == ["55.0", "55.4", "49.1", "45.8", "71.0", "99.0", "20.0", "23.0"]
    assert "concepts of the image's class" in cem_table(frame, None, by_class=True).note
    # each baseline is a row of its model
    location = shown(clm_table(frame, PAPER))
    assert location["α = 1", "contribution θ·u"][:2] == ["≈13.3", "13.3"]
    assert location["α = 1", "centred Gaussian"][:2] == ["20.0", ""]
    assert location["α = 6", "contribution θ·u"][1] == "59.0"
    settings = shown(settings_table(frame, PAPER))
    assert settings[POST_HOC, "C = 1"] == ["", "60.0", "25.5", "59.1"]
    assert settings["plain backbone", ""] == ["75.0", "", "75.4", ""]
    assert list(shown(accuracy_table(frame))) == [("", "plain backbone"), ("", POST_HOC)]


def test_cgim_says_how_many_classes_are_left_out():
    weight, contribution = [0.5, 0.1, 0.2], [0.5, math.nan, 0.2]
    found = items(dict(zip("abc", weight, strict=True)), item_kind="class", explanation="weight")
    note = cgim_table(joined(found)).note
    assert "each class having" in note
    found += items(dict(zip("abc", contribution, strict=True)), item_kind="class")
    note = cgim_table(joined(found)).note
    assert "leave out classes without a correctly classified image (post-hoc CBM 1 of 3)" in note


def test_the_papers_figures_are_those_its_text_quotes():
    # Section 4.3.2: present "around 55% of the times", "drops to 49%"; 4.4.2: "only 13.3% of the time", at
    # alpha = 6 "not in the correct concept locations 41% of the time"; appendix C: 59.1% at 100 and 1.
    first = PAPER[(PAPER["explanation"] == "contribution") & (PAPER["l"] == 1)]
    assert first.loc[first["metric"] == "CEM", "value"].tolist() == [0.493, 0.554]
    assert first.loc[first["metric"] == "CLM", "value"].tolist() == [0.133, 0.334, 0.590]
    accuracy = PAPER[PAPER["item_kind"] == "setting"]
    assert accuracy.loc[accuracy["value"].idxmax(), "item"] == setting_name(1, 100)
    assert PAPER["metric"].value_counts().to_dict() == {"CLM": 27, "CEM": 18, "accuracy": 11}


class Balance(HTMLParser):
    """Checks that every element is closed in order."""

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.sources = [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.sources += [value for name, value in attrs if name in ("src", "href")]
        if tag not in ("meta", "img", "br", "link"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def report(rows: list[dict[str, Any]], data: str = "painted", by_class: bool = False) -> str:
    figure = Figure(figsize=(2, 1))
    run = SimpleNamespace(
        options=SimpleNamespace(data=data),
        settings={"data": "painted birds", "names": "<script>alert(1)</script>"},
        facts={"by class": by_class, "gallery": figure, "linear pool": True},
    )
    declared = page(frame_of(rows), run)
    return render(declared, settings=run.settings, notes=["63 images show “grey nape” & all"], files=["results.csv"])


def test_the_page_is_well_formed_self_contained_and_escapes_what_users_named(rows):
    text = report(rows)
    parser = Balance()
    parser.feed(text)
    assert parser.open == []
    assert not {"script", "link"} & set(parser.tags)
    assert all(source.startswith("data:image/png;base64,") for source in parser.sources)
    assert len(parser.sources) == 6
    assert "<b>wing" not in text
    assert "blue &lt;b&gt;wing&lt;/b&gt;" in text
    assert "grey nape” &amp; all" in text
    for name in ("Table 1", "Table 2", "Table 3", "CGIM", "Accuracy"):
        assert f"<b>{name}.</b>" in text
    assert "90 of 100" in text
    assert "1 seed (4)" in text
    assert "within one run" in text
    assert "55.4" not in text


@pytest.fixture
def _undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, nothing in NO_FIGURES.items():
        monkeypatch.setattr(name, nothing)


@pytest.mark.usefixtures("_undrawn")
def test_the_page_says_what_it_stands_on(rows):
    text = report(rows, data="cub", by_class=True)
    assert "55.4" in text
    assert "75.4" in text
    assert "a concept of the image&#39;s class" in text
    without = report([each for each in rows if each["metric"] != "CLM"])
    assert "right place?</h2>" not in without
    several = report([each | {"seed": seed} for seed in (0, 1) for each in rows])
    assert "means over 2 seeds" in several
    assert "2 seeds (0, 1)" in several


@pytest.mark.usefixtures("_undrawn")
def test_the_page_tells_directions_that_hardly_know_their_concepts(rows):
    known = {"red beak": 0.9, "b": 0.55, "long tail": math.nan}
    text = report([*rows, *items(known, metric="CAV accuracy", explanation="", set="all")])
    assert "Below 0.6, hardly better than a guess: b (0.55)." in text
    assert "Not known for 1" in text


def test_the_options_have_what_is_known_where_it_takes_time_to_load():
    assert (options.N_BANKS, options.METHODS, options.VALUES) == (N_DRAWS, METHODS, VALUES)


@pytest.mark.parametrize(
    ("settings", "whole"),
    [
        ({"training images": "5994", "test images": "5794", "classes": "200"}, True),
        ({"training images": "750", "test images": "652", "classes": "25"}, False),
        ({}, False),
    ],
)
def test_only_all_of_cub_is_the_papers_data(settings, whole):
    assert is_whole_cub(settings) == whole
