"""Columns of a CSV or Parquet table as texts, each cell with its place in the file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from captum_concepts.support.files import list_some, quote
from quantus_concepts.datasets.folders import bad_line, csv_rows
from quantus_concepts.datasets.parquet import BATCH, MAX_ROWS, arrow, check_pages, open_parquet

#: Characters of a cell, as Python's reader of CSV has it.
MAX_CELL = 131_072
#: Cells of a Parquet file, and labels that are made of them: a file of a few kB may claim thousands of millions.
MAX_CELLS = 50_000_000
#: What people and programs write for an unknown cell, in lower case.
_MISSING = ("", "nan", "na", "n/a")


class TextTable(NamedTuple):
    """Columns of a table; an empty text is an unknown cell."""

    path: Path
    #: What a row is called in a message, "line" or "row", and the number of each.
    unit: str
    numbers: list[int]
    columns: dict[str, list[str]]

    def place(self, row: int) -> str:
        """Return where a row is, for a message."""
        return f"{self.path}, {self.unit} {self.numbers[row]}"

    def bad_row(self, row: int, expected: str, text: str) -> ValueError:
        """Return an error that names a row."""
        return bad_line(self.path, self.numbers[row], expected, text, self.unit)

    def select(self, rows: Sequence[int]) -> TextTable:
        """Return some of the rows."""
        columns = {name: [cells[i] for i in rows] for name, cells in self.columns.items()}
        return self._replace(numbers=[self.numbers[i] for i in rows], columns=columns)


def read_header(path: Path) -> list[str]:
    """Return the names of the columns of a table, without those that have none."""
    if _is_parquet(path):
        with open_parquet(path) as file:
            header = list(file.schema_arrow.names)
    else:
        header = next(csv_rows(path), (1, []))[1]
    # The index that pandas writes has no name.
    names = [name for name in header if name]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"{path}: expected columns of different names but got {list_some(map(quote, twice))} twice.")
    return names


def read_columns(path: Path, names: Sequence[str]) -> TextTable:
    """Read some of the columns of a table, which has at least one row."""
    table = _read_parquet(path, names) if _is_parquet(path) else _read_csv(path, names)
    if not table.numbers:
        raise ValueError(f"{path}: expected at least one row but the table has none.")
    return table


def _is_parquet(path: Path) -> bool:
    return path.suffix.lower() in (".parquet", ".pq")


def _read_csv(path: Path, names: Sequence[str]) -> TextTable:
    rows = csv_rows(path)
    _, header = next(rows)
    places = {name: header.index(name) for name in names}
    numbers: list[int] = []
    columns: dict[str, list[str]] = {name: [] for name in names}
    for number, cells in rows:
        numbers.append(number)
        for name, place in places.items():
            columns[name].append(_as_text(cells[place]))
    return TextTable(path, "line", numbers, columns)


def _read_parquet(path: Path, names: Sequence[str]) -> TextTable:
    columns: dict[str, list[str]] = {name: [] for name in names}
    n_rows = 0
    with open_parquet(path) as file:
        for name in names:
            _check_kind(name, file.schema_arrow.field(name).type)
    # As dictionaries, since a long text that all rows share would be copied for each row.
    with open_parquet(path, names) as file:
        for group in range(file.num_row_groups):
            check_pages(path, file, group, names)
            # The header's number of rows is not trusted.
            for batch in file.iter_batches(BATCH, [group], [*names], use_threads=False):
                n_rows += len(batch)
                if n_rows > MAX_ROWS or n_rows * len(names) > MAX_CELLS:
                    raise ValueError(f"it has more than {MAX_ROWS:,} rows, or more than {MAX_CELLS:,} cells")
                for name in names:
                    columns[name] += _as_texts(name, batch.column(name))
    return TextTable(path, "row", list(range(1, n_rows + 1)), columns)


def _check_kind(name: str, kind: Any) -> None:
    types = arrow().types
    plain = kind.value_type if types.is_dictionary(kind) else kind
    checks = (types.is_string, types.is_large_string, types.is_integer, types.is_floating, types.is_boolean)
    if not any(check(plain) for check in (*checks, types.is_null)):
        raise ValueError(f"its column {quote(name)} holds {kind}, expected texts, numbers or truth values")


def _as_texts(name: str, column: Any) -> list[str]:
    if not arrow().types.is_dictionary(column.type):
        return [_as_text(value) for value in column.to_pylist()]
    texts = [_as_text(value) for value in column.dictionary.to_pylist()]
    if max(map(len, texts), default=0) > MAX_CELL:
        raise ValueError(f"a cell of its column {quote(name)} has more than {MAX_CELL:,} characters")
    return ["" if number is None else texts[number] for number in column.indices.to_pylist()]


def _as_text(value: object) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    text = "" if value is None else str(value).strip()
    return "" if text.lower() in _MISSING else text
