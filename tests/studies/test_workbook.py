"""`--xlsx`: the tables that a command prints as sheets of a workbook, in which no name is computed."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import openpyxl
import pandas as pd
import pytest

from quantus_concepts.studies._kit.command import RunOptions
from quantus_concepts.studies._kit.page import Page
from quantus_concepts.studies._kit.results import frame_grid, write_workbook
from quantus_concepts.studies._kit.run import Study
from quantus_concepts.studies._kit.tables import Table, table_grid
from quantus_concepts.studies.app import main

#: What a spreadsheet computes, takes for an error, or cannot hold.
HOSTILE = ("=1+1", "+cmd|' /C calc'!A0", "@SUM(A1)", "\uff1d1", "#N/A", "a\x00\x1b[31m", "\udcff", "\uffff")


@pytest.fixture(autouse=True)
def _texts_as_in_a_run() -> Iterator[None]:
    with pd.option_context("mode.string_storage", "python"):
        yield


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
    found = sheets(folder / "results.xlsx")
    assert found["First"] == [
        ["First", None, None],
        [None, "two lines", "y"],
        ["a", 0.25, "–"],
        ["b", -1.5, 3.0],
        ["What it says.", None, None],
    ]
    assert list(found) == ["First", "Second"]
    # The sign is shown, and the number can be computed with.
    book = openpyxl.load_workbook(folder / "results.xlsx")
    assert book["First"]["C4"].number_format == '"≈"General'
    assert book["First"]["B4"].number_format == "General"
    assert "./results.xlsx" in (folder / "report.html").read_text("utf-8")
    shown = capsys.readouterr().out
    assert all(title in shown for title in found)
    other = study(RunOptions(out=tmp_path / "other", progress=False))
    assert not (other / "results.xlsx").exists()
    assert "results.xlsx" not in (other / "report.html").read_text("utf-8")


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
    assert not any(each.startswith(("=", "+", "@", "\uff1d")) for each in texts)
    assert len(book.sheetnames) == 2


def test_sheets_of_one_long_name_are_told_apart(tmp_path: Path) -> None:
    names = ["a: [b]/c?" * 9, "a: [b]/c?" * 9, "", "'"]
    write_workbook([(name, [[float(place)]]) for place, name in enumerate(names)], tmp_path / "a.xlsx")
    found = sheets(tmp_path / "a.xlsx")
    assert list(found.values()) == [[[0]], [[1]], [[2]], [[3]]]
    assert max(map(len, found)) <= 31


def test_explain_writes_what_it_prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["explain", "--n-train", "40", "--no-progress", "--device", "cpu", "--out", "out", "--top", "2"]
    assert main([*words, "--random-banks", "2", "--xlsx"]) == 0
    ((head, *rows),) = sheets(Path("out/results.xlsx")).values()
    table = pd.read_csv("out/results.csv").groupby("image", sort=False).head(2)
    assert head == list(table)
    assert len(rows) == len(table) == 12
    assert [row[head.index("value")] for row in rows] == pytest.approx(table["value"].tolist())


def test_without_the_package_nothing_is_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        "captum_concepts._support.lazy.find_spec", lambda name: None if name == "openpyxl" else find_spec(name)
    )
    assert main(["benchmark", "concepts", "--xlsx", "--out", str(tmp_path / "out")]) == 2
    assert "python -m pip install 'quantus-concepts[xlsx]'" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
