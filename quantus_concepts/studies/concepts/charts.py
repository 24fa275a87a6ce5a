"""The figures of the concept report."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from quantus_concepts.metrics.streaming.curves import TRUE_LABELS, plot_interventions
from quantus_concepts.metrics.streaming.names import GAUSSIAN, INTERVENED, OTHER_IMAGE, WRONG_LABELS
from quantus_concepts.studies._kit.charts import (
    BAND,
    INK,
    WIDTH,
    Bars,
    legend_right,
    new_axes,
    tidy,
    whiskers,
)
from quantus_concepts.studies._kit.results import one, pick
from quantus_concepts.studies.concepts.names import (
    BASELINES,
    MODELS,
    ORACLE,
    POST_HOC,
    RANDOM,
    RANKINGS,
    TRADITIONAL,
    baseline_name,
)

#: The marker says the same again.
LOOKS = {
    POST_HOC: ("#D55E00", "o"),
    TRADITIONAL: ("#0072B2", "s"),
    ORACLE: ("#009E73", "^"),
    RANDOM: ("#8A8A8A", "D"),
    OTHER_IMAGE: ("#CC79A7", "x"),
    GAUSSIAN: ("#B8860B", "+"),
}
COLOURS = {name: colour for name, (colour, _) in LOOKS.items()}
BEST = 8


def existence(frame: pd.DataFrame, by_class: bool) -> Figure:
    """Draw CEM as bars: one group a ranking, one bar a model, over what random banks score."""
    chosen = pick(frame, metric="CEM", set="correct", l=1)
    chosen = chosen.assign(ranking=chosen["explanation"].map(lambda name: f"by {RANKINGS[name]}"))
    whose = "of its class" if by_class else "present"
    return Bars(
        frame=chosen,
        groups="ranking",
        series="model",
        label=f"top concept {whose}\n(CEM, % of correctly classified images)",
        order=MODELS,
        colours=COLOURS,
        band=RANDOM,
        band_label="95 % of random banks (— mean, -- 97.5 %)",
        scale=100,
        limits=(0, 108),
        write=lambda value: f"{100 * value:.0f}",
    ).draw()[0]


def location(frame: pd.DataFrame) -> Figure:
    """Draw CLM over the size of the region: a line a model, the random control a band."""
    fig, ax = new_axes(None, (WIDTH, 4.6))
    chosen = pick(frame, metric="CLM", explanation="contribution", l=1).sort_values("alpha", kind="stable")
    shown = [name for name in [*MODELS, *BASELINES] if name != RANDOM]
    shown = [name for name in shown if name in BASELINES or name in set(chosen["model"])]
    # Shifted sideways a little, or intervals of equal numbers hide each other.
    for name, shift in zip(shown, np.linspace(-0.8, 0.8, len(shown)), strict=True):
        _line(ax, pick(chosen, model=name), name, float(shift))
    random = pick(chosen, model=RANDOM)
    if len(random):
        region = 100 * random["alpha"] / 12
        low, high = 100 * random["low"], 100 * random["high"]
        ax.fill_between(region, low, high, color=BAND, alpha=0.6, linewidth=0, zorder=1, label="95 % of random banks")
        colour, marker = LOOKS[RANDOM]
        ax.plot(region, 100 * random["value"], color=colour, marker=marker, markersize=5, zorder=2, label="their mean")
    ax.plot([0, 100], [0, 100], color=INK, linestyle=":", linewidth=1.3, zorder=1, label="chance, a point anywhere")
    alphas = sorted(set(chosen["alpha"]))
    ax.set_xlim(0, max([100 * alpha / 12 for alpha in alphas] + [10.0]) + 4)
    ax.set_ylim(0, 103)
    ax.set_xticks([100 * alpha / 12 for alpha in alphas], [f"{100 * a / 12:.0f} %\nα = {a:g}" for a in alphas])
    ax.set_xlabel("strongest region of the map (% of the image)")
    ax.set_ylabel("region contains the part of the top concept\n(CLM, % of cases)")
    legend_right(ax)
    tidy(ax)
    return fig


def _line(ax: Axes, rows: pd.DataFrame, name: str, shift: float) -> None:
    rows = rows[rows["value"].notna()]
    if rows.empty:
        return
    baseline, main = name in BASELINES, name == POST_HOC
    colour, marker = LOOKS[name]
    ax.errorbar(
        100 * rows["alpha"].to_numpy() / 12 + shift,
        100 * rows["value"].to_numpy(),
        whiskers(rows, 100),
        label=f"baseline: {name}" if baseline else name,
        color=colour,
        marker=marker,
        markersize=6.5,
        linestyle="--" if baseline else "-",
        linewidth=2.6 if main else 1.7,
        capsize=2.5,
        elinewidth=1.1,
        zorder=4 if main else 3,
    )


def histograms(frame: pd.DataFrame) -> Figure:
    """Draw the histograms of CGIM, as the paper's Figure 2: classes left, concepts right, types 1 to 3."""
    # The band is where the means of random banks lie: nothing is held against 0, which random directions exceed.
    fig = Figure(figsize=(8.2, 7.4), layout="constrained")
    axes = fig.subplots(3, 2, sharex=True)
    chosen = pick(frame, metric="CGIM")
    models = [name for name in (POST_HOC, TRADITIONAL) if name in set(chosen["model"])]
    for row, explanation in enumerate(RANKINGS):
        for panel, kind, plural in zip(axes[row], ("class", "concept"), ("classes", "concepts"), strict=True):
            items = pick(chosen, explanation=explanation, item_kind=kind)
            for name in models:
                _histogram(panel, pick(items[items["item"] != ""], model=name)["value"], name, filled=name == models[0])
            control = one(items, model=RANDOM, item="")
            if control is not None:
                panel.axvspan(control["low"], control["high"], color=BAND, alpha=0.75, linewidth=0, zorder=1)
            panel.set_xlim(-1.02, 1.02)
            panel.set_xticks([-1, -0.5, 0, 0.5, 1])
            panel.set_title(f"CGIM{'₁₂₃'[row]} of {plural}, by {RANKINGS[explanation]}", fontsize=10)
            panel.set_ylabel(f"number of {plural}")
            panel.yaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
            panel.margins(y=0.25)
            if row == 2:
                panel.set_xlabel("cosine with the truth (1 is best)")
            tidy(panel)
    handles = [
        Line2D([], [], color=COLOURS[name], linewidth=2 if place else 8, alpha=1 if place else 0.8)
        for place, name in enumerate(models)
    ]
    labels = [f"{name} (▾ mean)" for name in models]
    if RANDOM in set(chosen["model"]):
        handles.append(Line2D([], [], color=BAND, linewidth=8))
        labels.append("means of 95 % of random banks")
    fig.legend(handles, labels, loc="outside upper center", ncols=max(1, len(handles)), frameon=False)
    return fig


def _histogram(panel: Axes, values: pd.Series, model: str, *, filled: bool) -> None:
    values = values.dropna()
    if values.empty:
        return
    colour, bins = COLOURS[model], np.linspace(-1, 1, 21).tolist()
    look: dict[str, Any] = {"histtype": "step", "linewidth": 1.9, "zorder": 3}
    if filled:
        look = {"alpha": 0.8, "edgecolor": "white", "linewidth": 0.6, "zorder": 2}
    panel.hist(values, bins, color=colour, **look)
    top = panel.get_xaxis_transform()
    panel.plot(values.mean(), 0.95, marker="v", markersize=7, color=colour, transform=top, zorder=5, clip_on=False)


def intervention_rows(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the accuracies after interventions as `intervention_curve` has them, models in their order."""
    whose = {baseline_name(WRONG_LABELS, model): model for model in MODELS}
    rows = pick(frame, metric=INTERVENED)
    wrong = rows["model"].isin(list(whose))
    rows = rows.assign(
        model=rows["model"].replace(whose),
        labels=np.where(wrong, WRONG_LABELS, TRUE_LABELS),
        order=rows["explanation"],
        count=rows["l"].astype(int),
    )
    return rows.sort_values("model", key=lambda column: column.map(MODELS.index), kind="stable")


def interventions(frame: pd.DataFrame) -> Figure:
    """Draw class accuracy over the number of concepts corrected, a panel a model, wrong corrections dashed."""
    curves = intervention_rows(frame)
    known = curves["model"] != RANDOM
    curves, control = curves[known], curves[~known]
    n_models = curves["model"].nunique()
    fig = Figure(figsize=(2.8 + 2.4 * n_models, 3.6), layout="constrained")
    panels = fig.subplots(1, n_models, sharey=True, squeeze=False)
    plot_interventions(curves, panels, control=None if control.empty else control)
    for panel in panels.flat:
        tidy(panel)
    return fig


def ranked(frame: pd.DataFrame, kind: str, count: int = BEST) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the best and the worst concepts or classes by CGIM of the contribution, each in descending order."""
    found = pick(frame, metric="CGIM", model=POST_HOC, explanation="contribution", item_kind=kind)
    found = found[(found["item"] != "") & found["value"].notna()].sort_values("value", ascending=False, kind="stable")
    return (found, found.iloc[:0]) if len(found) <= 2 * count else (found[:count], found[-count:])


def extremes(frame: pd.DataFrame, kind: str) -> Figure:
    """Draw the best and the worst concepts or classes by CGIM as points over what random banks score."""
    best, worst = ranked(frame, kind)
    shown = pd.concat([best, worst])
    control = pick(frame, metric="CGIM", model=RANDOM, explanation="contribution", item_kind=kind)
    control = control[control["item"] != ""]
    gap = len(best) if len(worst) else 0
    fig, ax = Bars(
        frame=pd.concat([shown, control[control["item"].isin(shown["item"])]]),
        groups="item",
        series="model",
        colours=COLOURS,
        band=RANDOM,
        flat=True,
        points=True,
        gap_after=gap,
    ).draw()
    ends = pd.concat([rows["low"].fillna(rows["value"]) for rows in (shown, control)])
    ax.set_xlim(max(-1.0, min(0.0, ends.min()) - 0.05), 1.15)
    band = "; grey: 95 % of random banks" if len(control) else ""
    ax.set_xlabel(f"CGIM₃ by {RANKINGS['contribution']} (cosine, 1 is best{band})")
    return fig
