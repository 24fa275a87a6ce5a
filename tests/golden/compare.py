"""Two tables of results held against each other: rows by their keys, in any order, columns in any order."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import pandas as pd

#: Whether a value found is that recorded: the keys of its row, its column, recorded, found.
Same = Callable[[Mapping[str, str], str, str, str], bool]


def normal(text: str) -> str:
    """Return a number as Python writes it, so that 1 is 1.0, nothing for NaN, and other text as it is."""
    try:
        number = float(text)
    except ValueError:
        return text
    return "" if math.isnan(number) else repr(number)


def to_the_bit(row: Mapping[str, str], column: str, recorded: str, current: str) -> bool:
    """Whether two values are the same number or text."""
    return recorded == current


def differences(
    recorded: pd.DataFrame,
    current: pd.DataFrame,
    keys: Sequence[str],
    same: Same = to_the_bit,
) -> tuple[list[str], list[str]]:
    """Return what differs, and what is new and no difference.

    A column, or a row, that was recorded and is not found differs; so does a row that was not recorded. New columns are
    notes only.
    """
    wrong = [f"column {column!r} is missing" for column in recorded if column not in current]
    notes = [f"new column {column!r}" for column in current if column not in recorded]
    keys = [key for key in keys if key in recorded and key in current]
    values = [column for column in recorded if column in current and column not in keys]
    old, new = (_by_key(frame, keys, values) for frame in (recorded, current))
    for key, rows in old.items():
        candidates = new.get(key, [])
        name = ", ".join(f"{column} {cell}" for column, cell in zip(keys, key, strict=True) if cell)
        if len(candidates) < len(rows):
            wrong.append(f"{len(rows) - len(candidates)} rows are missing: {name}")
        elif len(candidates) > len(rows):
            wrong.append(f"{len(candidates) - len(rows)} new rows: {name}")
        for row, other in zip(rows, candidates, strict=False):
            wrong += [
                f"{name}: {column} was {was or 'NaN'}, is {now or 'NaN'}{_distance(was, now)}"
                for column, was, now in zip(values, row, other, strict=True)
                if not same(dict(zip(keys, key, strict=True)), column, was, now)
            ]
    unknown = [key for key in new if key not in old]
    wrong += [f"new row: {', '.join(cell for cell in key if cell)}" for key in unknown]
    return wrong, notes


def _by_key(
    frame: pd.DataFrame, keys: Sequence[str], values: Sequence[str]
) -> Mapping[tuple[str, ...], list[tuple[str, ...]]]:
    rows: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    for row in frame.to_dict("records"):
        key = tuple(normal(row[column]) for column in keys)
        rows.setdefault(key, []).append(tuple(normal(row[column]) for column in values))
    return {key: sorted(of) for key, of in rows.items()}


def _distance(was: str, now: str) -> str:
    try:
        return f" ({float(now) - float(was):+.2g})"
    except ValueError:
        return ""
