"""Charts of the PASTA study."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from quantus_concepts.functional.votes import MAX_VOTE, MIN_VOTE
from quantus_concepts.studies._kit.charts import INK, WIDTH, new_axes, tidy
from quantus_concepts.studies._kit.results import names, pick
from quantus_concepts.studies.pasta.evaluation import SplitResult
from quantus_concepts.studies.pasta.options import (
    CEILING,
    HUMAN,
    KINDS,
    MODELS,
    SCORER,
    SHUFFLED,
    SIMULATED,
    SIMULATED_HUMAN,
)

SIZE = 6.8
#: Mean width of a letter, and height of a line, as a share of the size of the type.
LETTER, LINE = 0.58, 1.15
#: Distance of a name from its point, and what a point itself covers, in points.
GAP, RADIUS = 4.0, 2.8
SIDES = ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, 1), (1, -1), (-1, -1))
#: How many times further a name may go where there is no room beside its point; a line then leads to it.
FAR = 3.5
LEADER = {"arrowstyle": "-", "color": "#9A9A9A", "linewidth": 0.6, "shrinkA": 0, "shrinkB": 2}


def extremes(places: np.ndarray) -> list[int]:
    """Return which points of (x, y) stand out."""
    if not len(places):
        return []
    apart = places[:, 1] - places[:, 0]
    order = [apart.argmax(), apart.argmin()]
    for axis in (0, 1):
        order += [places[:, axis].argmin(), places[:, axis].argmax()]
    return list(dict.fromkeys(int(index) for index in order))


def label_points(ax: Axes, names: Sequence[str], places: np.ndarray) -> list[str]:
    """Name the points that stand out, each where its name covers no other name and no point."""
    window, dpi = ax.get_window_extent(), ax.figure.dpi
    size = np.array([window.width, window.height]) * 72 / dpi
    start = np.array([ax.get_xlim()[0], ax.get_ylim()[0]])
    spans = np.array([np.ptp(ax.get_xlim()), np.ptp(ax.get_ylim())])
    at = (places - start) / spans * size
    taken = [np.concatenate([point - RADIUS, point + RADIUS]) for point in at]
    written = []
    for index in extremes(places):
        box = np.array([LETTER * SIZE * len(names[index]), LINE * SIZE])
        for reach, side in product((1, FAR), SIDES):
            centre = at[index] + np.array(side) * (box / 2 + GAP * reach)
            found = np.concatenate([centre - box / 2, centre + box / 2])
            inside = (found[:2] >= 0).all() and (found[2:] <= size).all()
            if inside and not any(_overlap(found, other) for other in taken):
                offset = centre - at[index]
                ax.annotate(
                    names[index],
                    places[index],
                    xytext=offset,
                    textcoords="offset points",
                    ha="center",
                    va="center",
                    fontsize=SIZE,
                    color=INK,
                    arrowprops=LEADER if reach > 1 else None,
                )
                taken.append(found)
                written.append(names[index])
                break
    return written


def _overlap(first: np.ndarray, second: np.ndarray) -> bool:
    return bool((first[:2] < second[2:]).all() and (second[:2] < first[2:]).all())


#: Panels in a row of a figure with one for each question.
PANELS = 3
#: Okabe and Ito's colours, which colour-blind readers tell apart.
COLOURS = {
    SCORER: "#0072B2",
    "ridge": "#56B4E9",
    "lasso": "#009E73",
    "SVM": "#CC79A7",
    SHUFFLED: "#9A9A9A",
    HUMAN: "#E69F00",
    SIMULATED_HUMAN: "#E69F00",
    CEILING: "#D55E00",
}
#: What the bars are held against is drawn as a line across them.
LINES = {HUMAN: "-", SIMULATED_HUMAN: "-", CEILING: (0, (4, 1.5))}
KIND_COLOURS = {"map": "#0072B2", "drawing": "#56B4E9", "concepts": "#E69F00"}


def plot_measure(
    frame: pd.DataFrame, measure: str = "SCC", simulated: bool = False, ax: Axes | None = None
) -> tuple[Figure, Axes]:
    """Draw a measure of each question: scorers as bars, what they are held against as lines, every split as a point."""
    of_all = pick(frame, modality="all")
    questions, models = sorted(set(of_all["question"])), [name for name in MODELS if name in set(of_all["model"])]
    known = pick(of_all, measure=measure).dropna(subset=["value"])
    bars = [model for model in models if model not in LINES]
    fig, ax = new_axes(ax, (WIDTH, 3.7))
    step = 0.8 / max(1, len(bars))
    for (model, question), group in known.groupby(["model", "question"]):
        values, place = group["value"].to_numpy(), questions.index(question)
        if model in LINES:
            ends = (place - 0.43, place + 0.43)
            style: dict[str, Any] = {"color": COLOURS[model], "linestyle": LINES[model]}
            ax.plot(ends, [values.mean()] * 2, linewidth=2, zorder=4, **style)
            continue
        x = place - 0.4 + (bars.index(model) + 0.5) * step
        ax.bar(x, values.mean(), 0.88 * step, color=COLOURS[model])
        ax.scatter([x] * len(values), values, s=13, color=INK, zorder=5, edgecolors="white", linewidths=0.5)
    for model in models:
        if model in LINES:
            ax.plot([], [], color=COLOURS[model], linestyle=LINES[model], linewidth=2, label=model)
        else:
            ax.bar([0], [math.nan], color=COLOURS[model], label=model)
    ax.axhline(0, color=INK, linewidth=0.8)
    ax.set_xticks(range(len(questions)), questions)
    ax.set_xlim(-0.6, len(questions) - 0.4)
    direction = "lower" if measure == "MSE" else "higher"
    ax.set_ylabel(f"{measure} ({direction} is better)" + (f"\n{SIMULATED}" if simulated else ""))
    tidy(ax)
    if models:
        _legend(ax, min(4, len(models)))
    return fig, ax


def plot_curves(results: Sequence[SplitResult], question: str, ax: Axes | None = None) -> tuple[Figure, Axes]:
    """Draw how the kappa on the validation explanations rises with the epochs, and which epoch each split kept."""
    fig, ax = new_axes(ax, (4.4, 3.2))
    for result in results:
        curve = result.training.curve
        values = [point["qwk"][question] for point in curve]
        ax.plot([point["epoch"] for point in curve], values, color=COLOURS[SCORER], linewidth=0.9, alpha=0.55)
        best = result.training.best_epoch[question]
        ax.scatter([best], [values[best - 1]], color=COLOURS[CEILING], s=22, zorder=3, linewidths=0)
    ax.set_title(question, fontsize=10)
    ax.set_xlabel("epoch")
    ax.set_ylabel("validation QWK")
    tidy(ax)
    return fig, ax


def plot_explainers(
    points: pd.DataFrame, question: str, simulated: bool = False, ax: Axes | None = None
) -> tuple[Figure, Axes]:
    """Draw the mean score of each explainer against its mean vote, from the splits that never saw it in training."""
    fig, ax = new_axes(ax, (5.2, 4.6))
    shown = pick(points, question=question)
    for kind in (kind for kind in KINDS if kind in set(shown["kind"])):
        chosen = pick(shown, kind=kind)
        ax.scatter(
            chosen["vote"], chosen["score"], color=KIND_COLOURS[kind], s=20, label=KINDS[kind], zorder=3, linewidths=0
        )
    places = shown[["vote", "score"]].to_numpy()
    low, high = float(MIN_VOTE), float(MAX_VOTE)
    if len(places):
        # Room for names beside the points at the ends.
        margin = 0.12 * max(0.5, float(np.ptp(places)))
        low, high = float(places.min()) - margin, float(places.max()) + margin
    ax.plot([low, high], [low, high], color="#9A9A9A", linewidth=1, linestyle="--", zorder=1)
    ax.set_xlim(low, high)
    ax.set_ylim(low, high)
    label_points(ax, shown["explainer"].tolist(), places)
    ax.set_title(question, fontsize=10)
    ax.set_xlabel(f"mean vote ({SIMULATED})" if simulated else "mean vote")
    ax.set_ylabel("mean score")
    tidy(ax)
    return fig, ax


def plot_votes(votes: pd.DataFrame, simulated: bool = False, ax: Axes | None = None) -> tuple[Figure, Axes]:
    """Draw the mean vote on each question by kind of explanation, as the paper's Figure 4."""
    fig, ax = new_axes(ax, (WIDTH, 3.2))
    questions = names(votes, "question")
    kinds = [kind for kind in KINDS if kind in set(votes["kind"])]
    step = 0.7 / max(1, len(kinds))
    for place, kind in enumerate(kinds):
        found = pick(votes, kind=kind)
        x = [questions.index(name) - 0.35 + (place + 0.5) * step for name in found["question"]]
        above = found["value"] - MIN_VOTE
        ax.bar(x, above, 0.9 * step, bottom=MIN_VOTE, color=KIND_COLOURS[kind], label=KINDS[kind])
        spread = [found["value"] - found["low"], found["high"] - found["value"]]
        ax.errorbar(x, found["value"], spread, color=INK, capsize=2.5, linewidth=1.1, linestyle="none")
    ax.set_xticks(range(len(questions)), [f"{q}\n(low is good)" if q == "Q5" else q for q in questions])
    ax.set_ylim(MIN_VOTE, MAX_VOTE)
    ax.set_ylabel("mean vote" + (f"\n{SIMULATED}" if simulated else ""))
    tidy(ax)
    if kinds:
        _legend(ax, 2)
    return fig, ax


def panels(
    questions: Sequence[str], draw: Callable[[str, Axes], object], height: float = 2.5, title: str = ""
) -> Figure:
    """Draw a panel for each question."""
    across = min(PANELS, len(questions))
    down = math.ceil(len(questions) / across)
    width = WIDTH if across > 1 else 5.0
    figure = Figure(figsize=(width, 0.35 + down * (height if across > 1 else 1.4 * height)), layout="constrained")
    axes = figure.subplots(down, across, squeeze=False)
    for panel in axes.flat[len(questions) :]:
        panel.set_visible(False)
    for number, (question, panel) in enumerate(zip(questions, axes.flat, strict=False)):
        draw(question, panel)
        if number % across:
            panel.set_ylabel("")
        if number + across < len(questions):
            panel.set_xlabel("")
    if title:
        figure.suptitle(title, fontsize=9.5, color=INK, x=0.01, ha="left")
    named = {
        label: handle for panel in axes.flat for handle, label in zip(*panel.get_legend_handles_labels(), strict=True)
    }
    if named:
        figure.legend(
            named.values(), named.keys(), loc="outside upper right", ncols=len(named), frameon=False, fontsize="small"
        )
    return figure


def _legend(ax: Axes, columns: int) -> None:
    ax.legend(frameon=False, fontsize="small", ncols=columns, loc="lower left", bbox_to_anchor=(0, 1))
