"""Figures of what the score was used for. Each draws on the axes given or on new ones; none shows or saves them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from quantus_concepts.datasets.ratings.questions import question_named
from quantus_concepts.studies.charts import INK, new_axes, tidy
from quantus_concepts.studies.pasta.plot import WIDTH
from quantus_concepts.studies.pasta.tables import SIMULATED
from quantus_concepts.studies.pasta.uses_results import AVERAGE, CHOICE, PerturbedRow, RankedRow, Uses
from quantus_concepts.studies.picture_grids import PictureGrid, PictureRow, plot_grid

CHOSEN, ALONE, MEAN = "#0072B2", "#9A9A9A", "#E69F00"
#: Explainers that have a bar of their own.
BARS = 16
#: Explanations on either end of the sheet of explanations by score.
RANKED = 6
#: Size of a picture of that sheet, and of what stands around the pictures, in inches.
CELL, GAP, CAPTION, LABEL, HEAD = 1.14, 0.07, 0.36, 0.62, 0.06
LETTERS = 21
LINES = 9


def uses_figures(uses: Uses, simulated: bool) -> dict[str, Figure]:
    """Draw the figures of all uses."""
    figures = {}
    if uses.mixture_names:
        figures["wins"] = plot_wins(uses, simulated)[0]
    if uses.faithfulness:
        figures["faithfulness"] = plot_faithfulness(uses, simulated)[0]
    if uses.ranked:
        figures["ranked"] = plot_ranked(uses.ranked, uses.ranked_question, simulated)[0]
    if uses.steering:
        figures["steering"] = plot_grid(steering_sheet(uses, simulated))[0]
    for name, question, rows in (("light", "Q5", uses.light), ("strong", "Q6", uses.strong)):
        if rows:
            figures[name] = plot_grid(perturbation_sheet(rows, question, simulated))[0]
    return figures


def plot_wins(uses: Uses, simulated: bool = False, ax: Axes | None = None) -> tuple[Figure, Axes]:
    """Draw how often each explainer alone is best, as the paper's Figure 7."""
    wins = uses.wins()
    shown, rest = (wins, []) if len(wins) <= BARS else (wins[: BARS - 1], wins[BARS - 1 :])
    if rest:
        shown = [*shown, (f"{len(rest)} others", sum(count for _, count in rest))]
    fig, ax = new_axes(ax, (WIDTH, 0.8 + 0.25 * len(shown)))
    total = max(1, sum(uses.mixture_wins) + uses.mixture_tied)
    colours = [CHOSEN] * (len(shown) - bool(rest)) + [ALONE] * bool(rest)
    bars = ax.barh(range(len(shown)), [count for _, count in shown], 0.72, color=colours)
    texts = [f"{count} ({100 * count / total:.0f} %)" if count else "0" for _, count in shown]
    ax.bar_label(bars, texts, padding=3, fontsize=8, color=INK)
    ax.set_yticks(range(len(shown)), [_cut(name, 34) for name, _ in shown], fontsize=8.5)
    ax.invert_yaxis()
    ax.margins(x=0.12)
    tied = f"; {uses.mixture_tied} tied, counted for none" if uses.mixture_tied else ""
    ax.set_xlabel(
        f"images for which its score alone is the best{tied} ({uses.mixture_question}{_of_simulated(simulated)})"
    )
    tidy(ax, "x")
    return fig, ax


def plot_faithfulness(uses: Uses, simulated: bool = False, ax: Axes | None = None) -> tuple[Figure, Axes]:
    """Draw the mean faithfulness of the choice, of each explainer alone, and of their average, with 95 % intervals."""
    rows = [row for name in (CHOICE, AVERAGE) for row in uses.faithfulness if row.name == name]
    rows += sorted(
        (row for row in uses.faithfulness if row.name not in (CHOICE, AVERAGE)),
        key=lambda row: -math.inf if math.isnan(row.mean) else row.mean,
        reverse=True,
    )
    fig, ax = new_axes(ax, (WIDTH, 0.8 + 0.25 * len(rows)))
    for place, row in enumerate(rows):
        colour = {CHOICE: CHOSEN, AVERAGE: MEAN}.get(row.name, "#6A6A6A")
        if not math.isnan(row.low):
            ax.plot([row.low, row.high], [place] * 2, color=colour, linewidth=1.6)
        ax.scatter([row.mean], [place], color=colour, s=26, zorder=3)
    ax.axvline(0, color=INK, linewidth=0.8)
    names = {CHOICE: "chosen by the score", AVERAGE: "average of the explainers"}
    ax.set_yticks(range(len(rows)), [names.get(row.name, _cut(row.name, 34)) for row in rows], fontsize=8.5)
    ax.invert_yaxis()
    ax.set_xlabel(f"{uses.faithfulness_name} (higher is better){_of_simulated(simulated)}")
    tidy(ax, "x")
    return fig, ax


def plot_ranked(
    rows: Sequence[RankedRow], question: str = "Q1", simulated: bool = False, n: int = RANKED
) -> tuple[Figure, np.ndarray]:
    """Draw the explanations that score best and worst, each below its image."""
    sign = question_named(question).sign
    ordered = sorted((row for row in rows if not math.isnan(row.score)), key=lambda row: -sign * row.score)
    n = max(1, min(n, len(ordered) // 2 if len(ordered) > 1 else 1))
    ends = {"best": ordered[:n], "worst": ordered[::-1][:n]}
    width = LABEL + n * (CELL + GAP)
    block = HEAD + 2 * CELL + GAP + CAPTION
    figure = Figure(figsize=(width, 2 * block))
    axes = np.empty((2, 2, n), dtype=object)
    for part, (name, chosen) in enumerate(ends.items()):
        for place, row in enumerate(chosen):
            left = LABEL + place * (CELL + GAP)
            for line in range(2):
                bottom = 2 * block - part * block - HEAD - (line + 1) * CELL - line * GAP
                panel = figure.add_axes(
                    (left / width, bottom / (2 * block), CELL / width, CELL / (2 * block)), xticks=[], yticks=[]
                )
                for spine in panel.spines.values():
                    spine.set_color("#CCCCCC")
                axes[part, line, place] = panel
            if row.image is not None and row.image.size:
                axes[part, 0, place].imshow(np.clip(row.image, 0, 1))
            else:
                _say(axes[part, 0, place], "no image")
            _draw_shown(axes[part, 1, place], row)
            vote = "–" if math.isnan(row.vote) else f"{row.vote:g}"
            axes[part, 1, place].set_xlabel(
                f"{_cut(row.explainer, LETTERS)}\nscore {row.score:.2f}, vote {vote}",
                fontsize=7,
                color=INK,
                labelpad=3,
            )
        if chosen:
            axes[part, 0, 0].set_ylabel(
                f"{name}\n{question}", fontsize=9, color=INK, rotation=0, ha="right", va="center"
            )
            if simulated:
                axes[part, 1, 0].set_ylabel(
                    SIMULATED.replace(" ", "\n"), fontsize=7, color=INK, rotation=0, ha="right", va="center"
                )
    return figure, axes


def _say(panel: Axes, text: str) -> None:
    panel.text(0.5, 0.5, text, transform=panel.transAxes, ha="center", va="center", fontsize=7, color="#8A8A8A")


def _draw_shown(panel: Axes, row: RankedRow) -> None:
    if isinstance(row.shown, np.ndarray):
        panel.imshow(np.clip(row.shown, 0, 1))
        return
    lines = [_cut(name, LETTERS) for name in list(row.shown)[:LINES]]
    if len(row.shown) > LINES:
        lines[-1] = f"and {len(row.shown) - LINES + 1} more"
    panel.set_facecolor("#F6F6F6")
    panel.text(
        0.05, 0.95, "\n".join(lines), transform=panel.transAxes, va="top", fontsize=6.2, color=INK, linespacing=1.25
    )


def steering_sheet(uses: Uses, simulated: bool = False) -> PictureGrid:
    """Lay out images explained with growing weight of the score."""
    columns = [f"λ = {weight:g}" for weight in uses.steering_weights]
    sheet = PictureGrid("steering", columns)
    for row in uses.steering:
        values = ["" if math.isnan(score) else f"score {score:.2f}" for score in row.scores]
        label = f"{row.label}\n{SIMULATED}" if simulated else row.label
        sheet.rows.append(PictureRow(label, row.image, list(row.maps), None, values))
    return sheet


def perturbation_sheet(rows: Sequence[PerturbedRow], question: str, simulated: bool = False) -> PictureGrid:
    """Lay out images and explanations before and after perturbations."""
    sheet = PictureGrid("perturbations", ["perturbed", "explanation before", "explanation after"])
    for row in rows:
        score = "" if math.isnan(row.score) else f"{question}: {row.score:.2f}"
        if score and simulated:
            score = f"{score}\n{SIMULATED}"
        sheet.rows.append(
            PictureRow(
                f"{row.name.replace(' ', chr(10))}\n{row.magnitude:g}",
                row.image,
                [row.perturbed, row.map, row.perturbed_map],
                None,
                ["", "", score],
            )
        )
    return sheet


def _of_simulated(simulated: bool) -> str:
    return f", scorer of {SIMULATED}" if simulated else ""


def _cut(name: str, letters: int) -> str:
    return name if len(name) <= letters else f"{name[: letters - 1].rstrip()}…"
