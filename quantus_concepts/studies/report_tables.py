"""Tables of a report, as its template shows them, and the console for those of the terminal."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

from rich.console import Console

#: Columns of a table in a file or a pipe.
FILE_WIDTH = 100


def terminal() -> Console:
    """Return the console that every command prints its table on; a `[red]` in a name is no markup there."""
    console = Console(file=sys.stdout, markup=False, emoji=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = FILE_WIDTH
    return console


@dataclass(frozen=True)
class Cell:
    """One cell of a table."""

    text: str
    small: str = ""
    mark: str = ""
    best: bool = False
    style: str = ""


@dataclass(frozen=True)
class Row:
    """One row of a table."""

    label: str
    cells: tuple[Cell, ...]
    control: bool = False
    group: str = ""


@dataclass(frozen=True)
class ReportTable:
    """A table of the report."""

    name: str
    caption: str
    columns: tuple[tuple[str, str], ...]
    rows: tuple[Row, ...]
    key: str = ""
    unverified: str = ""
