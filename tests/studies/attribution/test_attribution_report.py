import base64
import re
from dataclasses import replace
from datetime import datetime
from html.parser import HTMLParser

import pytest
from matplotlib.figure import Figure

from quantus_concepts.studies.attribution.plot import plot_idr
from quantus_concepts.studies.attribution.premises import CommonalityRow, PremiseCheck
from quantus_concepts.studies.attribution.report import render_report, signs, write_report
from quantus_concepts.studies.attribution.results import Record
from quantus_concepts.studies.charts import save_figures
from quantus_concepts.studies.output import OutputFolder

F_O = PremiseCheck("f_o", "scene", 0.91, 0.92, 0.1, 0.98, 1e-7, 2.2, 0.1, 500)
F_S = PremiseCheck("f_s", "object", 0.94, 0.935, 0.1, 0.98, 1e-7, 1.0, 0.1, 500)
BROKEN = replace(F_S, accuracy_without=0.8)
FAMILY = [CommonalityRow(0.1, 0.9, 0.4, 50), CommonalityRow(1.0, 0.9, 0.89, 50)]
PNG = b"\x89PNG\r\n\x1a\n"


def record(method, metric, value, **fields):
    ends = {"low": value - 0.01, "high": value + 0.01}
    return Record(method, metric, value=value, **{**ends, "n": 90, "undefined": 10, "seed": 4, **fields})


@pytest.fixture
def records():
    found = []
    for method, value in (("Grad-CAM", 0.6), ("mine <b>bold</b>", 0.4), ("random", 0.0)):
        found += [record(method, "MCS", value, reference=0.1), record(method, "MCS baseline", 0.1)]
        found += [record(method, "IDR", 0.5 + value / 2, reference=0.5), record(method, "IIR", value)]
        found += [record(method, "perturbation", 1 - value, unconverged=3)]
    return found


def relative(records):
    return [
        *records,
        record("Grad-CAM", "relative MCS", 0.3, k=0.1),
        record("Grad-CAM", "relative MCS", 0.0, k=1.0),
        record("Grad-CAM", "correlation", 0.9),
    ]


def picture():
    figure = Figure(figsize=(2, 1))
    figure.add_subplot().plot([0, 1])
    return figure


def report(records, premises=(F_O, F_S), **changes):
    content = {
        "title": "Attribution",
        "records": records,
        "premises": premises,
        "commonality": [],
        "figures": {name: picture() for name in ("mcs", "idr", "iir", "perturbation")},
        "sheets": {"mcs": picture(), "sheet_iir": picture()},
        "settings": {"data": "<script>alert(1)</script>"},
        "versions": {"torch": "2.9"},
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


def captions(html):
    """Texts of all captions, by kind, without the tags in them."""
    found = re.findall(r"<(caption|figcaption)>(.*?)</\1>", html, flags=re.DOTALL)
    return [(kind, re.sub(r"<[^>]+>", "", text)) for kind, text in found]


def test_report_is_self_contained_and_well_formed(records):
    html = report(relative(records), commonality=FAMILY, paper=True)
    parser = Balance()
    parser.feed(html)
    assert parser.open == []
    assert "script" not in parser.tags
    assert "link" not in parser.tags
    assert len(parser.sources) == 6
    assert all(source.startswith("data:image/png;base64,") for source in parser.sources)
    assert "@import" not in html
    assert html.count("{") == html.count("}")  # a rule left open swallows those after it
    assert html.count("prefers-color-scheme: dark") == 2


def test_report_embeds_every_figure_and_sheet_where_it_belongs(records):
    html = report(records, sheet_captions={"mcs": "Two dogs."}, figures={"idr": picture(), "extra_view": picture()})
    images = re.findall(r"data:image/png;base64,([^\"]+)", html)
    assert len(images) == 4
    assert all(base64.b64decode(image).startswith(PNG) for image in images)
    places = [
        html.index(text) for text in ('id="mcs"', "Two dogs.", 'id="idr"', 'id="iir"', "with and without a patch")
    ]
    assert places == sorted(places)
    assert html.index("Extra view.") > places[-1]
    assert html.count('class="wide"') == 2


def test_report_escapes_what_users_named(records):
    html = report(records)
    assert "<script>" not in html
    assert "<b>bold" not in html
    assert "mine &lt;b&gt;bold&lt;/b&gt;" in html


def test_premises_stand_before_the_numbers(records):
    html = report(records, notes=["All 63 images & more."])
    places = [html.index(text) for text in ("All 63 images &amp; more.", 'id="premises"', 'id="methods"', 'id="mcs"')]
    assert places == sorted(places)
    assert html.count('<li class="holds">') == 8
    assert '<li class="fails">' not in html
    assert "01 March 2025, 09:05; seed 4" in html


def test_verified_truth_needs_no_banner(records):
    html = report(records)
    assert 'class="banner"' not in html
    assert not any("not verified" in text for _, text in captions(html))


def test_unverified_truth_is_marked_at_every_caption_that_rests_on_it(records):
    html = report(records, (F_O, BROKEN))
    assert "Ground truth not verified (<i>f</i><sub>s</sub>)." in html
    assert "MCS and IDR" in html[html.index('class="banner"') :][:400]
    assert '<li class="fails">' in html
    found = captions(html)
    marked = [text for _, text in found if text.startswith("ground truth not verified (fs)")]
    free = [text for _, text in found if "Does not rest on the premises" in text]
    # Premises, all methods; MCS, its sheet, IDR. IIR, perturbation and their sheet need no premise.
    assert len(marked) == 5
    assert len(free) == 3
    assert len(found) == 9  # besides them the table of counts, which holds no score


def test_a_run_without_premises_says_so(records):
    html = report(records, ())
    assert "No premise was checked." in html
    assert "Ground truth not verified (<i>f</i><sub>o</sub>, <i>f</i><sub>s</sub>)." in html
    patches = [r for r in records if r.metric in ("IIR", "perturbation")]
    html = report(patches, (), figures={"iir": picture()}, sheets={})
    assert 'class="banner"' not in html
    assert 'id="mcs"' not in html


def test_relative_contrast_has_its_own_truth(records):
    chosen = {"figures": {"relative": picture(), "correlation": picture()}, "sheets": {}}
    verified = report(relative(records), commonality=FAMILY, **chosen)
    assert 'class="banner"' not in verified
    assert "<b>Commonality.</b>" in verified
    assert "<b>Relative MCS.</b>" in verified
    html = report(relative(records), commonality=FAMILY[:1], **chosen)
    assert "Relative MCS rests on" in html
    marked = [text for _, text in captions(html) if text.startswith("ground truth not verified (fsk)")]
    assert len(marked) == 4  # commonality, table, two figures


def test_the_papers_figures_appear_only_on_request(records):
    html = report(records)
    assert "7.9e−8" not in html
    html = report(records, paper=True, commonality=FAMILY)
    for number in ("91.1", "93.1", "9.7", "98.4", "7.9e−8", "2.2", "94.0", "93.6", "9.8", "98.3", "7.7e−8"):
        assert f">{number}</td>" in html
    assert "paper, without it" in html


def test_the_reader_is_told_how_to_read(records):
    html = report(records)
    for phrase in ("Only positive attributions count", "There is no chance value", "A random map scores 50 %"):
        assert phrase in html


def test_verdicts_are_grouped_by_topic(records):
    html = report(records)
    box = html[html.index('class="verdict"') : html.index('id="premises"')]
    assert re.findall(r"<dt>(.*?)</dt>", box) == [
        "Premises",
        "MCS",
        "IDR",
        "IIR",
        "Controls",
        "The paper&#39;s findings",
    ]


def test_report_of_nothing_says_so():
    html = report([], (), figures={}, sheets={}, versions=None)
    assert "There are no numbers to judge." in html


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("f_o on X_os", "<i>f</i><sub>o</sub> on <i>X</i><sub>os</sub>"),
        ("f_s^k", "<i>f</i><sub>s</sub><sup>k</sup>"),
        ("f_0, g_c & X_0s", "<i>f</i><sub>0</sub>, <i>g</i><sub>c</sub> &amp; <i>X</i><sub>0s</sub>"),
        ("of_o f_other f_oo", "of_o f_other f_oo"),
    ],
)
def test_signs(text, html):
    assert signs(text) == html


def test_write_report_and_figures_into_a_run(records, tmp_path):
    figures = {"idr": plot_idr(records)[0]}
    with OutputFolder("attribution", out=tmp_path) as folder:
        assert save_figures(folder, figures) == [tmp_path / "figures" / "idr.png"]
        with folder.file("report.html") as path:
            write_report(
                path,
                title="t",
                records=records,
                premises=[F_O, F_S],
                commonality=[],
                figures=figures,
                sheets={},
                settings={},
            )
    assert (tmp_path / "figures" / "idr.png").read_bytes().startswith(PNG)
    assert (tmp_path / "report.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
