"""Figures of reports: their look, dots and lines with intervals, and PNG and SVG that follow a dark page."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pandas as pd
from cycler import cycler
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.style import context
from matplotlib.text import Text
from PIL import Image

from captum_concepts.pictures.gallery import figure_of

#: Colours of text and lines, of what is in the background, and of the band of random baselines.
INK, MUTED, GRID, BAND = "#222223", "#777778", "#e2e2e3", "#cfcfd0"
#: The same on a dark page.
_DARK = {INK: "#e4e7eb", MUTED: "#9aa5b1", GRID: "#333b45", BAND: "#454d57"}
#: Okabe and Ito's colours, which colour-blind readers tell apart, on light pages and on dark ones.
PALETTE = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#8A8A8A")
MARKERS = "osD^vP*Xd"
#: Inches; at 420 pixels the text of a figure of this width can still be read.
WIDTH = 4.8
DPI = 170
#: Of photographs and maps in an SVG.
JPEG_QUALITY = 88
_LOOK: dict[str, Any] = {
    "font.size": 10,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.titlesize": 10,
    "axes.edgecolor": MUTED,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.prop_cycle": cycler(color=PALETTE),
    "grid.color": GRID,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "legend.fontsize": 9,
    # A `$` in the name of a class is no formula.
    "text.parse_math": False,
    # Words stay words, in the page's font.
    "svg.fonttype": "none",
    "svg.hashsalt": "quantus-concepts",
}


@contextmanager
def report_style() -> Iterator[None]:
    """Draw in the look of the reports, whatever a matplotlibrc in the working directory says."""
    with context(["default", _LOOK]):
        yield


def new_axes(height: float, width: float = WIDTH) -> tuple[Figure, Axes]:
    """Return a figure of a size in inches, and its axes."""
    # Not pyplot: its figures are global state and stay open.
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.add_subplot()


def dots(
    frame: pd.DataFrame,
    rows: str,
    series: str = "",
    *,
    label: str = "",
    percent: bool = True,
    order: Sequence[str] = (),
    colours: Mapping[str, str] | None = None,
    reference: float | None = None,
    ax: Axes | None = None,
) -> tuple[Figure, Axes]:
    """Draw numbers with their 95 % intervals, one line a row, over the range of their random baselines.

    `frame` has columns ``value, low, high`` and, where there is a random baseline, ``random_low, random_high``.
    `series` differ in colour and marker, in `order`; `reference` is a value at which a line crosses.
    """
    scale = 100.0 if percent else 1.0
    frame = frame[frame["value"].notna()]
    groups = list(dict.fromkeys(frame[rows]))
    names = [""] if not series else list(dict.fromkeys([*order, *frame[series]]))
    names = [name for name in names if not series or name in set(frame[series])]
    if ax is None:
        _, ax = new_axes(0.8 + (0.2 + 0.17 * len(names)) * len(groups) + 0.25 * (len(names) > 1))
    colours = dict(zip(names, PALETTE * len(names), strict=False)) | dict(colours or {})
    banded = False
    # A band ends where it ends, not at the edge of the axes; `axvline` fixes the edges.
    ax.use_sticky_edges = False
    for place, group in enumerate(groups):
        for turn, name in enumerate(names):
            chosen = frame[(frame[rows] == group) & ((frame[series] == name) if series else True)]
            at = place + (turn - (len(names) - 1) / 2) * 0.72 / len(names)
            for row in chosen.to_dict("records"):
                low, high = row.get("random_low", np.nan), row.get("random_high", np.nan)
                if low == low:
                    height, left, width = 0.72 / len(names), scale * low, scale * (high - low)
                    # With an edge the bands of one group join without a seam.
                    ax.barh(at, width, height, left, color=BAND, edgecolor=BAND, linewidth=0.5, zorder=1)
                    banded = True
                ends = [[row["value"] - row["low"]], [row["high"] - row["value"]]]
                ax.errorbar(
                    scale * row["value"],
                    at,
                    xerr=scale * np.maximum(np.nan_to_num(ends), 0),
                    marker=MARKERS[turn % len(MARKERS)],
                    markersize=5.5,
                    color=colours[name],
                    elinewidth=1.4,
                    capsize=2.5,
                    linestyle="",
                    zorder=3,
                )
    if reference is not None:
        ax.axvline(scale * reference, color=MUTED, linewidth=1, linestyle=(0, (4, 3)), zorder=0)
    # A name is on one line, or it overlaps the next.
    ax.set_yticks(range(len(groups)), [" ".join(str(group).split()) for group in groups])
    ax.set_ylim(len(groups) - 0.45, -0.55)
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="x")
    ax.set_xlabel(label)
    handles: dict[str, Artist] = {
        name: Line2D([], [], color=colours[name], marker=MARKERS[turn % len(MARKERS)], linestyle="")
        for turn, name in enumerate(names)
        if name
    }
    if banded:
        handles["95 % of random baselines"] = Patch(color=BAND)
    add_legend(ax, handles)
    return ax.get_figure(), ax  # type: ignore[return-value]


def lines(
    frame: pd.DataFrame,
    x: str,
    series: str,
    *,
    label_x: str = "",
    label: str = "",
    percent: bool = True,
    order: Sequence[str] = (),
    colours: Mapping[str, str] | None = None,
    dashed: Sequence[str] = (),
    band: str = "",
    ticks: Mapping[float, str] | None = None,
    ax: Axes | None = None,
) -> tuple[Figure, Axes]:
    """Draw numbers over the column `x` with 95 % intervals, one line for each of `series`.

    The series `band` is a random baseline, drawn as the band from its ``low`` to its ``high``.
    """
    scale = 100.0 if percent else 1.0
    if ax is None:
        _, ax = new_axes(3.6)
    names = [name for name in dict.fromkeys([*order, *frame[series]]) if name != band and name in set(frame[series])]
    colours = dict(zip(names, PALETTE * len(names), strict=False)) | dict(colours or {})
    if band:
        rows = frame[frame[series] == band].sort_values(x, kind="stable")
        if len(rows):
            low, high = (scale * rows[end].to_numpy(float) for end in ("low", "high"))
            ax.fill_between(rows[x], low, high, color=BAND, linewidth=0, zorder=1, label="95 % of random baselines")
    # Shifted sideways a little, or intervals of equal numbers hide each other.
    room = 0.01 * float(np.ptp(frame[x].to_numpy(float))) if len(names) > 1 and len(frame) else 0.0
    for turn, (name, shift) in enumerate(zip(names, np.linspace(-room, room, len(names)), strict=True)):
        rows = frame[(frame[series] == name) & frame["value"].notna()].sort_values(x, kind="stable")
        value, low, high = (scale * rows[column].to_numpy(float) for column in ("value", "low", "high"))
        ax.errorbar(
            rows[x].to_numpy(float) + shift,
            value,
            np.maximum(np.nan_to_num([value - low, high - value]), 0),
            label=name,
            color=colours[name],
            marker=MARKERS[turn % len(MARKERS)],
            markersize=5,
            linestyle="--" if name in dashed else "-",
            linewidth=1.6,
            capsize=2,
            elinewidth=1,
            zorder=3,
        )
    if ticks:
        ax.set_xticks([*ticks], [*ticks.values()])
    ax.grid(axis="y")
    ax.set(xlabel=label_x, ylabel=label)
    handles, labels = ax.get_legend_handles_labels()
    add_legend(ax, dict(zip(labels, handles, strict=True)))
    return figure_of(ax), ax


def add_legend(ax: Axes, handles: Mapping[str, Artist]) -> None:
    """Put a legend above the axes, in columns that fit the width."""
    if handles:
        width = max(len(name) for name in handles)
        columns = max(1, min(len(handles), int(56 // (width + 6))))
        figure_of(ax).legend(handles.values(), [*handles], loc="outside upper center", ncols=columns)


def png(figure: Figure) -> bytes:
    """Return a figure as a PNG on white."""
    return _saved(figure, "png", dpi=DPI, facecolor="white")


def svg(figure: Figure) -> bytes:
    """Return a figure as an SVG whose text and lines turn light on a dark page."""
    text = _saved(figure, "svg", transparent=True, metadata={"Date": None, "Creator": None}).decode("utf-8")
    rules = "".join(
        f"[style*='{kind}: {light}']{{{kind}:{dark} !important}}"
        for light, dark in _DARK.items()
        for kind in ("fill", "stroke")
    )
    style = f"<style>text{{font-family:system-ui,sans-serif}}@media(prefers-color-scheme:dark){{{rules}}}</style>"
    text = re.sub(r"data:image/png;base64,([^\"]+)", _as_jpeg, text)
    head, opening, rest = text.partition("<svg")
    attributes, end, body = rest.partition(">")
    return f"{head}{opening}{attributes}{end}{style}{body}".encode()


def _as_jpeg(found: re.Match[str]) -> str:
    """Return an image of an SVG as a JPEG, a fifth of the bytes; one that is transparent as it is."""
    image = Image.open(io.BytesIO(base64.b64decode(found[1])))
    if image.mode == "RGBA" and np.asarray(image)[..., 3].min() < 255:
        return found[0]
    buffer = io.BytesIO()
    image.convert("RGB").save(buffer, "JPEG", quality=JPEG_QUALITY)
    return f"data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode('ascii')}"


def _saved(figure: Figure, kind: str, **settings: Any) -> bytes:
    for text in figure.findobj(Text):
        text.set_parse_math(False)
    buffer = io.BytesIO()
    with report_style():
        if isinstance(figure.get_layout_engine(), ConstrainedLayoutEngine):
            # Places are those of a PNG, whose letters are wider than those of an SVG; finding them takes long.
            figure.draw_without_rendering()
            # "none" would make matplotlib draw each figure once more.
            figure.set_layout_engine(None)
        figure.savefig(buffer, format=kind, **settings)
    return buffer.getvalue()
