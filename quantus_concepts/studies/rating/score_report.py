"""The files of a scoring: scores.csv, and report.html with the best and the worst explanations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import pandas as pd

from quantus_concepts.datasets.images import load_image
from quantus_concepts.datasets.ratings.explanations import ConceptExplanation
from quantus_concepts.datasets.ratings.questions import question_named
from quantus_concepts.pasta.mixture import plot_mixture
from quantus_concepts.studies.charts import png_base64, save_figures
from quantus_concepts.studies.output import OutputFolder
from quantus_concepts.studies.page import render_page
from quantus_concepts.studies.rating.explanation_files import ExplanationFile
from quantus_concepts.studies.rating.pictures import (
    data_url,
    jpeg,
    resized,
    short_number,
    shown_picture,
    top_concepts,
)
from quantus_concepts.studies.rating.score_table import Scores, arrow, score_text, wins_text

PICTURE = 240
CONCEPTS_SHOWN = 8
#: Rows of the page's table; the CSV has all.
ROWS_SHOWN = 1000


@dataclass(frozen=True)
class Concept:
    """A concept of a card: its name, its value as written, and its share of the largest."""

    name: str
    value: str
    share: float


@dataclass(frozen=True)
class Card:
    """An explanation on the sheet."""

    title: str
    below: str
    scores: list[str]
    image: str
    map: str
    concepts: list[Concept]
    drawn: bool = False


def write_scores(
    folder: OutputFolder, scores: Scores, about: Mapping[str, str], notes: Sequence[str], n_shown: int
) -> None:
    """Write table, figure and sheet."""
    with folder.file("scores.csv") as path:
        scores.best_first.to_csv(path, index=False, float_format="%.4f")
    figure = ""
    if scores.mixture is not None:
        drawn, _ = plot_mixture(scores.mixture)
        save_figures(folder, {"mixture": drawn})
        figure = png_base64(drawn)
    folder.write_text("report.html", render_scores(scores, about, notes, n_shown, figure))


def render_scores(
    scores: Scores, about: Mapping[str, str], notes: Sequence[str], n_shown: int, figure: str = ""
) -> str:
    """Write the page."""
    ranked = scores.best_first[scores.best_first[scores.question].notna()]
    n_best = min(n_shown, (len(ranked) + 1) // 2) if len(ranked) < 2 * n_shown else n_shown
    n_worst = min(n_shown, len(ranked) - n_best)
    values = ranked[scores.question].to_numpy()
    return render_page(
        "scores.html.j2",
        title="Scores of explanations",
        created=f"{datetime.now():%Y-%m-%d %H:%M}",
        n=len(ranked),
        n_images=ranked["image_id"].nunique(),
        span=(score_text(values.min()), score_text(float(np.median(values))), score_text(values.max())),
        question=question_named(scores.question),
        questions=[(name, arrow(name), question_named(name).text) for name in scores.questions],
        explainers=_explainer_rows(scores),
        mixture=scores.mixture,
        figure=figure,
        best=[_card(row, scores) for _, row in ranked.iloc[:n_best].iterrows()],
        worst=[_card(row, scores) for _, row in ranked.iloc[len(ranked) - n_worst :].iloc[::-1].iterrows()],
        n_tied=int((values == values[-1]).sum()),
        rows=_all_rows(scores),
        n_rows=len(scores.frame),
        about=about,
        notes=notes,
    )


def _explainer_rows(scores: Scores) -> list[tuple[str, list[tuple[str, str]], str, str]]:
    """Return name, mean and deviation of each question, n and wins."""
    rows = []
    for name, row in scores.by_explainer.iterrows():
        cells = [(score_text(row[question]), score_text(row[f"{question} deviation"])) for question in scores.questions]
        rows.append((str(name), cells, str(int(row["n"])), wins_text(row) if "wins" in row else ""))
    return rows


def _all_rows(scores: Scores) -> list[tuple[list[str], list[str], str]]:
    return [
        (
            [row["explainer"], row["explanation"], row["label"]],
            [score_text(row[question]) for question in scores.questions],
            row["note"],
        )
        for _, row in scores.best_first.head(ROWS_SHOWN).iterrows()
    ]


def _card(row: pd.Series, scores: Scores) -> Card:
    file: ExplanationFile = scores.files[int(row.name)]
    explanation = file.read()
    image = "" if file.image is None else data_url(jpeg(resized(load_image(file.image), PICTURE)))
    drawn, concepts = "", []
    if isinstance(explanation, ConceptExplanation):
        top = top_concepts(explanation, CONCEPTS_SHOWN)
        largest = max(abs(value) for _, value in top) or 1.0
        concepts = [Concept(name, short_number(value), value / largest) for name, value in top]
    else:
        drawn = data_url(jpeg(shown_picture(explanation, PICTURE)))
    numbers = [f"{name} {score_text(row[name])}" for name in scores.questions]
    below = (
        file.path.stem if not file.label or file.path.stem.endswith(file.label) else f"{file.path.stem}: {file.label}"
    )
    return Card(file.explainer, below, numbers, image, drawn, concepts, file.modality == "drawing")
