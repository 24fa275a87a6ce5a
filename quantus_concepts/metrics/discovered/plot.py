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
from quantus_concepts.metrics.discovered.rows import (
    AFTER_DELETION,
    BEST,
    COMPONENTS,
    DISCOVERED_COLUMNS,
    EXPLAINED,
    HALVES,
    KEPT,
    RANDOM_ACTIVATIONS,
    RANDOM_DIRECTIONS,
    RANDOM_ORDER,
    SAME_VARIANCE,
    SEEDS,
    SHARE,
    SURROGATE_EMD,
)
from quantus_concepts.metrics.discovered.rule import ABOVE, BELOW, verdicts
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
    SAME_VARIANCE: "#c9a227",
    RANDOM_ORDER: "#7b5aa6",
    COMPONENTS: "#2f7d4f",
}
_MARKERS = {"": "o", RANDOM_DIRECTIONS: "|", RANDOM_ACTIVATIONS: "|", COMPONENTS: "D"}
_SHIFTS = {"": 0.0, RANDOM_DIRECTIONS: 0.18, RANDOM_ACTIVATIONS: 0.34, COMPONENTS: -0.2}
_SUMMARY = (HALVES, SEEDS, EXPLAINED, KEPT, SURROGATE_EMD)
#: Text that stands in place of numbers that are not defined.
_UNDEFINED = "undefined"


def plot_discovered(table: pd.DataFrame, ax: Sequence[Axes] | np.ndarray | None = None) -> tuple[Figure, np.ndarray]:
    """Draw a table of `score_discovered`: the bank beside its baselines, its concepts, and the two deletion curves.

    Points are filled where a verdict shows a difference from the random banks. Concepts that are worth keeping
    (`quantus_concepts.metrics.discovered.verdicts`) are filled and named.

    Parameters
    ----------
    table : DataFrame
        What `score_discovered` returned.
    ax : sequence of matplotlib Axes, optional
        Four; a new figure if None.

    Returns
    -------
    tuple
        Figure and its four axes. Nothing is shown or saved.

    Raises
    ------
    TypeError
        If `ax` holds something else than Axes.
    ValueError
        If `table` lacks a column or is empty, or there are too few axes.
    """
    check_table("table", table, DISCOVERED_COLUMNS, "score_discovered")
    if ax is None:
        _, grid = plt.subplots(2, 2, figsize=(11, 7.5), layout="constrained", FigureClass=TextFigure)
        ax = grid.ravel()
    axes = checked_axes(ax, 4, "panel")[:4]
    overall = table[table["item"] == ""]
    _draw_summary(axes[0], overall)
    _draw_concepts(axes[1], table)
    for panel, metric in zip(axes[2:], (AFTER_DELETION, SHARE), strict=True):
        _draw_curve(panel, overall[overall["metric"] == metric])
        panel.set_title(metric, fontsize="medium")
        panel.set_xlabel("concepts removed from each image")
    axes[2].set_ylim(-0.03, 1.03)
    axes[2].legend(framealpha=0.8, edgecolor="none", fontsize="small")
    show_names_literally(axes[0].figure)
    return axes[0].figure, axes


def _draw_summary(panel: Axes, table: pd.DataFrame) -> None:
    for place, metric in enumerate(_SUMMARY):
        rows = table[table["metric"] == metric].set_index("baseline")
        if not np.isfinite(rows["value"].astype(float)).any():
            panel.text(0.5, place, _UNDEFINED, ha="center", va="center", color=CHANCE)
        for name, row in rows.iterrows():
            value, low, high = (float(row[column]) for column in ("value", "low", "high"))
            at = place + _SHIFTS[str(name)]
            label = (str(name) or "these concepts") if metric == KEPT else None
            colour, marker = _COLOURS[str(name)], _MARKERS[str(name)]
            face = colour if name or row["verdict"] in (ABOVE, BELOW) else "white"
            panel.plot(
                value, at, color=colour, marker=marker, markerfacecolor=face, linestyle="none", label=label, zorder=3
            )
            if math.isfinite(low):
                panel.hlines(at, low, high, color=colour, linewidth=4 if name else 1.5, alpha=0.5)
    labels = [f"{metric}\n(lower is better)" if metric == SURROGATE_EMD else metric for metric in _SUMMARY]
    panel.set_yticks(range(len(_SUMMARY)), labels)
    panel.set_ylim(len(_SUMMARY) - 0.5, -0.5)
    panel.set_xlim(-0.03, 1.03)
    panel.legend(frameon=False, fontsize="small", loc="lower center", bbox_to_anchor=(0.4, 1.0), ncols=2)


def _draw_concepts(panel: Axes, table: pd.DataFrame) -> None:
    """Draw each concept at its stability and its share of the logit drop, and what the best random ones reach."""
    keep = verdicts(table)["keep"]
    for metric, draw_line in ((HALVES, panel.axvline), (SHARE, panel.axhline)):
        for _, row in table[(table["metric"] == metric) & (table["item"] == BEST)].iterrows():
            draw_line(row["high"], color=_COLOURS[row["baseline"]], linestyle="--", linewidth=1)
    own = table[(table["baseline"] == "") & (table["item"] != "")]
    stability, share = (own[own["metric"] == metric].set_index("item") for metric in (HALVES, SHARE))
    names = stability.index.intersection(share.index)
    for name in names:
        at, up = stability.loc[name], share.loc[name]
        panel.hlines(up["value"], at["low"], at["high"], color=SCORES, linewidth=1, alpha=0.5)
        panel.vlines(at["value"], up["low"], up["high"], color=SCORES, linewidth=1, alpha=0.5)
        face = SCORES if keep[name] else "white"
        panel.plot(at["value"], up["value"], "o", color=SCORES, markerfacecolor=face, zorder=3)
        if keep[name]:
            panel.annotate(
                name, (at["value"], up["value"]), xytext=(4, 4), textcoords="offset points", fontsize="small"
            )
    if not len(names):
        panel.text(0.5, 0.5, _UNDEFINED, ha="center", va="center", transform=panel.transAxes, color=CHANCE)
    panel.set_title(f"{keep.sum()} of {len(keep)} concepts are stable and used", fontsize="medium")
    panel.set_xlabel(f"{HALVES} (dashed: best random concept)")
    panel.set_ylabel(SHARE)


def _draw_curve(panel: Axes, table: pd.DataFrame) -> None:
    for name, rows in table.groupby("baseline", sort=False):
        at = rows["l"].to_numpy(float)
        if not np.isfinite(at).all():
            panel.text(0.5, 0.5, _UNDEFINED, ha="center", va="center", transform=panel.transAxes, color=CHANCE)
            continue
        low, high = rows["low"].to_numpy(float), rows["high"].to_numpy(float)
        colour, label = _COLOURS[str(name)], str(name) or "highest values first"
        panel.fill_between(at, low, high, color=colour, alpha=0.15, linewidth=0)
        panel.plot(at, rows["value"].to_numpy(float), color=colour, marker="o", markersize=3, label=label)
