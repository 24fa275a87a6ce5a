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
    """One cell of a table.

    Attributes
    ----------
    text : str
        What it says; "" where there is nothing.
    small : str
        Below it in small type: the 95 % interval.
    mark : str
        A sign before it: not above what it is held against.
    best : bool
        Whether the number is the best or cannot be told apart from it.
    style : str
        "paper" for the paper's own figures, else "".
    """

    text: str
    small: str = ""
    mark: str = ""
    best: bool = False
    style: str = ""


@dataclass(frozen=True)
class Row:
    """One row of a table.

    Attributes
    ----------
    label : str
        What it is of.
    cells : tuple of Cell
        One a column.
    control : bool
        Whether it is a control, which is shown in grey.
    group : str
        Heading that stands above this row, of it and those that follow.
    """

    label: str
    cells: tuple[Cell, ...]
    control: bool = False
    group: str = ""


@dataclass(frozen=True)
class ReportTable:
    """A table of the report.

    Attributes
    ----------
    name : str
        Stands before the caption.
    caption : str
        What it shows and in which unit.
    columns : tuple of tuple of str
        Heading of each column and what stands below it in small type.
    rows : tuple of Row
        The body.
    key : str
        What signs and small numbers mean.
    unverified : str
        Mark before the caption of what the numbers rest on that nobody verified: a ground truth, raters who are
        simulated; else "".
    """

    name: str
    caption: str
    columns: tuple[tuple[str, str], ...]
    rows: tuple[Row, ...]
    key: str = ""
    unverified: str = ""
