"""Reading the text files of CUB-200-2011, with errors that name the file and the line."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from captum_concepts._support.checks import check_path
from captum_concepts._support.files import shortened
from quantus_concepts.datasets.birds.cub200_attributes import N_ATTRIBUTES, OFFICIAL_PARTS, attribute_group

CHUNK = 400_000
"""Rows read at a time: of the 3.7 million lines of the largest file only two small numbers each are kept."""


@dataclass(frozen=True)
class Column:
    """One column of values: what it is called in messages, and between which numbers it lies."""

    name: str
    low: float
    high: float
    whole: bool = True

    def describe(self) -> str:
        """Say what is expected."""
        if not self.whole:
            return f"{self.name} (a number)"
        if self.high == self.low + 1:
            return f"{self.name} ({self.low:g} or {self.high:g})"
        return f"{self.name} ({self.low:g} to {self.high:g})"

    def accepts(self, text: str) -> bool:
        """Whether a cell holds such a value."""
        try:
            value = int(text) if self.whole else float(text)
        except ValueError:
            return False
        return self.low <= value <= self.high


def find_cub(root: str | Path) -> Path:
    """Return the folder that holds ``images.txt``."""
    folder = check_path("root", root)
    places = [folder, folder / "CUB_200_2011"]
    for place in places:
        if (place / "images.txt").is_file():
            return place
    looked = " nor ".join(str(place / "images.txt") for place in places)
    raise FileNotFoundError(
        f"Expected argument `root` to be the folder of CUB-200-2011 but found neither {looked}. Give the "
        "folder that was unpacked from CUB_200_2011.tgz."
    )


def read_names(path: Path, check: Callable[[int, str], str | None] | None = None) -> list[str]:
    """Read a file whose lines are a number, counted from 1, and a name."""
    names: list[str] = []
    for line, text in _lines(path):
        number, _, name = text.partition(" ")
        if number != str(len(names) + 1) or not name.strip():
            raise _bad_line(path, line, f"'{len(names) + 1} NAME'", text)
        names.append(name.strip())
        wrong = check(len(names), names[-1]) if check else None
        if wrong:
            raise _bad_line(path, line, wrong, text)
    if not names:
        raise ValueError(f"{path}, line 1: expected '1 NAME' but the file is empty.")
    return names


def read_attribute_names(root: Path) -> list[str]:
    """Read ``attributes.txt``, which lies in ``attributes/``, beside it, or beside ``CUB_200_2011``."""
    places = [root / "attributes" / "attributes.txt", root / "attributes.txt", root.parent / "attributes.txt"]
    path = next((place for place in places if place.is_file()), None)
    if path is None:
        raise FileNotFoundError(
            f"Expected the names of the attributes in {places[0]}, {places[1]} or {places[2]}, but none is "
            "there. Unpack the data set again, or copy its attributes.txt to one of these places."
        )
    names = read_names(path, _check_attribute)
    _check_count(path, len(names), N_ATTRIBUTES, "attributes")
    return names


def read_parts(path: Path) -> None:
    """Check that ``parts.txt`` names the 15 official parts in order."""

    def check(number: int, name: str) -> str | None:
        official = OFFICIAL_PARTS[number - 1] if number <= len(OFFICIAL_PARTS) else None
        if official is None:
            return f"the end of the file after {len(OFFICIAL_PARTS)} parts"
        return None if name == official else f"'{number} {official}'"

    _check_count(path, len(read_names(path, check)), len(OFFICIAL_PARTS), "parts")


def read_rows(path: Path, keys: Sequence[tuple[str, int]], columns: Sequence[Column]) -> np.ndarray:
    """Read a file of numbers whose first columns count through all combinations of keys, in order."""
    # Columns past those asked for are ignored, also where only some lines have them.
    _check_file(path)
    rows = int(np.prod([size for _, size in keys]))
    whole = all(column.whole for column in columns)
    kind = (np.uint8 if max(column.high for column in columns) < 256 else np.int64) if whole else np.float64
    values = np.empty((rows, len(columns)), dtype=kind)
    width = len(keys) + len(columns)
    cells = dict.fromkeys(range(len(keys)), np.int64) | {
        len(keys) + i: np.int64 if column.whole else np.float64 for i, column in enumerate(columns)
    }
    done = 0
    try:
        with pd.read_csv(path, sep=r"\s+", header=None, usecols=range(width), dtype=cells, chunksize=CHUNK) as reader:
            for chunk in reader:
                end = done + len(chunk)
                _accept(chunk, np.arange(done, end), keys, columns, rows)
                values[done:end] = chunk.iloc[:, len(keys) :].to_numpy()
                done = end
        _check_count(path, done, rows, "rows")
    except (ValueError, OverflowError) as error:
        # Fast reading says only that something is wrong; the slow reading says where.
        _find_bad_line(path, keys, columns, rows, done)
        raise ValueError(f"{path} cannot be read: {shortened(error)}") from error
    return values


def count_columns(path: Path) -> int:
    """Return how many columns the first line of a file of numbers has."""
    return len(next((text for _, text in _lines(path)), "").split())


def read_class_table(path: Path, n_classes: int) -> np.ndarray:
    """Read ``class_attribute_labels_continuous.txt``: how many per cent of a class's marks say present."""
    table = np.empty((n_classes, N_ATTRIBUTES))
    done = 0
    for line, text in _lines(path):
        cells = text.split()
        if done == n_classes:
            raise _bad_line(path, line, f"the end of the file after {n_classes} classes", text)
        if len(cells) != N_ATTRIBUTES:
            raise _bad_line(path, line, f"{N_ATTRIBUTES} numbers", f"{len(cells)} columns")
        percent = Column("per cent", 0, 100, whole=False)
        bad = next((cell for cell in cells if not percent.accepts(cell)), None)
        if bad is not None:
            raise _bad_line(path, line, "numbers from 0 to 100", bad)
        table[done] = [float(cell) for cell in cells]
        done += 1
    _check_count(path, done, n_classes, "rows, one per class,")
    return table


def _check_attribute(number: int, name: str) -> str | None:
    if number > N_ATTRIBUTES:
        return f"the end of the file after {N_ATTRIBUTES} attributes"
    group = attribute_group(number - 1)
    return None if name.startswith(f"{group}::") else f"'{number} {group}::...'"


def _accept(
    chunk: pd.DataFrame,
    index: np.ndarray,
    keys: Sequence[tuple[str, int]],
    columns: Sequence[Column],
    rows: int,
) -> None:
    fine = index[-1] < rows
    for i, key in enumerate(_key_values(index, keys)):
        fine = fine and np.array_equal(chunk.iloc[:, i].to_numpy(), key)
    for i, column in enumerate(columns):
        cells = chunk.iloc[:, len(keys) + i].to_numpy()
        # NaN fails the comparison.
        fine = fine and bool(((cells >= column.low) & (cells <= column.high)).all())
    if not fine:
        raise ValueError("a row is not as expected")


def _key_values(index: np.ndarray, keys: Sequence[tuple[str, int]]) -> list[np.ndarray]:
    # Past the last row the wrapped value does not matter: the row is refused as such.
    sizes = tuple(size for _, size in keys)
    return [values + 1 for values in np.unravel_index(index % int(np.prod(sizes)), sizes)]


def _find_bad_line(
    path: Path, keys: Sequence[tuple[str, int]], columns: Sequence[Column], rows: int, done: int
) -> None:
    """Raise for the first bad line after `done` good rows; return if there is none."""
    sizes = tuple(size for _, size in keys)
    for line, text in itertools.islice(_lines(path), done, None):
        if done == rows:
            raise _bad_line(path, line, f"the end of the file after {rows} rows", text)
        wanted = [int(value) + 1 for value in np.unravel_index(done, sizes)]
        cells = text.split()
        fits = len(cells) >= len(keys) + len(columns)
        fits = fits and cells[: len(keys)] == [str(value) for value in wanted]
        fits = fits and all(column.accepts(cell) for column, cell in zip(columns, cells[len(keys) :], strict=False))
        if not fits:
            start = ", ".join(f"{name} {value}" for (name, _), value in zip(keys, wanted, strict=True))
            rest = ", ".join(column.describe() for column in columns)
            raise _bad_line(path, line, f"{start}, {rest}", text)
        done += 1
    _check_count(path, done, rows, "rows")


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield number and text of the lines that are not blank."""
    _check_file(path)
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, text in enumerate(file, start=1):
            if text.strip():
                yield number, text.strip()


def _check_file(path: Path) -> None:
    if not path.is_file():
        raise FileNotFoundError(
            f"Expected the file {path} of CUB-200-2011, but it is not there. Unpack the data set again."
        )


def _check_count(path: Path, got: int, expected: int, what: str) -> None:
    if got != expected:
        raise ValueError(
            f"{path}, line {got + 1}: expected {expected} {what} but the file ends after {got}. It was cut "
            "off: unpack the data set again."
        )


def _bad_line(path: Path, line: int, expected: str, got: str) -> ValueError:
    shown = got if len(got) <= 60 else got[:57] + "..."
    return ValueError(f"{path}, line {line}: expected {expected} but got {shown!r}.")
