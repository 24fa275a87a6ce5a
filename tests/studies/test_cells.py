"""Cells of CSV files, workbooks, pages and terminals: what names say is shown, and nothing is computed or sent."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import openpyxl
import pandas as pd
import pytest

from captum_concepts._support.files import printable
from captum_concepts._support.progress import progress
from quantus_concepts.studies._kit.command import RunOptions
from quantus_concepts.studies._kit.findings import Finding
from quantus_concepts.studies._kit.page import Page, Section, render
from quantus_concepts.studies._kit.results import as_cell, frame_grid, from_cell, write_csv, write_workbook
from quantus_concepts.studies._kit.run import Study
from quantus_concepts.studies._kit.tables import Table, arrange, print_table, table_grid, terminal, terminal_table
from quantus_concepts.studies.app import main

FORMULAS = (
    "=1+1",
    "+cmd|' /C calc'!A0",
    "-2+3",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    "\n=1",
    "=",
    "-",
    "-1_0",
    "+ 1",
    "\uff1d1",
)
NUMBERS = ("-1.5", "+3", "-1e-9", "-inf", "-.5")
#: What moves a cursor, rings, sets a title, hides or turns text, and half a character.
ESCAPES = (
    "\x1b[31mred",
    "\x1b]0;title\x07",
    "\x9b2J",
    "a\bb",
    "a\rb",
    "\x07",
    "a\u202egnp.exe",
    "\u2066x\u2069",
    "\udcff",
)
MARKUP = ("[red]a[/red]", "[link=https://example.org]a[/link]", "[/]", ":smile:")


@pytest.fixture(autouse=True)
def _texts_as_in_a_run() -> Iterator[None]:
    with pd.option_context("mode.string_storage", "python"):
        yield


@pytest.mark.parametrize("text", FORMULAS)
def test_what_a_spreadsheet_would_compute_is_a_text(tmp_path: Path, text: str) -> None:
    frame = pd.DataFrame({"model": pd.Categorical([text, "a"]), "concept": ["b", text], "value": [-1.5, np.nan]})
    before = frame.copy()
    write_csv(frame, tmp_path / "a.csv")
    cells = pd.read_csv(tmp_path / "a.csv", keep_default_na=False, lineterminator="\n" if "\r" in text else None)
    assert cells["model"].tolist() == [f"'{text}", "a"]
    assert cells["concept"].tolist() == ["b", f"'{text}"]
    assert cells["value"].astype(str).tolist() == ["-1.5", ""]
    pd.testing.assert_frame_equal(frame, before)


def test_numbers_and_other_cells_stay_as_they_are(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {
            "text": NUMBERS,
            "name": ["a", "b-c", "'quoted", "1=1", ""],
            "value": [-1.5, 0.1 + 0.2, np.nan, np.inf, -np.inf],
            "n": range(-2, 3),
            "mixed": pd.Series([1, None, -2.5, True, "c"], dtype=object),
            "kind": pd.Categorical(list("abcab")),
            "known": [True, False, True, False, True],
        }
    )
    write_csv(frame, tmp_path / "a.csv")
    assert (tmp_path / "a.csv").read_text() == frame.to_csv(index=False)
    assert [as_cell(value) for value in (None, -3, 2.5, True)] == [None, -3, 2.5, True]


def test_heads_are_cells_too_and_half_a_character_is_written(tmp_path: Path) -> None:
    write_csv(pd.DataFrame({"=1": ["\udcff"]}), tmp_path / "a.csv")
    assert (tmp_path / "a.csv").read_text() == "'=1\n\\udcff\n"


@pytest.mark.parametrize("text", ESCAPES)
def test_escapes_are_shown_not_sent(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    frame = pd.DataFrame(
        {
            "group": [text],
            "row": [text],
            "over": [text],
            "column": [text],
            "value": [1.0],
            "text": [text],
            "mark": [text],
        }
    )
    table = Table(text, text, frame, ["group", "row"], ["over", "column"], unverified=text)
    terminal().print(terminal_table(table))
    terminal().print(str(Finding(text, topic=text)))
    printed = capsys.readouterr().out
    list(progress(range(2), text, show=True, disable=False))
    # A bar is drawn again from the beginning of its line.
    bar = capsys.readouterr().err.split("\r")[1]
    for output in (printed, bar):
        assert "\\" in output
        assert not set(output) & set("\x1b\x07\x9b\b\r\u202e\u2066\udcff") & set(text)


@pytest.mark.parametrize("text", MARKUP)
def test_markup_is_no_markup(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    frame = pd.DataFrame({"row": [text], "column": [text], "value": [1.0]})
    terminal().print(terminal_table(Table(text, text, frame, ["row"], ["column"])))
    assert capsys.readouterr().out.count(text) == 4


@pytest.mark.parametrize("width", [40, 60, 80])
def test_a_narrow_terminal_cuts_no_word(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    models = ["class-memoriser, own class", "concept embedding model", "a" * 40]
    columns = ["selectivity touched", "class kept prediction", "recital of the class", "rises", "put in: seen", "gone"]
    rows = [
        {"row": row, "column": column, "value": 0.0, "text": f"{place}{at}.0 ({place}–{at}{at})"}
        for place, row in enumerate(models)
        for at, column in enumerate(columns)
    ]
    print_table(Table("A table", "What it says.", pd.DataFrame(rows), ["row"], ["column"]))
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= width
    assert printed.count("A table") == printed.count("What it says.") == 1
    words = {word for row in rows for word in (row["text"], *row["column"].split(), "class-memoriser,", "embedding")}
    assert [word for word in words if word not in printed] == []


def test_letters_of_all_scripts_are_shown() -> None:
    for text in ("Zażółć gęślą jaźń", "数字 〇", "می‌خواهم", "👩‍🔬", "a b"):
        assert printable(text) == text


def test_names_on_a_page_are_texts() -> None:
    hostile = "</script><script>alert(1)</script>\"'><img src=x onerror=alert(1)>\u2028{{ 7 * 7 }}\udcff"
    frame = pd.DataFrame({"row": [hostile], "column": [hostile], "value": [1.0], "text": [hostile]})
    table = Table(hostile, hostile, frame, ["row"], ["column"], key=hostile, heads={hostile: hostile})
    sections = [Section(hostile, hostile, tables=[table], folded=[table], after=hostile)]
    page = render(
        Page(hostile, [Finding(hostile, hostile)], sections, banner=hostile, source=hostile),
        settings={hostile: hostile},
        notes=[hostile],
        files=[hostile],
    )
    assert "alert(1)" in page
    for tag in ("<script>alert", "<img", "onerror=alert(1)>", "49"):
        assert tag not in page.replace("&#34;", '"') if tag != "49" else "{{ 7 * 7 }}" in page
    # Whatever a file is called, its link is one of a file.
    assert all(link.startswith("./") for link in re.findall(r'href="([^"]*)', page))
    page.encode("utf-8")


@pytest.mark.parametrize("text", [*FORMULAS, *NUMBERS, "'quoted'", "'", "plain", "", "'=1", "''=1", "'-5"])
def test_cells_read_back(text: str) -> None:
    assert from_cell(as_cell(text)) == text


#: What a spreadsheet computes, takes for an error, or cannot hold.
HOSTILE = ("=1+1", "+cmd|' /C calc'!A0", "@SUM(A1)", "\uff1d1", "#N/A", "a\x00\x1b[31m", "\udcff", "\uffff")


def sheets(path: Path) -> dict[str, list[list[Any]]]:
    return {
        sheet.title: [[*row] for row in sheet.iter_rows(values_only=True)] for sheet in openpyxl.load_workbook(path)
    }


def table(title: str, frame: pd.DataFrame, **settings: Any) -> Table:
    return Table(title, "What it says.", frame, **{"rows": ["row"], "columns": ["column"], **settings})


def test_a_study_writes_its_printed_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frame = pd.DataFrame(
        {"row": ["a", "b"] * 2, "column": ["x", "x", "y", "y"], "value": [0.25, -1.5, np.nan, 3.0], "mark": [""] * 4}
    )
    frame.loc[3, "mark"] = "at"
    printed = [table("First", frame, labels={"x": "two\nlines"}), table("Second", frame[:1])]
    study = Study("few", lambda options, run: frame, lambda frame, run: Page("Few", [], [], main=printed))
    folder = study(RunOptions(out=tmp_path / "out", progress=False, xlsx=True))
    content = sheets(folder / "results.xlsx")
    assert content["First"] == [
        ["First", None, None],
        [None, "two lines", "y"],
        ["a", 0.25, "–"],
        ["b", -1.5, 3.0],
        ["What it says.", None, None],
    ]
    assert list(content) == ["First", "Second"]
    # The sign is shown, and the number can be computed with.
    book = openpyxl.load_workbook(folder / "results.xlsx")
    assert book["First"]["C4"].number_format == '"≈"General'
    assert book["First"]["B4"].number_format == "General"
    assert "./results.xlsx" in (folder / "report.html").read_text("utf-8")
    output = capsys.readouterr().out
    assert all(title in output for title in content)
    other = study(RunOptions(out=tmp_path / "other", progress=False))
    assert not (other / "results.xlsx").exists()
    assert "results.xlsx" not in (other / "report.html").read_text("utf-8")


def test_rows_and_columns_stand_in_the_order_given_and_others_are_left_out() -> None:
    frame = pd.DataFrame({"row": list("abc"), "column": list("xyx"), "value": [1.0, 2.0, 3.0]})
    grid = table_grid(table("Arranged", arrange(frame, row="ba", column="yx")))
    assert grid[1:-1] == [["", "y", "x"], ["b", 2.0, ""], ["a", "", 1.0]]


def test_groups_and_columns_of_two_names_have_cells_of_their_own() -> None:
    frame = pd.DataFrame(
        {"group": ["g", "h"], "row": ["1", "2"], "over": ["o", "o"], "column": ["x", "y"], "value": [1.0, 2.0]}
    )
    grid = table_grid(table("Groups", frame, rows=["group", "row"], columns=["over", "column"]))
    assert grid[1:-1] == [["", "", "o", "o"], ["", "", "x", "y"], ["g", "1", 1.0, ""], ["h", "2", "", 2.0]]


@pytest.mark.parametrize("text", HOSTILE)
def test_no_name_is_computed(text: str, tmp_path: Path) -> None:
    frame = pd.DataFrame({"row": [text], "column": [text], "value": [1.0], "text": [text]})
    write_workbook([(text, table_grid(table(text, frame))), (text, frame_grid(frame))], tmp_path / "a.xlsx")
    book = openpyxl.load_workbook(tmp_path / "a.xlsx")
    cells = [cell for sheet in book for row in sheet.iter_rows() for cell in row if cell.value is not None]
    assert {cell.data_type for cell in cells} <= {"s", "n"}
    texts = [cell.value for cell in cells if cell.data_type == "s"]
    assert len(texts) > 6
    assert not any(text.startswith(("=", "+", "@", "\uff1d")) for text in texts)
    assert len(book.sheetnames) == 2


def test_sheets_of_one_long_name_are_told_apart(tmp_path: Path) -> None:
    names = ["a: [b]/c?" * 9, "a: [b]/c?" * 9, "", "'"]
    write_workbook([(name, [[float(place)]]) for place, name in enumerate(names)], tmp_path / "a.xlsx")
    content = sheets(tmp_path / "a.xlsx")
    assert list(content.values()) == [[[0]], [[1]], [[2]], [[3]]]
    assert max(map(len, content)) <= 31


def test_without_the_package_nothing_is_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        "captum_concepts._support.lazy.find_spec", lambda name: None if name == "openpyxl" else find_spec(name)
    )
    assert main(["benchmark", "concepts", "--xlsx", "--out", str(tmp_path / "out")]) == 2
    assert "python -m pip install 'quantus-concepts[xlsx]'" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
