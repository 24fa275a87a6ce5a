"""Lists of records, whatever a benchmark's records are: choosing some, and all as a table."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any, TypeVar, get_type_hints

import pandas as pd

R = TypeVar("R")

#: Column types of numbers; integers are nullable.
_DTYPES: dict[Any, str] = {int: "Int64", int | None: "Int64", float: "float64", float | None: "float64"}


def select(records: Iterable[R], **fields: Any) -> list[R]:
    """Return all records whose fields have the given values."""
    wanted = fields.items()
    return [record for record in records if all(getattr(record, name) == want for name, want in wanted)]


def find(records: Iterable[R], **fields: Any) -> R | None:
    """Return the first record whose fields have the given values."""
    return next(iter(select(records, **fields)), None)


def to_frame(records: Iterable[Any], record_type: type) -> pd.DataFrame:
    """Return records as a long table, as results.csv holds it."""
    hints = get_type_hints(record_type)
    frame = pd.DataFrame([dataclasses.astuple(record) for record in records], columns=list(hints))
    return frame.astype({name: _DTYPES[hint] for name, hint in hints.items() if hint in _DTYPES})
