"""The figures of the substitution report."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from quantus_concepts.studies.charts import BAND, INK, PALETTE, WIDTH, new_axes, tidy
from quantus_concepts.studies.results import names, one, pick
from quantus_concepts.studies.substitution.names import LABELS, MODELS, RANDOM

COLOURS = {name: PALETTE[place % len(PALETTE)] for place, name in enumerate(MODELS)}
MARKERS = dict(zip(("", *LABELS), ("*", "o", "^", "s", "D"), strict=True))


def plane(frame: pd.DataFrame) -> Figure:
    """Draw every model at its S+ and S-, over where random directions lie."""
    fig, ax = new_axes(None, (WIDTH, 5.0))
    rows = pick(frame, item_kind="")
    control = _both(pick(rows, model=RANDOM))
    if len(control) == 2:
        (left, right), (low, high) = ([100 * each["low"], 100 * each["high"]] for each in control)
        ax.add_patch(Rectangle((left, low), right - left, high - low, color=BAND, zorder=1, label="95 % of random"))
    for (model, labels), group in rows[rows["model"] != RANDOM].groupby(["model", "labels"], sort=False):
        found = _both(group)
        if len(found) < 2:
            continue
        (x, y), spread = zip(*((100 * row["value"], _spread(row)) for row in found), strict=True)
        look: dict[str, Any] = {
            "color": COLOURS[model],
            "marker": MARKERS[labels],
            "markersize": 11 if not labels else 7,
        }
        name = f"{model}{f' ({labels})' if labels else ''}"
        ax.errorbar(x, y, spread[1], spread[0], linestyle="", capsize=2, elinewidth=0.9, zorder=4, label=name, **look)
    ax.set_xlim(-4, 104)
    ax.set_ylim(-4, 104)
    ax.set_xlabel("attribute put in is said to be there (S+, %)")
    ax.set_ylabel("attribute taken out is said to be gone (S−, %)")
    _legend(ax)
    return fig


def curve(frame: pd.DataFrame) -> Figure:
    """Draw S+ and S- over the correlation of attributes in training."""
    fig = Figure(figsize=(WIDTH + 1.5, 3.9), layout="constrained")
    axes = fig.subplots(1, 2, sharey=True)
    rows = pick(frame, item_kind="")
    several = rows.groupby(["model", "labels"])["correlation"].transform("nunique") > 1
    for ax, metric in zip(axes, ("S+", "S-"), strict=True):
        found = rows[several & (rows["metric"] == metric)].sort_values("correlation", kind="stable")
        random = pick(found, model=RANDOM)
        ax.fill_between(random["correlation"], 100 * random["low"], 100 * random["high"], color=BAND, linewidth=0)
        shown = [name for name in names(found, "model", MODELS) if name != RANDOM]
        for model, shift in zip(shown, np.linspace(-0.012, 0.012, len(shown)), strict=True):
            line = pick(found, model=model)
            spread = np.array([_spread(row) for _, row in line.iterrows()])[:, :, 0].T
            ax.errorbar(
                line["correlation"] + shift,
                100 * line["value"],
                spread,
                color=COLOURS[model],
                marker="o",
                markersize=5,
                capsize=2,
                label=model,
            )
        ax.set_title(metric.replace("-", "−"), fontsize=10)
        ax.set_ylim(-4, 104)
        ax.set_xlabel("correlation of attributes in training")
        tidy(ax)
    axes[0].set_ylabel("%")
    _legend(axes[1])
    return fig


def _both(rows: pd.DataFrame) -> list[pd.Series]:
    return [row for metric in ("S+", "S-") if (row := one(rows, metric=metric)) is not None]


def _spread(row: pd.Series) -> list[list[float]]:
    if np.isnan(row["low"]):
        return [[0.0], [0.0]]
    return [[max(0.0, 100 * (row["value"] - row["low"]))], [max(0.0, 100 * (row["high"] - row["value"]))]]


def _legend(ax: Axes) -> None:
    ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False, fontsize=8, labelcolor=INK)
    tidy(ax)
