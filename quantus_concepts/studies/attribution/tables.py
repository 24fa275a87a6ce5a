"""Tables of the attribution benchmark: the one on the terminal, and those of the report."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from quantus_concepts.studies.attribution.premises import CommonalityRow, PremiseCheck
from quantus_concepts.studies.attribution.results import (
    CONTROLS,
    TCAV,
    Record,
    against_reference,
    commonalities,
    leaders,
    methods_of,
)
from quantus_concepts.studies.attribution.truth import mark, unverified
from quantus_concepts.studies.attribution.writing import (
    WRITERS,
    contrast,
    correlation,
    span,
    whole,
)
from quantus_concepts.studies.records import find, select
from quantus_concepts.studies.report_tables import Cell, ReportTable, Row

#: Signs of a number that is not above what it is held against.
MARKS = {"at": "≈", "below": "▼"}
#: From this many columns on the terminal's table has intervals of the perturbation and correlations.
WIDE = 104
#: Metrics of the main table, with their headings.
HEADINGS = {
    "MCS": "MCS",
    "MCS baseline": "random mask",
    "IDR": "IDR %",
    "IIR": "IIR %",
    "perturbation": "average perturbation",
}
TCAV_SCALE = (
    "TCAV is a difference of its scores: one number for all images, on a scale of its own; random concepts stand in "
    "place of a random mask."
)
TERMINAL_HEADINGS = {"MCS baseline": "random\nmask", "perturbation": "pert."}


def method_table(records: Sequence[Record], premises: Sequence[PremiseCheck]) -> ReportTable:
    """Return the main table: methods and metrics."""
    metrics = _metrics(records)
    best = {metric: leaders(records, metric, lowest=metric == "perturbation") for metric in metrics}
    rows = []
    for method in _listed(records):
        cells = []
        for metric in metrics:
            record = find(records, metric=metric, method=method)
            # A random mask's number is a reference: there is no best one.
            leads = metric != "MCS baseline" and record in best[metric]
            cells.append(_cell(records, record, leads))
        rows.append(Row(method, tuple(cells), method in CONTROLS))
    missing = dict.fromkeys(model for metric in metrics for model in unverified(metric, premises))
    return ReportTable(
        "All methods",
        "Higher is better for MCS, IDR and IIR, lower for the average perturbation.",
        tuple((HEADINGS[metric], _counted(records, metric)) for metric in metrics),
        tuple(rows),
        "Small numbers are 95 % intervals. Bold: the best, and what cannot be told apart from it. "
        "≈ not distinguishable from its random mask (MCS) or from 50 % (IDR), ▼ below it. Grey: controls, which know "
        "nothing of the model." + (f" {TCAV_SCALE}" if TCAV in methods_of(records) else ""),
        mark(tuple(missing)),
    )


def _metrics(records: Sequence[Record]) -> list[str]:
    return [metric for metric in HEADINGS if select(records, metric=metric)]


def _listed(records: Sequence[Record]) -> list[str]:
    return methods_of(record for record in records if record.metric in HEADINGS)


def _cell(records: Sequence[Record], record: Record | None, best: bool) -> Cell:
    if record is None:
        return Cell("")
    if not record.defined:
        return Cell("–")
    return Cell(WRITERS[record.metric](record.value), span(record), _sign(records, record), best)


def _sign(records: Sequence[Record], record: Record) -> str:
    # A control is meant to be at its reference; the verdicts say whether it is.
    return "" if record.method in CONTROLS else MARKS.get(against_reference(records, record), "")


def _counted(records: Sequence[Record], metric: str) -> str:
    # TCAV counts something else than images.
    counts = [record.n for record in select(records, metric=metric) if record.method != TCAV]
    if not any(counts):
        return ""
    low, high = min(counts), max(counts)
    return f"n = {low}" if low == high else f"n = {low}–{high}"


def count_table(records: Sequence[Record]) -> ReportTable:
    """Return how many scores were defined and how many patches were left out."""
    metrics = [metric for metric in _metrics(records) if metric != "MCS baseline"]
    rows = []
    for method in _listed(records):
        found = [find(records, metric=metric, method=method) for metric in metrics]
        cells = [Cell("" if r is None else f"{r.n} of {r.n + r.undefined}") for r in found]
        patched = [r.unconverged for r in found if r is not None and r.metric in ("IIR", "perturbation")]
        cells.append(Cell(str(max(patched)) if patched else ""))
        rows.append(Row(method, tuple(cells), method in CONTROLS))
    return ReportTable(
        "Scores that were defined",
        "Of all images: those that every model concerned classifies correctly and whose score has a value.",
        (*((metric, "") for metric in metrics), ("patches left out", "not converged")),
        tuple(rows),
        "A score is undefined where an image is not classified correctly, a patch did not converge, the map failed, "
        "or (IIR, perturbation) the attribution of the region is 0. Undefined scores enter no mean.",
    )


def relative_table(
    records: Sequence[Record], premises: Sequence[PremiseCheck], commonality: Sequence[CommonalityRow]
) -> ReportTable:
    """Return relative MCS by commonality, with the correlation to the accuracy drop."""
    levels = commonalities(records)
    chosen = [record for record in records if record.metric in ("relative MCS", "correlation")]
    best = leaders(chosen, "correlation")
    rows = []
    for method in methods_of(chosen):
        curve = [find(chosen, metric="relative MCS", method=method, k=k) for k in levels]
        followed = find(chosen, metric="correlation", method=method)
        cells = [_point(record) for record in curve] + [_cell(chosen, followed, followed in best)]
        rows.append(Row(method, tuple(cells), method in CONTROLS))
    drops = {row.k: row for row in commonality}
    if drops:
        cells = [Cell(contrast(drops[k].drop) if k in drops else "", style="paper") for k in levels]
        rows.append(Row("accuracy drop", (*cells, Cell("", style="paper"))))
    return ReportTable(
        "Relative MCS",
        "Contrast of the model of commonality k with that of k = 1, and Pearson's correlation of the curve with the "
        "accuracy lost when the object is removed.",
        (*((f"k = {k:g}", "") for k in levels), ("correlation", "")),
        tuple(rows),
        "Small numbers are 95 % bootstrap intervals over images.",
        mark(unverified("relative MCS", premises, commonality)),
    )


def _point(record: Record | None) -> Cell:
    if record is None or not record.defined:
        return Cell("" if record is None else "–")
    # Two decimals, or ten intervals do not fit on a page; results.csv has all.
    return Cell(contrast(record.value), span(record, correlation))


def main_table(
    records: Sequence[Record],
    premises: Sequence[PremiseCheck],
    width: int = 80,
    commonality: Sequence[CommonalityRow] = (),
) -> Table:
    """Return the main table for the terminal."""
    wide = width >= WIDE
    metrics = _metrics(records) + (["correlation"] if wide and select(records, metric="correlation") else [])
    missing = dict.fromkeys(model for metric in metrics for model in unverified(metric, premises, commonality))
    caption = Text(
        "≈ not told apart from its random mask (MCS) or from 50 % (IDR), ▼ below it.\n"
        "± and brackets: 95 % intervals. Pert.: average perturbation, lower is better."
    )
    if missing:
        text = mark(tuple(missing))
        caption = Text.assemble((f"{text[0].upper()}{text[1:]}.\n", "bold red"), caption)
    table = Table(
        title="Do explanations give importance to what does not matter?",
        caption=caption,
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        title_style="bold",
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    # Only the names give way where it is narrow.
    table.add_column("")
    for metric in metrics:
        heading = TERMINAL_HEADINGS.get(metric, HEADINGS.get(metric, metric))
        table.add_column(heading, justify="right", no_wrap=True)
    for method in _listed(records):
        cells = [_terminal_cell(records, find(records, metric=m, method=method), wide) for m in metrics]
        table.add_row(method, *cells, style="dim" if method in CONTROLS else None)
    return table


def _terminal_cell(records: Sequence[Record], record: Record | None, wide: bool) -> str:
    if record is None:
        return ""
    if not record.defined:
        return "–"
    write = whole if record.metric in ("IDR", "IIR") else WRITERS[record.metric]
    text = _sign(records, record) + write(record.value)
    if math.isnan(record.low) or record.metric == "MCS baseline" or (record.metric == "perturbation" and not wide):
        return text
    if record.metric == "MCS":
        return f"{text} ±{contrast((record.high - record.low) / 2)}"
    return f"{text} ({span(record, write)})"
