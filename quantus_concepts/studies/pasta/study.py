"""What the smaller studies share: the paper's printed numbers, means over splits, tables, and the folder of one run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import numpy as np
import pandas as pd
import typer
from markupsafe import escape
from matplotlib.figure import Figure
from rich import box
from rich.table import Table

from quantus_concepts.functional.agreement import LEAST_SPLITS, correlation_interval
from quantus_concepts.functional.intervals import t_interval
from quantus_concepts.studies.charts import png_base64, save_figures
from quantus_concepts.studies.findings import minus
from quantus_concepts.studies.output import OutputFolder
from quantus_concepts.studies.page import render_page, versions
from quantus_concepts.studies.pasta.tables import SIMULATED
from quantus_concepts.studies.pasta.verdicts import SIMULATED as SIMULATED_TEXT
from quantus_concepts.studies.report_tables import Cell, ReportTable, terminal

SOURCE = "Kazmierczak et al., Benchmarking XAI Explanations with Human-Aligned Evaluations"
#: Measures in [-1, 1], whose intervals are those of their Fisher z.
CORRELATIONS = ("QWK", "SCC")


def split_interval(values: np.ndarray, measure: str) -> tuple[float, float]:
    """Return the 95 % interval of a mean over splits: Student's, of correlations on Fisher's z; NaN below 3 splits."""
    values = values[~np.isnan(values)]
    if measure in CORRELATIONS:
        return correlation_interval(values)
    return t_interval(values, (-math.inf, math.inf)) if values.size >= LEAST_SPLITS else (math.nan, math.nan)


def over_splits(frame: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Return mean (value), deviation, low, high and number of splits of each group of `by`, in which `measure` is."""
    # Splits without a number, such as the SCC of scores that are all alike, are left out and counted as
    # `undefined`.

    def row(group: pd.DataFrame) -> pd.Series:
        values = group["value"].to_numpy(dtype=float)
        low, high = split_interval(values, group["measure"].iloc[0])
        found = values[~np.isnan(values)]
        return pd.Series(
            {
                "value": found.mean() if found.size else math.nan,
                "deviation": found.std(ddof=1) if found.size > 1 else math.nan,
                "low": low,
                "high": high,
                "splits": found.size,
                "undefined": values.size - found.size,
            }
        )

    return pd.DataFrame(
        [dict(zip(by, key, strict=True)) | row(group).to_dict() for key, group in frame.groupby(list(by), sort=False)]
    )


def number(value: float, decimals: int = 3) -> str:
    """Write a number; "–" where it is not defined."""
    return "–" if math.isnan(value) else minus(f"{value:z.{decimals}f}")


def cell(row: Mapping[str, Any] | None, decimals: int = 3, style: str = "") -> Cell:
    """Write a row of `over_splits`, or of the paper, with its interval, or else its deviation, below; "" for none."""
    if row is None:
        return Cell("", style=style)
    low, high, deviation = (float(row.get(name, math.nan)) for name in ("low", "high", "deviation"))
    small = "" if math.isnan(deviation) else f"± {deviation:.{decimals}f}"
    if not math.isnan(low):
        small = f"{number(low, decimals)} to {number(high, decimals)}"
    if row.get("undefined", 0) > 0:
        small += f"{', ' if small else ''}{int(row['undefined'])} undefined"
    return Cell(number(float(row["value"]), decimals), small, style=style)


def one(frame: pd.DataFrame, **wanted: Any) -> dict[str, Any] | None:
    """Return the row of a frame that has the values wanted; None where there is none."""
    for name, value in wanted.items():
        frame = frame[frame[name] == value]
    return None if frame.empty else dict(frame.iloc[0])


@dataclass(frozen=True)
class Section:
    """A heading of the page, what it says, and the names of the tables and figures below it."""

    heading: str
    text: str
    tables: tuple[str, ...] = ()
    figures: tuple[str, ...] = ()


@dataclass(frozen=True)
class Study:
    """All that a run has found, as its page and files show it; `frames` become CSV files."""

    title: str
    simulated: bool
    verdicts: list[str]
    sections: list[Section]
    tables: dict[str, ReportTable]
    frames: dict[str, pd.DataFrame]
    settings: Mapping[str, Any]
    figures: dict[str, tuple[Figure, str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def write_study(folder: OutputFolder, study: Study) -> None:
    """Write CSV files, figures and report.html, and print the tables."""
    for name, frame in study.frames.items():
        with folder.file(f"{name}.csv") as path:
            frame.to_csv(path, index=False)
    save_figures(folder, {name: figure for name, (figure, _) in study.figures.items()})
    mark = SIMULATED if study.simulated else ""
    page = render_page(
        "study.html.j2",
        title=study.title,
        created=f"{datetime.now():%d %B %Y, %H:%M}",
        simulated=SIMULATED_TEXT if study.simulated else "",
        verdicts=study.verdicts,
        notes=study.notes,
        sections=study.sections,
        tables=study.tables,
        figures={
            name: {"data": png_base64(figure), "caption": caption, "unverified": mark, "wide": False}
            for name, (figure, caption) in study.figures.items()
        },
        settings=study.settings,
        versions=versions(),
        csv_files=[f"{name}.csv" for name in study.frames],
        source=SOURCE,
        signs=escape,
    )
    folder.write_text("report.html", page)
    for note in study.notes:
        typer.echo(f"Note: {note}", err=True)
    console = terminal()
    for table in study.tables.values():
        console.print(terminal_table(table))
    for verdict in study.verdicts:
        console.print(verdict, highlight=False)


def terminal_table(shown: ReportTable) -> Table:
    """Return a table of the report for the terminal, without what is in small type."""
    mark = f"{shown.unverified}: " if shown.unverified else ""
    table = Table(
        title=f"{mark}{shown.name}",
        title_style="bold",
        title_justify="left",
        caption=shown.caption,
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    table.add_column("", overflow="fold")
    for head, below in shown.columns:
        table.add_column(f"{head}\n{below}" if below else head, justify="right")
    for row in shown.rows:
        if row.group:
            table.add_section()
            table.add_row(row.group, style="bold")
        table.add_row(row.label, *(each.text for each in row.cells), style="dim" if row.control else None)
    return table
