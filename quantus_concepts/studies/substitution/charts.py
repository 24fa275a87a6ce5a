"""The figures of the substitution report."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from quantus_concepts.studies._kit.charts import BAND, INK, PALETTE, WIDTH, legend_right, new_axes, tidy, whiskers
from quantus_concepts.studies._kit.results import names, pick
from quantus_concepts.studies.substitution.names import LABELS, MODELS, RANDOM, SAVED

# Random directions are a band.
_DRAWN = [name for name in MODELS if name not in (SAVED, RANDOM)]
COLOURS = dict(zip(_DRAWN, PALETTE, strict=True)) | {SAVED: INK}
MARKERS = dict(zip(("", *LABELS), ("*", "o", "^", "s", "D"), strict=True))


def plane(frame: pd.DataFrame) -> Figure:
    """Draw every model at its S+ and S-, over where random directions lie."""
    fig, ax = new_axes(None, (WIDTH, 5.0))
    for (model, labels), rows in pick(frame, item_kind="").groupby(["model", "labels"], sort=False):
        both = rows.set_index("metric").reindex(["S+", "S-"])
        if both["value"].isna().any():
            continue
        if model == RANDOM:
            (left, right), (low, high) = 100 * both[["low", "high"]].to_numpy(dtype=np.float64)
            ax.add_patch(Rectangle((left, low), right - left, high - low, color=BAND, zorder=1, label="95 % of random"))
            continue
        (x, y), (across, up) = 100 * both["value"], whiskers(both, 100).T[:, :, None]
        look: dict[str, Any] = {"color": COLOURS[model], "marker": MARKERS[labels], "markersize": 7 if labels else 11}
        name = f"{model} ({labels})" if labels else model
        ax.errorbar(x, y, up, across, linestyle="", capsize=2, elinewidth=0.9, zorder=4, label=name, **look)
    ax.set_xlim(-4, 104)
    ax.set_ylim(-4, 104)
    ax.set_xlabel("attribute put in is said to be there (S+, %)")
    ax.set_ylabel("attribute taken out is said to be gone (S−, %)")
    legend_right(ax, 8)
    tidy(ax)
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
            look: dict[str, Any] = {"color": COLOURS[model], "marker": "o", "markersize": 5, "capsize": 2}
            at = line["correlation"] + shift
            ax.errorbar(at, 100 * line["value"], whiskers(line, 100), label=model, **look)
        ax.set_title(metric.replace("-", "−"), fontsize=10)
        ax.set_ylim(-4, 104)
        ax.set_xlabel("correlation of attributes in training")
        tidy(ax)
    axes[0].set_ylabel("%")
    legend_right(axes[1], 8)
    return fig
