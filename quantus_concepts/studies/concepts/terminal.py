"""The main table of the concept benchmark, for a terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from rich import box
from rich.table import Table
from rich.text import Text

from quantus_concepts.studies.concepts.results import (
    BASELINES,
    EXPLANATIONS,
    OTHER_IMAGE,
    PLAIN,
    POST_HOC,
    RANDOM,
    Record,
    models_of,
)
from quantus_concepts.studies.concepts.tables import CHANCE, MARKS, PaperTable, levels_of, paper_tables

#: From this many columns on the table has decimals.
WIDE = 104
TERMINAL_SETS = {"all": "all images", "correct": "if correct"}


def main_table(records: Sequence[Record], width: int = 80) -> Table:
    """Return the main table for the terminal."""
    tables = {table.name: table for table in paper_tables(records)}
    models = models_of(records)
    decimals = 1 if width >= WIDE else 0
    levels = sorted({*levels_of(records, "CEM"), *levels_of(records, "CLM")})
    table = Table(
        title="Are the concepts real, present, and in the right place?",
        caption=f"In %, CGIM as cosine. Three numbers: l = {', '.join(str(level) for level in levels)}. "
        "θ weight, u concept value, θ·u contribution. Random directions: what 97.5 % of the banks do not exceed. "
        "≈ among what 95 % of them score, ▼ below. Chance: label density, size of the region.",
        box=box.SIMPLE_HEAD,
        title_style="bold",
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    table.add_column("", no_wrap=True)
    for model in models:
        # Two lines leave room for the numbers.
        heading = "random\n97.5 %" if model == RANDOM else "\n".join(model.rsplit(" ", 1))
        table.add_column(heading, justify="right", style="bold" if model == POST_HOC else None, no_wrap=True)
    table.add_column("chance", justify="right", style="dim", no_wrap=True, min_width=len("chance"))
    for name, heading in (("Table 1", "CEM"), ("Table 2", "CLM"), ("CGIM", "CGIM")):
        if name in tables:
            _add_section(table, heading, tables[name], models, decimals)
    if "Accuracy" in tables:
        _add_accuracies(table, tables["Accuracy"], models, decimals)
    return table


def _add_section(table: Table, heading: str, source: PaperTable, models: list[str], decimals: int) -> None:
    decimals = decimals if source.decimals == 1 else source.decimals
    group = None
    for row in source.values.index:
        if row[0] != group:
            group = row[0]
            table.add_section()
            table.add_row(Text(f"{heading}, {TERMINAL_SETS.get(group, group)}", "bold"))
        cells = []
        for model in models:
            columns = [column for column in source.values.columns if column[0] == model]
            cells.append(_cell(source, row, columns, decimals))
        chance = source.values.loc[row].get((CHANCE, ""), math.nan)
        label = EXPLANATIONS.get(row[1], "another's parts" if row[1] == OTHER_IMAGE else row[1])
        table.add_row(f"  {label}", *cells, "" if math.isnan(chance) else f"{chance:.{decimals}f}")


def _add_accuracies(table: Table, source: PaperTable, models: list[str], decimals: int) -> None:
    table.add_section()
    for column in source.values.columns:
        cells = [_cell(source, (model, ""), [column], decimals) for model in models]
        table.add_row(Text(column[0].capitalize(), "bold"), *cells)
    plain = source.values.loc[PLAIN].iloc[0, 0]
    if not math.isnan(plain):
        table.add_row(f"  {PLAIN} {plain:.{decimals}f}")


def _cell(source: PaperTable, row: tuple[str, str], columns: list[tuple[str, str]], decimals: int) -> str:
    if row not in source.values.index:
        return "–"
    numbers = source.high if columns[0][0] == RANDOM or row[0] == RANDOM else source.values
    values = numbers.loc[row, columns].to_numpy(dtype=np.float64)
    signs = [MARKS.get(mark, "") if row[1] not in BASELINES else "" for mark in source.marks.loc[row, columns]]
    if np.isnan(values).all():
        return "–"
    return " ".join(
        "–" if math.isnan(value) else f"{sign}{value:.{decimals}f}" for value, sign in zip(values, signs, strict=True)
    )
