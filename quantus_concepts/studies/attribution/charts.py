"""Charts of this study. Each draws on the axes given or on new ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, NullFormatter

from quantus_concepts.studies._kit.charts import INK, WIDTH, legend_above, new_axes, note, tidy
from quantus_concepts.studies._kit.findings import number
from quantus_concepts.studies._kit.results import names, one, pick
from quantus_concepts.studies.attribution.tables import CONTROLS, WRITERS, defined, methods_of, whole

#: Okabe and Ito's colours, which colour-blind readers tell apart.
METHOD, MASK, CONTROL = "#0072B2", "#E69F00", "#9A9A9A"
#: Reds, as the paper's bars of Figure 5, from dark to light.
REDS = ("#8C2D04", "#CC4C02", "#EC7014", "#FEB24C")
#: Numbers further apart than this are drawn on a logarithmic scale.
LOG_FROM = 20.0
#: Panels in a row of the relative figure.
PANELS = 4


def plot_mcs(frame: pd.DataFrame, ax: Axes | None = None) -> tuple[Figure, Axes]:
    """Draw MCS as bars, each with its random mask's below it, as the paper's Figure 5."""
    chosen = pick(frame, metric="MCS")
    methods = methods_of(chosen)
    fig, ax = new_axes(ax, (WIDTH, 1.3 + 0.44 * len(methods)))
    ax.axvline(0, color=INK, linewidth=0.9, zorder=4)
    for place, method in enumerate(methods):
        _bar(ax, place - 0.17, one(chosen, method=method), _colour(method), 0.34)
        _bar(ax, place + 0.2, one(frame, metric="MCS baseline", method=method), MASK, 0.26, label=False)
    _name_rows(ax, methods)
    ax.set_xlabel("MCS: attribution of the object, model that needs it minus model that ignores it")
    drawn = {"the object's mask": METHOD, "a random mask of its size": MASK}
    drawn |= {"control": CONTROL} if any(method in CONTROLS for method in methods) else {}
    legend_above(ax, [Patch(color=colour) for colour in drawn.values()], list(drawn), len(drawn))
    return fig, ax


def plot_idr(frame: pd.DataFrame, ax: Axes | None = None) -> tuple[Figure, Axes]:
    """Draw IDR as bars with chance at 50 %, as the paper's Figure 9a."""
    fig, ax = _bars(frame, "IDR", ax, scale=100.0)
    ax.set_xlim(0, 108)
    line = ax.axvline(50, color=INK, linewidth=1.3, linestyle="--", zorder=4)
    legend_above(ax, [line], ["random: 50 %"], 1)
    ax.set_xlabel("IDR: images in which the unimportant object gets less than what it covers (%)")
    return fig, ax


def plot_iir(frame: pd.DataFrame, ax: Axes | None = None, *, threshold: float = 0.1) -> tuple[Figure, Axes]:
    """Draw IIR as bars, as the paper's Figure 9b."""
    fig, ax = _bars(frame, "IIR", ax, scale=100.0)
    ax.set_xlim(0, 108)
    ax.set_xlabel(f"IIR: images where the patch changes the attribution by less than {threshold:.0%} (%)")
    return fig, ax


def plot_perturbation(frame: pd.DataFrame, ax: Axes | None = None) -> tuple[Figure, Axes]:
    """Draw the average perturbation as bars, as the paper's Figure 10; lower is better."""
    values = [row["value"] for row in defined(frame, "perturbation") if row["value"] > 0]
    logarithmic = bool(values) and max(values) > LOG_FROM * min(values)
    fig, ax = _bars(frame, "perturbation", ax, dots=logarithmic)
    if logarithmic:
        ax.set_xscale("log")
        ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        ax.xaxis.set_minor_formatter(NullFormatter())
    else:
        ax.set_xlim(left=0)
    ax.margins(x=0.12)
    scale = ", logarithmic" if logarithmic else ""
    ax.set_xlabel(f"average perturbation by a meaningless patch (lower is better{scale})")
    return fig, ax


def plot_correlation(frame: pd.DataFrame, ax: Axes | None = None) -> tuple[Figure, Axes]:
    """Draw the correlation of relative MCS with the accuracy drop, as the paper's Figure 7, bottom."""
    fig, ax = _bars(frame, "correlation", ax)
    ax.axvline(0, color=INK, linewidth=0.9, zorder=4)
    lows = [row["value"] if math.isnan(row["low"]) else row["low"] for row in defined(frame, "correlation")]
    lowest = min([0.0, *lows])
    ax.set_xlim(lowest - 0.2 if lowest < 0 else 0, 1.15)
    ax.set_xlabel("Pearson correlation of relative MCS with the accuracy drop (1 is best)")
    return fig, ax


def plot_robustness(frame: pd.DataFrame, ax: Axes | None = None) -> tuple[Figure, Axes]:
    """Draw MCS as trained, and below it under every change of size and place, as the paper's Figure 5."""
    chosen = pick(frame, metric="robustness")
    methods, variants = methods_of(chosen), names(chosen, "variant")
    fig, ax = new_axes(ax, (WIDTH, 1.3 + 0.72 * len(methods)))
    ax.axvline(0, color=INK, linewidth=0.9, zorder=4)
    height = 0.8 / (1 + len(variants))
    for place, method in enumerate(methods):
        rows = [one(frame, metric="MCS", method=method)]
        rows += [one(chosen, method=method, variant=variant) for variant in variants]
        for index, (row, colour) in enumerate(zip(rows, (METHOD, *REDS), strict=False)):
            _bar(ax, place - 0.4 + (index + 0.5) * height, row, colour, height, label=False)
    _name_rows(ax, methods)
    ax.set_xlabel("MCS by size and place of the object")
    labels = ["as trained", *variants]
    legend_above(ax, [Patch(color=colour) for colour in (METHOD, *REDS)][: len(labels)], labels, len(labels))
    return fig, ax


def plot_relative(frame: pd.DataFrame, drops: pd.DataFrame) -> tuple[Figure, np.ndarray]:
    """Draw relative MCS over commonality, one panel a method, with the accuracy drop, as the paper's Figure 7, top."""
    chosen = pick(frame, metric="relative MCS")
    methods = methods_of(chosen)
    columns = max(1, min(PANELS, len(methods)))
    rows = max(1, math.ceil(len(methods) / columns))
    fig = Figure(figsize=(max(4.0, 2.5 * columns), 0.7 + 1.9 * rows), layout="constrained")
    axes: np.ndarray = fig.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    limits, drop_limits = _limits(chosen, drops)
    for index, panel in enumerate(axes.flat):
        if index >= len(methods):
            panel.set_visible(False)
            continue
        _curve(panel, pick(chosen, method=methods[index]), _colour(methods[index]), limits)
        if len(drops):
            _drop(panel, drops, drop_limits, labelled=index % columns == columns - 1)
        found = one(frame, metric="correlation", method=methods[index])
        followed = "" if found is None else f", r = {number(found['value'])}"
        panel.set_title(f"{methods[index]}{followed}", fontsize=9.5)
        if index // columns == rows - 1:
            panel.set_xlabel("commonality k", fontsize=9)
        if index % columns == 0:
            panel.set_ylabel("relative MCS", fontsize=9)
        tidy(panel)
    handles = [Line2D([], [], color=METHOD, marker="o", linewidth=1.8)]
    labels = ["relative MCS (left axis)"]
    if len(drops):
        handles.append(Line2D([], [], color=INK, linestyle="--", linewidth=1.5))
        labels.append("accuracy lost without the object (right axis)")
    fig.legend(handles, labels, loc="outside upper center", ncols=2, frameon=False, fontsize=9)
    return fig, axes


Limits = tuple[float, float]


def _limits(chosen: pd.DataFrame, drops: pd.DataFrame) -> tuple[Limits, Limits]:
    """Return the limits of both scales: their zeros at one height, each as large as its numbers need."""
    scores = chosen[["value", "low", "high"]].to_numpy().ravel()
    scores, lost = scores[~np.isnan(scores)], drops["value"].dropna().to_numpy()
    size = max([1e-6, *abs(scores)])
    # Drops of nothing are shown on a scale of one percent.
    drop_size = max([0.01, *abs(lost)])
    shares = [*(scores / size), *(lost / drop_size)]
    low, high = min([0.0, *shares]) - 0.06, max([0.0, *shares]) + 0.06
    return (low * size, high * size), (low * drop_size, high * drop_size)


def _curve(panel: Axes, rows: pd.DataFrame, colour: str, limits: Limits) -> None:
    rows = rows.sort_values("k")
    panel.axhline(0, color="#888888", linewidth=0.8, zorder=1)
    panel.fill_between(rows["k"], rows["low"], rows["high"], color=colour, alpha=0.22, linewidth=0, zorder=2)
    panel.plot(rows["k"], rows["value"], color=colour, marker="o", markersize=3.6, linewidth=1.8, zorder=4)
    panel.set_ylim(*limits)
    panel.tick_params(labelsize=8)


def _drop(panel: Axes, drops: pd.DataFrame, limits: Limits, *, labelled: bool) -> None:
    other = panel.twinx()
    other.plot(drops["k"], drops["value"], color=INK, linestyle="--", linewidth=1.5)
    other.set_ylim(*limits)
    for side in ("top", "left", "bottom"):
        other.spines[side].set_visible(False)
    other.spines["right"].set_color("#888888")
    other.tick_params(labelsize=8, colors=INK, labelright=labelled, length=3.5 if labelled else 0)
    if labelled:
        other.set_ylabel("accuracy drop", fontsize=9, color=INK)


def _bars(frame: pd.DataFrame, metric: str, ax: Axes | None, **look: Any) -> tuple[Figure, Axes]:
    chosen = pick(frame, metric=metric)
    methods = methods_of(chosen)
    fig, ax = new_axes(ax, (WIDTH, 0.95 + 0.34 * len(methods)))
    for place, method in enumerate(methods):
        _bar(ax, place, one(chosen, method=method), _colour(method), 0.66, **look)
    _name_rows(ax, methods)
    return fig, ax


def _bar(
    ax: Axes,
    place: float,
    row: pd.Series | None,
    colour: str,
    height: float,
    *,
    scale: float = 1.0,
    label: bool = True,
    dots: bool = False,
) -> None:
    """Draw one number with its interval, and write it behind."""
    if row is None:
        if label:
            note(ax, "not defined", (0, place), (4, 0), va="center")
        return
    value = scale * row["value"]
    if dots:
        ax.plot(value, place, marker="o", markersize=7, color=colour, zorder=4)
    else:
        ax.barh(place, value, height, color=colour, zorder=2)
    ends = [value, *(scale * row[end] for end in ("low", "high") if not math.isnan(row[end]))]
    if len(ends) == 3:
        spread = [[max(0.0, value - ends[1])], [max(0.0, ends[2] - value)]]
        ax.errorbar(value, place, xerr=spread, color=INK, capsize=2.2, linewidth=1, zorder=3)
    if label:
        write = whole if row["metric"] in ("IDR", "IIR") else WRITERS[row["metric"]]
        # Behind the far end, on the side the bar points to.
        end, offset, side = (min(ends), -4, "right") if value < 0 else (max(ends), 4, "left")
        note(ax, write(row["value"]), (end, place), (offset, 0), ha=side, va="center")


def _name_rows(ax: Axes, methods: Sequence[str]) -> None:
    """Write methods at the rows of bars, controls in grey."""
    ax.set_yticks(range(len(methods)), methods, fontsize=9.5)
    ax.set_ylim(len(methods) - 0.4, -0.6)
    ax.margins(x=0.12)
    tidy(ax, grid="x")
    ax.tick_params(axis="y", length=0)
    for tick, method in zip(ax.get_yticklabels(), methods, strict=True):
        tick.set_color("#6B6B6B" if method in CONTROLS else INK)


def _colour(method: str) -> str:
    return CONTROL if method in CONTROLS else METHOD
