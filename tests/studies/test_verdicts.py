"""The report of every small run: one well-formed page, and verdicts that say the same as its tables."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from golden.runs import RUNS
from html_pages import HTMLPage
from quantus_concepts.results.verdicts import ABOVE, BELOW, UNKNOWN, WITHIN, verdict_of

REPORTS = [*(name for name, run in RUNS.items() if "results.csv" in run.tables), "pasta-score"]
DIFFERENCES = {"above 0": (0, np.inf), "below 0": (-np.inf, 0)}
#: Verdicts that are counts of what tables hold, or of pairs that a table shows in part; tests of their studies count.
COUNTS = re.compile("methods above|premises|paired difference of votes")
WORDS = {ABOVE, WITHIN, BELOW, UNKNOWN}


def tables_in(folder: Path) -> dict[str, pd.DataFrame]:
    return {path.stem: pd.read_csv(path) for path in (folder / "tables").glob("*.csv")}


@pytest.mark.parametrize("name", REPORTS)
def test_a_page_is_well_formed_and_self_contained(name: str, golden: Callable[[str], Path]) -> None:
    folder = golden(name)
    text = (folder / "report.html").read_text("utf-8")
    page = HTMLPage(text)
    assert not {"script", "link"} & set(page.tags)
    # A link is no request: files that lie next to the page.
    links = [source for source in page.sources if not source.startswith(("data:image/", "#"))]
    assert links
    assert [link for link in links if not (folder / link).is_file()] == []
    assert "nan" not in {cell.lower() for cell in text.replace("<", ">").split(">")}
    assert text.index('<table class="verdicts"') < text.index("<h2")


@pytest.mark.parametrize("name", REPORTS)
def test_verdicts_agree_with_the_tables(name: str, golden: Callable[[str], Path]) -> None:
    tables = tables_in(golden(name))
    verdicts = tables.pop("verdicts")
    assert 0 < len(verdicts) <= 12
    cells = pd.concat([table.assign(table=key) for key, table in tables.items()], ignore_index=True)
    columns = cells.reindex(columns=["value", "difference", "low", "high"])
    numbers = (
        columns.assign(value=columns["value"].fillna(columns["difference"])).drop(columns="difference").to_numpy(float)
    )
    for row in verdicts.to_dict("records"):
        if np.isnan(row["value"]) or COUNTS.search(row["question"]):
            continue
        # The number stands in a table, with the same interval.
        own = np.array([row[end] for end in ("value", "low", "high")])
        same = np.isclose(numbers, own, rtol=1e-9, atol=1e-12, equal_nan=True).all(1)
        assert same.any(), row
        # Where one of these cells has a verdict it is this one.
        said = row["verdict"].removesuffix(", less is better")
        of_cells = set(cells.loc[same, "verdict"].dropna()) - {"–"}
        if said in WORDS - {"–"} and of_cells:
            assert said in of_cells, row


@pytest.mark.parametrize("name", REPORTS)
def test_a_verdict_against_a_range_is_how_its_interval_lies(name: str, golden: Callable[[str], Path]) -> None:
    # Attribution has paired differences from the random map in place of its range.
    if name.startswith("attribution"):
        pytest.skip("by paired differences")
    for row in tables_in(golden(name))["verdicts"].to_dict("records"):
        said = row["verdict"].removesuffix(", less is better")
        if said == verdict_of(row) or said not in WORDS:
            continue
        # What else it says has its reason: no verdict, or no praise.
        assert isinstance(row["why"], str), row
        assert said == UNKNOWN or (said, verdict_of(row)) == (WITHIN, ABOVE), row


@pytest.mark.parametrize("name", REPORTS)
def test_every_difference_has_an_interval_and_a_verdict_that_agrees(name: str, golden: Callable[[str], Path]) -> None:
    for key, table in tables_in(golden(name)).items():
        columns = [column for column in table if table[column].astype(str).eq("first less second").any()]
        for column in columns:
            rows = table[table[column] == "first less second"]
            assert rows[["low", "high"]].notna().all(axis=None), key
            keys = list(table.columns[: table.columns.get_loc(column)])
            means = table[table[column].isin(["first", "second"])].pivot(index=keys, columns=column, values="value")
            for row in rows.to_dict("records"):
                place = tuple(row[other] for other in keys)
                # CGIM is compared over the classes that both models have, so that its two numbers are not shown.
                if not str(place[0]).startswith("CGIM correlation"):
                    first, second = means.loc[place, ["first", "second"]]
                    assert row["value"] == pytest.approx(first - second, abs=1e-9)
                low, high = DIFFERENCES.get(row["verdict"], (-np.inf, np.inf))
                assert low <= row["low"]
                assert row["high"] <= high
