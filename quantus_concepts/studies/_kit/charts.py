"""Figures of reports: charts and grids of pictures."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke
from matplotlib.text import Text

from captum_concepts._support.checks import check_shape
from quantus_concepts.studies._kit.findings import minus
from quantus_concepts.studies._kit.output import OutputFolder
from quantus_concepts.studies._kit.results import names, one, pick

#: Dots per inch of a figure: twice the size it is shown at, so that it is sharp.
DPI = 170
INK = "#333333"
#: Of the band in which 95 % of a random control lie.
BAND = "#C9C9C9"
#: Okabe and Ito's colours, which colour-blind readers tell apart.
PALETTE = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#F0E442", "#8A8A8A")
WIDTH = 7.6


@dataclass(frozen=True)
class Chart:
    """A figure of a page: ``figures/NAME.png`` and the caption below it."""

    name: str
    caption: str
    figure: Figure | bytes
    wide: bool = False
    unverified: str = ""


def new_axes(ax: Axes | None, size: tuple[float, float]) -> tuple[Figure, Axes]:
    """Return the axes given with their figure, or new ones."""
    if ax is not None:
        figure: Any = ax.figure
        return figure, ax
    # Not pyplot: its figures are global state and stay open.
    fig = Figure(figsize=size, layout="constrained")
    return fig, fig.add_subplot()


def tidy(ax: Axes, grid: str = "y") -> None:
    """Give axes the look of the report: two spines, a light grid."""
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        ax.spines[side].set_color("#888888")
    ax.tick_params(colors=INK, labelcolor=INK)
    ax.xaxis.label.set_color(INK)
    ax.yaxis.label.set_color(INK)
    ax.title.set_color(INK)
    ax.grid(axis="x" if grid == "x" else "y", color="#E4E4E4", linewidth=0.8, zorder=0)
    ax.set_axisbelow(True)


def colours_of(series: Sequence[str], given: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return a colour for each series, those given first."""
    free = [colour for colour in PALETTE if colour not in (given or {}).values()]
    missing = [name for name in series if name not in (given or {})]
    return {**(given or {}), **{name: free[place % len(free)] for place, name in enumerate(missing)}}


def grouped_bars(
    frame: pd.DataFrame,
    groups: str,
    series: str,
    ax: Axes | None = None,
    *,
    order: Sequence[str] = (),
    colours: Mapping[str, str] | None = None,
    control: str | None = None,
    scale: float = 1.0,
    control_label: str = "95 % of random controls (— mean, -- 97.5 %)",
) -> tuple[Figure, Axes]:
    """Draw bars with 95 % intervals, a group for each value of one column, a bar for each of another.

    The rows of the series `control` are drawn as a band behind their group, and its mean and upper end over the bars.
    """
    fig, ax = new_axes(ax, (WIDTH, 4.0))
    places = names(frame, groups)
    shown = [name for name in names(frame, series, order) if name != control]
    colours = colours_of(shown, colours)
    width = 0.8 / max(1, len(shown))
    for place, group in enumerate(places):
        _control_band(ax, one(frame, **{groups: group, series: control}), place, scale)
        for index, name in enumerate(shown):
            row = one(frame, **{groups: group, series: name})
            if row is not None:
                _bar(ax, place + (index - (len(shown) - 1) / 2) * width, row, 0.9 * width, colours[name], scale)
    handles = [Line2D([], [], color=colours[name], linewidth=7, solid_capstyle="butt") for name in shown]
    labels = list(shown)
    if control is not None and len(pick(frame, **{series: control})):
        handles.append(Line2D([], [], color=BAND, linewidth=7, solid_capstyle="butt"))
        labels.append(control_label)
    legend_above(ax, handles, labels, columns=2 if len(labels) > 3 else len(labels))
    ax.set_xticks(range(len(places)), [str(place) for place in places])
    tidy(ax)
    return fig, ax


def _control_band(ax: Axes, row: pd.Series | None, place: float, scale: float) -> None:
    if row is None:
        return
    ends = (place - 0.46, place + 0.46)
    ax.fill_between(ends, scale * row["low"], scale * row["high"], color=BAND, linewidth=0, zorder=1)
    # On top of the bars too, with white beneath, so that both lines show on any of them.
    for height, style in ((row["value"], "-"), (row["high"], (0, (3, 2)))):
        ax.plot(ends, [scale * height] * 2, color="white", linewidth=3, zorder=4, solid_capstyle="butt")
        ax.plot(ends, [scale * height] * 2, color=INK, linewidth=1.4, linestyle=style, zorder=5)


def _bar(ax: Axes, place: float, row: pd.Series, width: float, colour: str, scale: float) -> None:
    value, low, high = (scale * row[name] for name in ("value", "low", "high"))
    ax.bar(place, value, width, color=colour, zorder=2)
    top = value
    if not math.isnan(low):
        ax.errorbar(place, value, [[value - low], [high - value]], color=INK, capsize=2.5, linewidth=1.1, zorder=3)
        top = high
    text = minus(f"{value:.0f}" if scale == 100 else f"{value:.2f}")
    note(ax, text, (place, top), (0, 2.5), ha="center", va="bottom")


def dots(
    frame: pd.DataFrame,
    label: str,
    ax: Axes | None = None,
    *,
    control: pd.DataFrame | None = None,
    colour: str = PALETTE[0],
    gap_after: int = 0,
) -> tuple[Figure, Axes]:
    """Draw a point with its 95 % interval for each row, over the band of the row of `control` of the same label."""
    fig, ax = new_axes(ax, (WIDTH, 0.9 + 0.29 * (len(frame) + bool(gap_after))))
    places = [place + (0 < gap_after <= place) for place in range(len(frame))]
    for place, (_, row) in zip(places, frame.iterrows(), strict=True):
        band = None if control is None else one(control, **{label: row[label]})
        ends = [row["value"], row["high"]]
        if band is not None:
            ax.fill_betweenx((place - 0.45, place + 0.45), band["low"], band["high"], color=BAND, linewidth=0, zorder=1)
            ends.append(band["high"])
        # A point, not a bar: what it is held against is the band, not 0.
        ax.plot(row["value"], place, "o", color=colour, markersize=7, zorder=5)
        if not math.isnan(row["low"]):
            spread = [[row["value"] - row["low"]], [row["high"] - row["value"]]]
            ax.errorbar(row["value"], place, xerr=spread, color=INK, capsize=2, linewidth=1, zorder=4)
        note(ax, minus(f"{row['value']:.2f}"), (np.nanmax(ends), place), (4, 0), va="center")
    ax.set_yticks(places, [str(name) for name in frame[label]], fontsize=9)
    ax.invert_yaxis()
    if gap_after:
        ax.axhline(gap_after, color="#BBBBBB", linewidth=0.9, linestyle=(0, (4, 4)))
    tidy(ax, grid="x")
    ax.tick_params(axis="y", length=0)
    return fig, ax


def note(ax: Axes, text: str, at: tuple[float, float], offset: tuple[float, float], **style: Any) -> None:
    """Write a number beside what it belongs to, `offset` in points."""
    ax.annotate(text, at, offset, textcoords="offset points", fontsize=8.5, color=INK, **style)


def legend_above(ax: Axes, handles: Sequence[Any], labels: Sequence[str], columns: int) -> None:
    """Put a legend above the axes."""
    ax.legend(
        handles,
        labels,
        loc="lower center",
        bbox_to_anchor=(0.5, 1.0),
        ncols=max(1, columns),
        frameon=False,
        fontsize=9,
    )


def legend_right(ax: Axes, fontsize: float = 9) -> None:
    """Put a legend to the right of the axes."""
    ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False, fontsize=fontsize)


def whiskers(rows: pd.DataFrame, scale: float = 1.0) -> np.ndarray:
    """Return how far intervals reach down and up (2, n), as `errorbar` takes them; 0 where there is none."""
    spread: np.ndarray = np.abs(scale * (rows[["low", "high"]].to_numpy(dtype=np.float64).T - rows["value"].to_numpy()))
    return np.nan_to_num(spread)


def save_figures(folder: OutputFolder, figures: Mapping[str, Figure | bytes]) -> list[Path]:
    """Save figures as PNG files under ``figures/``."""
    return [folder.write_bytes(f"figures/{name}.png", png(figure)) for name, figure in figures.items()]


def png_base64(figure: Figure | bytes) -> str:
    """Return a figure as a PNG in base64, as a page embeds it."""
    return base64.b64encode(png(figure)).decode("ascii")


def png(figure: Figure | bytes) -> bytes:
    """Return a figure as a PNG, which it may be already."""
    if isinstance(figure, bytes):
        return figure
    buffer = io.BytesIO()
    # A `$` in the name of a class or concept is no formula, here nor in the ticks that drawing makes.
    with mpl.rc_context({"text.parse_math": False}):
        for text in figure.findobj(Text):
            text.set_parse_math(False)
        figure.savefig(buffer, format="png", dpi=DPI, facecolor="white")
    return buffer.getvalue()


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
    """Images and their maps."""

    name: str
    columns: list[str]
    rows: list[PictureRow] = field(default_factory=list)
    caption: str = ""


def plot_grid(grid: PictureGrid, ax: np.ndarray | None = None) -> tuple[Figure, np.ndarray]:
    """Draw a grid: the image with the mask's outline first, then the maps, each with its value."""
    _check(grid)
    shape = (len(grid.rows), 1 + len(grid.columns))
    if ax is None:
        fig, axes = _new_axes(*shape, scale=any(np.ndim(values) == 2 for row in grid.rows for values in row.maps))
    else:
        axes = np.asarray(ax)
        check_shape("ax", axes, ("R", "C"), shape)
        fig = axes[0, 0].figure
    for number, row in enumerate(grid.rows):
        _draw_image(axes[number, 0], row)
        for panel, values, score in zip(axes[number, 1:], row.maps, row.values, strict=True):
            _draw_map(panel, np.asarray(values, dtype=float), row, score)
    for panel, title in zip(axes[0], ["image", *grid.columns], strict=True):
        panel.set_title(_wrap(title), fontsize=8.5, color=INK, pad=4)
    return fig, axes


def _check(grid: PictureGrid) -> None:
    if not grid.rows:
        raise ValueError(f"Expected argument `grid` to have rows but the grid {grid.name!r} has none.")
    for number, row in enumerate(grid.rows):
        counts = (len(row.maps), len(row.values))
        if counts != (len(grid.columns),) * 2:
            raise ValueError(
                f"Expected row {number} of the grid {grid.name!r} to have one map and one value for each of its "
                f"{len(grid.columns)} columns but got {counts[0]} maps and {counts[1]} values."
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
        beside = fig.add_axes((left / width, (height - TITLES - CELL) / height, 0.09 / width, (CELL - GAP) / height))
        bar = fig.colorbar(ScalarMappable(cmap=COLOUR_MAP), cax=beside, ticks=[0, 1])
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
    shown = np.clip(values, 0, 1) if values.ndim == 3 else values
    panel.imshow(shown, cmap=COLOUR_MAP, vmin=0, vmax=1, extent=_extent(row), interpolation="nearest")
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
