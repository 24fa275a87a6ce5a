"""Plot of a table of `score_discovered`."""

from __future__ import annotations

import math
from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from captum_concepts.pictures.gallery import TextFigure
from quantus_concepts.metrics.discovered import (
    AFTER_DELETION,
    COLUMNS,
    COMPONENTS,
    DROP,
    EXPLAINED,
    HALVES,
    KEPT,
    RANDOM_ACTIVATIONS,
    RANDOM_DIRECTIONS,
    RANDOM_ORDER,
    SEEDS,
)
from quantus_concepts.metrics.host.plotting import (
    CHANCE,
    CONTROL,
    SCORES,
    check_table,
    checked_axes,
    show_names_literally,
)

_COLOURS = {
    "": SCORES,
    RANDOM_DIRECTIONS: CHANCE,
    RANDOM_ACTIVATIONS: CONTROL,
    RANDOM_ORDER: "#7b5aa6",
    COMPONENTS: "#2f7d4f",
}
_MARKERS = {"": "o", RANDOM_DIRECTIONS: "|", RANDOM_ACTIVATIONS: "|", COMPONENTS: "D"}
_SHIFTS = {"": 0.0, RANDOM_DIRECTIONS: 0.18, RANDOM_ACTIVATIONS: 0.34, COMPONENTS: -0.2}
_SUMMARY = (HALVES, SEEDS, EXPLAINED, KEPT)


def plot_discovered(table: pd.DataFrame, ax: Sequence[Axes] | np.ndarray | None = None) -> tuple[Figure, np.ndarray]:
    """Draw a table of `score_discovered`: the bank beside its baselines, and the two deletion curves.

    Parameters
    ----------
    table : DataFrame
        What `score_discovered` returned.
    ax : sequence of matplotlib Axes, optional
        Three; a new figure if None.

    Returns
    -------
    tuple
        Figure and its three axes. Nothing is shown or saved.

    Raises
    ------
    TypeError
        If `ax` holds something else than Axes.
    ValueError
        If `table` lacks a column or is empty, or there are too few axes.
    """
    check_table("table", table, COLUMNS, "score_discovered")
    if ax is None:
        _, ax = plt.subplots(
            1, 3, figsize=(12, 3.6), layout="constrained", FigureClass=TextFigure, width_ratios=(1.2, 1, 1)
        )
    axes = checked_axes(ax, 3, "panel")[:3]
    overall = table[table["item"] == ""]
    _draw_summary(axes[0], overall)
    for panel, metric in zip(axes[1:], (AFTER_DELETION, DROP), strict=True):
        _draw_curve(panel, overall[overall["metric"] == metric])
        panel.set_title(metric, fontsize="medium")
        panel.set_xlabel("concepts removed from each image")
    axes[1].set_ylim(-0.03, 1.03)
    axes[1].legend(frameon=False, fontsize="small")
    show_names_literally(axes[0].figure)
    return axes[0].figure, axes


def _draw_summary(panel: Axes, table: pd.DataFrame) -> None:
    for place, metric in enumerate(_SUMMARY):
        rows = table[table["metric"] == metric].set_index("baseline")
        if not np.isfinite(rows["value"].astype(float)).any():
            panel.text(0.5, place, "undefined", ha="center", va="center", color=CHANCE)
        for name, row in rows.iterrows():
            value, low, high = (float(row[column]) for column in ("value", "low", "high"))
            at = place + _SHIFTS[str(name)]
            label = (str(name) or "these concepts") if place == len(_SUMMARY) - 1 else None
            colour, marker = _COLOURS[str(name)], _MARKERS[str(name)]
            panel.plot(value, at, color=colour, marker=marker, linestyle="none", label=label)
            if math.isfinite(low):
                panel.hlines(at, low, high, color=colour, linewidth=4 if name else 1.5, alpha=0.5)
    panel.set_yticks(range(len(_SUMMARY)), _SUMMARY)
    panel.set_ylim(len(_SUMMARY) - 0.5, -0.5)
    panel.set_xlim(-0.03, 1.03)
    panel.legend(frameon=False, fontsize="small", loc="lower center", bbox_to_anchor=(0.4, 1.0), ncols=2)


def _draw_curve(panel: Axes, table: pd.DataFrame) -> None:
    for name, rows in table.groupby("baseline", sort=False):
        at = rows["l"].to_numpy(float)
        if not np.isfinite(at).all():
            panel.text(0.5, 0.5, "undefined", ha="center", va="center", transform=panel.transAxes, color=CHANCE)
            continue
        low, high = rows["low"].to_numpy(float), rows["high"].to_numpy(float)
        colour, label = _COLOURS[str(name)], str(name) or "highest values first"
        panel.fill_between(at, low, high, color=colour, alpha=0.15, linewidth=0)
        panel.plot(at, rows["value"].to_numpy(float), color=colour, marker="o", markersize=3, label=label)
