"""The page of `pasta score`: its tables, how often each explainer is best, and the best and the worst explanations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from captum_concepts._support.images import load_image
from quantus_concepts.datasets.ratings.explanation_files import ExplanationFile
from quantus_concepts.datasets.ratings.explanations import ConceptExplanation
from quantus_concepts.datasets.ratings.questions import QUESTIONS, question_named
from quantus_concepts.pasta.applications.mixture import Mixture, plot_mixture
from quantus_concepts.studies._kit.charts import Chart
from quantus_concepts.studies._kit.findings import Finding, listed, number, said
from quantus_concepts.studies._kit.page import Page, Section
from quantus_concepts.studies._kit.pictures import data_url, listed_concepts, resized, shown_picture
from quantus_concepts.studies._kit.run import Run
from quantus_concepts.studies._kit.tables import Table
from quantus_concepts.studies.rating.options import ScoreOptions

PICTURE = 240
CONCEPTS_SHOWN = 8
#: Of more the table of explainers is folded.
EXPLAINERS_SHOWN = 20
#: Rows of the page's table; the CSV has all.
ROWS_SHOWN = 1000


@dataclass(frozen=True)
class Card:
    """An explanation next to its image."""

    title: str
    below: str
    scores: list[str]
    image: str
    map: str
    concepts: list[tuple[str, str, float]]
    drawn: bool = False


def score_page(frame: pd.DataFrame, run: Run[ScoreOptions]) -> Page:
    """Declare the page."""
    scores: pd.DataFrame = run.facts["scores"]
    questions: list[str] = list(run.facts["questions"])
    mixture: Mixture | None = run.facts["mixture"]
    first = questions[0]
    ranked = scores[scores[first].notna()]
    explainers = _table_of_explainers(frame, questions)
    tables, folded = ([explainers], []) if frame["explainer"].nunique() <= EXPLAINERS_SHOWN else ([], [explainers])
    charts = []
    if mixture is not None:
        caption = "For how many images each explainer has the best score, as in the paper's Figure 7."
        charts.append(Chart("mixture", caption, plot_mixture(mixture)[0]))
    every = _table_of_all(scores.head(ROWS_SHOWN), questions, len(scores))
    n_shown, n = run.options.n_shown, len(ranked)
    n_best = min(n_shown, (n + 1) // 2) if n < 2 * n_shown else n_shown
    n_worst = min(n_shown, n - n_best)
    cards = {
        "best": [_card(row, run.facts["files"], questions) for _, row in ranked.iloc[:n_best].iterrows()],
        "worst": [_card(row, run.facts["files"], questions) for _, row in ranked.iloc[n - n_worst :][::-1].iterrows()],
        "n_tied": int((ranked[first] == ranked[first].iloc[-1]).sum()),
        "question": first,
    }
    return Page(
        "Scores of explanations",
        said(_span(ranked, first), None if mixture is None else _most_often(mixture)),
        [
            # Fold long tables so that the cards stay visible.
            Section("Explainers", tables=tables, charts=charts, folded=folded),
            Section("All explanations", folded=[every]),
        ],
        main=[explainers],
        answers=answers(frame, ranked, first, mixture),
        template="rating/score.html.j2",
        content=cards,
    )


def answers(frame: pd.DataFrame, ranked: pd.DataFrame, question: str, mixture: Mixture | None) -> list[Finding]:
    """Return which explainer is rated best on average and most often, and how all explanations are rated."""
    means = frame[(frame["measure"] == question) & frame["value"].notna()]
    (best, high), (worst, low) = (means[["explainer", "value"]].iloc[end] for end in (0, -1))
    average = f"{best} ({number(high)})" + (f"; worst {worst} ({number(low)})" if len(means) > 1 else "")
    values = ranked[question]
    ends = f"median {number(values.median())} of 1 to 5, from {number(values.min())} to {number(values.max())}"
    often = ""
    if mixture is not None and (most := max(mixture.wins.values())):
        names = listed([name for name, wins in mixture.wins.items() if wins == most])
        often = f"{names} (alone, {most} of {len(mixture.choice) - mixture.undefined} images)"
    return said(
        Finding(average, "Best on average"),
        Finding(often, "Best most often"),
        Finding(ends, "All explanations"),
    )


def _span(ranked: pd.DataFrame, question: str) -> str:
    values, asked = ranked[question].to_numpy(), question_named(question)
    low, middle, high = (number(float(value)) for value in (values.min(), np.median(values), values.max()))
    return (
        f"{_counted(len(ranked), 'explanation')} of {_counted(ranked['image_id'].nunique(), 'image')}. {question}, "
        f"“{asked.text}”: from {low} to {high}, median {middle}, of 1 to 5{'; low is good' * asked.low_is_good}."
    )


def _most_often(mixture: Mixture) -> str:
    most = max(mixture.wins.values())
    names = ", ".join(name for name, wins in mixture.wins.items() if wins == most)
    text = (
        f"Alone rated best most often: {names} ({most} of {len(mixture.choice) - mixture.undefined} images)."
        if most
        else "No explainer alone is rated best of any image."
    )
    if mixture.tied:
        have = "have" if mixture.tied != 1 else "has"
        text += (
            f" {_counted(mixture.tied, 'image')} {have} several explainers with the same best score, counted for none "
            "of them."
        )
    return text


def _counted(n: int, noun: str) -> str:
    return f"{n} {noun}{'s' * (n != 1)}"


def arrow(question: str) -> str:
    """Return ↓ where a low score is good, else ↑."""
    return "↓" if question_named(question).low_is_good else "↑"


def _table_of_explainers(frame: pd.DataFrame, questions: list[str]) -> Table:
    rows = frame.to_dict("records")
    frame = frame.assign(text=[_text(row) for row in rows], small=[_small(row) for row in rows])
    asked = " ".join(f"{name}: {question_named(name).text}" for name in questions)
    return Table(
        "Predicted ratings, 1 to 5: means over explanations",
        "",
        frame,
        ["explainer"],
        ["measure"],
        labels={name: f"{name} {arrow(name)}" for name in questions},
        key=f"{asked} ↑ high is good, ↓ low is good. ± is the deviation over explanations.",
    )


def _text(row: dict[str, Any]) -> str:
    """Write a mean; or, of a count, the whole number and how many are shared with others."""
    if row["measure"] in QUESTIONS:
        return number(row["value"])
    return f"{row['value']:.0f}" + (f" + {row['ties']:.0f} tied" if row["ties"] > 0 else "")


def _small(row: dict[str, Any]) -> str:
    return f"± {number(row['deviation'])}" if row["measure"] in QUESTIONS else ""


def _table_of_all(scores: pd.DataFrame, questions: list[str], n_rows: int) -> Table:
    cells = []
    for place, row in scores.iterrows():
        names = {"label": row["label"], **{name: number(row[name]) for name in questions}, "note": row["note"]}
        for column, text in names.items():
            style = "" if column in questions else "name"
            cells.append({"place": place, "column": column, "text": text, "small": "", "style": style})
    return Table(
        f"{len(scores)} of {n_rows}, the best first; all are in scores.csv",
        "",
        pd.DataFrame(cells),
        ["place"],
        ["column"],
        labels={place: f"{row['explainer']}/{row['explanation']}" for place, row in scores.iterrows()},
    )


def _card(row: pd.Series, files: list[ExplanationFile], questions: list[str]) -> Card:
    file = files[int(row.name)]
    explanation = file.read()
    picture, concepts = "", []
    if isinstance(explanation, ConceptExplanation):
        concepts = listed_concepts(explanation, CONCEPTS_SHOWN)
    else:
        picture = data_url(shown_picture(explanation, PICTURE))
    named = not file.label or file.path.stem.endswith(file.label)
    return Card(
        file.explainer,
        file.path.stem if named else f"{file.path.stem}: {file.label}",
        [f"{name} {number(row[name])}" for name in questions],
        "" if file.image is None else data_url(resized(load_image(file.image), PICTURE)),
        picture,
        concepts,
        file.modality == "drawing",
    )
