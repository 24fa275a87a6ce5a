"""Files of explanations that people or a scorer can rate: reading them, and saying why others are none."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from captum_concepts._support.files import printable
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

MODALITIES = {MAP_SUFFIX: "map", DRAWING_SUFFIX: "drawing", CONCEPT_SUFFIX: "concepts"}
#: Files named where all that is wrong is told, and where none is left.
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
    # A folder of another data set gives every file one of few reasons: each is told once.
    left, told = limit, []
    for number, (reason, names) in enumerate(sorted(by_reason.items(), key=lambda item: len(item[1]))):
        share = len(names) if left is None else max(1, left // (len(by_reason) - number))
        told.append(f"{list_some(names, share)} ({printable(reason)})")
        left = None if left is None else max(0, left - min(share, len(names)))
    return "; ".join(told)


def _reason(file: ExplanationFile, error: ValueError) -> str:
    # The list names the file anyway; its folder would only make the reason hard to read.
    reason = str(error)
    for path in (file.path, file.image):
        reason = reason.replace(f" {path}", "")
    return " ".join(reason.split()).rstrip(".")
