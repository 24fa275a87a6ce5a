"""The report of made-up numbers: one well-formed page, with the paper's numbers, answers, findings and maps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.figure import Figure
from torch import nn

from block_sources import OBJECTS, SCENES, Blocks, Plains
from html_pages import HTMLPage
from quantus_concepts.datasets import ObjectsOnScenes
from quantus_concepts.metrics import PremiseCheck, RegionAttributions, Subject
from quantus_concepts.studies._kit.output import OutputFolder
from quantus_concepts.studies._kit.page import render, site_address
from quantus_concepts.studies._kit.pictures import PictureGrid, PictureRow
from quantus_concepts.studies._kit.run import Run
from quantus_concepts.studies._kit.tables import Table
from quantus_concepts.studies.attribution.data import CHANGES, Interleaved
from quantus_concepts.studies.attribution.evaluation import saliency_sheets, shown_rows
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
    (line,) = [line for _, lines in table.groups for line in lines if line.label == row]
    return [f"{cell.mark}{cell.text}" for cell in line.cells]


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    frame = tidy([numbers()], 0)
    with pytest.MonkeyPatch.context() as patch:
        # Those of the recorded runs are drawn.
        patch.setattr(Figure, "savefig", lambda *_, **__: None)
        run = a_run(tmp_path_factory.mktemp("out"), [F_O, F_S])
        report = page(frame, run)
        return report, render(report, settings=run.settings, notes=["a note"], files=["results.csv"])


def test_the_page_is_one_well_formed_file_with_everything(report):
    _, text = report
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


def test_numbers_stand_beside_the_papers(report):
    premises, commonality = report[0].sections[0].tables
    assert cells(premises, "accuracy on X_os") == ["91.0", "91.1", "94.0", "94.0"]
    assert cells(premises, "median KL, same prediction") == ["1e−07", "7.9e−08", "1e−07", "7.7e−08"]
    assert cells(premises, "chance") == ["10.0", "", "10.0", ""]
    assert cells(commonality, "drop") == ["50.0", "10.0", "1.0"]
    assert cells(commonality, "paper, with the object") == ["97", "96", "95"]
    assert cells(commonality, "paper, without it") == ["78", "78", "93"]


def test_numbers_are_marked_by_their_references(report):
    (methods,) = report[0].main
    assert cells(methods, "Grad-CAM") == ["0.300", "0.100", "80.0", "30.0", "0.91"]
    assert cells(methods, "a <b> & $c$") == ["≈0.100", "0.100", "60.0", "–", "0.31"]
    # A control has no mark.
    assert cells(methods, "random") == ["0.000", "0.100", "50.0", "0.0", "0.01"]


def test_answers_are_short_and_findings_have_the_intervals(report):
    assert [str(answer) for answer in report[0].answers] == [
        "Ground truth: verified",
        "Changes with the model: 1 of 2 methods above a random mask; best Grad-CAM (0.300, a random mask 0.100)",
        "Leaves alone what does not matter: 2 of 2 methods above a random map; best Grad-CAM (80 %, a random map 50 %)",
        "Unmoved by a patch without effect: best Grad-CAM (30 %, the random map 0 %)",
    ]
    texts = {}
    for finding in report[0].findings:
        texts.setdefault(finding.topic, []).append(finding.text)
    assert texts["Premises"] == ["Every premise of f_o and f_s holds."]
    assert texts["MCS"] == [
        "MCS is highest for Grad-CAM, 0.300 (95 % interval 0.280 to 0.320); lowest for a <b> & $c$, 0.100 (95 % "
        "interval 0.080 to 0.120).",
        "Above a random mask of the same size: Grad-CAM; not distinguishable from it: a <b> & $c$.",
    ]
    assert texts["Size and place"][0].startswith(
        "Objects smaller: MCS above that as trained: none; not distinguishable"
    )
    assert texts["Relative MCS"][0].endswith("50 % at k = 0.1 and 1.0 % at k = 1 of accuracy.")
    assert texts["IIR"][1].endswith("2 of 100 patches did not converge and were left out.")
    assert texts["Controls"][1].endswith("(95 % interval 48–52): not distinguishable from what is expected (50 %).")
    assert texts["Not defined"] == ["No IIR: a <b> & $c$."]
    assert texts["The paper's findings"][0] == (
        "The paper finds Grad-CAM highest in MCS. Above Grad-CAM here: none; below it: a <b> & $c$."
    )


def test_an_unverified_ground_truth_is_marked_wherever_it_matters(tmp_path):
    report = page(tidy([numbers()], 0), a_run(tmp_path, [F_O, replace(F_S, accuracy_without=0.9)], paper=False))
    assert report.banner.startswith("Ground truth not verified (f_s). MCS and IDR rest on what these models")
    marked = {chart.name: chart.unverified for chart in report.charts}
    assert {name for name, mark in marked.items() if mark} == {"mcs", "robustness", "idr", "sheet_mcs", "sheet_idr"}
    assert marked["mcs"] == "ground truth not verified (f_s)"
    assert [finding.topic for finding in report.printed] == ["Not verified"]
    assert "patch is checked on its own image" in next(chart.caption for chart in report.charts if chart.name == "iir")
    assert [key for (key,) in report.sections[0].tables[0].column_keys] == ["f_o", "f_s"]
    assert report.answers[0].text == "not verified (f_s)"


def test_signs():
    assert (
        signs("f_o, f_s^k and X_0s <b>")
        == "<i>f</i><sub>o</sub>, <i>f</i><sub>s</sub><sup>k</sup> and <i>X</i><sub>0s</sub> &lt;b&gt;"
    )


ROWS = [2, 9]


def test_rows_are_of_different_objects_and_scenes_while_there_are_any():
    chosen = torch.tensor([0, 1, 1, 1, 1, 0, 1]).bool()
    objects = torch.tensor([0, 1, 1, 2, 2, 3, 1])
    scenes = torch.tensor([0, 1, 2, 1, 2, 3, 1])
    # Row 2 has the object of row 1, and row 3 its scene.
    assert shown_rows(chosen, objects, scenes, 2) == [1, 4]
    # Then the first of the others.
    assert shown_rows(chosen, objects, scenes, 3) == [1, 2, 4]
    assert shown_rows(chosen, objects, scenes, 100) == [1, 2, 3, 4, 6]
    # Where none enters, all stand in.
    assert shown_rows(torch.zeros(7).bool(), objects, scenes, 2) == [0, 1]


@pytest.fixture(scope="module")
def data():
    return ObjectsOnScenes(Blocks(), Plains(), split="test", n_per_pair=2, image_size=16, test_share=0.3)


def test_two_lines_for_each_image_and_a_column_for_each_method_that_did_not_fail(data):
    bare = data.with_view("0s")
    views = {name: bare if "0s" in name else data for name in ("f_o", "f_s", "f_s 0s", "f_0 0s", "patched 0s")}
    of = {name: Subject(nn.Identity(), view.images, view.scene_labels) for name, view in views.items()}
    pairs = {"MCS": (of["f_o"], of["f_s"]), "IDR": (of["f_s"], of["f_s 0s"])}
    pairs["IIR"] = (of["f_0 0s"], of["patched 0s"])

    def attributed(seed):
        generator = torch.Generator().manual_seed(seed)
        maps = {subject: np.full((len(ROWS), 16, 16), (place + seed) / 10) for place, subject in enumerate(of.values())}
        return RegionAttributions({subject: torch.rand(len(data), generator=generator) for subject in maps}, {}, maps)

    methods = {"a": attributed(0), "broken": RegionAttributions(failure="why"), "b": attributed(1)}
    enters = dict.fromkeys(pairs, torch.ones(len(data)).bool()) | {"IIR": torch.zeros(len(data)).bool()}
    sheets = saliency_sheets(pairs, methods, dict.fromkeys(pairs, ROWS), enters, data)
    assert list(sheets) == ["mcs", "idr", "iir"]
    for (metric, pair), sheet in zip(pairs.items(), sheets.values(), strict=True):
        assert sheet.columns == ["a", "b"]
        assert len(sheet.rows) == 4
        for place, line in enumerate(sheet.rows):
            row, subject = ROWS[place // 2], pair[place % 2]
            np.testing.assert_allclose(line.image, subject.images([row])[0].permute(1, 2, 0).numpy() / 255)
            np.testing.assert_array_equal(line.mask, data.masks([row])[0, 0])
            assert line.values == pytest.approx([float(methods[m].inside[subject][row]) for m in ("a", "b")])
            np.testing.assert_array_equal(line.maps[1], methods["b"].maps[subject][place // 2])
        obj, scene = OBJECTS[data.object_labels[2]], SCENES[data.scene_labels[2]]
        assert (obj if metric == "MCS" else scene) in sheet.rows[0].label
        assert ("None of these images enters IIR" in sheet.caption) == (metric == "IIR")
        assert sheet.draw()[1].shape == (4, 3)


def test_the_first_images_show_all_classes_in_all_views(data):
    order = Interleaved(data)
    assert order.object_labels[:3].tolist() == [0, 1, 2]
    assert order.scene_labels[:3].tolist() == [0, 1, 2]
    pairs = list(zip(order.object_labels.tolist(), order.scene_labels.tolist(), strict=True))
    assert len(set(pairs[:12])) == len(set(pairs)) == 12
    assert sorted(order.order) == list(range(len(data)))
    rows = [5, 0, 17]
    there = [order.order[row] for row in rows]
    for view in ("os", "og", "0s"):
        viewed = order.with_view(view)
        assert viewed.view == view
        assert torch.equal(viewed.images(rows), data.with_view(view).images(there))
        assert torch.equal(viewed[5].image, data.with_view(view)[there[0]].image)
    assert torch.equal(order.masks(rows), data.masks(there))
    assert torch.equal(order.boxes(rows), data.boxes(there))
    assert order.view == "os"
