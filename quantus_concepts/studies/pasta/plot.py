"""Figures of a trained scorer. Each draws on the axes given or on new ones; none shows or saves them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from quantus_concepts.datasets.ratings.rated import RatedExplanations
from quantus_concepts.functional.intervals import t_interval
from quantus_concepts.functional.votes import MAX_VOTE, MIN_VOTE
from quantus_concepts.studies.charts import INK, new_axes, tidy
from quantus_concepts.studies.pasta.results import (
    CEILING,
    HUMAN,
    MEASURES,
    SCORER,
    SHUFFLED,
    SIMULATED_HUMAN,
    Record,
    models_of,
    questions_of,
    summary,
)
from quantus_concepts.studies.pasta.tables import SIMULATED
from quantus_concepts.studies.rating.label_places import label_points
from quantus_concepts.studies.rating.rating_facts import image_means

if TYPE_CHECKING:
    from quantus_concepts.studies.pasta.seeds import SeedResult

WIDTH = 7.6
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
MODALITY_COLOURS = {"map": "#0072B2", "drawing": "#56B4E9", "concepts": "#E69F00"}
KIND_NAMES = {"map": "maps", "drawing": "drawings", "concepts": "concepts"}


def plot_measure(
    records: Sequence[Record], measure: str = "SCC", simulated: bool = False, ax: Axes | None = None
) -> tuple[Figure, Axes]:
    """Draw a measure of each question: scorers as bars, what they are held against as lines, every split as a point."""
    questions, models = questions_of(records), models_of(records)
    bars = [model for model in models if model not in LINES]
    fig, ax = new_axes(ax, (WIDTH, 3.7))
    step = 0.8 / max(1, len(bars))
    for place, question in enumerate(questions):
        for row, model in enumerate(bars):
            found = summary(records, model, question, measure)
            if found is None or math.isnan(found.mean):
                continue
            x = place - 0.4 + (row + 0.5) * step
            ax.bar(x, found.mean, 0.88 * step, color=COLOURS[model])
            ax.scatter(
                [x] * len(found.values), found.values, s=13, color=INK, zorder=5, edgecolors="white", linewidths=0.5
            )
        for model in models:
            found = summary(records, model, question, measure)
            if model in LINES and found is not None and not math.isnan(found.mean):
                ends = (place - 0.43, place + 0.43)
                ax.plot(ends, [found.mean] * 2, color=COLOURS[model], linestyle=LINES[model], linewidth=2, zorder=4)
    for model in models:
        if model in LINES:
            ax.plot([], [], color=COLOURS[model], linestyle=LINES[model], linewidth=2, label=model)
        else:
            ax.bar([0], [math.nan], color=COLOURS[model], label=model)
    ax.axhline(0, color=INK, linewidth=0.8)
    ax.set_xticks(range(len(questions)), questions)
    ax.set_xlim(-0.6, len(questions) - 0.4)
    direction = "lower" if MEASURES[measure] else "higher"
    ax.set_ylabel(f"{measure} ({direction} is better)" + (f"\n{SIMULATED}" if simulated else ""))
    tidy(ax)
    if models:
        _legend(ax, min(4, len(models)))
    return fig, ax


def plot_curves(results: Sequence[SeedResult], question: str, ax: Axes | None = None) -> tuple[Figure, Axes]:
    """Draw how the kappa on the validation explanations rises with the epochs, and which epoch each split kept."""
    fig, ax = new_axes(ax, (4.4, 3.2))
    colour = COLOURS[SCORER]
    for result in results:
        curve = result.training.curve
        values = [point["qwk"][question] for point in curve]
        ax.plot([point["epoch"] for point in curve], values, color=colour, linewidth=0.9, alpha=0.55)
        best = result.training.best_epoch[question]
        ax.scatter([best], [values[best - 1]], color=COLOURS[CEILING], s=22, zorder=3, linewidths=0)
    ax.set_title(question, fontsize=10)
    ax.set_xlabel("epoch")
    ax.set_ylabel("validation QWK")
    tidy(ax)
    return fig, ax


def plot_explainers(
    results: Sequence[SeedResult], ratings: RatedExplanations, question: str, ax: Axes | None = None
) -> tuple[Figure, Axes]:
    """Draw the mean score of each explainer against its mean vote, from the splits that never saw it in training."""
    fig, ax = new_axes(ax, (5.2, 4.6))
    points = explainer_points(results, ratings, question)
    for modality, colour in MODALITY_COLOURS.items():
        chosen = np.array([(x, y) for x, y, kind in points.values() if kind == modality])
        if len(chosen):
            ax.scatter(
                chosen[:, 0], chosen[:, 1], color=colour, s=20, label=KIND_NAMES[modality], zorder=3, linewidths=0
            )
    places = np.array([(x, y) for x, y, _ in points.values()]).reshape(-1, 2)
    low, high = _limits(places) if len(places) else (MIN_VOTE, MAX_VOTE)
    ax.plot([low, high], [low, high], color="#9A9A9A", linewidth=1, linestyle="--", zorder=1)
    ax.set_xlim(low, high)
    ax.set_ylim(low, high)
    label_points(ax, list(points), places)
    ax.set_title(question, fontsize=10)
    ax.set_xlabel(f"mean vote ({SIMULATED})" if ratings.simulated else "mean vote")
    ax.set_ylabel("mean score")
    tidy(ax)
    return fig, ax


def _limits(places: np.ndarray) -> tuple[float, float]:
    # Room for names beside the points at the ends.
    margin = 0.12 * max(0.5, float(np.ptp(places)))
    return float(places.min()) - margin, float(places.max()) + margin


def explainer_points(
    results: Sequence[SeedResult], ratings: RatedExplanations, question: str
) -> dict[str, tuple[float, float, str]]:
    """Return where each unseen explainer stands."""
    gathered: dict[str, list[tuple[float, float]]] = {}
    kinds: dict[str, str] = {}
    for result in results:
        column = result.training.scorer.questions.index(question)
        test = result.split.test
        for explainer, kind, vote, score in zip(
            ratings.explainer_ids[test].tolist(),
            ratings.modalities[test].tolist(),
            result.targets[:, column].tolist(),
            result.scores[:, column].tolist(),
            strict=True,
        ):
            if not math.isnan(vote):
                gathered.setdefault(explainer, []).append((vote, score))
                kinds[explainer] = kind
    means = {explainer: np.array(pairs).mean(0).tolist() for explainer, pairs in sorted(gathered.items())}
    return {explainer: (vote, score, kinds[explainer]) for explainer, (vote, score) in means.items()}


def plot_votes(ratings: RatedExplanations, votes: str = "mode", ax: Axes | None = None) -> tuple[Figure, Axes]:
    """Draw the mean vote on each question by kind of explanation, as the paper's Figure 4."""
    fig, ax = new_axes(ax, (WIDTH, 3.2))
    means = {
        (question, kind): np.array(list(image_means(ratings, question, kind, votes).values()))
        for question in ratings.questions
        for kind in MODALITY_COLOURS
    }
    questions = [question for question in ratings.questions if any(means[question, kind].size for kind in KIND_NAMES)]
    kinds = [kind for kind in MODALITY_COLOURS if any(means[question, kind].size for question in questions)]
    step = 0.7 / max(1, len(kinds))
    for row, kind in enumerate(kinds):
        for place, question in enumerate(questions):
            values = means[question, kind]
            if not values.size:
                continue
            mean, (low, high) = values.mean(), t_interval(values, (MIN_VOTE, MAX_VOTE))
            x = place - 0.35 + (row + 0.5) * step
            ax.bar(x, mean - MIN_VOTE, 0.9 * step, bottom=MIN_VOTE, color=MODALITY_COLOURS[kind])
            if not math.isnan(low):
                ax.errorbar([x], [mean], [[mean - low], [high - mean]], color=INK, capsize=2.5, linewidth=1.1)
        ax.bar([0], [math.nan], color=MODALITY_COLOURS[kind], label=KIND_NAMES[kind])
    ax.set_xticks(range(len(questions)), [f"{q}\n(low is good)" if q == "Q5" else q for q in questions])
    ax.set_ylim(MIN_VOTE, MAX_VOTE)
    ax.set_ylabel("mean vote" + (f"\n{SIMULATED}" if ratings.simulated else ""))
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


def default_figures(
    results: Sequence[SeedResult], records: Sequence[Record], ratings: RatedExplanations, votes: str
) -> dict[str, Figure]:
    """Draw the figures of a report."""
    questions = questions_of(records)
    figures = {}
    if questions:
        for measure in ("SCC", "QWK", "MSE"):
            figures[measure.lower()] = plot_measure(records, measure, ratings.simulated)[0]
    if questions and results:
        figures["explainers"] = panels(questions, lambda question, ax: plot_explainers(results, ratings, question, ax))
        title = f"point: epoch kept{f'; {SIMULATED}' if ratings.simulated else ''}"
        figures["curves"] = panels(questions, lambda question, ax: plot_curves(results, question, ax), 2.1, title)
    if not np.isnan(ratings.votes).all():
        figures["votes"] = plot_votes(ratings, votes)[0]
    return figures


def _legend(ax: Axes, columns: int) -> None:
    ax.legend(frameon=False, fontsize="small", ncols=columns, loc="lower left", bbox_to_anchor=(0, 1))
