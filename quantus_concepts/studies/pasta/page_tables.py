"""Tables of the report of a trained scorer, in the form of the paper's Tables 1 and 17."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from quantus_concepts.datasets.ratings.explanations import MODALITIES
from quantus_concepts.datasets.ratings.questions import QUESTIONS
from quantus_concepts.datasets.ratings.rated import RatedExplanations
from quantus_concepts.datasets.ratings.split import PARTS
from quantus_concepts.studies.findings import minus, number
from quantus_concepts.studies.pasta.paper import SOURCE, paper_table
from quantus_concepts.studies.pasta.results import (
    CEILING,
    HUMAN,
    MEASURES,
    SCORER,
    SHUFFLED,
    Record,
    Summary,
    models_of,
    of_ceiling,
    questions_of,
    seed_interval,
    summary,
)
from quantus_concepts.studies.pasta.tables import PAPER, SHOWN, SIMULATED, paper_rows, published, written
from quantus_concepts.studies.records import select
from quantus_concepts.studies.report_tables import Cell, ReportTable, Row

if TYPE_CHECKING:
    from quantus_concepts.studies.pasta.seeds import Outcome

MEASURE_NAMES = {
    "MSE": "MSE ↓ mean squared error",
    "QWK": "QWK ↑ quadratic weighted kappa of rounded scores",
    "SCC": "SCC ↑ Spearman's correlation",
    "SCC rounded": "SCC ↑ of rounded scores, as the release computes it",
}
REGRESSORS = ("SVM", "ridge", "lasso")
KIND_NAMES = {"map": "Maps alone", "drawing": "Drawings alone", "concepts": "Concepts alone"}


def report_tables(
    outcome: Outcome, ratings: RatedExplanations, encoder: str | None, questions: Sequence[str]
) -> dict[str, ReportTable]:
    """Return the tables of the report."""
    records, simulated = outcome.records, ratings.simulated
    tables = [
        agreement_table(records, encoder, simulated),
        ceiling_table(records, simulated),
        kind_table(records, simulated),
        regressor_table(records, encoder, simulated),
        split_table(outcome, simulated),
        votes_table(ratings, questions),
    ]
    if simulated:
        tables.append(orientation_table(questions, encoder))
    return {table.name: table for table in tables if table.rows and table.columns}


def agreement_table(records: Sequence[Record], encoder: str | None, simulated: bool) -> ReportTable:
    """Return mean and deviation of every measure, as the paper's Table 1, with its figures where they compare."""
    questions = questions_of(records)
    beside = {} if simulated else paper_rows(encoder)
    rows = []
    for measure in MEASURES:
        for place, model in enumerate(_without_regressors(select(records, measure=measure))):
            cells = tuple(_split_cell(summary(records, model, question, measure)) for question in questions)
            group = MEASURE_NAMES[measure] if place == 0 else ""
            rows.append(Row(model, cells, model == SHUFFLED, group))
            others = [published(measure, question, beside.get(model, "")) for question in questions]
            if any(others):
                rows.append(Row(f"paper, {beside[model]}", tuple(_split_cell(other, PAPER) for other in others)))
    seeds = len({record.seed for record in records})
    return ReportTable(
        "Agreement with the votes",
        "Of explanations whose image and explainer were not seen in training, on the scale from 1 to 5. "
        f"Mean{' ± standard deviation' if seeds > 1 else ''} over {seeds} split{'' if seeds == 1 else 's'}.",
        tuple((question, _counted(records, question)) for question in questions),
        tuple(rows),
        _agreement_key(records, bool(beside)),
        SIMULATED if simulated else "",
    )


def _without_regressors(records: Sequence[Record]) -> list[str]:
    # They have a table of their own.
    return [model for model in models_of(records) if model not in REGRESSORS]


def _agreement_key(records: Sequence[Record], paper: bool) -> str:
    models = models_of(records)
    parts = ["n: test explanations of a split."]
    if SHUFFLED in models:
        parts.append("Grey: the control, trained on votes dealt out anew.")
    if CEILING in models:
        parts.append("Ceiling: what the raters' own noise allows any scorer.")
    if paper:
        parts.append(f"paper: {SOURCE}; votes joined by their mode.")
    return " ".join(parts)


def _split_cell(found: Summary | None, style: str = "") -> Cell:
    mean, _, deviation = written(found).partition(" ± ")
    return Cell(mean, f"± {deviation}" if deviation else "", style=style)


def _counted(records: Sequence[Record], question: str) -> str:
    counts = [record.n for record in select(records, model=SCORER, question=question, measure="SCC", modality="all")]
    return f"n = {_range(counts)}" if counts else ""


def _range(counts: Sequence[int]) -> str:
    low, high = min(counts), max(counts)
    return str(low) if low == high else f"{low}–{high}"


def ceiling_table(records: Sequence[Record], simulated: bool) -> ReportTable:
    """Return which share of what the raters' noise allows is reached, with 95 % intervals over splits."""
    questions = questions_of(records)
    rows = []
    if CEILING in models_of(records):
        for model in (SCORER, CEILING):
            rows.append(Row(model, tuple(_interval_cell(summary(records, model, q, "SCC")) for q in questions)))
        rows.append(
            Row("share of the ceiling", tuple(_interval_cell(of_ceiling(records, q), _whole) for q in questions))
        )
        if SHUFFLED in models_of(records):
            cells = tuple(_interval_cell(summary(records, SHUFFLED, q, "SCC")) for q in questions)
            rows.append(Row(SHUFFLED, cells, control=True))
    return ReportTable(
        "Share of the ceiling",
        "Spearman's correlation of scores with the joined votes, beside that of votes without the raters' noise."
        if simulated
        else "Spearman's correlation of scores with the joined votes, beside what is estimated from how far the raters "
        "agree.",
        tuple((question, "") for question in questions),
        tuple(rows),
        "Small numbers are 95 % intervals over splits, where there are at least 3. The share is taken split by split.",
        SIMULATED if simulated else "",
    )


def _interval_cell(found: Summary | None, write: Callable[[float], str] = number) -> Cell:
    if found is None:
        return Cell("")
    if math.isnan(found.mean):
        return Cell("–")
    low, high = seed_interval(found)
    return Cell(write(found.mean), "" if math.isnan(low) else f"{write(low)} to {write(high)}")


def _whole(value: float) -> str:
    return minus(f"{100 * value:z.0f} %")


def kind_table(records: Sequence[Record], simulated: bool) -> ReportTable:
    """Return Spearman's correlation among maps alone and among concepts alone."""
    questions = questions_of(records)
    rows = []
    for kind in MODALITIES:
        found = select(records, modality=kind, measure="SCC")
        for place, model in enumerate(_without_regressors(found)):
            cells = tuple(_interval_cell(summary(records, model, q, "SCC", kind)) for q in questions)
            counts = [record.n for record in found]
            group = f"{KIND_NAMES[kind]}, n = {_range(counts)}" if place == 0 else ""
            rows.append(Row(model, cells, model == SHUFFLED, group))
    return ReportTable(
        "Within one kind",
        "Spearman's correlation of scores with the joined votes: an order of all explanations may come from one kind "
        "being rated higher than the other, this one does not.",
        tuple((question, "") for question in questions),
        tuple(rows),
        "Small numbers are 95 % intervals over splits, where there are at least 3.",
        SIMULATED if simulated else "",
    )


def regressor_table(records: Sequence[Record], encoder: str | None, simulated: bool) -> ReportTable:
    """Return the scoring functions side by side, as the paper's Table 17."""
    fitted = [model for model in REGRESSORS if model in models_of(records)]
    questions = questions_of(records)
    beside = encoder == "siglip" and not simulated and "Q1" in questions
    printed = paper_table(17)
    rows = []
    for measure in SHOWN if fitted else ():
        for model in (SCORER, *fitted):
            cells = (_split_cell(summary(records, model, question, measure)) for question in questions)
            rows.append(Row(model, tuple(cells), group=MEASURE_NAMES[measure] if model == SCORER else ""))
            if beside:
                row = printed[(printed["row"] == model) & (printed["measure"] == measure)].iloc[0]
                known = Summary(row["value"], row["deviation"], n_seeds=5)
                others = (_split_cell(known if question == "Q1" else None, PAPER) for question in questions)
                rows.append(Row(f"paper, {model}", tuple(others)))
    return ReportTable(
        "Scoring functions",
        "The network and three regressors on the same embeddings. Mean ± standard deviation over splits.",
        tuple((question, "") for question in questions),
        tuple(rows),
        f"paper: {SOURCE.split(',')[0]}, Table 17, on SigLIP's embeddings, Q1." if beside else "",
        SIMULATED if simulated else "",
    )


def split_table(outcome: Outcome, simulated: bool) -> ReportTable:
    """Return how many explanations, images and explainers each part of each split has."""
    rows = []
    for result in outcome.seeds:
        split = result.split
        cells = [
            Cell(
                str(len(getattr(split, part))),
                f"{len(split.images[part])} images, {len(split.explainers[part])} explainers",
            )
            for part in PARTS
        ]
        total = sum(len(getattr(split, part)) for part in PARTS) + split.dropped
        cells.append(Cell(str(split.dropped), f"of {total}"))
        rows.append(Row(f"seed {result.seed}", tuple(cells)))
    return ReportTable(
        "Splits",
        "Explanations in each part. No image and no explainer is in two parts; explanations whose image and explainer "
        "fall in different parts are left out.",
        (*((part, "") for part in PARTS), ("left out", "")),
        tuple(rows),
        unverified=SIMULATED if simulated else "",
    )


def votes_table(ratings: RatedExplanations, questions: Sequence[str]) -> ReportTable:
    """Return how many votes there are and how many are missing."""
    columns = [list(QUESTIONS).index(question) for question in questions]
    given = ~np.isnan(ratings.votes[:, :, columns])
    voters = given.sum(1)
    rows = [
        Row("votes", tuple(Cell(str(int(count))) for count in given.sum((0, 1)))),
        Row("missing", tuple(Cell(str(int(count))) for count in (~given).sum((0, 1)))),
        Row("explanations without a vote", tuple(Cell(str(int(count))) for count in (voters == 0).sum(0))),
        Row("with a single vote", tuple(Cell(str(int(count))) for count in (voters == 1).sum(0))),
    ]
    places = given.shape[1]
    return ReportTable(
        "Votes",
        f"{len(ratings)} explanations of {len(set(ratings.image_ids.tolist()))} images by "
        f"{len(set(ratings.explainer_ids.tolist()))} explainers; "
        f"{'a single rater' if places == 1 else f'up to {places} raters'} for each.",
        tuple((question, "") for question in questions),
        tuple(rows),
        "A missing vote is left out for its question alone.",
        SIMULATED if ratings.simulated else "",
    )


def orientation_table(questions: Sequence[str], encoder: str | None = None) -> ReportTable:
    """Return the paper's figures for themselves, where ours cannot stand beside them."""
    rows = []
    for measure in SHOWN:
        for model, row in {SCORER: encoder or "siglip", HUMAN: "human"}.items():
            cells = tuple(_split_cell(published(measure, question, row), PAPER) for question in questions)
            rows.append(Row(row, cells, group=MEASURE_NAMES[measure] if model == SCORER else ""))
    return ReportTable(
        "For orientation: the paper",
        f"{SOURCE}. People's votes on explanations of photographs: not comparable with the numbers of this run.",
        tuple((question, "") for question in questions),
        tuple(rows),
    )
