"""Explanations in folders: their files, names and labels."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from captum_concepts._support.checks import check_path
from captum_concepts._support.files import check_plain_file, printable, reason_of, shortened
from captum_concepts._support.images import load_image
from captum_concepts._support.progress import progress
from quantus_concepts.datasets.ratings.explanations import (
    ConceptExplanation,
    DrawingExplanation,
    Explanation,
    MapExplanation,
)
from quantus_concepts.datasets.ratings.files import (
    CONCEPT_SUFFIX,
    DRAWING_SUFFIX,
    MAP_SUFFIX,
    FileName,
    list_some,
    load_concepts,
    load_map,
    released_scale,
)
from quantus_concepts.studies.rating.options import FROM_FILE_NAME, FROM_IMAGE_NAME, NO_LABELS


def with_labels(files: Sequence[ExplanationFile], labels_from: str) -> list[ExplanationFile]:
    """Return explanations with the labels that an option asks for."""
    if labels_from == FROM_FILE_NAME:
        return list(files)
    if labels_from == FROM_IMAGE_NAME:
        # An explanation that needs no image may have none; it is called like its image.
        return [replace(file, label=file.true_label) for file in files]
    if labels_from == NO_LABELS:
        return [replace(file, label="") for file in files]
    rows = read_labels(check_path("path", labels_from))
    return [_relabelled(file, rows) for file in files]


def read_labels(path: Path) -> dict[str, dict[str, str]]:
    """Return the row of each image in a CSV file; raise where rows are short, long, or of one image."""
    try:
        check_plain_file(path, "File")
        with path.open(newline="", encoding="utf-8-sig") as stream:
            reader = csv.DictReader(stream)
            rows = [(reader.line_num, row) for row in reader]
            columns = list(reader.fieldnames or ())
    except (OSError, ValueError, csv.Error) as error:
        raise ValueError(
            f"Expected argument `--labels-from` to be {FROM_FILE_NAME}, {FROM_IMAGE_NAME}, {NO_LABELS} or a CSV file "
            f"with the columns image and label, but {path} cannot be read ({reason_of(error)})."
        ) from error
    if not {"image", "label"} <= set(columns):
        raise ValueError(f"Expected {path} to have the columns image and label but got {shortened(columns)}.")
    found: dict[str, dict[str, str]] = {}
    lines: dict[str, int] = {}
    faults = []
    for line, row in rows:
        image = row["image"]
        if None in row or None in row.values() or not image:
            got = sum(value is not None for key, value in row.items() if key is not None) + len(row.get(None) or ())
            what = "names no image" if not image else f"has {got} of {len(columns)} columns"
            faults.append(f"line {line} {what}")
        elif any("\0" in cell for cell in row.values()):
            faults.append(f"line {line} holds a byte of 0, as no text in UTF-8 does")
        elif image in lines:
            faults.append(f"line {line} names {image} again, after line {lines[image]}")
        else:
            found[image], lines[image] = row, line
    if faults:
        raise ValueError(f"Expected {path} to have one complete row for each image but {list_some(faults)}.")
    return found


def _relabelled(file: ExplanationFile, rows: Mapping[str, Mapping[str, str]]) -> ExplanationFile:
    names = [file.path.stem] if file.image is None else [file.image.name, file.image.stem, file.path.stem]
    row = next((rows[name] for name in names if name in rows), None)
    if row is None:
        return file if file.note else replace(file, note="not in the file of labels")
    return replace(file, label=row["label"], true_label=row.get("true_label") or file.true_label)


MODALITIES = {MAP_SUFFIX: "map", DRAWING_SUFFIX: "drawing", CONCEPT_SUFFIX: "concepts"}
#: Files named in an error, and where none is left.
SHOWN, SHOWN_OF_ALL = 10, 20


@dataclass(frozen=True)
class ExplanationFile:
    """An explanation on disk; `note` says why it cannot be used, or nothing."""

    path: Path
    image: Path | None
    explainer: str
    name: FileName
    label: str
    true_label: str
    ascending: bool = False
    note: str = ""

    @property
    def modality(self) -> str:
        """The kind of explanation: "map", "drawing" or "concepts"."""
        return MODALITIES[self.path.suffix.lower()]

    def read(self) -> Explanation:
        """Read the explanation."""
        if self.note:
            raise ValueError(self.note)
        if self.modality == "concepts":
            return read_concepts(self.path, self.ascending, self.name.dataset)
        if self.modality == "drawing":
            return DrawingExplanation(read_drawing(self.path))
        if self.image is None:
            raise ValueError("no image of this name")
        image = load_image(self.image)
        values = read_map(self.path)
        check_proportions(values, tuple(image.shape[1:]))
        return MapExplanation(image, values, released_scale(self.name.explainer or "", float(values.min())))


def read_map(path: Path) -> Tensor:
    """Return a map (h, w) that is finite and shows something."""
    values = load_map(path)
    bad = int((~torch.isfinite(values)).sum())
    if bad:
        raise ValueError(f"{bad} of the map's {values.numel()} values are NaN or infinite")
    if values.min() == values.max():
        raise ValueError(f"the map is constant: every value is {values[0, 0].item():g}")
    return values


def check_proportions(values: Tensor, size: tuple[int, ...]) -> None:
    """Raise where a map is neither square nor of the proportions of its image (H, W)."""
    (rows, columns), (height, width) = values.shape, size
    # A coarse map has the proportions of its image only up to a cell, and that of a resized input is square.
    alike = abs(rows * width - columns * height) <= max(width, height)
    if not alike and rows != columns:
        raise ValueError(
            f"map of {rows} x {columns} for an image of {height} x {width}: neither of its proportions nor square"
        )


def read_drawing(path: Path) -> Tensor:
    """Return a picture (3, H, W) that shows something."""
    picture = load_image(path)
    if picture.min() == picture.max():
        raise ValueError("the drawing is of one colour")
    return picture


def read_concepts(path: Path, ascending: bool, dataset: str) -> ConceptExplanation:
    """Return concepts that have names and an order."""
    concepts = load_concepts(path, ascending=ascending, dataset=dataset)
    if any(not name.strip() for name in concepts.values):
        raise ValueError("a concept has no name")
    if len(concepts.values) > 1 and not any(concepts.values.values()):
        raise ValueError("every value is 0, so that no concept is first")
    return concepts


def check_explanations(files: Sequence[ExplanationFile], *, display_progressbar: bool = False) -> list[ExplanationFile]:
    """Read every file once, so that all that is wrong is known before any work."""
    checked = []
    for file in progress(files, "reading", unit="explanation", show=display_progressbar):
        try:
            file.read()
        except ValueError as error:
            file = replace(file, note=_reason(file, error))
        checked.append(file)
    return checked


def usable(files: Sequence[ExplanationFile]) -> list[ExplanationFile]:
    """Return the explanations that can be used."""
    good = [file for file in files if not file.note]
    if not good:
        raise ValueError(f"None of the {len(files)} explanations can be used: {problems(files, SHOWN_OF_ALL)}.")
    return good


def problems(files: Iterable[ExplanationFile], limit: int | None = None) -> str:
    """List what is wrong with files."""
    by_reason: dict[str, list[str]] = defaultdict(list)
    for file in files:
        if file.note:
            by_reason[file.note].append(f"{file.explainer}/{file.path.name}")
    # A folder of another data set gives every file one of few reasons: each is named once.
    left, texts = limit, []
    for number, (reason, names) in enumerate(sorted(by_reason.items(), key=lambda item: len(item[1]))):
        share = len(names) if left is None else max(1, left // (len(by_reason) - number))
        texts.append(f"{list_some(names, share)} ({printable(reason)})")
        left = None if left is None else max(0, left - min(share, len(names)))
    return "; ".join(texts)


def _reason(file: ExplanationFile, error: ValueError) -> str:
    # The list names the file anyway; its folder would only make the reason hard to read.
    reason = str(error)
    for path in (file.path, file.image):
        reason = reason.replace(f" {path}", "")
    return " ".join(reason.split()).rstrip(".")
