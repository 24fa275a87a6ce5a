"""The main table of a trained scorer on the terminal, as the paper's Table 1, and how its numbers are written."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from rich import box
from rich.table import Table

from quantus_concepts.pasta.open_clip_encoder import PRESETS
from quantus_concepts.studies.findings import minus
from quantus_concepts.studies.pasta.paper import TABLE_1
from quantus_concepts.studies.pasta.results import (
    CEILING,
    HUMAN,
    MEASURES,
    SCORER,
    SHUFFLED,
    Record,
    Summary,
    models_of,
    questions_of,
    summary,
)
from quantus_concepts.studies.records import select

#: Mark of every table and figure whose raters are.
SIMULATED = "simulated raters"
SHOWN = ("MSE", "QWK", "SCC")
ARROWS = {True: "↓", False: "↑"}
PAPER = "paper"
#: Columns of the terminal that the names of the rows take, and a number with its deviation.
NAMES_WIDTH, CELL_WIDTH = 27, 15


def written(found: Summary | None) -> str:
    """Write mean and deviation with three decimals, as the paper does."""
    if found is None:
        return ""
    if math.isnan(found.mean):
        return "–"
    return minus(f"{found.mean:z.3f}") + ("" if math.isnan(found.deviation) else f" ± {found.deviation:.3f}")


def paper_rows(encoder: str | None) -> dict[str, str]:
    """Return the rows of Table 1 ours stand beside: the scorer only where the encoder is the same."""
    return ({SCORER: encoder} if encoder in PRESETS else {}) | {HUMAN: "human"}


def published(measure: str, question: str, row: str) -> Summary | None:
    """Return a number of the paper's Table 1."""
    pair: Mapping[str, tuple[float, float]] = TABLE_1.get(measure, {}).get(row, {})
    return Summary(*pair[question], n_seeds=5) if question in pair else None


def main_table(records: Sequence[Record], encoder: str | None, simulated: bool, width: int = 80) -> Table:
    """Return the table for the terminal."""
    questions = questions_of(records)
    deviations = width >= NAMES_WIDTH + CELL_WIDTH * len(questions)
    n_seeds = len({record.seed for record in records})
    shown = "Mean over" if deviations or n_seeds < 2 else "Mean (deviation: report.html) over"
    table = Table(
        title=("Simulated raters: s" if simulated else "S") + "cores and votes of unseen images and explainers",
        caption=f"{shown} {n_seeds} split{'' if n_seeds == 1 else 's'}."
        + (" The ceiling is what the raters' own noise allows." if CEILING in models_of(records) else ""),
        title_style="bold",
        title_justify="left",
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    table.add_column("", no_wrap=True)
    table.add_column("", no_wrap=True)
    for question in questions:
        table.add_column(question, justify="right", no_wrap=True)

    def line(cells: Sequence[Summary | None]) -> list[str]:
        return [written(cell) if deviations else written(cell).split(" ± ")[0] for cell in cells]

    beside = {} if simulated else paper_rows(encoder)
    for measure in SHOWN:
        for place, model in enumerate(models_of(select(records, measure=measure))):
            cells = [summary(records, model, question, measure) for question in questions]
            head = f"{measure} {ARROWS[MEASURES[measure]]}" if place == 0 else ""
            style = "bold" if model == SCORER else "dim" if model == SHUFFLED else None
            table.add_row(head, model, *line(cells), style=style)
            if model in beside:
                others = [published(measure, question, beside[model]) for question in questions]
                table.add_row("", f"  paper, {beside[model]}", *line(others), style="dim")
        table.add_section()
    return table
