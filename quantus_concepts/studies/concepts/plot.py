"""Figures of a benchmark. Each function draws on the axes given or on new ones; none shows or saves them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from quantus_concepts.studies.charts import INK, new_axes, tidy
from quantus_concepts.studies.concepts.palette import COLOURS, CONTROL, EXPLANATION_LABELS, MARKERS, colour_of
from quantus_concepts.studies.concepts.plot_cgim import plot_cgim_histograms, plot_ranked_items, ranked_items
from quantus_concepts.studies.concepts.results import (
    EXPLANATIONS,
    GAUSSIAN,
    OTHER_IMAGE,
    POST_HOC,
    RANDOM,
    Record,
    models_of,
    over_seeds,
)
from quantus_concepts.studies.records import find, select


def plot_cem(
    records: Sequence[Record],
    ax: Axes | None = None,
    *,
    set_: str = "correct",
    top_l: int = 1,
    by_class: bool = False,
) -> tuple[Figure, Axes]:
    """Draw CEM as bars: one group a ranking, one bar a model, with 95 % intervals, over what random banks score."""
    fig, ax = new_axes(ax, (7.6, 4.0))
    chosen = over_seeds(select(records, metric="CEM", set=set_, l=top_l))
    models = [model for model in models_of(chosen) if model != RANDOM]
    for place, explanation in enumerate(EXPLANATIONS):
        _control(ax, find(chosen, model=RANDOM, explanation=explanation), place)
    width = 0.8 / max(1, len(models))
    for index, model in enumerate(models):
        found = [find(chosen, model=model, explanation=name) for name in EXPLANATIONS]
        places = np.arange(len(found)) + (index - (len(models) - 1) / 2) * width
        for place, record in zip(places, found, strict=True):
            if record is not None and not math.isnan(record.value):
                _bar(ax, place, record, 0.9 * width)
    images = "correctly classified images" if set_ == "correct" else "images"
    ax.set_xticks(range(len(EXPLANATIONS)), [f"by {label}" for label in EXPLANATION_LABELS.values()])
    top = "top concept" if top_l == 1 else f"top {top_l} concepts"
    ax.set_ylabel(f"{top} {'of its class' if by_class else 'present'}\n(CEM, % of {images})")
    ax.set_ylim(0, 108)
    ax.set_yticks(range(0, 101, 20))
    handles = [Line2D([], [], color=colour_of(model), linewidth=7, solid_capstyle="butt") for model in models]
    labels = list(models)
    if find(chosen, model=RANDOM):
        handles.append(Line2D([], [], color=CONTROL, linewidth=7, solid_capstyle="butt"))
        labels.append("95 % of random banks (— mean, -- 97.5 %)")
    ax.legend(
        handles,
        labels,
        loc="lower center",
        bbox_to_anchor=(0.5, 1.0),
        ncols=2 if len(labels) > 3 else len(labels),
        frameon=False,
        fontsize=9,
    )
    tidy(ax)
    return fig, ax


def _control(ax: Axes, record: Record | None, place: float) -> None:
    """Draw what 95 % of the random banks score as a band over one group of bars, and their mean as a line."""
    if record is not None and not math.isnan(record.value):
        ends = (place - 0.46, place + 0.46)
        ax.fill_between(ends, 100 * record.low, 100 * record.high, color=CONTROL, linewidth=0, zorder=1)
        # On top of the bars too, with white beneath, so that both lines show on any of them.
        for height, style in ((record.value, "-"), (record.high, (0, (3, 2)))):
            ax.plot(ends, [100 * height] * 2, color="white", linewidth=3, zorder=4, solid_capstyle="butt")
            ax.plot(ends, [100 * height] * 2, color=INK, linewidth=1.4, linestyle=style, zorder=5)


def _bar(ax: Axes, place: float, record: Record, width: float) -> None:
    ax.bar(place, 100 * record.value, width, color=colour_of(record.model), zorder=2)
    top = 100 * record.value
    if not math.isnan(record.low):
        spread = [[100 * (record.value - record.low)], [100 * (record.high - record.value)]]
        ax.errorbar(place, 100 * record.value, spread, color=INK, capsize=2.5, linewidth=1.1, zorder=3)
        top = 100 * record.high
    ax.annotate(
        f"{100 * record.value:.0f}",
        (place, top),
        (0, 2.5),
        textcoords="offset points",
        ha="center",
        va="bottom",
        fontsize=8.5,
        color=INK,
    )


def plot_clm(
    records: Sequence[Record], ax: Axes | None = None, *, explanation: str = "contribution", top_l: int = 1
) -> tuple[Figure, Axes]:
    """Draw CLM over the size of the region: a line a model, the random control a band."""
    fig, ax = new_axes(ax, (7.6, 4.6))
    chosen = over_seeds(select(records, metric="CLM", explanation=explanation, l=top_l, set="all"))
    alphas = sorted({record.alpha for record in chosen if record.alpha is not None})
    names = [*(model for model in models_of(chosen) if model != RANDOM), OTHER_IMAGE, GAUSSIAN]
    # Shifted sideways a little, or intervals of equal numbers hide each other.
    shifts = np.linspace(-0.8, 0.8, len(names))
    for name, shift in zip(names, shifts, strict=True):
        found = [find(chosen, model=name, alpha=alpha) for alpha in alphas]
        points = [record for record in found if record is not None and not math.isnan(record.value)]
        if points:
            _line(ax, points, float(shift))
    regions = [100 * alpha / 12 for alpha in alphas]
    random = [record for alpha in alphas if (record := find(chosen, model=RANDOM, alpha=alpha)) is not None]
    if random:
        x = [100 * (record.alpha or 0) / 12 for record in random]
        low, mean, high = ([100 * getattr(record, end) for record in random] for end in ("low", "value", "high"))
        ax.fill_between(x, low, high, color=CONTROL, alpha=0.6, linewidth=0, zorder=1, label="95 % of random banks")
        ax.plot(x, mean, color=COLOURS[RANDOM], marker=MARKERS[RANDOM], markersize=5, zorder=2, label="their mean")
    ax.plot(
        [0, 100],
        [0, 100],
        color=INK,
        linestyle=":",
        linewidth=1.3,
        zorder=1,
        label="chance, a point anywhere",
    )
    ax.set_xlim(0, max([*regions, 10.0]) + 4)
    ax.set_ylim(0, 103)
    ax.set_xticks(regions, [f"{region:.0f} %\nα = {alpha:g}" for region, alpha in zip(regions, alphas, strict=True)])
    ax.set_xlabel("strongest region of the map (% of the image)")
    concepts = "top concept" if top_l == 1 else f"top {top_l} concepts"
    ax.set_ylabel(f"region contains the part of the {concepts}\n(CLM, % of cases)")
    ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False, fontsize=9)
    tidy(ax)
    return fig, ax


def _line(ax: Axes, points: list[Record], shift: float) -> None:
    name = points[0].model
    baseline = name in (OTHER_IMAGE, GAUSSIAN)
    values = 100 * np.array([record.value for record in points])
    ends = 100 * np.array([[record.low for record in points], [record.high for record in points]])
    spread = np.nan_to_num(np.abs(ends - values))
    label = f"baseline: {name}" if baseline else name
    ax.errorbar(
        [100 * (record.alpha or 0) / 12 + shift for record in points],
        values,
        spread,
        label=label,
        color=colour_of(name),
        marker=MARKERS.get(name, "o"),
        markersize=6.5,
        linestyle="--" if baseline else "-",
        linewidth=2.6 if name == POST_HOC else 1.7,
        capsize=2.5,
        elinewidth=1.1,
        zorder=4 if name == POST_HOC else 3,
    )


def default_figures(records: Sequence[Record], by_class: bool = False) -> dict[str, Figure]:
    """Draw every figure there are records for."""
    figures: dict[str, Figure] = {}
    if select(records, metric="CEM", l=1):
        figures["cem"] = plot_cem(records, by_class=by_class)[0]
    if select(records, metric="CLM", l=1):
        figures["clm"] = plot_clm(records)[0]
    if select(records, metric="CGIM"):
        figures["cgim_histograms"] = plot_cgim_histograms(records)[0]
    for kind, name in (("concept", "concepts"), ("class", "classes")):
        if ranked_items(records, item_kind=kind)[0]:
            figures[name] = plot_ranked_items(records, item_kind=kind)[0]
    return figures
