import io
import math
from dataclasses import replace

import pytest
from rich.console import Console

from quantus_concepts.studies.attribution.premise_tables import commonality_table, premise_table
from quantus_concepts.studies.attribution.premises import CommonalityRow, PremiseCheck
from quantus_concepts.studies.attribution.results import Record
from quantus_concepts.studies.attribution.tables import count_table, main_table, method_table, relative_table
from quantus_concepts.studies.attribution.truth import family_holds, mark, unverified
from quantus_concepts.studies.attribution.writing import (
    contrast,
    divergence,
    enumerate_names,
    points,
    ratio,
    span,
)

NAN = math.nan
F_O = PremiseCheck("f_o", "scene", 0.912, 0.931, 0.103, 0.984, 7.9e-8, NAN, 0.1, 500)
F_S = PremiseCheck("f_s", "object", 0.94, 0.936, 0.098, 0.983, 7.7e-8, 1.0, 0.1, 500)
BROKEN = replace(F_S, accuracy_without=0.8)
FAMILY = [CommonalityRow(1.0, 0.9, 0.89, 50), CommonalityRow(0.1, 0.95, 0.6, 50), CommonalityRow(0.5, 0.9, 0.8, 50)]


def record(method, metric, value, half=0.01, **fields):
    ends = {"low": value - half, "high": value + half}
    return Record(method, metric, value=value, **{**ends, "n": 90, "undefined": 10, **fields})


@pytest.fixture
def records():
    found = []
    for method, value in (("Grad-CAM", 0.5), ("guided backpropagation", 0.102), ("random", 0.0)):
        found.append(record(method, "MCS", value, reference=0.1))
        found.append(record(method, "MCS baseline", 0.1))
        found.append(record(method, "IDR", 0.45 + value / 2, 0.02, reference=0.5))
        found.append(record(method, "IIR", value / 2, unconverged=7))
        found.append(record(method, "perturbation", 1 - value, unconverged=7))
    return found


def rows(table):
    return {row.label: row for row in table.rows}


def drawn(table, width=80):
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(table)
    return console.file.getvalue()


def test_method_table_holds_the_numbers_and_their_intervals(records):
    table = method_table(records, [F_O, F_S])
    assert [head for head, _ in table.columns] == ["MCS", "random mask", "IDR %", "IIR %", "average perturbation"]
    assert {below for _, below in table.columns} == {"n = 90"}
    cam = rows(table)["Grad-CAM"].cells
    assert [cell.text for cell in cam] == ["0.500", "0.100", "70.0", "25.0", "0.50"]
    assert [cell.small for cell in cam] == ["0.490–0.510", "0.090–0.110", "68.0–72.0", "24.0–26.0", "0.49–0.51"]
    assert table.unverified == ""


def test_method_table_marks_what_is_not_above_its_reference(records):
    table = method_table(records, [F_O, F_S])
    guided = rows(table)["guided backpropagation"].cells
    assert [cell.mark for cell in guided] == ["≈", "", "≈", "", ""]
    assert [cell.mark for cell in rows(table)["random"].cells] == [""] * 5
    assert rows(table)["random"].control
    assert not rows(table)["Grad-CAM"].control


def test_method_table_names_the_best(records):
    table = method_table(records, [F_O, F_S])
    best = {label: [cell.best for cell in row.cells] for label, row in rows(table).items()}
    # The random mask has no best; of the perturbation the lowest is, and controls do not compete.
    assert best == {
        "Grad-CAM": [True, False, True, True, True],
        "guided backpropagation": [False] * 5,
        "random": [False] * 5,
    }


def test_undefined_and_missing_numbers_are_told_apart(records):
    records += [Record("broken", "MCS"), Record("broken", "IDR", undefined=100)]
    cells = rows(method_table(records, []))["broken"].cells
    assert [cell.text for cell in cells] == ["–", "", "–", "", ""]


def test_tables_on_unverified_truth_carry_the_mark(records):
    assert method_table(records, [F_O, BROKEN]).unverified == "ground truth not verified (f_s)"
    assert method_table(records, []).unverified == "ground truth not verified (f_o, f_s)"
    only_patches = [r for r in records if r.metric == "IIR"]
    assert method_table(only_patches, []).unverified == ""


def test_counts(records):
    table = rows(count_table(records))["Grad-CAM"]
    assert [cell.text for cell in table.cells] == ["90 of 100"] * 4 + ["7"]


def test_relative_table_has_the_curve_the_correlation_and_the_drop():
    found = [record("Grad-CAM", "relative MCS", 0.3 - 0.3 * k, k=k) for k in (0.5, 1.0, 0.1)]
    found.append(record("Grad-CAM", "correlation", 0.93))
    table = relative_table(found, [F_O, F_S], FAMILY)
    assert [head for head, _ in table.columns] == ["k = 0.1", "k = 0.5", "k = 1", "correlation"]
    assert [cell.text for cell in rows(table)["Grad-CAM"].cells] == ["0.270", "0.150", "0", "0.93"]
    assert [cell.text for cell in rows(table)["accuracy drop"].cells] == ["0.350", "0.100", "0.010", ""]
    assert table.unverified == ""
    assert relative_table(found, [], FAMILY).unverified == "ground truth not verified (f_s^k)"


def test_premise_table_has_the_form_of_figure_3():
    table = premise_table([F_O, BROKEN])
    assert [head for head, _ in table.columns] == ["f_o", "f_s"]
    numbers = {label: [cell.text for cell in row.cells] for label, row in rows(table).items()}
    assert numbers["accuracy on X_os"] == ["91.2", "94.0"]
    assert numbers["without the common feature"] == ["93.1", "80.0"]
    assert numbers["only the common feature"] == ["10.3", "9.8"]
    assert numbers["median KL, changed prediction"] == ["–", "1.0"]
    sets = {label: [cell.small for cell in row.cells] for label, row in rows(table).items()}
    assert sets["without the common feature"] == ["X_og", "X_0s"]
    assert sets["only the common feature"] == ["X_0s", "X_og"]
    assert table.unverified == "ground truth not verified (f_s)"
    assert premise_table([F_O, F_S]).unverified == ""


def test_the_papers_figures_stand_beside_ours_only_on_request():
    table = premise_table([F_O, F_S, replace(F_S, model="f_0")], paper=True)
    assert [head for head, _ in table.columns] == ["f_o", "paper", "f_s", "paper", "f_0"]
    numbers = {label: [cell.text for cell in row.cells] for label, row in rows(table).items()}
    assert numbers["accuracy on X_os"][1::2] == ["91.1", "94.0"]
    assert numbers["without the common feature"][1::2] == ["93.1", "93.6"]
    assert numbers["only the common feature"][1::2] == ["9.7", "9.8"]
    assert numbers["of the correct, remain correct without it"][1::2] == ["98.4", "98.3"]
    assert numbers["median KL, same prediction"][1::2] == ["7.9e−8", "7.7e−8"]
    assert numbers["median KL, changed prediction"][1::2] == ["2.2", "1.0"]


def test_commonality_table_ascends_and_can_hold_the_papers():
    table = commonality_table(FAMILY, [F_S], paper=True)
    assert [head for head, _ in table.columns] == ["k = 0.1", "k = 0.5", "k = 1"]
    numbers = {label: [cell.text for cell in row.cells] for label, row in rows(table).items()}
    assert numbers["drop"] == ["35.0", "10.0", "1.0"]
    assert numbers["paper, with the object"] == ["97", "96", "95"]
    assert numbers["paper, without it"] == ["78", "78", "93"]
    assert "paper, without it" not in rows(commonality_table(FAMILY, [F_S]))


def test_main_table_fits_80_columns_at_its_widest():
    methods = ("guided backpropagation", "integrated gradients")
    found = [record(m, "MCS", -0.123, 0.012, reference=0.5) for m in methods]
    found += [record(m, "MCS baseline", -0.012) for m in methods]
    found += [record(m, "IDR", 0.0, 0.0, reference=0.5, high=0.105) for m in methods]
    found += [record(m, "IIR", 1.0, 0.0, low=0.956) for m in methods]
    found += [record(m, "perturbation", 123456.0) for m in methods]
    text = drawn(main_table(found, [F_O, BROKEN], 80))
    assert max(len(line) for line in text.splitlines()) <= 80
    assert "…" not in text
    assert "guided backpropagation" in text
    assert "▼−0.123 ±0.012" in text
    assert "▼0 (0–10)" in text
    assert "1.2e5" in text
    assert "Ground truth not verified (f_s)." in text


def test_main_table_gives_way_only_in_the_names(records):
    found = [replace(r, method="my_package.explainers:attention rollout of mine") for r in records[:5]]
    text = drawn(main_table([*records, *found], [F_O, F_S], 80))
    assert "my_package" in text
    assert text.count("70 (68–72)") == 2
    assert "not verified" not in text


def test_wide_main_table_has_correlations(records):
    records.append(record("Grad-CAM", "correlation", 0.93))
    assert "0.93" not in drawn(main_table(records, [F_O, F_S], 80))
    wide = drawn(main_table(records, [F_O, F_S], 120, FAMILY), 120)
    assert "0.93 (0.92–0.94)" in wide
    assert "0.50 (0.49–0.51)" in wide
    assert "not verified" not in wide
    assert "not verified (f_s^k)" in drawn(main_table(records, [F_O, F_S], 120), 120)


@pytest.mark.parametrize(
    ("metric", "premises", "models"),
    [
        ("MCS", [F_O, F_S], ()),
        ("MCS", [F_O, BROKEN], ("f_s",)),
        ("MCS", [F_S], ("f_o",)),
        ("IDR", [F_S], ()),
        ("IDR", [F_O], ("f_s",)),
        ("IIR", [], ()),
        ("correlation", [F_O, F_S], ("f_s^k",)),
    ],
)
def test_what_rests_on_unverified_truth(metric, premises, models):
    assert unverified(metric, premises) == models
    assert bool(mark(models)) == bool(models)


@pytest.mark.parametrize(
    ("last", "first", "holds"),
    [(0.02, 0.3, True), (-0.05, 0.3, True), (0.03, 0.3, False), (0.0, 0.02, False), (NAN, 0.3, False)],
)
def test_family_holds_where_the_object_matters_first_and_not_last(last, first, holds):
    family = [CommonalityRow(1.0, 0.9, 0.9 - last, 50), CommonalityRow(0.1, 0.9, 0.9 - first, 50)]
    assert family_holds([F_S], family) is holds
    assert not family_holds([F_S], family[1:])
    assert not family_holds([], family)


def test_numbers_are_written_as_they_are_read():
    assert [contrast(value) for value in (0.0, -0.0004, -0.05)] == ["0", "0.000", "−0.050"]
    assert [ratio(value) for value in (0.0, 0.012, 1.5, 480.2, 2.5e6)] == ["0.00", "0.012", "1.50", "480", "2.5e6"]
    assert [divergence(value) for value in (2.2, 7.9e-8, 1.0)] == ["2.2", "7.9e−8", "1.0"]
    assert points(0.984) == "98.4"
    assert span(record("a", "MCS", -0.05)) == "−0.060 to −0.040"
    assert span(record("a", "IDR", 0.5, 0.0)) == ""
    assert span(Record("a", "IDR", value=0.5)) == ""
    assert [enumerate_names("abc"[:n]) for n in (1, 2, 3)] == ["a", "a and b", "a, b and c"]
