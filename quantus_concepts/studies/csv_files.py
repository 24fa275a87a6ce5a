"""Tables as CSV files, which spreadsheets open as well."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pandas as pd

#: What a spreadsheet takes for the beginning of a formula; those of full width are read as the others.
STARTS = tuple("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")


def write_csv(frame: pd.DataFrame, path: str | os.PathLike[str] | Path) -> None:
    """Write a frame so that no name in it is computed by a spreadsheet: with ' before = + - @; numbers stay numbers."""
    shown = frame.rename(columns=as_cell)
    for place, (_, column) in enumerate(frame.items()):
        if column.dtype.kind == "O":
            cells = pd.Series([as_cell(value) for value in column], frame.index, object)
            shown.isetitem(place, cells)
    shown.to_csv(path, index=False, errors="backslashreplace")


def as_cell(value: Any) -> Any:
    """Return what stands for a value in a cell."""
    if not isinstance(value, str) or not value.startswith(STARTS) or _is_number(value):
        return value
    return f"'{value}"


def from_cell(value: Any) -> Any:
    """Return the value that a cell stands for."""
    guarded = isinstance(value, str) and value.startswith("'") and as_cell(value[1:]) == value
    return value[1:] if guarded else value


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return text.isascii() and "_" not in text and text == text.strip()
