import base64
import dataclasses
import math
import re
from datetime import datetime
from html.parser import HTMLParser

import numpy as np
import pytest
from matplotlib.figure import Figure

from quantus_concepts.studies.charts import save_figures
from quantus_concepts.studies.concepts.plot import plot_cem
from quantus_concepts.studies.concepts.report import render_report, write_report
from quantus_concepts.studies.concepts.results import Record, baseline_name, item_records, setting_name
from quantus_concepts.studies.concepts.tables import paper_tables
from quantus_concepts.studies.concepts.verdicts import percent, verdicts
from quantus_concepts.studies.output import OutputFolder

POST_HOC, TRADITIONAL = "post-hoc CBM", "traditional CBM"
PNG = b"\x89PNG\r\n\x1a\n"


def record(model, metric, value, half=0.01, **fields):
    return Record(model, metric, value=value, n=90, undefined=10, low=value - half, high=value + half, **fields)


def cem(model, value, explanation="contribution", half=0.01, chance=0.23):
    return record(model, "CEM", value, half, explanation=explanation, set="correct", l=1, chance=chance)


def clm(model, value, half=0.01, alpha=1.0):
    return record(model, "CLM", value, half, explanation="contribution", l=1, alpha=alpha, chance=alpha / 12)


def control(kind, value, low, high):
    """The random control: where 95 % of the banks lie."""
    return dataclasses.replace(kind("random directions", value), low=low, high=high)


@pytest.fixture
def records():
    found = [cem(POST_HOC, 0.55), cem(POST_HOC, 0.85, "value"), cem(TRADITIONAL, 0.71), cem("oracle", 0.99)]
    found += [control(cem, 0.2, 0.15, 0.26), control(clm, 0.14, 0.1, 0.2)]
    found += [clm(POST_HOC, 0.133), clm(baseline_name("parts of another image"), 0.128)]
    found += [clm(baseline_name("centred Gaussian"), 0.2), clm("oracle", 1.0, 0.0)]
    names = ["red beak", "blue <b>wing</b>", "long tail"]
    scores = [0.9, -0.63, math.nan]
    for kind in ("concept", "class"):
        found += item_records(scores, names, model=POST_HOC, item_kind=kind, explanation="contribution", seed=4)
    setting = {"item_kind": "setting", "item": setting_name(1, 100)}
    found += [record(POST_HOC, "accuracy", 0.6, **setting), record(POST_HOC, "accuracy", 0.6)]
    found.append(record("plain backbone", "accuracy", 0.75))
    return found


def picture():
    figure = Figure(figsize=(2, 1))
    figure.add_subplot().plot([0, 1])
    return figure


def report(records, **changes):
    content = {
        "title": "Concepts of painted birds",
        "records": records,
        "tables": paper_tables(records, changes.get("paper", False)),
        "figures": {"cem": picture()},
        "settings": {"data": "painted birds", "names": "<script>alert(1)</script>"},
        "versions": {"torch": "2.4"},
        "created": datetime(2025, 3, 1, 9, 5),
    }
    return render_report(**{**content, **changes})


class Balance(HTMLParser):
    """Checks that every element is closed in order."""

    VOID = frozenset(("meta", "img", "br", "link"))

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.sources = [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.sources += [value for name, value in attrs if name in ("src", "href")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if self.open.pop() != tag:
            raise ValueError(f"</{tag}> closes another element.")


def test_report_is_self_contained_and_well_formed(records):
    parser = Balance()
    parser.feed(report(records))
    assert parser.open == []
    assert "script" not in parser.tags
    assert "link" not in parser.tags
    assert len(parser.sources) == 1
    assert all(source.startswith("data:image/png;base64,") for source in parser.sources)


def test_report_embeds_the_figures(records):
    html = report(records, figures={"cem": picture(), "gallery": picture(), "extra_view": picture()})
    images = re.findall(r"data:image/png;base64,([^\"]+)", html)
    assert len(images) == 3
    assert all(base64.b64decode(image).startswith(PNG) for image in images)
    assert "Extra view" in html
    assert "✓ present in the image or ✗ not" in html
    assert "✓ a concept of the image&#39;s class" in report(records, figures={"gallery": picture()}, by_class=True)


def test_report_escapes_what_users_named(records):
    html = report(records)
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    assert "<b>wing" not in html
    assert "blue &lt;b&gt;wing&lt;/b&gt;" in html


def test_report_names_best_and_worst_and_shows_the_tables(records):
    html = report(records)
    named = html[html.index("Best and worst, by name") :]
    assert named.index("red beak") < named.index("blue &lt;b&gt;wing")
    for name in ("Table 1.", "Table 2.", "Table 3.", "CGIM.", "Accuracy."):
        assert f"<b>{name}</b>" in html
    assert "−0.63" in html
    assert "90 of 100" in html
    assert "01 March 2025, 09:05; 1 seed (4)" in html


def test_report_shows_the_papers_figures_only_on_request(records):
    assert "55.4" not in report(records)
    html = report(records, paper=True)
    assert "55.4" in html
    assert "75.4" in html
    assert "Aysel et al. (2025), Concept-Based Explainable AI" in html


def test_report_says_what_maps_are_not(records):
    phrase = "local evidence, not a decomposition"
    assert phrase not in report(records)
    assert phrase in report(records, linear_pool=False)
    without = [r for r in records if r.metric != "CLM"]
    assert phrase not in report(without, linear_pool=False)
    assert "right place" not in report(without)


def test_report_shows_notes(records):
    assert "Only 63 images show “grey nape” &amp; all were used." in report(
        records, notes=["Only 63 images show “grey nape” & all were used."]
    )


def test_report_of_nothing_says_so():
    assert "There are no numbers to judge." in report([], figures={})


def test_intervals_are_explained_as_they_were_made(records):
    assert "within one run" in report(records)
    seeds = [Record(**{**vars(r), "seed": seed}) for seed in (0, 1) for r in records]
    html = report(seeds)
    assert "means over 2 seeds" in html
    assert "2 seeds (0, 1)" in html


def test_write_report_and_figures_into_a_run(records, tmp_path):
    figures = {"cem": plot_cem(records)[0]}
    with OutputFolder(out=tmp_path) as folder:
        assert save_figures(folder, figures) == [tmp_path / "figures" / "cem.png"]
        with folder.file("report.html") as path:
            write_report(path, title="t", records=records, tables=[], figures=figures, settings={})
    assert (tmp_path / "figures" / "cem.png").read_bytes().startswith(PNG)
    assert (tmp_path / "report.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_verdict_on_existence(records):
    sentences = verdicts(records)
    assert sentences[0] == (
        "The concept the post-hoc CBM ranks first by contribution is present in 55 % (95 % interval 54–56) of the "
        "correctly classified images, above random directions (mean 20 %, 95 % of the banks 15–26); the share of "
        "labelled concepts is 23 %. Ranked by concept value alone it is 85 %, but the value alone does not decide the "
        "class."
    )
    assert "one of its class in 55 %" in verdicts(records, by_class=True)[0]
    assert "71 % for the traditional CBM, above it; 99.0 % for the oracle, above it." in sentences[1]


@pytest.mark.parametrize(
    ("value", "said"), [(0.5, "above"), (0.25, "not distinguishable from"), (0.1, "below"), (0.27, "above")]
)
def test_verdict_goes_by_the_distribution_of_random_banks(value, said):
    # However wide the number's own interval is.
    found = [cem(POST_HOC, value, half=0.3), control(cem, 0.2, 0.15, 0.26)]
    assert f", {said} random directions (mean 20 %, 95 % of the banks 15–26); " in verdicts(found)[0]


def test_nothing_is_said_of_chance_without_a_distribution():
    sentence = verdicts([cem(POST_HOC, 0.5)])[0]
    assert not any(word in sentence for word in ("above", "below", "distinguishable", "random"))


def test_verdict_on_location_names_the_honest_baselines(records):
    assert (
        "in 13.3 % (95 % interval 12.3–14.3) of the cases: not distinguishable from random directions (mean 14.0 %, "
        "95 % of the banks 10.0–20.0), not distinguishable from the parts of another image (12.8 %), below a centred "
        "Gaussian (20 %), a point anywhere would be in it in 8.3 %."
    ) in verdicts(records)[2]


def test_verdict_says_when_no_map_is_better(records):
    phrase = "No trained model's maps rise above both honest baselines and the maps of random directions"
    assert any(phrase in sentence for sentence in verdicts(records))
    better = [*records, clm(TRADITIONAL, 0.9)]
    assert not any(phrase in sentence for sentence in verdicts(better))


def test_verdict_compares_a_model_with_the_baseline_of_its_own_ranking(records):
    own = clm(baseline_name("centred Gaussian", TRADITIONAL), 0.5)
    text = " ".join(verdicts([*records, clm(TRADITIONAL, 0.4), own]))
    assert "below a centred Gaussian (50 %)" in text


def test_verdict_on_importance_and_accuracy(records):
    sentences = verdicts(records)
    assert "mean cosine of 0.14 per concept (CGIM₃); “blue" in sentences[-2]
    assert "“blue <b>wing</b>” is worst with −0.63." in sentences[-2]
    assert sentences[-1] == (
        "The post-hoc CBM classifies 60 % of the test images correctly, the backbone without a bottleneck 75 %."
    )


def test_importance_is_held_against_its_own_random_banks(records):
    fields = {"explanation": "contribution", "item_kind": "concept", "low": 0.25, "high": 0.4, "value": 0.32}
    random = [Record("random directions", "CGIM", item=name, **fields) for name in ("", "red beak", "blue <b>wing</b>")]
    text = " ".join(verdicts([*records, *random]))
    assert (
        "mean cosine of 0.14 per concept (CGIM₃), below random directions (mean 0.32, 95 % of the banks 0.25 to" in text
    )
    assert "1 of 2 concepts are not above their own random range" in text


def test_report_tells_directions_that_hardly_know_their_concepts(records):
    fields = {"model": POST_HOC, "metric": "CAV accuracy", "item_kind": "concept"}
    html = report([*records, *item_records([0.9, 0.55, math.nan], ["red beak", "b", "long tail"], **fields)])
    assert "Below 0.6, hardly better than a guess: b (0.55)." in html
    assert "Not known for 1" in html


def test_verdicts_of_nothing():
    assert verdicts([]) == []
    assert verdicts([cem(POST_HOC, np.nan)]) == []


@pytest.mark.parametrize(
    ("value", "text"), [(0.083, "8.3 %"), (0.554, "55 %"), (0.992, "99.2 %"), (1, "100 %"), (0, "0 %")]
)
def test_percent(value, text):
    assert percent(value) == text


def test_verdict_on_concepts_that_speak_by_being_absent(records):
    absent = record(POST_HOC, "negative first", 0.61, 0.02, explanation="contribution", l=1)
    said = [sentence for sentence in verdicts([*records, absent]) if "absent" in sentence]
    assert said[0].startswith("In 61 % (95 % interval 59–63) of the images that first concept has a negative value")
    # sigmoid values are never negative, and then there is nothing to say
    never = record(POST_HOC, "negative first", 0.0, 0.0, explanation="contribution", l=1)
    assert not any("absent" in sentence for sentence in verdicts([*records, never]))
