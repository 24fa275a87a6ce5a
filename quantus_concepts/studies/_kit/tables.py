"""Tables of a study, declared over a frame and shown on a page or on a terminal."""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import pandas as pd
from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table as RichTable
from rich.text import Text

from captum_concepts._support.files import printable
from quantus_concepts.studies._kit.findings import Writer, number, points
from quantus_concepts.studies._kit.results import PAPER

#: In place of a model: what a formula says.
CHANCE = "chance"
#: Columns of a table in a file or a pipe.
FILE_WIDTH = 100
#: Letters that the name of a row has room for in a narrow terminal.
LABEL_WIDTH = 18
#: Signs of a number that is not above what it is held against.
MARKS = {"at": "≈", "below": "▼"}


@dataclass(frozen=True)
class Cell:
    """One cell: a number as text, its interval in small type, a sign in front of it."""

    text: str = ""
    small: str = ""
    mark: str = ""
    best: bool = False
    style: str = ""


@dataclass(frozen=True)
class Row:
    """One row of a table that is laid out."""

    label: str
    cells: tuple[Cell, ...]
    control: bool


@dataclass(frozen=True)
class Table:
    """A declaration: which columns of a tidy frame make the rows, and which the columns, of a table.

    `rows` and `columns` name one or two columns of `frame`; of two, the first makes groups. Their values stand in the
    order in which they occur, those of a categorical column in its own. A cell shows ``value`` as `write` does, which
    may be one function for each ``metric``, and below it ``low`` and ``high``; where the frame has columns ``text``,
    ``small``, ``mark`` ("above", "at", "below" or a sign), ``best`` and ``style``, these decide. `labels` renames rows
    and columns, `heads` puts small print below a column's name, `controls` are rows in grey.
    """

    title: str
    note: str
    frame: pd.DataFrame
    rows: Sequence[str]
    columns: Sequence[str]
    write: Writer | Mapping[str, Writer] = number
    span: Callable[[float, float], str] | None = None
    labels: Mapping[Any, str] = field(default_factory=dict)
    heads: Mapping[Any, str] = field(default_factory=dict)
    controls: Collection[str] = ()
    key: str = ""
    unverified: str = ""

    @property
    def column_keys(self) -> list[tuple[Any, ...]]:
        """The columns, each by its one or two values."""
        return _keys_in_order(self.frame, self.columns)

    @property
    def groups(self) -> list[tuple[str, list[Row]]]:
        """The rows by group, whose name is "" where rows have one value only."""
        cells = {
            (tuple(row[name] for name in self.rows), tuple(row[name] for name in self.columns)): self._cell(row)
            for row in self.frame.to_dict("records")
        }
        places, rows = self.column_keys, []
        for key in _keys_in_order(self.frame, self.rows):
            cells_of_row = tuple(cells.get((key, place), Cell()) for place in places)
            rows.append((key[0], Row(self.label(key[-1]), cells_of_row, key[-1] in self.controls)))
        if len(self.rows) == 1:
            return [("", [row for _, row in rows])]
        return [(self.label(name), [row for _, row in group]) for name, group in groupby(rows, lambda pair: pair[0])]

    @property
    def spans(self) -> list[tuple[str, int]]:
        """The heads over the columns, and how many columns each spans."""
        return [(self.label(name), len(list(group))) for name, group in groupby(key[0] for key in self.column_keys)]

    @property
    def subheads(self) -> list[str]:
        """The second line of the heads; empty where columns have one value only."""
        below = [key[1] if len(key) > 1 else self.heads.get(key[0], "") for key in self.column_keys]
        return [self.label(name) for name in below] if any(below) else []

    @property
    def starts(self) -> list[bool]:
        """Which columns begin a group."""
        firsts = [key[0] for key in self.column_keys]
        return [place == 0 or name != firsts[place - 1] for place, name in enumerate(firsts)]

    def label(self, name: Any) -> str:
        """Return how a value is written."""
        return self.labels.get(name, str(name))

    def _cell(self, row: Mapping[str, Any]) -> Cell:
        write = self.write if callable(self.write) else self.write[row["metric"]]
        value, low, high = (row.get(name, math.nan) for name in ("value", "low", "high"))
        # In joined frames the rows that lack such a column have NaN there.
        text, small, mark, style = (row.get(name) for name in ("text", "small", "mark", "style"))
        if not isinstance(small, str):
            small = "" if math.isnan(value) or math.isnan(low) else self._span(write, low, high)
        return Cell(
            text if isinstance(text, str) else write(value),
            small,
            {"above": "", **MARKS}.get(mark, mark) if isinstance(mark, str) else "",
            row.get("best") is True,
            style if isinstance(style, str) else "",
        )

    def _span(self, write: Writer, low: float, high: float) -> str:
        if self.span is not None:
            return self.span(low, high)
        return f"{write(low)}{' to ' if low < 0 else '–'}{write(high)}"


def _keys_in_order(frame: pd.DataFrame, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    """Return the values of columns in their order, or that in which they occur, those of one group together."""
    pairs = list(dict.fromkeys(frame[list(columns)].itertuples(index=False, name=None)))
    orders = [_order(frame[name]) for name in columns]
    firsts = orders[0] or list(dict.fromkeys(pair[0] for pair in pairs))
    lasts = orders[-1]
    return sorted(pairs, key=lambda pair: (firsts.index(pair[0]), lasts.index(pair[-1]) if lasts else 0))


def _order(column: pd.Series) -> list[Any]:
    return list(column.cat.categories) if isinstance(column.dtype, pd.CategoricalDtype) else []


def arrange(frame: pd.DataFrame, **orders: Iterable[Any]) -> pd.DataFrame:
    """Give columns an order of their values, that of rows and columns of a table; rows of other values are left out."""
    places = {name: list(dict.fromkeys(of)) for name, of in orders.items()}
    for name, of in places.items():
        frame = frame[frame[name].isin(of)]
    frame = frame.assign(**{name: pd.Categorical(frame[name], of, ordered=True) for name, of in places.items()})
    return frame.sort_values(list(orders), kind="stable").reset_index(drop=True)


def with_sources(frame: pd.DataFrame, rows: Sequence[str], paper: pd.DataFrame | None = None) -> pd.DataFrame:
    """Return cells with those of the paper for the same metrics, and a row of chance for each row of the table.

    Chance is the column ``chance`` of the first row of each group, which `rows` begin with.
    """
    if frame.empty:
        return frame.assign(style="")
    by_group = frame.groupby(rows[0])["chance"].first()
    chance = frame.drop_duplicates(list(rows)).assign(model=CHANCE, l=None, low=math.nan, high=math.nan, mark="")
    parts = [frame, chance.assign(value=by_group.reindex(chance[rows[0]]).to_numpy())]
    if paper is not None:
        parts.append(paper[paper["metric"].isin(frame["metric"])].assign(low=math.nan, high=math.nan, mark=""))
    every = pd.concat(parts)
    return every.assign(style=every["model"].where(every["model"].isin([PAPER, CHANCE]), "")).reset_index(drop=True)


def in_percent(value: float) -> str:
    """Write a share in percent; nothing where there is none."""
    return "" if pd.isna(value) else points(value)


def in_percents(low: float, high: float) -> str:
    """Write the ends of an interval of shares in percent."""
    # Whole percents keep twelve columns on a page; small numbers need a decimal. results.csv has all.
    decimals = 0 if 100 * high >= 10 else 1
    return f"{100 * low:.{decimals}f}–{100 * high:.{decimals}f}"


def terminal() -> Console:
    """Return the console that every command prints its table on; a `[red]` in a name is no markup there."""
    console = Console(file=sys.stdout, markup=False, emoji=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = FILE_WIDTH
    return console


def print_table(table: Table) -> None:
    """Print a table; in a terminal that is too narrow for all columns, in parts of fewer columns."""
    console = terminal()
    full = terminal_table(table)
    if _fits(full, console):
        console.print(full)
        return
    console.print(full.title or "", style="bold")
    start, count = 0, len(table.column_keys)
    while start < count:
        stop = count
        while stop - start > 1 and not _fits(terminal_table(table, slice(start, stop)), console):
            stop -= 1
        console.print(terminal_table(table, slice(start, stop)))
        start = stop
    console.print(full.caption or "", style="table.caption")


def table_grid(table: Table) -> list[list[Any]]:
    """Return a table as rows of cells for a workbook: what `print_table` prints, with numbers as numbers."""
    keys, subheads = table.column_keys, table.subheads
    first = [""] * len(table.rows)
    grid: list[list[Any]] = [[table.title], [*first, *(table.label(key[0]).replace("\n", " ") for key in keys)]]
    if subheads:
        grid.append([*first, *subheads])
    for group, rows in table.groups:
        names = [group] if len(table.rows) > 1 else []
        grid += [[*names, row.label, *map(_plain, row.cells)] for row in rows]
    return [*grid, [table.note]]


def _plain(cell: Cell) -> str | float | tuple[str, float]:
    """Return what a cell shows, as a number where it is one."""
    number = cell.text.replace("−", "-")
    if not re.fullmatch(r"-?\d+(\.\d+)?", number, re.ASCII):
        return f"{cell.mark}{cell.text}"
    return (cell.mark, float(number)) if cell.mark else float(number)


def _fits(table: RichTable, console: Console) -> bool:
    return Measurement.get(console, console.options.update(width=10_000), table).maximum <= console.width


def terminal_table(table: Table, part: slice | None = None) -> RichTable:
    """Return a table for the terminal, without what is in small type.

    A part of its columns comes without title and note, and as narrow as it can be without cutting a word or a number.
    """
    # Names of classes, concepts and explainers come from files: none may move the cursor, or colour what follows.
    mark = f"{table.unverified}: " if table.unverified else ""
    rich_table = RichTable(
        title=printable(f"{mark}{table.title}") if part is None else None,
        title_style="bold",
        title_justify="left",
        caption=printable(table.note) if part is None else None,
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    chosen = slice(None) if part is None else part
    rich_table.add_column("", overflow="fold")
    subheads = table.subheads or [""] * len(table.column_keys)
    for key, below in list(zip(table.column_keys, subheads, strict=True))[chosen]:
        # A label may have lines, which a name that came from a file may not.
        lines = table.label(key[0]).split("\n") if key[0] in table.labels else [table.label(key[0])]
        head = "\n".join(printable(line) for line in lines)
        rich_table.add_column(f"{head}\n{printable(below)}" if below else head, justify="right")
    for group, rows in table.groups:
        if group:
            rich_table.add_section()
            rich_table.add_row(Text(printable(group), "bold"))
        for row in rows:
            label = f"  {row.label}" if group else row.label
            cells = (printable(f"{cell.mark}{cell.text}") for cell in row.cells[chosen])
            rich_table.add_row(printable(label), *cells, style="dim" if row.control else None)
    if part is not None:
        names, *columns = rich_table.columns
        names.width = min(LABEL_WIDTH, max(cell_len(str(name)) for name in names.cells))
        for column in columns:
            texts = [*str(column.header).split(), *(str(text) for text in column.cells)]
            column.width = max(map(cell_len, texts), default=1)
    return rich_table
