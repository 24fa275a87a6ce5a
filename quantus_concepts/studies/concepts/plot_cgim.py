"""Figures of CGIM: histograms, and the best and worst concepts and classes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from quantus_concepts.studies.charts import INK, new_axes, tidy
from quantus_concepts.studies.concepts.controls import control_of
from quantus_concepts.studies.concepts.palette import CONTROL, EXPLANATION_LABELS, colour_of
from quantus_concepts.studies.concepts.results import (
    EXPLANATIONS,
    POST_HOC,
    RANDOM,
    TRADITIONAL,
    Record,
    models_of,
    over_seeds,
)
from quantus_concepts.studies.records import find, select


def plot_cgim_histograms(
    records: Sequence[Record],
    ax: np.ndarray | None = None,
    *,
    models: Sequence[str] = (POST_HOC, TRADITIONAL),
) -> tuple[Figure, np.ndarray]:
    """Draw the histograms of CGIM, as the paper's Figure 2: classes left, concepts right, types 1 to 3."""
    # The band is where the means of random banks lie: nothing is held against 0, which random directions exceed.
    if ax is None:
        fig = Figure(figsize=(8.2, 7.4), layout="constrained")
        axes: np.ndarray = fig.subplots(3, 2, sharex=True)
    else:
        axes = np.asarray(ax)
        if axes.shape != (3, 2):
            raise ValueError(f"Expected argument `ax` to have shape (3, 2) but got {axes.shape}.")
        fig = axes[0, 0].figure
    chosen = over_seeds(record for record in select(records, metric="CGIM") if record.item)
    means = over_seeds(record for record in select(records, metric="CGIM", item="", model=RANDOM))
    present = [model for model in models if model in models_of(chosen)]
    bins = np.linspace(-1, 1, 21).tolist()
    for row, explanation in enumerate(EXPLANATIONS):
        for column, kind in enumerate(("class", "concept")):
            panel: Axes = axes[row, column]
            for order, model in enumerate(present):
                found = select(chosen, model=model, explanation=explanation, item_kind=kind)
                _histogram(panel, found, model, bins, filled=order == 0)
            control = find(means, model=RANDOM, explanation=explanation, item_kind=kind)
            if control is not None and not math.isnan(control.value):
                panel.axvspan(control.low, control.high, color=CONTROL, alpha=0.75, linewidth=0, zorder=1)
            panel.set_xlim(-1.02, 1.02)
            panel.set_xticks([-1, -0.5, 0, 0.5, 1])
            kinds = "classes" if kind == "class" else "concepts"
            panel.set_title(f"CGIM{'₁₂₃'[row]} of {kinds}, by {EXPLANATION_LABELS[explanation]}", fontsize=10)
            panel.set_ylabel(f"number of {kinds}")
            panel.yaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
            panel.margins(y=0.25)
            if row == 2:
                panel.set_xlabel("cosine with the truth (1 is best)")
            tidy(panel)
    handles = [
        Line2D([], [], color=colour_of(model), linewidth=8 if order == 0 else 2, alpha=0.8 if order == 0 else 1)
        for order, model in enumerate(present)
    ]
    if ax is None and handles:
        labels = [f"{model} (▾ mean)" for model in present]
        if means:
            handles.append(Line2D([], [], color=CONTROL, linewidth=8))
            labels.append("means of 95 % of random banks")
        fig.legend(handles, labels, loc="outside upper center", ncols=len(handles), frameon=False)
    return fig, axes


def _histogram(panel: Axes, found: list[Record], model: str, bins: list[float], *, filled: bool) -> None:
    values = np.array([record.value for record in found])
    values = values[~np.isnan(values)]
    if not values.size:
        return
    colour = colour_of(model)
    if filled:
        panel.hist(values, bins, color=colour, alpha=0.8, edgecolor="white", linewidth=0.6, zorder=2)
    else:
        panel.hist(values, bins, color=colour, histtype="step", linewidth=1.9, zorder=3)
    top = panel.get_xaxis_transform()
    panel.plot(values.mean(), 0.95, marker="v", markersize=7, color=colour, transform=top, zorder=5, clip_on=False)


def plot_ranked_items(
    records: Sequence[Record],
    ax: Axes | None = None,
    *,
    item_kind: str = "concept",
    explanation: str = "contribution",
    model: str = POST_HOC,
    count: int = 8,
) -> tuple[Figure, Axes]:
    """Draw the best and the worst concepts or classes by CGIM as points over what random banks score."""
    best, worst = ranked_items(records, item_kind=item_kind, explanation=explanation, model=model, count=count)
    gap = 1 if best and worst else 0
    fig, ax = new_axes(ax, (7.6, 0.9 + 0.29 * (len(best) + len(worst) + gap)))
    rows = [*enumerate(best), *enumerate(worst, start=len(best) + gap)]
    controls = over_seeds(select(records, metric="CGIM", model=RANDOM, explanation=explanation, item_kind=item_kind))
    for place, record in rows:
        control = control_of(controls, record)
        if control is not None:
            ax.fill_betweenx(
                (place - 0.45, place + 0.45), control.low, control.high, color=CONTROL, linewidth=0, zorder=1
            )
        # A point, not a bar: what it is held against is the band, not 0.
        ax.plot(record.value, place, "o", color=colour_of(model), markersize=7, zorder=5)
        if not math.isnan(record.low):
            spread = [[record.value - record.low], [record.high - record.value]]
            ax.errorbar(record.value, place, xerr=spread, color=INK, capsize=2, linewidth=1, zorder=4)
        known = [control.high] if control is not None else []
        ends = [end for end in (record.value, record.high, *known) if not math.isnan(end)]
        ax.annotate(
            f"{record.value:.2f}".replace("-", "−"),
            (max(ends), place),
            (4, 0),
            textcoords="offset points",
            va="center",
            fontsize=8.5,
        )
    ax.set_yticks([place for place, _ in rows], [record.item for _, record in rows], fontsize=9)
    ax.invert_yaxis()
    if gap:
        ax.axhline(len(best), color="#BBBBBB", linewidth=0.9, linestyle=(0, (4, 4)))
    lowest = min([0.0, *(_low_end(record) for record in [*controls, *(record for _, record in rows)] if record.item)])
    ax.set_xlim(max(-1.0, lowest - 0.05), 1.15)
    kind = "₁₂₃"[list(EXPLANATIONS).index(explanation)]
    band = "; grey: 95 % of random banks" if controls else ""
    ax.set_xlabel(f"CGIM{kind} by {EXPLANATION_LABELS[explanation]} (cosine, 1 is best{band})")
    tidy(ax, grid="x")
    ax.tick_params(axis="y", length=0)
    return fig, ax


def _low_end(record: Record) -> float:
    return record.value if math.isnan(record.low) else record.low


def ranked_items(
    records: Sequence[Record],
    *,
    item_kind: str = "concept",
    explanation: str = "contribution",
    model: str = POST_HOC,
    count: int = 8,
) -> tuple[list[Record], list[Record]]:
    """Return the best and the worst concepts or classes by CGIM, each in descending order."""
    chosen = select(records, metric="CGIM", model=model, explanation=explanation, item_kind=item_kind)
    joined = over_seeds(record for record in chosen if record.item)
    found = sorted((record for record in joined if not math.isnan(record.value)), key=lambda record: -record.value)
    if len(found) <= 2 * count:
        return found, []
    return found[:count], found[-count:]
