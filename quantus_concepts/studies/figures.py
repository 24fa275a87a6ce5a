"""What the figures of all benchmarks share: axes, their look, and how they are saved."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text

from quantus_concepts.studies.output import OutputFolder

#: Dots per inch of a figure: twice the size it is shown at, so that it is sharp.
DPI = 170
INK = "#333333"


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


def save_figures(folder: OutputFolder, figures: Mapping[str, Figure]) -> list[Path]:
    """Save figures as PNG files under ``figures/``."""
    return [folder.write_bytes(f"figures/{name}.png", _png(figure)) for name, figure in figures.items()]


def png_base64(figure: Figure | bytes) -> str:
    """Return a figure as a PNG in base64, as a page embeds it."""
    return base64.b64encode(figure if isinstance(figure, bytes) else _png(figure)).decode("ascii")


def _png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    # A `$` in the name of a class or concept is no formula, here nor in the ticks that drawing makes.
    with mpl.rc_context({"text.parse_math": False}):
        for text in figure.findobj(Text):
            text.set_parse_math(False)
        figure.savefig(buffer, format="png", dpi=DPI, facecolor="white")
    return buffer.getvalue()
