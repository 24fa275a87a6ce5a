"""Reading a user's CSV files of concepts and parts, with errors that name the file and the line."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from captum_concepts._support.checks import check_path
from captum_concepts._support.files import check_plain_file, quoted
from captum_concepts._support.images import image_head

POINT_COLUMNS = ("image", "part", "x", "y")
PART_COLUMNS = ("concept", "part")
#: A few thousand rows, each of another part, or each of one part of one image, could ask for all memory there is.
MAX_COORDINATES = 200_000_000


@dataclass(frozen=True)
class ConceptTable:
    """Concepts of classes or of images."""

    names: list[str]
    values: np.ndarray
    per_class: bool


def read_concepts(
    path: Path, class_names: Sequence[str], image_keys: Mapping[str, int | None], n_images: int
) -> ConceptTable:
    """Read a concept table."""
    rows = _rows(path)
    line, header = next(rows, (1, []))
    kind = header[0] if header else ""
    if kind not in ("class", "image"):
        raise _error(path, line, "a header that starts with 'class' or 'image'", ",".join(header))
    names = header[1:]
    if not names:
        raise _error(path, line, f"one column per concept after {kind!r}", ",".join(header))
    known: set[str] = set()
    for name in names:
        if not name or name in known:
            raise _error(path, line, "a different name for each concept", name)
        known.add(name)
    per_class = kind == "class"
    keys: Mapping[str, int | None] = {name: i for i, name in enumerate(class_names)} if per_class else image_keys
    n_rows = len(class_names) if per_class else n_images
    seen: dict[int, int] = {}
    found: dict[int, list[float]] = {}
    for line, cells in rows:
        row = _look_up(path, line, kind, cells[0], keys)
        if row in seen:
            raise _error(path, line, f"one row for each {kind} (this one is on line {seen[row]} too)", cells[0])
        seen[row] = line
        found[row] = [_concept(path, line, name, cell, per_class) for name, cell in zip(names, cells[1:], strict=True)]
    _check_complete(path, line, kind, keys, seen, n_rows)
    return ConceptTable(names, np.array([found[row] for row in range(n_rows)]), per_class)


def read_points(
    path: Path, image_keys: Mapping[str, int | None], files: Sequence[Path]
) -> tuple[list[str], np.ndarray]:
    """Read a table of part points."""
    places: dict[tuple[int, int], list[tuple[float, float]]] = {}
    numbers: dict[str, int] = {}
    sizes: dict[int, tuple[int, int]] = {}
    for line, row in _named_rows(path, POINT_COLUMNS):
        image = _look_up(path, line, "image", row["image"], image_keys)
        if not row["part"]:
            raise _error(path, line, "the name of a part", row["part"])
        if image not in sizes:
            sizes[image], orientation = image_head(files[image])
            if orientation != 1:
                raise ValueError(
                    f"{path}, line {line}: expected points on an image that is stored upright but {files[image]} is "
                    f"turned by its EXIF orientation {orientation}, so that it is not known which of the two the point "
                    "was marked on. Save it upright (Pillow's ImageOps.exif_transpose) and mark its parts on that."
                )
        height, width = sizes[image]
        point = (_coordinate(path, line, "x", row["x"], width), _coordinate(path, line, "y", row["y"], height))
        part = numbers.setdefault(row["part"], len(numbers))
        places.setdefault((image, part), []).append(point)
    shape = (len(files), len(numbers), max(map(len, places.values())), 2)
    if math.prod(shape) > MAX_COORDINATES:
        raise ValueError(
            f"Expected {path} to have fewer parts, or fewer places of a part in an image: {shape[1]} parts with up to "
            f"{shape[2]} places are {math.prod(shape):,} coordinates of {shape[0]} images, more than "
            f"{MAX_COORDINATES:,}."
        )
    points = np.full(shape, np.nan, dtype=np.float32)
    for (image, part), found in places.items():
        points[image, part, : len(found)] = found
    return list(numbers), points


def read_part_of_concept(
    given: Mapping[str, str] | str | Path, concept_names: Sequence[str], part_names: Sequence[str]
) -> dict[str, str]:
    """Read which concept is about which part."""
    if isinstance(given, Mapping):
        for concept, part in given.items():
            for what, name, known in (("concept", concept, concept_names), ("part", part, part_names)):
                if name not in known:
                    raise ValueError(
                        f"Expected argument `part_of_concept` to hold a known {what} but got {name!r}. Known are "
                        f"{_some(known)}."
                    )
        return dict(given)
    path = check_path("part_of_concept", given)
    parts: dict[str, str] = {}
    for line, row in _named_rows(path, PART_COLUMNS):
        for what, known in (("concept", concept_names), ("part", part_names)):
            if row[what] not in known:
                raise _error(path, line, f"a known {what}, of {_some(known)},", row[what])
        if row["concept"] in parts:
            raise _error(path, line, "one row for each concept", row["concept"])
        parts[row["concept"]] = row["part"]
    return parts


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield line number and stripped cells of each row that is not blank, all as wide as the first."""
    check_plain_file(path, "CSV file")
    # Spreadsheets write a byte order mark.
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader, width = csv.reader(file), 0
        try:
            for row in reader:
                cells = [cell.strip() for cell in row]
                if any("\0" in cell for cell in cells):
                    raise _error(path, reader.line_num, "a text in UTF-8", "a byte of 0")
                if not any(cells):
                    continue
                width = width or len(cells)
                if len(cells) != width:
                    raise _error(path, reader.line_num, f"{width} columns as in the header", f"{len(cells)} columns")
                yield reader.line_num, cells
        except (csv.Error, UnicodeDecodeError) as error:
            raise ValueError(f"{path}, line {reader.line_num + 1}: cannot be read as CSV in UTF-8: {error}.") from error


def _named_rows(path: Path, columns: Sequence[str]) -> Iterator[tuple[int, dict[str, str]]]:
    rows = _rows(path)
    line, header = next(rows, (1, []))
    if sorted(header) != sorted(columns):
        raise _error(path, line, f"the header '{','.join(columns)}'", ",".join(header))
    empty = True
    for line, cells in rows:
        yield line, dict(zip(header, cells, strict=True))
        empty = False
    if empty:
        raise ValueError(f"{path}, line {line + 1}: expected at least one row but the file ends here.")


def _look_up(path: Path, line: int, kind: str, name: str, keys: Mapping[str, int | None]) -> int:
    if name not in keys:
        if kind == "class":
            raise _error(path, line, f"a class that has a folder, of {_some(keys)},", name)
        raise _error(path, line, f"the path of an image, with forward slashes, such as {next(iter(keys))!r},", name)
    number = keys[name]
    if number is None:
        raise _error(path, line, "a path from the root, since both splits have this one,", name)
    return number


def _check_complete(
    path: Path, line: int, kind: str, keys: Mapping[str, int | None], seen: Mapping[int, int], rows: int
) -> None:
    if len(seen) == rows:
        return
    missing = list(dict.fromkeys(number for number in keys.values() if number is not None and number not in seen))
    by_number = {number: name for name, number in reversed(list(keys.items()))}
    raise ValueError(
        f"{path}, line {line + 1}: expected a row for each {kind} but the file ends without "
        f"{_some([by_number[number] for number in missing])}."
    )


def _concept(path: Path, line: int, name: str, cell: str, per_class: bool) -> float:
    try:
        value = float(cell)
    except ValueError:
        value = np.nan
    if per_class and not 0 <= value <= 1:
        raise _error(path, line, f"a number from 0 to 1 in column {name!r}", cell)
    if not per_class and value not in (0, 1):
        raise _error(path, line, f"0 or 1 in column {name!r}", cell)
    return value


def _coordinate(path: Path, line: int, axis: str, cell: str, size: int) -> float:
    try:
        value = float(cell)
    except ValueError:
        value = np.nan
    if not -0.5 <= value < size - 0.5:
        raise _error(path, line, f"{axis} inside the image, from 0 to {size - 1},", cell)
    return value


def _some(names: Mapping[str, int | None] | Sequence[str]) -> str:
    shown = list(names)
    more = f" and {len(shown) - 5} more" if len(shown) > 5 else ""
    return ", ".join(quoted(name) for name in shown[:5]) + more


def _error(path: Path, line: int, expected: str, got: str) -> ValueError:
    return ValueError(f"{path}, line {line}: expected {expected} but got {quoted(got)}.")
