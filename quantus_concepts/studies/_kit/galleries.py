"""Galleries of reports: rows of pictures, maps and texts below the names of their columns."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke

from quantus_concepts.studies._kit.plots import INK

#: Space around a cell, and letters in a line of a label.
_MARGIN, _LETTERS = 0.03, 14
_EDGE = [withStroke(linewidth=2, foreground="black")]
#: What stands in place of a map that is not defined, and its colour.
_NO_MAP = "no map", INK


@dataclass(frozen=True)
class GalleryRow:
    """One row: pictures (H, W, 3), maps (H, W) in [0, 1] or texts.

    `texts` are written below the cells and `corners` into them, `colours` are those of cells of text, and `region`
    (H, W) is outlined in every picture.
    """

    label: str
    cells: Sequence[np.ndarray | str]
    texts: Sequence[str] = ()
    corners: Sequence[str] = ()
    colours: Sequence[str] = ()
    region: np.ndarray | None = None


def draw_gallery(columns: Sequence[str], rows: Sequence[GalleryRow], cell: float = 1.2) -> Figure:
    """Draw rows below the names of their columns; `cell` is the width of one in inches."""
    height = 1.2 if any(row.texts for row in rows) else 1.0
    size = (1.3 + cell * len(columns), 0.4 + cell * height * len(rows))
    figure = Figure(figsize=size, layout="constrained")
    # One pair of axes for everything: one for each cell takes longer than the models.
    ax = figure.add_subplot()
    for number, row in enumerate(rows):
        for place, content in enumerate(row.cells):
            _draw_cell(ax, content, place, number * height, row)
    for place, name in enumerate(columns):
        ax.text(place + 0.5, -0.06, wrapped(name), ha="center", va="bottom", fontsize=8.5, color=INK)
    labels = [wrapped(row.label) if "\n" not in row.label else row.label for row in rows]
    ax.set_yticks([number * height + 0.5 for number in range(len(rows))], labels, fontsize=9)
    ax.set(xticks=[], xlim=(0, len(columns)), ylim=(height * len(rows), 0))
    ax.tick_params(length=0, labelcolor=INK)
    # To the right: room for the labels on the left.
    ax.set_aspect("equal", anchor="E")
    ax.spines[:].set_visible(False)
    return figure


def wrapped(text: str, length: int = _LETTERS) -> str:
    """Break a text between words into lines of about a length."""
    text = text.replace(" %", "\u00a0%")
    return "\n".join(textwrap.wrap(text, length, break_long_words=False, break_on_hyphens=False))


def _draw_cell(ax: Axes, content: np.ndarray | str, place: int, top: float, row: GalleryRow) -> None:
    middle, bottom = (place + 0.5, top + 0.5), top + 1.0
    if isinstance(content, str) or np.isnan(content).any():
        text, colour = (content, row.colours[place] if row.colours else INK) if isinstance(content, str) else _NO_MAP
        ax.text(*middle, text, color=colour, ha="center", va="center", fontsize=8.5)
    else:
        across, down = (side * (1 - 2 * _MARGIN) / max(content.shape[:2]) / 2 for side in content.shape[1::-1])
        left, right, low, high = middle[0] - across, middle[0] + across, middle[1] + down, middle[1] - down
        ax.imshow(content, cmap="viridis", vmin=0, vmax=1, interpolation="nearest", extent=(left, right, low, high))
        bottom = low + 0.03
        if row.corners:
            corner = ax.text(right - 0.03, low - 0.03, row.corners[place], ha="right", va="bottom", fontsize=7.5)
            corner.set(color="white", path_effects=_EDGE)
        if row.region is not None and row.region.any() and not row.region.all():
            _outline(ax, row.region, (left, right, low, high))
    if row.texts:
        ax.text(middle[0], bottom, row.texts[place], ha="center", va="top", fontsize=8.5, color=INK)


def _outline(ax: Axes, region: np.ndarray, extent: tuple[float, float, float, float]) -> None:
    """Outline a region (H, W) of a picture with this extent."""
    left, right, low, high = extent
    # A frame of zeros closes the outline where the region touches the border.
    mask = np.pad(np.asarray(region, dtype=float), 1)
    h, w = region.shape
    x = left + (np.arange(w + 2) - 0.5) * (right - left) / w
    y = high + (np.arange(h + 2) - 0.5) * (low - high) / h
    outline = ax.contour(x, y, mask, levels=[0.5], colors=["white"], linewidths=[0.8])
    outline.set_path_effects([withStroke(linewidth=1.7, foreground="black")])
