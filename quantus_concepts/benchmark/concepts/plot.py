"""Figures of a benchmark. Each function draws on the axes given or on new ones; none shows or saves them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from quantus_concepts.benchmark.concepts.results import (
    EXPLANATIONS,
    GAUSSIAN,
    ORACLE,
    OTHER_IMAGE,
    POST_HOC,
    RANDOM,
    TRADITIONAL,
    Record,
    models_of,
    over_seeds,
)
from quantus_concepts.benchmark.figures import INK, new_axes, tidy
from quantus_concepts.benchmark.records import find, select

#: Okabe and Ito's colours, which colour-blind readers tell apart; the marker says the same again.
COLOURS = {
    POST_HOC: "#D55E00",
    TRADITIONAL: "#0072B2",
    ORACLE: "#009E73",
    RANDOM: "#8A8A8A",
    OTHER_IMAGE: "#CC79A7",
    GAUSSIAN: "#B8860B",
}
MARKERS = {POST_HOC: "o", TRADITIONAL: "s", ORACLE: "^", RANDOM: "D", OTHER_IMAGE: "x", GAUSSIAN: "+"}
EXPLANATION_LABELS = {
    "weight": "weight θ",
    "value": "concept value u",
    "contribution": "contribution θ·u",
}


def plot_cem(
    records: Sequence[Record], ax: Axes | None = None, *, set_: str = "correct", top_l: int = 1
) -> tuple[Figure, Axes]:
    """Draw CEM as bars: one group a ranking, one bar a model, with 95 % intervals and chance.

    Parameters
    ----------
    records : sequence of Record
        Of any number of seeds.
    ax : Axes or None
        Where to draw; None for a new figure.
    set_ : str
        "all" or "correct" images.
    top_l : int
        How many concepts of each image entered.

    Returns
    -------
    tuple of Figure and Axes
        The figure and its axes.
    """
    fig, ax = new_axes(ax, (7.6, 4.0))
    chosen = over_seeds(select(records, metric="CEM", set=set_, l=top_l))
    models = models_of(chosen)
    width = 0.8 / max(1, len(models))
    for index, model in enumerate(models):
        found = [find(chosen, model=model, explanation=name) for name in EXPLANATIONS]
        places = np.arange(len(found)) + (index - (len(models) - 1) / 2) * width
        for place, record in zip(places, found, strict=True):
            if record is not None and not math.isnan(record.value):
                _bar(ax, place, record, 0.9 * width)
    images = "correctly classified images" if set_ == "correct" else "images"
    ax.set_xticks(range(len(EXPLANATIONS)), [f"by {label}" for label in EXPLANATION_LABELS.values()])
    ax.set_ylabel(f"{'top concept' if top_l == 1 else f'top {top_l} concepts'} present\n(CEM, % of {images})")
    ax.set_ylim(0, 108)
    ax.set_yticks(range(0, 101, 20))
    chance = Line2D([], [], color=INK, linewidth=2)
    patches = [Line2D([], [], color=_colour(model), linewidth=7, solid_capstyle="butt") for model in models]
    ax.legend(
        [*patches, chance],
        [*models, "chance (label density)"],
        loc="lower center",
        bbox_to_anchor=(0.5, 1.0),
        ncols=3 if len(models) > 2 else len(models) + 1,
        frameon=False,
        fontsize=9,
    )
    tidy(ax)
    return fig, ax


def _bar(ax: Axes, place: float, record: Record, width: float) -> None:
    ax.bar(place, 100 * record.value, width, color=_colour(record.model), zorder=2)
    top = 100 * record.value
    if not math.isnan(record.low):
        spread = [[100 * (record.value - record.low)], [100 * (record.high - record.value)]]
        ax.errorbar(place, 100 * record.value, spread, color=INK, capsize=2.5, linewidth=1.1, zorder=3)
        top = 100 * record.high
    if not math.isnan(record.chance):
        ends = (place - width / 2, place + width / 2)
        # White beneath, so that the line shows on any bar.
        ax.plot(ends, [100 * record.chance] * 2, color="white", linewidth=4, zorder=4, solid_capstyle="butt")
        ax.plot(ends, [100 * record.chance] * 2, color=INK, linewidth=2, zorder=5, solid_capstyle="butt")
        top = max(top, 100 * record.chance)
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
    """Draw CLM over the size of the region: a line a model, dashed ones for the honest baselines, and chance.

    Parameters
    ----------
    records : sequence of Record
        Of any number of seeds.
    ax : Axes or None
        Where to draw; None for a new figure.
    explanation : str
        What ranked the concepts.
    top_l : int
        How many concepts of each image entered.

    Returns
    -------
    tuple of Figure and Axes
        The figure and its axes.
    """
    fig, ax = new_axes(ax, (7.6, 4.6))
    chosen = over_seeds(select(records, metric="CLM", explanation=explanation, l=top_l, set="all"))
    alphas = sorted({record.alpha for record in chosen if record.alpha is not None})
    names = [*models_of(chosen), OTHER_IMAGE, GAUSSIAN]
    # Shifted sideways a little, or intervals of equal numbers hide each other.
    shifts = np.linspace(-0.8, 0.8, len(names))
    for name, shift in zip(names, shifts, strict=True):
        found = [find(chosen, model=name, alpha=alpha) for alpha in alphas]
        points = [record for record in found if record is not None and not math.isnan(record.value)]
        if points:
            _line(ax, points, float(shift))
    regions = [100 * alpha / 12 for alpha in alphas]
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
        color=_colour(name),
        marker=MARKERS.get(name, "o"),
        markersize=6.5,
        linestyle="--" if baseline else "-",
        linewidth=2.6 if name == POST_HOC else 1.7,
        capsize=2.5,
        elinewidth=1.1,
        zorder=4 if name == POST_HOC else 3,
    )


def plot_cgim_histograms(
    records: Sequence[Record],
    ax: np.ndarray | None = None,
    *,
    models: Sequence[str] = (POST_HOC, TRADITIONAL),
) -> tuple[Figure, np.ndarray]:
    """Draw the histograms of CGIM, as the paper's Figure 2: classes left, concepts right, types 1 to 3.

    Parameters
    ----------
    records : sequence of Record
        Of any number of seeds.
    ax : array of Axes or None
        (3, 2) axes; None for a new figure.
    models : sequence of str
        The first is filled, the others are outlines over it.

    Returns
    -------
    tuple of Figure and array of Axes
        The figure and its (3, 2) axes.

    Raises
    ------
    ValueError
        If `ax` has another shape.
    """
    if ax is None:
        fig = Figure(figsize=(8.2, 7.4), layout="constrained")
        axes: np.ndarray = fig.subplots(3, 2, sharex=True)
    else:
        axes = np.asarray(ax)
        if axes.shape != (3, 2):
            raise ValueError(f"Expected argument `ax` to have shape (3, 2) but got {axes.shape}.")
        fig = axes[0, 0].figure
    chosen = over_seeds(record for record in select(records, metric="CGIM") if record.item)
    present = [model for model in models if model in models_of(chosen)]
    bins = np.linspace(-1, 1, 21).tolist()
    for row, explanation in enumerate(EXPLANATIONS):
        for column, kind in enumerate(("class", "concept")):
            panel: Axes = axes[row, column]
            for order, model in enumerate(present):
                found = select(chosen, model=model, explanation=explanation, item_kind=kind)
                _histogram(panel, found, model, bins, filled=order == 0)
            panel.axvline(0, color=INK, linewidth=0.8, zorder=1)
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
        Line2D([], [], color=_colour(model), linewidth=8 if order == 0 else 2, alpha=0.8 if order == 0 else 1)
        for order, model in enumerate(present)
    ]
    if ax is None and handles:
        labels = [f"{model} (▾ mean)" for model in present]
        fig.legend(handles, labels, loc="outside upper center", ncols=len(handles), frameon=False)
    return fig, axes


def _histogram(panel: Axes, found: list[Record], model: str, bins: list[float], *, filled: bool) -> None:
    values = np.array([record.value for record in found])
    values = values[~np.isnan(values)]
    if not values.size:
        return
    colour = _colour(model)
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
    """Draw the best and the worst concepts or classes by CGIM as horizontal bars.

    Parameters
    ----------
    records : sequence of Record
        Of any number of seeds.
    ax : Axes or None
        Where to draw; None for a new figure.
    item_kind : str
        "concept" or "class".
    explanation : str
        Which type of CGIM: "weight" is 1, "value" 2, "contribution" 3.
    model : str
        Whose.
    count : int
        How many from each end; all where there are no more than twice as many.

    Returns
    -------
    tuple of Figure and Axes
        The figure and its axes.
    """
    best, worst = ranked_items(records, item_kind=item_kind, explanation=explanation, model=model, count=count)
    gap = 1 if best and worst else 0
    fig, ax = new_axes(ax, (7.6, 0.9 + 0.29 * (len(best) + len(worst) + gap)))
    rows = [*enumerate(best), *enumerate(worst, start=len(best) + gap)]
    for place, record in rows:
        colour = _colour(model) if record.value >= 0 else "#7A3B00"
        ax.barh(place, record.value, 0.72, color=colour, zorder=2)
        if not math.isnan(record.low):
            spread = [[record.value - record.low], [record.high - record.value]]
            ax.errorbar(record.value, place, xerr=spread, color=INK, capsize=2, linewidth=1, zorder=3)
        ends = [end for end in (record.value, record.low, record.high, 0.0) if not math.isnan(end)]
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
    ax.axvline(0, color=INK, linewidth=0.9, zorder=4)
    lowest = min([0.0, *(_low_end(record) for _, record in rows)])
    ax.set_xlim(max(-1.0, lowest - 0.05), 1.12)
    kind = "₁₂₃"[list(EXPLANATIONS).index(explanation)]
    ax.set_xlabel(f"CGIM{kind} by {EXPLANATION_LABELS[explanation]} (cosine, 1 is best)")
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
    """Return the best and the worst concepts or classes by CGIM, each in descending order.

    Parameters
    ----------
    records : sequence of Record
        Of any number of seeds.
    item_kind : str
        "concept" or "class".
    explanation : str
        Which type of CGIM.
    model : str
        Whose.
    count : int
        How many from each end.

    Returns
    -------
    tuple of list of Record
        Best and worst; where there are no more than 2 `count` in all, all are in the first list.
    """
    chosen = select(records, metric="CGIM", model=model, explanation=explanation, item_kind=item_kind)
    joined = over_seeds(record for record in chosen if record.item)
    found = sorted((record for record in joined if not math.isnan(record.value)), key=lambda record: -record.value)
    if len(found) <= 2 * count:
        return found, []
    return found[:count], found[-count:]


def default_figures(records: Sequence[Record]) -> dict[str, Figure]:
    """Draw every figure there are records for.

    Parameters
    ----------
    records : sequence of Record
        Of any number of seeds.

    Returns
    -------
    dict of str to Figure
        Of "cem", "clm", "cgim_histograms", "concepts", "classes".
    """
    figures: dict[str, Figure] = {}
    if select(records, metric="CEM", l=1):
        figures["cem"] = plot_cem(records)[0]
    if select(records, metric="CLM", l=1):
        figures["clm"] = plot_clm(records)[0]
    if select(records, metric="CGIM"):
        figures["cgim_histograms"] = plot_cgim_histograms(records)[0]
    for kind, name in (("concept", "concepts"), ("class", "classes")):
        if ranked_items(records, item_kind=kind)[0]:
            figures[name] = plot_ranked_items(records, item_kind=kind)[0]
    return figures


def _colour(model: str) -> str:
    return COLOURS.get(model, "#56B4E9")
