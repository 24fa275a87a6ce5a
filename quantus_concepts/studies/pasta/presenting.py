"""How the studies of scorers write their numbers, and a page whose raters are simulated says so everywhere."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd
from markupsafe import Markup

from quantus_concepts.studies.findings import Finding, minus, number
from quantus_concepts.studies.page import Page, Section
from quantus_concepts.studies.pasta.names import SIMULATED, SIMULATED_TEXT, SOURCE
from quantus_concepts.studies.results import PAPER, published
from quantus_concepts.studies.tables import Table

three = partial(number, decimals=3)


def paper_table(table: int | str) -> pd.DataFrame:
    """Return a table of the paper as it is printed: model ("paper"), row, question, measure, value, deviation, p."""
    found = published("quantus_concepts.studies.pasta", table=str, row=str, deviation=float, p=float)
    chosen = found[found["table"] == str(table)].reset_index(drop=True)
    if chosen.empty:
        raise ValueError(f"Expected the number of a table, one of {sorted(set(found['table']))}, but got {table}.")
    return chosen


def written(
    frame: pd.DataFrame,
    write: Callable[[float], str] = three,
    *,
    small: Sequence[str] = ("interval", "deviation"),
) -> pd.DataFrame:
    """Write numbers as text, with the first of interval and deviation that there is in small type below."""
    return frame.assign(
        text=[write(value) for value in frame["value"].astype(float)],
        small=[_small(row, write, small) for row in frame.to_dict("records")],
        style=[PAPER if model == PAPER else "" for model in frame.get("model", frame["value"])],
    )


def _small(row: Mapping[str, Any], write: Callable[[float], str], wanted: Sequence[str]) -> str:
    low, high, deviation = (float(row.get(name, math.nan)) for name in ("low", "high", "deviation"))
    parts = []
    if "interval" in wanted and not math.isnan(low):
        parts.append(f"{write(low)} to {write(high)}")
    elif "deviation" in wanted and not math.isnan(deviation):
        parts.append(f"± {write(deviation)}")
    if "interval" in wanted and row.get("undefined", 0) > 0:
        parts.append(f"{int(row['undefined'])} undefined")
    return ", ".join(parts)


def span(low: float, high: float, decimals: int = 2) -> str:
    """Write an interval."""
    return f"{number(low, decimals)} to {number(high, decimals)}"


def whole(value: float) -> str:
    """Write a share in whole percents."""
    return minus(f"{100 * value:z.0f} %")


def splits_text(count: int) -> str:
    """Write how many splits."""
    return f"{count} split" + ("" if count == 1 else "s")


def ordered(frame: pd.DataFrame, **orders: Sequence[Any]) -> pd.DataFrame:
    """Return the rows whose columns have one of some values, in the order of these, that of the first column first."""
    for column, order in reversed(orders.items()):
        places = {name: place for place, name in enumerate(order)}
        frame = frame[frame[column].isin(places)]
        frame = frame.sort_values(column, key=lambda values, places=places: values.map(places), kind="stable")
    return frame


def study_page(
    title: str,
    findings: Sequence[Finding],
    sections: Sequence[Section],
    simulated: bool,
    *,
    main: Sequence[Table] | None = None,
    told: Sequence[Finding] | None = None,
    **more: Any,
) -> Page:
    """Declare a page on which every title, table and chart says whether raters are simulated.

    The terminal shows all tables and findings unless `main` and `told` are given. Tables without rows are left out.
    """
    mark = SIMULATED if simulated else ""
    shown = [
        replace(
            section,
            tables=[replace(table, unverified=mark) for table in section.tables if len(table.frame)],
            charts=[replace(chart, unverified=mark) for chart in section.charts],
        )
        for section in sections
    ]
    tables = [table for section in shown for table in section.tables] if main is None else main
    return Page(
        title if not simulated or SIMULATED in title else f"{title} ({SIMULATED})",
        findings,
        shown,
        main=[replace(table, unverified=mark) for table in tables],
        told=findings if told is None else told,
        banner=Markup("<b>Simulated raters.</b> ") + SIMULATED_TEXT if simulated else "",
        **({"source": f"Method and figures of the paper: {SOURCE}."} | more),
    )
