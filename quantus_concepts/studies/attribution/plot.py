"""Figures of the attribution benchmark. Each draws on the axes given or on new ones; none shows or saves them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, NullFormatter

from quantus_concepts.studies.attribution.premises import CommonalityRow
from quantus_concepts.studies.attribution.results import CONTROLS, Record, methods_of
from quantus_concepts.studies.attribution.writing import WRITERS, correlation, whole
from quantus_concepts.studies.charts import INK, new_axes, tidy
from quantus_concepts.studies.records import find, select

#: Okabe and Ito's colours, which colour-blind readers tell apart.
METHOD, MASK, CONTROL = "#0072B2", "#E69F00", "#9A9A9A"
#: Numbers further apart than this are drawn on a logarithmic scale.
LOG_FROM = 20.0
#: Panels in a row of the relative figure.
PANELS = 4
WIDTH = 7.6


def plot_mcs(records: Sequence[Record], ax: Axes | None = None) -> tuple[Figure, Axes]:
    """Draw MCS as bars, each with its random mask's below it, as the paper's Figure 5."""
    chosen = select(records, metric="MCS")
    methods = methods_of(chosen)
    fig, ax = new_axes(ax, (WIDTH, 1.3 + 0.44 * len(methods)))
    zero_line(ax)
    for place, method in enumerate(methods):
        record = find(chosen, method=method)
        mask = find(records, metric="MCS baseline", method=method)
        if mask is None and record is not None and not math.isnan(record.reference):
            mask = Record(method, "MCS baseline", value=record.reference)
        if record is not None:
            draw_bar(ax, place - 0.17, record, _colour(method), 0.34)
        if mask is not None:
            draw_bar(ax, place + 0.2, mask, MASK, 0.26, label=False)
    name_rows(ax, methods)
    ax.set_xlabel("MCS: attribution of the object, model that needs it minus model that ignores it")
    handles = [Patch(color=METHOD), Patch(color=MASK)]
    labels = ["the object's mask", "a random mask of its size"]
    if any(method in CONTROLS for method in methods):
        handles.append(Patch(color=CONTROL))
        labels.append("control")
    legend(ax, handles, labels)
    return fig, ax


def plot_idr(records: Sequence[Record], ax: Axes | None = None) -> tuple[Figure, Axes]:
    """Draw IDR as bars with chance at 50 %, as the paper's Figure 9a."""
    fig, ax = _bars(records, "IDR", ax, scale=100.0)
    ax.set_xlim(0, 108)
    ax.axvline(50, color=INK, linewidth=1.3, linestyle="--", zorder=4)
    legend(ax, [Line2D([], [], color=INK, linewidth=1.3, linestyle="--")], ["random: 50 %"])
    ax.set_xlabel("IDR: images in which the unimportant object gets less than what it covers (%)")
    return fig, ax


def plot_iir(records: Sequence[Record], ax: Axes | None = None, *, threshold: float = 0.1) -> tuple[Figure, Axes]:
    """Draw IIR as bars, as the paper's Figure 9b."""
    fig, ax = _bars(records, "IIR", ax, scale=100.0)
    ax.set_xlim(0, 108)
    ax.set_xlabel(f"IIR: images where the patch changes the attribution by less than {threshold:.0%} (%)")
    return fig, ax


def plot_perturbation(records: Sequence[Record], ax: Axes | None = None) -> tuple[Figure, Axes]:
    """Draw the average perturbation as bars, as the paper's Figure 10; lower is better."""
    values = [record.value for record in select(records, metric="perturbation") if record.value > 0]
    logarithmic = bool(values) and max(values) > LOG_FROM * min(values)
    fig, ax = _bars(records, "perturbation", ax, dots=logarithmic)
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


def plot_correlation(records: Sequence[Record], ax: Axes | None = None) -> tuple[Figure, Axes]:
    """Draw the correlation of relative MCS with the accuracy drop, as the paper's Figure 7, bottom."""
    fig, ax = _bars(records, "correlation", ax)
    zero_line(ax)
    lowest = min([0.0, *(_low(record) for record in select(records, metric="correlation") if record.defined)])
    ax.set_xlim(lowest - 0.2 if lowest < 0 else 0, 1.15)
    ax.set_xlabel("Pearson correlation of relative MCS with the accuracy drop (1 is best)")
    return fig, ax


def plot_relative(
    records: Sequence[Record], commonality: Sequence[CommonalityRow] = (), ax: np.ndarray | None = None
) -> tuple[Figure, np.ndarray]:
    """Draw relative MCS over commonality, one panel a method, with the accuracy drop, as the paper's Figure 7, top."""
    chosen = select(records, metric="relative MCS")
    methods = methods_of(chosen)
    columns = max(1, min(PANELS, len(methods)))
    rows = max(1, math.ceil(len(methods) / columns))
    if ax is None:
        fig = Figure(figsize=(max(4.0, 2.5 * columns), 0.7 + 1.9 * rows), layout="constrained")
        axes: np.ndarray = fig.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    else:
        axes = np.asarray(ax)
        fig = axes.flat[0].figure
    if axes.size < len(methods):
        raise ValueError(f"Expected argument `ax` to hold {len(methods)} axes, one a method, but got {axes.size}.")
    limits, drop_limits = _limits(chosen, commonality)
    for index, panel in enumerate(axes.flat):
        if index >= len(methods):
            panel.set_visible(False)
            continue
        _curve(panel, chosen, methods[index], limits)
        if commonality:
            _drop(panel, commonality, drop_limits, labelled=index % columns == columns - 1)
        found = find(records, metric="correlation", method=methods[index])
        followed = f", r = {correlation(found.value)}" if found is not None and found.defined else ""
        panel.set_title(f"{methods[index]}{followed}", fontsize=9.5)
        if index // columns == rows - 1:
            panel.set_xlabel("commonality k", fontsize=9)
        if index % columns == 0:
            panel.set_ylabel("relative MCS", fontsize=9)
        tidy(panel)
    if ax is None and methods:
        handles = [Line2D([], [], color=METHOD, marker="o", linewidth=1.8)]
        labels = ["relative MCS (left axis)"]
        if commonality:
            handles.append(Line2D([], [], color=INK, linestyle="--", linewidth=1.5))
            labels.append("accuracy lost without the object (right axis)")
        fig.legend(handles, labels, loc="outside upper center", ncols=2, frameon=False, fontsize=9)
    return fig, axes


Limits = tuple[float, float]


def _limits(chosen: Sequence[Record], commonality: Sequence[CommonalityRow]) -> tuple[Limits, Limits]:
    """Return the limits of both scales: their zeros at one height, each as large as its numbers need."""
    scores = [end for record in chosen for end in (record.value, *record.ends) if not math.isnan(end)]
    drops = [row.drop for row in commonality if not math.isnan(row.drop)]
    size = max([1e-6, *(abs(score) for score in scores)])
    # Drops of nothing are shown on a scale of one percent.
    drop_size = max([0.01, *(abs(drop) for drop in drops)])
    shares = [score / size for score in scores] + [drop / drop_size for drop in drops]
    low, high = min([0.0, *shares]) - 0.06, max([0.0, *shares]) + 0.06
    return (low * size, high * size), (low * drop_size, high * drop_size)


def _curve(panel: Axes, chosen: Sequence[Record], method: str, limits: Limits) -> None:
    points = sorted((r for r in select(chosen, method=method) if r.k is not None), key=lambda r: r.k or 0.0)
    places = [record.k or 0.0 for record in points]
    colour = _colour(method)
    low, high = ([record.ends[end] for record in points] for end in (0, 1))
    panel.axhline(0, color="#888888", linewidth=0.8, zorder=1)
    panel.fill_between(places, low, high, color=colour, alpha=0.22, linewidth=0, zorder=2)
    panel.plot(places, [r.value for r in points], color=colour, marker="o", markersize=3.6, linewidth=1.8, zorder=4)
    panel.set_ylim(*limits)
    panel.tick_params(labelsize=8)


def _drop(panel: Axes, commonality: Sequence[CommonalityRow], limits: Limits, *, labelled: bool) -> None:
    ordered = sorted(commonality, key=lambda row: row.k)
    other = panel.twinx()
    other.plot([row.k for row in ordered], [row.drop for row in ordered], color=INK, linestyle="--", linewidth=1.5)
    other.set_ylim(*limits)
    for side in ("top", "left", "bottom"):
        other.spines[side].set_visible(False)
    other.spines["right"].set_color("#888888")
    other.tick_params(labelsize=8, colors=INK, labelright=labelled, length=3.5 if labelled else 0)
    if labelled:
        other.set_ylabel("accuracy drop", fontsize=9, color=INK)


def default_figures(
    records: Sequence[Record], commonality: Sequence[CommonalityRow] = (), *, threshold: float = 0.1
) -> dict[str, Figure]:
    """Draw every figure there are records for."""
    makers: dict[str, tuple[str, Callable[[], tuple[Figure, Any]]]] = {
        "mcs": ("MCS", lambda: plot_mcs(records)),
        "relative": ("relative MCS", lambda: plot_relative(records, commonality)),
        "correlation": ("correlation", lambda: plot_correlation(records)),
        "idr": ("IDR", lambda: plot_idr(records)),
        "iir": ("IIR", lambda: plot_iir(records, threshold=threshold)),
        "perturbation": ("perturbation", lambda: plot_perturbation(records)),
    }
    drawable = {record.metric for record in records if record.defined}
    return {name: draw()[0] for name, (metric, draw) in makers.items() if metric in drawable}


def _bars(
    records: Sequence[Record], metric: str, ax: Axes | None, *, scale: float = 1.0, dots: bool = False
) -> tuple[Figure, Axes]:
    chosen = select(records, metric=metric)
    methods = methods_of(chosen)
    fig, ax = new_axes(ax, (WIDTH, 0.95 + 0.34 * len(methods)))
    for place, method in enumerate(methods):
        record = find(chosen, method=method)
        if record is not None:
            draw_bar(ax, place, record, _colour(method), 0.66, scale=scale, dots=dots)
    name_rows(ax, methods)
    return fig, ax


def draw_bar(
    ax: Axes,
    place: float,
    record: Record,
    colour: str,
    height: float,
    *,
    scale: float = 1.0,
    label: bool = True,
    dots: bool = False,
) -> None:
    """Draw one number with its interval, and write it behind."""
    if not record.defined:
        ax.annotate("not defined", (0, place), (4, 0), textcoords="offset points", va="center", fontsize=8.5)
        return
    value = scale * record.value
    if dots:
        ax.plot(value, place, marker="o", markersize=7, color=colour, zorder=4)
    else:
        ax.barh(place, value, height, color=colour, zorder=2)
    ends = [value, *(scale * end for end in record.ends if not math.isnan(end))]
    if len(ends) == 3:
        spread = [[max(0.0, value - ends[1])], [max(0.0, ends[2] - value)]]
        ax.errorbar(value, place, xerr=spread, color=INK, capsize=2.2, linewidth=1, zorder=3)
    if label:
        write = whole if record.metric in ("IDR", "IIR") else WRITERS[record.metric]
        # Behind the far end, on the side the bar points to.
        left = value < 0
        ax.annotate(
            write(record.value),
            (min(ends) if left else max(ends), place),
            (-4 if left else 4, 0),
            textcoords="offset points",
            ha="right" if left else "left",
            va="center",
            fontsize=8.5,
            color=INK,
        )


def name_rows(ax: Axes, methods: Sequence[str]) -> None:
    """Write methods at the rows of bars, controls in grey."""
    ax.set_yticks(range(len(methods)), methods, fontsize=9.5)
    ax.set_ylim(len(methods) - 0.4, -0.6)
    ax.margins(x=0.12)
    tidy(ax, grid="x")
    ax.tick_params(axis="y", length=0)
    for tick, method in zip(ax.get_yticklabels(), methods, strict=True):
        tick.set_color("#6B6B6B" if method in CONTROLS else INK)


def legend(ax: Axes, handles: Sequence[Any], labels: Sequence[str]) -> None:
    """Put the legend above the axes, in one line."""
    ax.legend(
        list(handles),
        list(labels),
        loc="lower center",
        bbox_to_anchor=(0.5, 1.0),
        ncols=len(labels),
        frameon=False,
        fontsize=9,
    )


def zero_line(ax: Axes) -> None:
    """Draw where bars begin."""
    ax.axvline(0, color=INK, linewidth=0.9, zorder=4)


def _low(record: Record) -> float:
    return record.value if math.isnan(record.low) else record.low


def _colour(method: str) -> str:
    return CONTROL if method in CONTROLS else METHOD
