"""Reading files of explanations that people or a scorer can rate, and saying why others are none."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from quantus_concepts.datasets.images import load_image
from quantus_concepts.datasets.ratings.explanations import ConceptExplanation
from quantus_concepts.datasets.ratings.files import load_concepts, load_map


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
