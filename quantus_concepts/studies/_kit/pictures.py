"""Pictures of reports: grids of images and maps, and explanations as people see them."""

from __future__ import annotations

import base64
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from PIL import Image
from torch import Tensor
from torch.nn.functional import interpolate

from captum_concepts._support.fingerprints import fingerprint_of
from captum_concepts._support.images import load_image
from quantus_concepts.datasets.ratings.explanation_files import ExplanationFile
from quantus_concepts.datasets.ratings.explanations import ConceptExplanation, DrawingExplanation, MapExplanation
from quantus_concepts.functional.overlay import overlay, unit_maps
from quantus_concepts.studies._kit.charts import INK
from quantus_concepts.studies._kit.findings import minus
from quantus_concepts.studies._kit.output import OutputFolder
from quantus_concepts.studies._kit.page import render_page

#: Equal steps of the map look equal, also in grey and to colour-blind readers.
COLOUR_MAP = "viridis"
OUTLINE = "#FFFFFF"
#: Size of a cell, and of what stands around the cells, in inches.
CELL, GAP, TITLES, LABELS = 1.12, 0.05, 0.42, 1.25
#: Letters of a column's title in one line.
LINE = 13


@dataclass
class PictureRow:
    """One row of a grid."""

    label: str
    image: np.ndarray
    maps: list[np.ndarray]
    mask: np.ndarray | None
    values: Sequence[float | str]


@dataclass
class PictureGrid:
    """Images and their maps; a figure of a page."""

    name: str
    columns: list[str]
    rows: list[PictureRow] = field(default_factory=list)
    caption: str = ""

    def draw(self) -> tuple[Figure, np.ndarray]:
        """Draw the image with the mask's outline first, then the maps, each with its value."""
        self._check()
        scale = any(np.ndim(values) == 2 for row in self.rows for values in row.maps)
        fig, axes = _new_axes(len(self.rows), 1 + len(self.columns), scale)
        for panels, row in zip(axes, self.rows, strict=True):
            _draw_image(panels[0], row)
            for panel, values, score in zip(panels[1:], row.maps, row.values, strict=True):
                _draw_map(panel, np.asarray(values, dtype=float), row, score)
        for panel, title in zip(axes[0], ["image", *self.columns], strict=True):
            panel.set_title(_wrap(title), fontsize=8.5, color=INK, pad=4)
        return fig, axes

    def _check(self) -> None:
        if not self.rows:
            raise ValueError(f"Expected the grid {self.name!r} to have rows but it has none.")
        for number, row in enumerate(self.rows):
            counts = (len(row.maps), len(row.values))
            if counts != (len(self.columns),) * 2:
                raise ValueError(
                    f"Expected row {number} of the grid {self.name!r} to have one map and one value for each of its "
                    f"{len(self.columns)} columns but got {counts[0]} maps and {counts[1]} values."
                )


def _new_axes(rows: int, columns: int, scale: bool) -> tuple[Figure, np.ndarray]:
    width = LABELS + columns * (CELL + GAP) + (0.55 if scale else 0.15)
    height = TITLES + rows * (CELL + GAP) + 0.1
    fig = Figure(figsize=(width, height))
    axes = np.empty((rows, columns), dtype=object)
    for row in range(rows):
        for column in range(columns):
            left = LABELS + column * (CELL + GAP) + (0.1 if column else 0)
            bottom = height - TITLES - (row + 1) * (CELL + GAP)
            axes[row, column] = fig.add_axes((left / width, bottom / height, CELL / width, CELL / height))
    if scale:
        # One scale for all maps, as high as a cell.
        left = LABELS + columns * (CELL + GAP) + 0.12
        scale_axes = fig.add_axes(
            (left / width, (height - TITLES - CELL) / height, 0.09 / width, (CELL - GAP) / height)
        )
        bar = fig.colorbar(ScalarMappable(cmap=COLOUR_MAP), cax=scale_axes, ticks=[0, 1])
        bar.ax.tick_params(labelsize=7.5, length=0, colors=INK)
        bar.outline.set_visible(False)
    return fig, axes


def _draw_image(panel: Axes, row: PictureRow) -> None:
    panel.imshow(np.clip(row.image, 0, 1), extent=_extent(row))
    _outline(panel, row)
    _bare(panel)
    panel.set_ylabel(_wrap(row.label), rotation=0, ha="right", va="center", fontsize=8.5, color=INK, labelpad=6)


def _draw_map(panel: Axes, values: np.ndarray, row: PictureRow, score: float | str) -> None:
    _bare(panel)
    if np.isnan(values).any():
        panel.set_facecolor("#EEEEEE")
        panel.text(0.5, 0.5, "no map", transform=panel.transAxes, ha="center", va="center", fontsize=8, color=INK)
        return
    # A coarse map is stretched over the image it explains; matplotlib takes a picture's colours as they are.
    pixels = np.clip(values, 0, 1) if values.ndim == 3 else values
    panel.imshow(pixels, cmap=COLOUR_MAP, vmin=0, vmax=1, extent=_extent(row), interpolation="nearest")
    _outline(panel, row)
    text = score if isinstance(score, str) else "–" if math.isnan(score) else f"{score:.2f}"
    panel.text(
        0.97,
        0.03,
        text,
        transform=panel.transAxes,
        ha="right",
        va="bottom",
        fontsize=7.5,
        color="white",
        path_effects=[withStroke(linewidth=2, foreground="black")],
    )


def _outline(panel: Axes, row: PictureRow) -> None:
    if row.mask is None or not row.mask.any() or row.mask.all():
        return
    # A frame of zeros closes the outline where the object touches the border.
    mask: Any = np.pad(np.asarray(row.mask, dtype=float), 1)
    height, width = row.mask.shape
    across, down = np.arange(width + 2) - 0.5, np.arange(height + 2) - 0.5
    for colour, thickness in (("black", 1.7), (OUTLINE, 0.8)):
        panel.contour(across, down, mask, levels=[0.5], colors=[colour], linewidths=[thickness])
    panel.set_xlim(0, width)
    panel.set_ylim(height, 0)


def _extent(row: PictureRow) -> tuple[float, float, float, float]:
    height, width = row.image.shape[:2]
    return (0, width, height, 0)


def _bare(panel: Axes) -> None:
    panel.set_xticks([])
    panel.set_yticks([])
    for spine in panel.spines.values():
        spine.set_visible(False)


def _wrap(title: str) -> str:
    """Break every line of a title that is too long in two, at the space nearest to its middle."""
    return "\n".join(_halved(line) for line in title.split("\n"))


def _halved(line: str) -> str:
    if len(line) <= LINE or " " not in line:
        return line
    spaces = [place for place, letter in enumerate(line) if letter == " "]
    middle = min(spaces, key=lambda place: abs(place - len(line) / 2))
    return f"{line[:middle]}\n{line[middle + 1 :]}"


N_CONCEPTS = 15
#: JPEG quality; with full colour resolution, since maps are red on blue.
QUALITY = 86
FOR, AGAINST = "#b34700", "#3b6ea5"


def resize_image(image: Tensor, longest: int) -> Tensor:
    """Bring an image to the size it is shown in."""
    scale = longest / max(image.shape[1:])
    size = [max(1, round(side * scale)) for side in image.shape[1:]]
    return interpolate(image[None], size, mode="bicubic", antialias=True, align_corners=False)[0].clamp(0, 1)


def shown_picture(explanation: MapExplanation | DrawingExplanation, longest: int) -> Tensor:
    """Return (3, h, w) in [0, 1], its longer side `longest`: a drawing as it is, or a map drawn over its image."""
    if isinstance(explanation, DrawingExplanation):
        return resize_image(explanation.picture, longest)
    image = resize_image(explanation.image, longest)
    return overlay(image[None], unit_maps(explanation.map[None].float(), explanation.normalise or "min-max"))[0]


def encode_image(image: Tensor, kind: str, **settings: int) -> bytes:
    """Encode an image (3, H, W) in [0, 1] as a file of a kind of Pillow's."""
    pixels = (image * 255).round().to(torch.uint8).permute(1, 2, 0)
    buffer = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels.cpu().numpy())).save(buffer, kind, **settings)
    return buffer.getvalue()


def data_url(image: Tensor) -> str:
    """Return an image as a page embeds it."""
    data = encode_image(image, "JPEG", quality=QUALITY, subsampling=0)
    return f"data:image/jpeg;base64,{base64.b64encode(data).decode('ascii')}"


def top_concepts(explanation: ConceptExplanation, n: int = N_CONCEPTS) -> list[tuple[str, float]]:
    """Return the most important concepts, the most important first."""
    ordered = sorted(explanation.values.items(), key=lambda pair: (abs(pair[1]), pair[0]), reverse=True)
    if explanation.ascending:
        ordered = ordered[::-1]
    return ordered[:n]


def plot_concepts(explanation: ConceptExplanation, n: int = N_CONCEPTS) -> Figure:
    """Draw the most important concepts as horizontal bars."""
    top = top_concepts(explanation, n)
    figure = Figure(figsize=(5.2, 0.6 + 0.27 * len(top)), layout="constrained")
    axes = figure.add_subplot()
    values = [value for _, value in top]
    axes.barh(range(len(top)), values, color=[FOR if value >= 0 else AGAINST for value in values], height=0.62)
    axes.set_yticks(range(len(top)), [name for name, _ in top], color=INK, fontsize=9)
    axes.invert_yaxis()
    axes.axvline(0, color=INK, linewidth=0.8)
    axes.tick_params(length=0, labelsize=8.5, colors=INK)
    for side in axes.spines.values():
        side.set_visible(False)
    return figure


def listed_concepts(explanation: ConceptExplanation, n: int = N_CONCEPTS) -> list[tuple[str, str, float]]:
    """Return the most important concepts as a page lists them: name, value as written, share of the largest."""
    top = top_concepts(explanation, n)
    largest = max(abs(value) for _, value in top) or 1.0
    return [(name, short_number(value), value / largest) for name, value in top]


def short_number(value: float) -> str:
    """Write a concept's value with three digits."""
    if value == 0 or 0.001 <= abs(value) < 1000:
        digits = 2 if value == 0 else max(0, 2 - math.floor(math.log10(abs(value))))
        text = f"{value:.{min(digits, 3)}f}"
    else:
        text = f"{value:.1e}"
    return minus(text)


MEGABYTE = 1_000_000
#: The page on which people answer.
RATING_PAGE = "rate.html"


def write_rating_page(folder: OutputFolder, page: str) -> str:
    """Write a page, and return its name and size in a sentence."""
    size = folder.write_text(RATING_PAGE, page).stat().st_size / MEGABYTE
    return f"{RATING_PAGE} has {size:.1f} MB and needs no network."


def readable(label: str) -> str:
    """Return a label as people read it: spaces for "_"."""
    return label.replace("_", " ")


class Gallery:
    """The pictures of a page on which people answer questions, each once."""

    def __init__(self, size: int, max_megabytes: float) -> None:
        self.size = size
        self.max_megabytes = max_megabytes
        self.pictures: dict[str, str] = {}
        self.n_bytes = 0
        self._names: dict[Path, str] = {}

    def section(self, file: ExplanationFile, told: str = "") -> dict[str, Any]:
        """Return an image and its explanation."""
        if file.image is None:
            raise ValueError(f"People rate an explanation next to its image, but {file.path} has none. Leave it out.")
        section: dict[str, Any] = {"image": self.image(file.image), "told": readable(told)}
        explanation = file.read()
        if isinstance(explanation, ConceptExplanation):
            section["concepts"] = [[name, text, round(share, 4)] for name, text, share in listed_concepts(explanation)]
        else:
            section["drawn"] = file.modality == "drawing"
            section["map"] = self._add(file.path, shown_picture(explanation, self.size))
        return section

    def image(self, path: Path) -> str:
        """Return the name of an image on the page."""
        return self._names.get(path) or self._add(path, resize_image(load_image(path), self.size))

    def check(self, n_done: int, n_all: int, noun: str = "explanations", fewer: str = "--n-items") -> None:
        """Raise where the pictures are too many."""
        if self.n_bytes > self.max_megabytes * MEGABYTE:
            raise ValueError(
                f"The page would be larger than {self.max_megabytes:g} MB: {n_done} of {n_all} {noun} "
                f"fill it. Take fewer with {fewer}, smaller pictures with --picture-size, or allow more with "
                "--max-megabytes."
            )

    def render(
        self,
        template: str,
        questions: Sequence[Mapping[str, Any]],
        items: Sequence[Mapping[str, Any]],
        seed: int,
        texts: Mapping[str, str] | None = None,
        **content: Any,
    ) -> str:
        """Render the page on which people answer questions about items."""
        data = {"questions": questions, "pictures": self.pictures, "items": items, "seed": seed, **(texts or {})}
        # The browser keeps answers under this name.
        data["id"] = fingerprint_of(questions, items, seed)[:12]
        # Only "<" could end the script element early.
        script = Markup(json.dumps(data, ensure_ascii=False).replace("<", "\\u003c"))
        return render_page(template, data=script, n_items=len(items), n_questions=len(questions), **content)

    def _add(self, path: Path, picture: Tensor) -> str:
        # The name tells nothing of the file, so that nobody reads an explainer's name from the page.
        name = self._names[path] = f"p{len(self._names)}"
        self.pictures[name] = data_url(picture)
        self.n_bytes += len(self.pictures[name])
        return name
