"""The report of the PASTA benchmark and of trainings: one HTML file with everything in it, in light and in dark."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from itertools import groupby
from typing import TYPE_CHECKING, Any

import pandas as pd
import typer
from markupsafe import escape

from quantus_concepts.datasets.ratings.questions import QUESTIONS
from quantus_concepts.datasets.ratings.rated import RatedExplanations
from quantus_concepts.pasta.correlations import RatingCorrelation
from quantus_concepts.studies.charts import png_base64
from quantus_concepts.studies.output import OutputFolder
from quantus_concepts.studies.page import render_page, versions
from quantus_concepts.studies.pasta.page_tables import report_tables
from quantus_concepts.studies.pasta.paper import SOURCE
from quantus_concepts.studies.pasta.plot import default_figures
from quantus_concepts.studies.pasta.results import CEILING, Record, models_of, questions_of
from quantus_concepts.studies.pasta.tables import SIMULATED, main_table
from quantus_concepts.studies.pasta.uses_plot import uses_figures
from quantus_concepts.studies.pasta.uses_results import MeanRow, Uses
from quantus_concepts.studies.pasta.uses_tables import uses_tables, uses_verdicts
from quantus_concepts.studies.pasta.verdicts import SIMULATED as SIMULATED_TEXT
from quantus_concepts.studies.pasta.verdicts import verdicts
from quantus_concepts.studies.records import to_frame
from quantus_concepts.studies.report_tables import terminal

if TYPE_CHECKING:
    from quantus_concepts.studies.pasta.seeds import Outcome, Plan

SHEETS = ("ranked", "steering", "light", "strong")
CAPTIONS = {
    "scc": "Spearman's correlation of scores with joined votes, of unseen explanations. Bars are means over splits, "
    "points the splits.",
    "qwk": "Quadratic weighted kappa of rounded scores and joined votes, of unseen explanations.",
    "mse": "Mean squared error on the scale from 1 to 5, of unseen explanations.",
    "explainers": "Explainers that were never seen in training: mean score against mean vote. On the dashed line they "
    "are the same; only explainers at the extremes are named.",
    "curves": "Quadratic weighted kappa on the validation explanations by epoch. A line is a split, its point the "
    "epoch that was kept.",
    "votes": "Mean joined vote by kind of explanation, with 95 % intervals over images.",
    "wins": "How often each explainer is chosen.",
    "faithfulness": "What the choice does to faithfulness: means over images with 95 % intervals.",
    "ranked": "The explanations with the best and the worst score, each below its image.",
    "steering": "Images explained by RISE with growing weight λ of the score.",
    "light": "Light perturbations, as question Q5 asks of them: the explanation should stay. Below each name its "
    "magnitude.",
    "strong": "Strong perturbations that change the prediction, as question Q6 asks of them: the explanation should "
    "change with it. Below each name its magnitude.",
}


def write_report(
    folder: OutputFolder,
    *,
    title: str,
    outcome: Outcome,
    ratings: RatedExplanations,
    plan: Plan,
    encoder: str | None,
    settings: Mapping[str, Any],
    notes: Sequence[str] = (),
    uses: Uses | None = None,
) -> None:
    """Write results.csv, the figures and report.html, and print the main table."""
    figures = default_figures(outcome.seeds, outcome.records, ratings, plan.votes)
    if uses is not None:
        figures |= uses_figures(uses, ratings.simulated)
    frame = to_frame(outcome.records, Record)
    frame["raters"] = "simulated" if ratings.simulated else "people"
    with folder.file("results.csv") as path:
        frame.to_csv(path, index=False)
    for name, table in _use_frames(uses).items():
        with folder.file(f"{name}.csv") as path:
            table.to_csv(path, index=False)
    # Drawn once: the page shows what the files hold.
    pictures = {name: png_base64(figure) for name, figure in figures.items()}
    for name, picture in pictures.items():
        folder.write_bytes(f"figures/{name}.png", base64.b64decode(picture))
    folder.write_text(
        "report.html",
        render_report(
            title=title,
            outcome=outcome,
            ratings=ratings,
            plan=plan,
            encoder=encoder,
            settings=settings,
            notes=notes,
            pictures=pictures,
            uses=uses,
            versions=versions(),
        ),
    )
    for note in notes:
        typer.echo(f"Note: {note}", err=True)
    console = terminal()
    console.print(main_table(outcome.records, encoder, ratings.simulated, console.width))


def render_report(
    *,
    title: str,
    outcome: Outcome,
    ratings: RatedExplanations,
    plan: Plan,
    encoder: str | None,
    settings: Mapping[str, Any],
    notes: Sequence[str],
    pictures: Mapping[str, str],
    uses: Uses | None = None,
    versions: Mapping[str, str] | None = None,
    created: datetime | None = None,
) -> str:
    """Return the report as one self-contained HTML document."""
    simulated = ratings.simulated
    tables = report_tables(outcome, ratings, encoder, plan.questions)
    said = verdicts(outcome, ratings, plan.votes)
    notes = list(notes)
    if uses is not None:
        tables |= uses_tables(uses, simulated)
        said += uses_verdicts(uses, simulated)
        notes += [note for note in uses.notes if note not in notes]
    notes += [
        note
        for note in dict.fromkeys(note for result in outcome.seeds for note in result.training.notes)
        if note not in notes
    ]
    return render_page(
        "pasta.html.j2",
        title=f"{title} ({SIMULATED})" if simulated and SIMULATED not in title else title,
        created=f"{created or datetime.now():%d %B %Y, %H:%M}",
        seeds=[result.seed for result in outcome.seeds],
        simulated=SIMULATED_TEXT if simulated else "",
        verdicts=[
            (topic, [verdict.text for verdict in group])
            for topic, group in groupby((v for v in said if v.topic != "Raters"), key=lambda v: v.topic)
        ],
        notes=notes,
        questions=[QUESTIONS[name] for name in QUESTIONS if name in questions_of(outcome.records)],
        votes=plan.votes,
        has_ceiling=CEILING in models_of(outcome.records),
        tables=tables,
        figures={
            name: {
                "data": picture,
                "caption": CAPTIONS.get(name, f"{name.replace('_', ' ').capitalize()}."),
                "unverified": SIMULATED if simulated else "",
                "wide": name in SHEETS,
            }
            for name, picture in pictures.items()
        },
        other_figures=[name for name in pictures if name not in CAPTIONS],
        weights=bool(uses and (uses.steering or uses.steering_scores)),
        settings=settings,
        versions=versions or {},
        csv_files=[f"{name}.csv" for name in ("results", *_use_frames(uses))],
        source=SOURCE,
        signs=escape,
    )


def _use_frames(uses: Uses | None) -> dict[str, pd.DataFrame]:
    """Return what the uses found as tables for files, by name."""
    if uses is None:
        return {}
    frames = {
        "wins": pd.DataFrame(uses.wins(), columns=["explainer", "images"]),
        "faithfulness": _frame(uses.faithfulness, MeanRow),
        "steering": _frame(uses.steering_scores, MeanRow),
        "correlations": _frame(uses.correlations, RatingCorrelation),
    }
    return {name: frame for name, frame in frames.items() if len(frame)}


def _frame(rows: Sequence[Any], kind: type) -> pd.DataFrame:
    return pd.DataFrame(
        [[getattr(row, field.name) for field in fields(kind)] for row in rows], columns=[f.name for f in fields(kind)]
    )
