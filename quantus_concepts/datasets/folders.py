"""Folders of images, one for each class, and the lists and tables that come with them."""

from __future__ import annotations

import csv
import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath

import numpy as np

from captum_concepts.support.files import check_plain_file, image_files, quote, subfolders
from captum_concepts.support.files import list_some as list_some

#: Kinds of images that a folder of photographs may hold, and those of a data set that is annotated.
IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff")
ANNOTATED_SUFFIXES = (".jpg", ".jpeg", ".png")


def leads_out(name: str) -> bool:
    """Tell whether a path in a text may lead out of the folder it counts from; links in the folder may."""
    # Who lays out data with links knows where they lead; who wrote a text that came with the data does not say.
    parts = PurePosixPath(name).parts
    return not parts or ".." in parts or name.startswith("/") or "\\" in name or "\0" in name or bool(Path(name).anchor)


def inside(root: Path, name: object, place: str) -> Path:
    """Return the path in a folder that a text names; a ValueError with the place in the text if it leads out."""
    if not isinstance(name, str) or leads_out(name):
        raise ValueError(
            f"{place}: expected the path of a file inside {root}, with forward slashes, but got {quote(name)}."
        )
    return root / name


def list_classes(root: Path, suffixes: Sequence[str]) -> tuple[list[str], list[Path], np.ndarray]:
    """Return the names of the classes, the images, and the class of each."""
    if not root.is_dir():
        raise FileNotFoundError(f"Expected argument `root` to be a folder with one folder per class but got {root}.")
    folders = subfolders(root)
    if not folders:
        raise ValueError(f"Expected one folder per class in {root} but there is no folder.")
    files = [image_files(folder, suffixes) for folder in folders]
    for folder, paths in zip(folders, files, strict=True):
        if not paths:
            raise ValueError(f"Expected images ({', '.join(suffixes)}) in {folder}, which is a class, but got none.")
    labels = np.repeat(np.arange(len(folders), dtype=np.int64), [len(paths) for paths in files])
    return [folder.name for folder in folders], [path for paths in files for path in paths], labels


def check_there(
    paths: Iterable[Path], what: str, names: Collection[str] | None = None, root: Path | None = None
) -> None:
    """Raise unless all of the files are there; `names` are those of a folder that was listed already."""
    # Names alone do not tell files of several folders apart: with `root` the message has the paths from there.
    unique = list(dict.fromkeys(paths))
    missing = [
        path.relative_to(root or path.parent)
        for path in unique
        if not (path.is_file() if names is None else path.name in names)
    ]
    if missing:
        raise FileNotFoundError(
            f"Expected {what} but {len(missing)} of {len(unique)} are missing: {list_some(missing)}."
        )


def text_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield number and text of each line of a list that is not blank."""
    if not path.is_file():
        raise FileNotFoundError(f"Expected the list {path} but there is no such file.")
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        for number, text in enumerate(file, start=1):
            if text.strip():
                yield number, text.strip()


def csv_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield line number and stripped cells of each row that is not blank, all as wide as the first."""
    check_plain_file(path, "CSV file")
    # Spreadsheets write a byte order mark, and separate columns by what their language does not need for decimals.
    number = 0
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            lines = file.readlines()
        first = next((line for line in lines if line.strip()), "")
        reader, width = csv.reader(lines, delimiter=max(",;\t", key=first.count)), 0
        for row in reader:
            number, cells = reader.line_num, [cell.strip() for cell in row]
            if not any(cells):
                continue
            width = width or len(cells)
            if len(cells) != width:
                raise bad_line(path, number, f"{width} columns as in the header", f"{len(cells)} columns")
            yield number, cells
    except (csv.Error, UnicodeDecodeError) as error:
        raise ValueError(f"{path}, line {number + 1}: cannot be read as CSV in UTF-8: {error}.") from error


def table_rows(path: Path, columns: Sequence[str], *, others: bool = False) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield line and named cells of each row of a table with these columns, or these and `others`; at least one."""
    rows = csv_rows(path)
    line, header = next(rows, (1, []))
    if not (set(columns) <= set(header) if others else sorted(columns) == sorted(header)):
        raise bad_line(path, line, f"the header '{','.join(columns)}'", ",".join(header))
    empty = True
    for line, cells in rows:
        yield line, dict(zip(header, cells, strict=True))
        empty = False
    if empty:
        raise ValueError(f"{path}, line {line + 1}: expected at least one row but the file ends here.")


def as_number(cell: str) -> float:
    """Return the number in a cell; NaN if it holds none."""
    try:
        return float(cell)
    except ValueError:
        return math.nan


def bad_line(path: Path, line: int, expected: str, text: str, unit: str = "line") -> ValueError:
    """Return an error that names the line of a file."""
    return ValueError(f"{path}, {unit} {line}: expected {expected} but got {quote(text)}.")
