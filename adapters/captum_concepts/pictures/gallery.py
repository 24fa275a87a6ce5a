"""Pictures of concept activation maps: Algorithm 2 and the gallery of Figure 4 of Aysel et al. (2025)."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike
from torch import Tensor
from torch.nn import functional

from captum_concepts.support import checks
from captum_concepts.texts import readable_name, signed_text

# Green and red of equal darkness that colour-blind readers tell apart; the glyph says the same.
MARKS = {True: ("✓", "#1b7837"), False: ("✗", "#b2182b")}
TILE = 1.9  # inches
#: Perceptually uniform, and bright where a map is high.
PALETTE = "viridis"
_WRAP = 22  # letters that fit over a tile


class TextFigure(Figure):
    """A figure whose SVG files hold text as text, to search and to edit, unless matplotlib is told otherwise."""

    def savefig(self, *arguments: Any, **settings: Any) -> None:
        """Save as `Figure.savefig`."""
        is_default = mpl.rcParams["svg.fonttype"] == mpl.rcParamsDefault["svg.fonttype"]
        with mpl.rc_context({"svg.fonttype": "none"} if is_default else {}):
            super().savefig(*arguments, **settings)


def overlay(
    image: Tensor | ArrayLike,
    map: Tensor | ArrayLike,
    beta: float | None = None,
    coloured: bool | str = True,
    threshold: float | None = None,
    *,
    low: float | None = None,
    high: float | None = None,
) -> np.ndarray:
    """Lay a concept activation map over its image (Algorithm 2).

    The map is upsampled to the image, bilinearly with ``align_corners=False``. Coloured: the map, stretched
    to its own minimum and maximum, in the colours of *viridis* (the paper's are *jet*, which shows steps that are not
    there), times `beta`, plus the image, clipped to [0, 1]. Else: the image where the upsampled map reaches the
    threshold, black elsewhere. The paper leaves the stretching open; without it maps of small values would all be
    dark. As the paper prints it a bright image saturates: "blend" mixes instead, a pixel taking of the colour the
    square of its stretched value, `beta` at most.

    Parameters
    ----------
    image : Tensor or array
        (C, H, W) or (H, W, C) with C = 1 or 3, or (H, W), or a batch of one such; uint8, or floats in [0, 1].
    map : Tensor or array
        (h, w), of any resolution, or (1, h, w) or (1, 1, h, w), as an attribution gives it.
    beta : float, optional
        Opacity of the colours, in [0, 1]; 0.4 by default, 0.7 to blend.
    coloured : bool or "blend"
        Whether to colour, as Algorithm 2 or blended, or to mask.
    threshold : float, optional
        Least value of the upsampled map that is shown, in the units of the map; needed to mask.
    low : float, optional
        Value that gets the lowest colour, as all below it; the minimum of the map by default. One `low` and `high` for
        several maps make them comparable.
    high : float, optional
        Value that gets the highest colour, as all above it; the maximum of the map by default.

    Returns
    -------
    np.ndarray
        (H, W, 3), float, in [0, 1].

    Raises
    ------
    ValueError
        If a shape or range is not as above, a value is NaN, the threshold is missing, or `low` is above `high`.

    Examples
    --------
    >>> import numpy as np
    >>> from PIL import Image
    >>> from captum_concepts import overlay
    >>> image, concept_map = np.random.default_rng(0).random((3, 32, 32)), np.eye(4)
    >>> picture = overlay(image, concept_map, coloured="blend")
    >>> Image.fromarray((picture * 255).astype("uint8")).save("overlay.png")
    >>> picture.shape
    (32, 32, 3)
    """
    checks.check_choice("coloured", coloured, (True, False, "blend"))
    if beta is None:
        beta = 0.7 if coloured == "blend" else 0.4
    checks.check_range("beta", beta, 0, 1)
    if low is not None and high is not None and low > high:
        raise ValueError(f"Expected argument `low` to be at most `high` = {high} but got {low}.")
    if not coloured and threshold is None:
        raise ValueError("Expected argument `threshold` to be a number, as `coloured=False` needs, but got None.")
    picture = as_picture("image", image)
    heat = _upsample(_as_map(map), picture.shape[:2])
    if not coloured:
        return picture * (heat >= threshold)[..., None]
    # Limits may be tensors, as `maps.min()` is.
    low, high = float(heat.min() if low is None else low), float(heat.max() if high is None else high)
    # A constant map has no contrast to show: all of it is the lowest colour.
    stretched = ((heat - low) / (high - low)).clip(0, 1) if high > low else np.zeros_like(heat)
    colours = mpl.colormaps[PALETTE](stretched)[..., :3]
    if coloured == "blend":
        share = beta * stretched[..., None] ** 2
        return (1 - share) * picture + share * colours
    return np.clip(beta * colours + picture, 0.0, 1.0)


def plot_coam(
    image: Tensor | ArrayLike,
    map: Tensor | ArrayLike,
    name: str | None = None,
    present: bool | None = None,
    *,
    beta: float | None = None,
    coloured: bool | str = "blend",
    threshold: float | None = None,
    low: float | None = None,
    high: float | None = None,
    ax: Axes | None = None,
) -> tuple[Figure, Axes]:
    """Draw one image under the map of one concept; nothing is shown or saved.

    Parameters
    ----------
    image : Tensor or array
        As in `overlay`.
    map : Tensor or array
        (h, w).
    name : str, optional
        Name of the concept, written above.
    present : bool, optional
        Whether the concept is labelled present: a tick or a cross before the name; None for neither.
    beta : float, optional
        As in `overlay`.
    coloured : bool or "blend"
        As in `overlay`; True is Algorithm 2 of the paper, which brightens the image.
    threshold : float, optional
        As in `overlay`.
    low : float, optional
        As in `overlay`.
    high : float, optional
        As in `overlay`.
    ax : Axes, optional
        Axes to draw on; None for a new figure, which is not registered with pyplot.

    Returns
    -------
    tuple of Figure and Axes
        To go on drawing, or ``fig.savefig(path)``.

    Raises
    ------
    ValueError
        As `overlay` does.

    Examples
    --------
    >>> import numpy as np
    >>> from captum_concepts import plot_coam
    >>> figure, axes = plot_coam(np.zeros((3, 32, 32)), np.eye(4), name="red wing")
    >>> figure.savefig("red_wing.png")
    """
    tile = Tile(overlay(image, map, beta, coloured, threshold, low=low, high=high), name or "", present)
    if ax is None:
        ax = TextFigure(figsize=(TILE * 1.5, TILE * 1.7), layout="constrained").subplots()
    draw_tiles([[tile]], np.array([[ax]]))
    return figure_of(ax), ax


def gallery(
    images: Tensor | np.ndarray | Sequence[Tensor | ArrayLike],
    maps: Tensor | ArrayLike,
    names: Sequence[str] | Sequence[Sequence[str]],
    present: Tensor | ArrayLike | None = None,
    class_maps: Tensor | ArrayLike | None = None,
    class_names: Sequence[str] | None = None,
    *,
    absent: Tensor | ArrayLike | None = None,
    contributions: Tensor | ArrayLike | None = None,
    beta: float | None = None,
    coloured: bool | str = "blend",
    threshold: float | None = None,
    axes: np.ndarray | None = None,
) -> tuple[Figure, np.ndarray]:
    """Draw images, their most important concepts and their classes, as the paper's Figure 4.

    One row for each image: the image, the maps of its concepts in the order given, each with a tick where
    the concept is labelled present and a cross where it is absent, and the map of the class. A concept that supports
    the class by its absence is no failure to find it: it is written "no fur", without either. Nothing is shown or
    saved; pyplot does not know of the figure.

    Parameters
    ----------
    images : Tensor, array or sequence
        N images, each as in `overlay`; a sequence may hold different sizes.
    maps : Tensor or array
        (N, k, h, w), the concepts shown for each image.
    names : sequence
        k names for all images, or N sequences of k names.
    present : Tensor or array, optional
        (N, k), bool or 0/1: whether each concept is labelled present; None for no marks.
    class_maps : Tensor or array, optional
        (N, h, w), map of the class of each image; None for no such column.
    class_names : sequence of str, optional
        N names, written above the images.
    absent : Tensor or array, optional
        (N, k), bool or 0/1: whether each concept acts by its absence, as one of negative value does.
    contributions : Tensor or array, optional
        (N, k), written behind the names with their sign.
    beta : float, optional
        As in `overlay`.
    coloured : bool or "blend"
        As in `overlay`; the threshold of a mask is for the concepts, class maps are always coloured.
    threshold : float, optional
        As in `overlay`.
    axes : np.ndarray, optional
        (N, columns) of Axes to draw on; None for a new figure.

    Returns
    -------
    tuple of Figure and np.ndarray
        The figure and its Axes (N, 1 + k), or (N, 2 + k) with class maps.

    Raises
    ------
    ValueError
        If lengths or shapes do not go together, or as `overlay` does.

    Examples
    --------
    >>> import numpy as np
    >>> from captum_concepts import gallery
    >>> images = np.zeros((2, 3, 32, 32))
    >>> maps = np.zeros((2, 3, 4, 4))  # of three concepts for each image
    >>> figure, axes = gallery(images, maps, names=["red wing", "long bill", "fur"])
    >>> axes.shape
    (2, 4)
    """
    if isinstance(images, str) or not hasattr(images, "__len__"):
        raise TypeError(f"Expected argument `images` to hold N images but got {type(images).__name__}.")
    n = len(images)
    if n == 0:
        raise ValueError("Expected argument `images` to hold at least one image but got none.")
    maps = checks.to_array("maps", maps)
    checks.check_shape("maps", maps, ("N", "k", "h", "w"), (n, None, None, None))
    k = maps.shape[1]
    marks = as_marks("present", present, ("N", "k"), (n, k))
    gone = as_marks("absent", absent, ("N", "k"), (n, k))
    if contributions is not None:
        contributions = checks.to_array("contributions", contributions)
        checks.check_shape("contributions", contributions, ("N", "k"), (n, k))
    if class_maps is not None:
        class_maps = checks.to_array("class_maps", class_maps)
        checks.check_shape("class_maps", class_maps, ("N", "h", "w"), (n, None, None))
    listed = _as_names(names, n, k)
    if class_names is not None and len(class_names) != n:
        raise ValueError(f"Expected argument `class_names` to have length N = {n} but got {len(class_names)}.")
    if axes is not None:
        checks.check_shape("axes", axes, ("N", "columns"), (n, 1 + k + (class_maps is not None)))

    def tile(i: int, j: int) -> Tile:
        is_absent = gone is not None and bool(gone[i, j])
        part = "" if contributions is None else f" ({signed_text(contributions[i, j])})"
        mark = None if marks is None or is_absent else bool(marks[i, j])
        picture = overlay(images[i], maps[i, j], beta, coloured, threshold)
        return Tile(picture, f"{'no ' if is_absent else ''}{listed[i][j]}{part}", mark)

    # All pictures come before the figure: wrong input draws nothing on the caller's axes.
    rows = [
        [
            Tile(as_picture("images", images[i]), "" if class_names is None else class_names[i]),
            *(tile(i, j) for j in range(k)),
            *([] if class_maps is None else [Tile(overlay(images[i], class_maps[i], beta, coloured or True), "class")]),
        ]
        for i in range(n)
    ]
    return draw_tiles(rows, axes)


class Tile(NamedTuple):
    """A picture (H, W, 3) of a grid, what is written above it, and whether a tick or a cross goes before that."""

    picture: np.ndarray
    title: str = ""
    present: bool | None = None
    colour: str | None = None  # that of the mark by default


def draw_tiles(
    rows: Sequence[Sequence[Tile]], axes: np.ndarray | None = None, *, last: float = 0.0, bar: float = 0.0
) -> tuple[Figure, np.ndarray]:
    """Draw rows of tiles, on axes of the caller's or in a new figure, whose axes without a tile are hidden.

    `last` is the width, in tiles, of a further column, which is left to the caller; `bar` are inches for a colour bar.
    """
    if axes is None:
        widths = [1.0] * len(rows[0]) + [last] * bool(last)
        heights = [max(map(_tile_height, row)) for row in rows]
        figure = TextFigure(figsize=(TILE * sum(widths) + bar, sum(heights)), layout="compressed")
        axes = figure.subplots(len(rows), len(widths), squeeze=False, width_ratios=widths)
    for row, of_row in zip(axes, rows, strict=True):
        for ax, tile in zip(row, of_row, strict=False):
            glyph, colour = ("", "black") if tile.present is None else MARKS[tile.present]
            ax.imshow(tile.picture)
            # The user's own font may lack the glyphs; a `$` in a concept's name is no formula.
            family = [*mpl.rcParams["font.family"], "DejaVu Sans"]
            title = _wrap(f"{glyph} {tile.title}".strip())
            ax.set_title(title, fontsize=8.5, color=tile.colour or colour, family=family, parse_math=False, pad=3)
        for ax in row[: len(row) - bool(last)]:
            ax.set_axis_off()
    return figure_of(axes[0, 0]), axes


def _tile_height(tile: Tile) -> float:
    """Return the inches that a tile takes: the picture, and the title above it."""
    lines = _wrap(f"✓ {tile.title}").count("\n") + 1
    return TILE * tile.picture.shape[0] / tile.picture.shape[1] + 0.14 * lines + 0.1


def figure_of(ax: Axes) -> Figure:
    """Return the figure that axes belong to."""
    figure = ax.get_figure()
    if figure is None:
        raise ValueError("Expected argument `ax` to belong to a figure but it was removed from its own.")
    # Of a part of a figure, the whole: `get_figure(root=True)`, which matplotlib has from 3.10 on.
    return figure.figure


def _wrap(name: str) -> str:
    return "\n".join(textwrap.fill(readable_name(line), _WRAP) for line in name.split("\n"))


def as_marks(
    name: str, value: Tensor | ArrayLike | None, axes: Sequence[str], sizes: Sequence[int | None]
) -> np.ndarray | None:
    """Return an optional array of 0 and 1 of a shape, or raise."""
    if value is None:
        return None
    marks = checks.to_array(name, value)
    checks.check_shape(name, marks, axes, sizes)
    checks.check_binary(name, marks)
    return marks


def _as_names(names: Sequence[str] | Sequence[Sequence[str]], n: int, k: int) -> list[list[str]]:
    listed = checks.as_list("names", names, "names")
    shared = all(isinstance(item, str) for item in listed)
    rows = [listed] * n if shared else [checks.as_list("names", row, "names") for row in listed]
    lengths = [len(row) for row in rows]
    if lengths != [k] * n:
        raise ValueError(
            f"Expected argument `names` to hold k = {k} names, or such a list for each of the {n} images, "
            f"but got {len(rows)} lists of lengths {sorted(set(lengths))}."
        )
    return [[str(name) for name in row] for row in rows]


def as_picture(name: str, image: Tensor | ArrayLike) -> np.ndarray:
    """Return an image as (H, W, 3) floats in [0, 1]."""
    array = checks.to_array(name, image)
    if not array.size:
        raise ValueError(f"Expected argument `{name}` to hold at least one pixel but got shape {array.shape}.")
    if array.ndim == 4 and len(array) == 1:
        array = array[0]
    n_axes = array.ndim
    if n_axes == 2:
        array = array[..., None]
    # A tensor has its channels first; of an array it is the axis that can be channels, the last if both.
    first = array.ndim == 3 and array.shape[0] in (1, 3)
    last = array.ndim == 3 and array.shape[-1] in (1, 3)
    if not (first or last):
        raise ValueError(
            f"Expected argument `{name}` to hold an image (C, H, W) or (H, W, C) with C = 1 or 3, or (H, W), "
            f"but got shape {array.shape}."
        )
    if first and (not last or isinstance(image, Tensor)) and n_axes == 3:
        array = np.moveaxis(array, 0, -1)
    checks.check_finite(name, array)
    array = array / 255.0 if array.dtype == np.uint8 else array.astype(np.float64)
    check_levels(name, array.min(), array.max())
    return np.broadcast_to(np.clip(array, 0.0, 1.0), (*array.shape[:2], 3))


def check_levels(name: str, low: float, high: float) -> None:
    """Raise if the lowest or highest number of pictures is outside [0, 1]."""
    # Resizing with bicubic filters leaves the range by a hair.
    if low < -1e-2 or high > 1 + 1e-2:
        raise ValueError(
            f"Expected argument `{name}` to hold uint8, or floats in [0, 1], but got values from "
            f"{low:.3g} to {high:.3g}. Undo the normalisation (times the deviation, plus the "
            "mean) before drawing."
        )


def _as_map(map_: Tensor | ArrayLike) -> np.ndarray:
    """Return one map (h, w), also of a batch of one."""
    values = checks.to_array("map", map_)
    while values.ndim > 2 and len(values) == 1:
        values = values[0]
    checks.check_axes(map=(values, "h w"))
    if not values.size:
        raise ValueError(f"Expected argument `map` to hold at least one number but got shape {values.shape}.")
    checks.check_finite("map", values)
    return values


def _upsample(map_: np.ndarray, size: tuple[int, ...]) -> np.ndarray:
    values = torch.tensor(map_, dtype=torch.float64)[None, None]
    heat = functional.interpolate(values, size, mode="bilinear", align_corners=False)
    # Rounding would give a constant map a contrast, which stretching then shows in full.
    return heat.clamp(values.min(), values.max())[0, 0].numpy()
