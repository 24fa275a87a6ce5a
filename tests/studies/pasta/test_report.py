import base64
import json
import re
from datetime import datetime
from functools import lru_cache
from html.parser import HTMLParser

import pandas as pd
import pytest

from fixtures_pasta_report import made_outcome, made_plan, made_ratings, made_uses
from quantus_concepts.pasta.mixture import best_explainer
from quantus_concepts.studies.output import OutputFolder
from quantus_concepts.studies.pasta.report import CAPTIONS, render_report, write_report
from quantus_concepts.studies.pasta.uses_results import SteeredRow, Uses, mean_rows

PNG = b"\x89PNG\r\n\x1a\n"
PICTURE = base64.b64encode(PNG).decode()
QUESTIONS = ("Q1", "Q5")


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


@pytest.fixture(autouse=True)
def _small_pictures(monkeypatch):
    monkeypatch.setattr("quantus_concepts.studies.charts.DPI", 30)


@lru_cache
def trained(simulated, n_raters):
    ratings = made_ratings(12, 9, n_raters, simulated=simulated)
    return ratings, made_outcome(ratings, QUESTIONS, 2, regressors=True)


def report(simulated=False, uses=None, n_raters=5, encoder="siglip", **changes):
    ratings, outcome = trained(simulated, n_raters)
    content = {
        "title": "Training",
        "outcome": outcome,
        "ratings": ratings,
        "plan": made_plan(QUESTIONS),
        "encoder": encoder,
        "settings": {"data": "<script>alert(1)</script>"},
        "notes": [],
        "pictures": dict.fromkeys(CAPTIONS, PICTURE),
        "uses": uses,
        "versions": {"torch": "2.9"},
        "created": datetime(2025, 3, 1, 9, 5),
    }
    return render_report(**{**content, **changes})


def captions(html):
    found = re.findall(r"<(caption|figcaption)>(.*?)</\1>", html, flags=re.DOTALL)
    return [re.sub(r"<[^>]+>", "", text).strip() for _, text in found]


@pytest.mark.parametrize("uses", [None, Uses(), made_uses()])
def test_report_is_self_contained_and_well_formed(uses):
    html = report(uses=uses)
    parser = Balance()
    parser.feed(html)
    assert parser.open == []
    assert not {"script", "link"} & set(parser.tags)
    assert all(source.startswith("data:image/png;base64,") for source in parser.sources)
    assert html.count("{") == html.count("}")
    assert html.count("prefers-color-scheme: dark") == 2
    images = re.findall(r"data:image/png;base64,([^\"]+)", html)
    assert all(base64.b64decode(image).startswith(PNG) for image in images)


def test_every_figure_has_one_place():
    html = report(uses=made_uses(), pictures=dict.fromkeys([*CAPTIONS, "extra_view"], PICTURE))
    assert html.count("<figure") == len(CAPTIONS) + 1
    assert html.index("Extra view.") > html.index('id="more"')


def test_what_users_named_is_escaped():
    html = report(title="a <b>bold</b> title", notes=["x < y & z"])
    assert "<script>" not in html
    assert "<b>bold" not in html
    assert "a &lt;b&gt;bold&lt;/b&gt; title" in html
    assert "x &lt; y &amp; z" in html


def test_the_papers_figures_stand_beside_those_of_people():
    html = report()
    assert "paper, siglip" in html
    assert "paper, human" in html
    assert "paper, SVM" in html
    assert "simulated" not in html
    assert "For orientation" not in html
    assert "01 March 2025, 09:05; seed 0, 1" in html


def test_simulated_raters_are_said_everywhere():
    html = report(simulated=True, uses=made_uses())
    assert "<h1>Training (simulated raters)</h1>" in html
    assert "<title>Training (simulated raters)</title>" in html
    assert "No person was asked" in html[html.index('class="banner"') :][:500]
    found = captions(html)
    unmarked = [text for text in found if not text.startswith("simulated raters")]
    # The paper's own figures, which people gave.
    assert [text[:26] for text in unmarked] == ["For orientation: the paper"]
    assert len(found) > 20
    assert "paper, siglip" not in html
    assert "not comparable with the numbers of this run" in html


def test_a_title_that_says_so_is_left_as_it_is():
    assert "<h1>Votes of simulated raters</h1>" in report(simulated=True, title="Votes of simulated raters")


def test_verdicts_come_first_and_sections_in_order():
    html = report(uses=made_uses())
    marks = ['class="verdict"', 'id="read"', 'id="agreement"', 'id="regressors"', 'id="votes"', 'id="training"']
    marks += ['id="ranked"', 'id="mixture"', 'id="steering"', 'id="robustness"', 'id="metrics"', 'id="settings"']
    places = [html.index(mark) for mark in marks]
    assert places == sorted(places)
    box = html[places[0] : places[1]]
    assert "% of the ceiling" in box
    assert "Grad-CAM has the best score" in box


def test_uses_without_data_have_no_section():
    html = report(uses=Uses(), pictures={})
    for name in ("ranked", "mixture", "steering", "robustness", "metrics", "more"):
        assert f'id="{name}"' not in html


def test_a_single_annotator_has_neither_ceiling_nor_human_row():
    html = report(n_raters=1)
    assert "Each explanation has a single annotator" in html
    assert "<dt>ceiling</dt>" not in html
    assert "one annotator</th>" not in html
    assert "paper, human" not in html


def test_correlations_stand_beside_the_papers():
    html = report(uses=made_uses())
    table = html[html.index('id="metrics"') :]
    assert "MaxSensitivity (uniform), n = 340" in table
    assert "−0.33" in table  # the paper's Spearman correlation on Q1
    assert "p &lt; 0.001" in table


def test_everything_is_written_into_a_run(tmp_path, capsys):
    ratings = made_ratings(12, 9, simulated=True)
    with OutputFolder("pasta", out=tmp_path) as folder:
        write_report(
            folder,
            title="Birds",
            outcome=made_outcome(ratings, QUESTIONS, 2),
            ratings=ratings,
            plan=made_plan(QUESTIONS),
            encoder=None,
            settings={},
            notes=["Three birds flew away."],
            uses=made_uses(),
        )
    printed = capsys.readouterr()
    assert "Simulated raters: scores and votes" in printed.out
    assert "Note: Three birds flew away." in printed.err
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    frame = pd.read_csv(tmp_path / "results.csv")
    assert list(frame.columns) == ["model", "question", "measure", "value", "n", "seed", "modality", "raters"]
    assert set(frame.raters) == {"simulated"}
    written = {"results.csv", "wins.csv", "faithfulness.csv", "steering.csv", "correlations.csv"}
    assert {path.name for path in tmp_path.glob("*.csv")} == written
    assert all(name in html for name in written)
    assert pd.read_csv(tmp_path / "wins.csv").images.is_monotonic_decreasing
    assert len(list((tmp_path / "figures").glob("*.png"))) == 12
    assert "results.csv" in json.loads(next(tmp_path.glob("*.json")).read_text())["files"]


def test_a_training_is_written_without_uses(tmp_path, capsys):
    ratings = made_ratings(12, 9)
    with OutputFolder("pasta-train", out=tmp_path) as folder:
        write_report(
            folder,
            title="Votes",
            outcome=made_outcome(ratings, ("Q1",), 1, control=False),
            ratings=ratings,
            plan=made_plan(("Q1",)),
            encoder="siglip",
            settings={},
        )
    assert "paper, siglip" in capsys.readouterr().out
    assert [path.name for path in tmp_path.glob("*.csv")] == ["results.csv"]
    assert set(pd.read_csv(tmp_path / "results.csv").raters) == {"people"}
    assert "No scorer was trained on shuffled votes" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_rows_of_a_mixtures_comparison():
    mixture = best_explainer({"a": [1.0, 2.0, 3.0], "b": [2.0, 1.0, 1.0]})
    rows = mean_rows(mixture.compare({"a": [0.1, 0.2, 0.3], "b": [0.0, 0.1, 0.1]}))
    assert [row.name for row in rows] == ["mixture", "average of explainers", "a", "b"]
    assert rows[0].mean == pytest.approx(0.5 / 3)
    assert rows[3].difference == pytest.approx(0.1)
    assert rows[0].n == 3
    assert Uses(faithfulness=rows).best_fixed().name == "a"


def test_uses_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"one count for each of 2 explainers but got 1"):
        Uses(mixture_names=("a", "b"), mixture_wins=(1,))
    with pytest.raises(ValueError, match=r"one map and one score for each of 2 weights but 'bird' has 1 and 2"):
        Uses(steering_weights=(0.0, 1.0), steering=(SteeredRow("bird", PICTURE, [PICTURE], [1.0, 2.0]),))
    with pytest.raises(ValueError, match=r"one weight for each of 3 means but got 0"):
        Uses(steering_scores=made_uses().steering_scores)
