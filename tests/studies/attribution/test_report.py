"""The report of made-up numbers: one well-formed page, with the paper's numbers, answers and findings."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from html_pages import HTMLPage
from quantus_concepts.metrics import PremiseCheck
from quantus_concepts.studies._kit.output import OutputFolder
from quantus_concepts.studies._kit.page import render, site_address
from quantus_concepts.studies._kit.pictures import PictureGrid, PictureRow
from quantus_concepts.studies._kit.run import Run
from quantus_concepts.studies._kit.tables import Table
from quantus_concepts.studies.attribution.data import CHANGES
from quantus_concepts.studies.attribution.options import AttributionOptions
from quantus_concepts.studies.attribution.report import page, signs
from quantus_concepts.studies.attribution.study import premise_table, tidy

F_O = PremiseCheck("f_o", "scene", 0.91, 0.92, 0.1, 0.98, 1e-7, 2.2, 0.1, 500)
F_S = PremiseCheck("f_s", "object", 0.94, 0.935, 0.1, 0.98, 1e-7, 1.0, 0.1, 500)
LEVELS = [0.1, 0.5, 1.0]
METHODS = {"Grad-CAM": 0.3, "a <b> & $c$": 0.1, "random": 0.0}


def numbers() -> pd.DataFrame:
    """Rows of every metric, of two methods and a control; the second method has no IIR."""
    rows = []
    for method, value in METHODS.items():
        rows += [
            {"metric": "MCS", "value": value, "control": 0.1},
            {"metric": "MCS baseline", "value": 0.1},
            {"metric": "IDR", "value": 0.5 + value, "chance": 0.5},
            {"metric": "IIR", "value": np.nan if value == 0.1 else value, "unconverged": 2},
            {"metric": "perturbation", "value": 0.01 + 3 * value, "unconverged": 2},
            *({"metric": "relative MCS", "k": k, "value": value * (1 - k)} for k in LEVELS[:-1]),
            {"metric": "correlation", "value": value * 3},
            *({"metric": "robustness", "variant": change, "value": value} for change in CHANGES),
        ]
        for row in rows[-len(CHANGES) - 8 :]:
            row["method"] = method
    frame = pd.DataFrame(rows)
    return frame.assign(low=frame["value"] - 0.02, high=frame["value"] + 0.02, n=90, undefined=10)


def a_run(tmp_path, checks, paper: bool = True) -> Run[AttributionOptions]:
    accuracies = [
        ("accuracy with", [0.9] * 3),
        ("accuracy without", [0.4, 0.8, 0.89]),
        ("accuracy drop", [0.5, 0.1, 0.01]),
    ]
    measured = [
        pd.DataFrame({"model": "f_s^k", "metric": name, "k": LEVELS, "value": v, "n": 50}) for name, v in accuracies
    ]
    sheet = PictureGrid(
        "", ["Grad-CAM"], [PictureRow("x", np.zeros((4, 4, 3)), [np.eye(4)], np.eye(4), [0.5])], "A caption."
    )
    return Run(
        AttributionOptions(device="cpu"),
        OutputFolder(out=tmp_path),
        settings={"data": "made-up <data>"},
        facts={"checks": checks, "paper": paper, "sheets": dict.fromkeys(("mcs", "idr", "iir", "relative"), sheet)},
        frames={"premises": pd.concat([premise_table(checks), *measured], ignore_index=True)},
    )


def cells(table: Table, row: str) -> list[str]:
    (found,) = [each for _, rows in table.groups for each in rows if each.label == row]
    return [f"{cell.mark}{cell.text}" for cell in found.cells]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    frame = tidy([numbers()], 0)
    with pytest.MonkeyPatch.context() as patch:
        # Those of the recorded runs are drawn.
        patch.setattr(Figure, "savefig", lambda *_, **__: None)
        run = a_run(tmp_path_factory.mktemp("out"), [F_O, F_S])
        made = page(frame, run)
        return made, render(made, settings=run.settings, notes=["a note"], files=["results.csv"])


def test_the_page_is_one_well_formed_file_with_everything(made):
    _, text = made
    parsed = HTMLPage(text)
    # Premises, commonality, methods, counts, robustness, relative; seven charts and four sheets.
    assert [parsed.tags.count(tag) for tag in ("table", "figure", "details")] == [6, 11, 3]
    assert "a &lt;b&gt; &amp; $c$" in text
    assert "<b> &" not in text
    links = [link for link in parsed.sources if not link.startswith(("data:", "#"))]
    assert links == [*(f"{site_address()}/metrics/{name}.html" for name in ("mcs", "idr", "iir")), "./results.csv"]
    # All premises hold, and the object matters where it is rare only.
    assert 'class="unverified"' not in text
    assert 'class="banner"' not in text


def test_numbers_stand_beside_the_papers(made):
    premises, commonality = made[0].sections[0].tables
    assert cells(premises, "accuracy on X_os") == ["91.0", "91.1", "94.0", "94.0"]
    assert cells(premises, "median KL, same prediction") == ["1e−07", "7.9e−08", "1e−07", "7.7e−08"]
    assert cells(premises, "chance") == ["10.0", "", "10.0", ""]
    assert cells(commonality, "drop") == ["50.0", "10.0", "1.0"]
    assert cells(commonality, "paper, with the object") == ["97", "96", "95"]
    assert cells(commonality, "paper, without it") == ["78", "78", "93"]


def test_numbers_are_marked_by_their_references(made):
    (methods,) = made[0].main
    assert cells(methods, "Grad-CAM") == ["0.300", "0.100", "80.0", "30.0", "0.91"]
    assert cells(methods, "a <b> & $c$") == ["≈0.100", "0.100", "60.0", "–", "0.31"]
    # A control has no mark.
    assert cells(methods, "random") == ["0.000", "0.100", "50.0", "0.0", "0.01"]


def test_answers_are_short_and_findings_have_the_intervals(made):
    assert [str(answer) for answer in made[0].answers] == [
        "Ground truth: verified",
        "Changes with the model: 1 of 2 methods above a random mask; best Grad-CAM (0.300, a random mask 0.100)",
        "Leaves alone what does not matter: 2 of 2 methods above a random map; best Grad-CAM (80 %, a random map 50 %)",
        "Unmoved by a patch without effect: best Grad-CAM (30 %, the random map 0 %)",
    ]
    found = {}
    for finding in made[0].findings:
        found.setdefault(finding.topic, []).append(finding.text)
    assert found["Premises"] == ["Every premise of f_o and f_s holds."]
    assert found["MCS"] == [
        "MCS is highest for Grad-CAM, 0.300 (95 % interval 0.280 to 0.320); lowest for a <b> & $c$, 0.100 (95 % "
        "interval 0.080 to 0.120).",
        "Above a random mask of the same size: Grad-CAM; not distinguishable from it: a <b> & $c$.",
    ]
    assert found["Size and place"][0].startswith(
        "Objects smaller: MCS above that as trained: none; not distinguishable"
    )
    assert found["Relative MCS"][0].endswith("50 % at k = 0.1 and 1.0 % at k = 1 of accuracy.")
    assert found["IIR"][1].endswith("2 of 100 patches did not converge and were left out.")
    assert found["Controls"][1].endswith("(95 % interval 48–52): not distinguishable from what is expected (50 %).")
    assert found["Not defined"] == ["No IIR: a <b> & $c$."]
    assert found["The paper's findings"][0] == (
        "The paper finds Grad-CAM highest in MCS. Ours: above Grad-CAM: none; below it: a <b> & $c$."
    )


def test_an_unverified_ground_truth_is_marked_wherever_it_matters(tmp_path):
    made = page(tidy([numbers()], 0), a_run(tmp_path, [F_O, replace(F_S, accuracy_without=0.9)], paper=False))
    assert made.banner.startswith("Ground truth not verified (f_s). MCS and IDR rest on what these models")
    marked = {chart.name: chart.unverified for chart in made.charts}
    assert {name for name, mark in marked.items() if mark} == {"mcs", "robustness", "idr", "sheet_mcs", "sheet_idr"}
    assert marked["mcs"] == "ground truth not verified (f_s)"
    assert [finding.topic for finding in made.printed] == ["Not verified"]
    assert "patch is checked on its own image" in next(each.caption for each in made.charts if each.name == "iir")
    assert [key for (key,) in made.sections[0].tables[0].column_keys] == ["f_o", "f_s"]
    assert made.answers[0].text == "not verified (f_s)"


def test_signs():
    assert (
        signs("f_o, f_s^k and X_0s <b>")
        == "<i>f</i><sub>o</sub>, <i>f</i><sub>s</sub><sup>k</sup> and <i>X</i><sub>0s</sub> &lt;b&gt;"
    )
