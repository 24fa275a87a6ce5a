"""Tables of what the score was used for, and what they say in sentences."""

from __future__ import annotations

import math

from quantus_concepts.functional.intervals import relation
from quantus_concepts.studies.findings import listed, minus, number
from quantus_concepts.studies.pasta.paper import MIXTURE_FAITHFULNESS
from quantus_concepts.studies.pasta.paper_correlations import CORRELATIONS, SOURCE
from quantus_concepts.studies.pasta.tables import PAPER, SIMULATED
from quantus_concepts.studies.pasta.uses_results import AVERAGE, CHOICE, MeanRow, Uses
from quantus_concepts.studies.records import find
from quantus_concepts.studies.report_tables import Cell, ReportTable, Row
from quantus_concepts.studies.verdict import Verdict

#: A correlation weaker than this is called weak.
WEAK = 0.4


def uses_tables(uses: Uses, simulated: bool) -> dict[str, ReportTable]:
    """Return the tables of all uses."""
    tables = [
        faithfulness_table(uses, simulated),
        steering_table(uses, simulated),
        correlation_table(uses, simulated),
    ]
    return {table.name: table for table in tables if table.rows}


def faithfulness_table(uses: Uses, simulated: bool) -> ReportTable:
    """Return the mean faithfulness of the choice, of each explainer alone and of their average."""
    rows = []
    for row in uses.faithfulness:
        chosen = row.name == CHOICE
        cells = (_mean(row), _difference(row), Cell(str(row.n)))
        rows.append(Row("chosen by the score" if chosen else row.name, cells))
    return ReportTable(
        "Faithfulness",
        f"Mean {uses.faithfulness_name} over images; higher is better.",
        (("mean", ""), ("choice minus this", "paired"), ("images", "")),
        tuple(rows),
        "Small numbers are 95 % intervals over images. For orientation, the paper on its own images: "
        f"{MIXTURE_FAITHFULNESS['chosen']:.4f} for the choice, {MIXTURE_FAITHFULNESS['average']:.4f} on average.",
        SIMULATED if simulated else "",
    )


def steering_table(uses: Uses, simulated: bool) -> ReportTable:
    """Return mean score and faithfulness of steered explanations by the weight of the score."""
    rows = [
        Row(name, tuple(_mean(row) for row in found))
        for name, found in (
            ("mean score", uses.steering_scores),
            (f"mean {uses.steering_metric}", uses.steering_faithfulness),
        )
        if found
    ]
    return ReportTable(
        "Steering",
        "RISE whose masks are weighted by λ · score + (1 − λ) · class probability; λ = 0 is RISE itself.",
        tuple((f"λ = {weight:g}", "") for weight in uses.steering_weights),
        tuple(rows),
        "Small numbers are 95 % intervals over images. The score is what steers: that it rises says only that steering "
        "works.",
        SIMULATED if simulated else "",
    )


def correlation_table(uses: Uses, simulated: bool) -> ReportTable:
    """Return the correlations of votes with metrics, as the paper's Tables 7 to 9, with its own beside them."""
    questions = sorted({row.question for row in uses.correlations})
    metrics = list(dict.fromkeys(row.metric for row in uses.correlations))
    rows = []
    for metric in metrics:
        found = [find(uses.correlations, metric=metric, question=question) for question in questions]
        counts = sorted({row.n for row in found if row is not None})
        group = f"{metric}, n = {counts[0]}" + (f"–{counts[-1]}" if len(counts) > 1 else "")
        published = [CORRELATIONS.get(metric, {}).get(question) for question in questions]
        for name in ("Spearman", "Pearson"):
            key = name.lower()
            cells = (
                Cell("") if row is None else _coefficient(getattr(row, key), getattr(row, f"{key}_p")) for row in found
            )
            rows.append(Row(name, tuple(cells), group=group if name == "Spearman" else ""))
            if any(published):
                others = (
                    Cell("", style=PAPER)
                    if row is None
                    else _coefficient(getattr(row, key), getattr(row, f"{key}_p"), PAPER)
                    for row in published
                )
                rows.append(Row(f"paper, {name}", tuple(others)))
    return ReportTable(
        "Votes and metrics",
        "Correlation of the joined votes with what metrics say of the same explanations.",
        tuple((question, "low is good" if question == "Q5" else "") for question in questions),
        tuple(rows),
        "Small numbers are p-values, which take explanations for independent; several of one image or of one "
        f"explainer are not. For orientation: {SOURCE}.",
        SIMULATED if simulated else "",
    )


def uses_verdicts(uses: Uses, simulated: bool) -> list[Verdict]:
    """Return what can be said of the uses."""
    said = [
        ("Mixture", _wins(uses)),
        ("Mixture", _chosen(uses)),
        ("Steering", _steered(uses)),
        ("Other metrics", _correlated(uses, simulated)),
    ]
    return [Verdict(topic, text) for topic, text in said if text]


def _wins(uses: Uses) -> str:
    total = sum(uses.mixture_wins) + uses.mixture_tied
    if not total:
        return ""
    tied = f" Of {uses.mixture_tied} images several explainers share the best score." if uses.mixture_tied else ""
    if not sum(uses.mixture_wins):
        return tied.strip()
    (name, count), *_ = uses.wins()
    never = sum(1 for won in uses.mixture_wins if not won)
    text = f"{name} has the best score ({uses.mixture_question}) most often, for {count} of {total} images"
    if not never:
        return f"{text}.{tied}"
    verb = "has" if never == 1 else "have"
    return f"{text}; {never} of {len(uses.mixture_names)} explainers never {verb} it alone.{tied}"


def _chosen(uses: Uses) -> str:
    chosen = find(uses.faithfulness, name=CHOICE)
    if chosen is None or math.isnan(chosen.mean):
        return ""
    parts = [
        f"The chosen explanations have a mean {uses.faithfulness_name} of {_number(chosen.mean)}{_brackets(chosen)}."
    ]
    average, best = find(uses.faithfulness, name=AVERAGE), uses.best_fixed()
    for row, what in ((average, "the average of the explainers"), (best, "")):
        if row is None or math.isnan(row.mean):
            continue
        name = what or f"{row.name}, the most faithful for all images"
        parts.append(_against(chosen, row, name))
    return " ".join(parts)


def _against(chosen: MeanRow, row: MeanRow, name: str) -> str:
    if math.isnan(row.difference):
        place, shown = relation((chosen.low, chosen.high), (row.low, row.high)), ""
    else:
        place = relation((row.difference_low, row.difference_high), (0, 0))
        shown = f", difference {minus(f'{row.difference:+z.3f}')}"
        if place:
            shown += f", 95 % interval {_number(row.difference_low)} to {_number(row.difference_high)}"
    told = {"above": "That is above", "below": "That is below"}.get(place, "It cannot be told from")
    return f"{told} {name} ({_number(row.mean)}{shown})."


def _steered(uses: Uses) -> str:
    if not uses.steering_weights:
        return ""
    parts = []
    ends = f"λ = {uses.steering_weights[0]:g}", f"λ = {uses.steering_weights[-1]:g}"
    for rows, what in ((uses.steering_scores, "score"), (uses.steering_faithfulness, uses.steering_metric)):
        if len(rows) < 2 or math.isnan(rows[0].mean) or math.isnan(rows[-1].mean):
            continue
        first, last = rows[0], rows[-1]
        place = relation((last.low, last.high), (first.low, first.high))
        told = {"above": "rises", "below": "falls"}.get(place, "goes")
        doubt = "" if place in ("above", "below") else ", which the intervals do not tell apart"
        parts.append(
            f"The mean {what} of {first.n} images {told} from {_number(first.mean)} at {ends[0]} to "
            f"{_number(last.mean)} at {ends[1]}{doubt}."
        )
    return " ".join(parts)


def _correlated(uses: Uses, simulated: bool) -> str:
    found = [row for row in uses.correlations if not math.isnan(row.spearman)]
    if not found:
        return ""
    strongest = max(found, key=lambda row: abs(row.spearman))
    raters = "the simulated raters' votes" if simulated else "the votes"
    text = (
        f"Of {listed(list(dict.fromkeys(row.metric for row in found)))}, {strongest.metric} goes most closely with "
        f"{raters}: Spearman {number(strongest.spearman)} on {strongest.question} (n = {strongest.n})"
    )
    return f"{text}, which is weak." if abs(strongest.spearman) < WEAK else f"{text}."


def _mean(row: MeanRow) -> Cell:
    if math.isnan(row.mean):
        return Cell("–")
    return Cell(_number(row.mean), "" if math.isnan(row.low) else f"{_number(row.low)} to {_number(row.high)}")


def _difference(row: MeanRow) -> Cell:
    if math.isnan(row.difference):
        return Cell("")
    ends = (row.difference_low, row.difference_high)
    return Cell(
        minus(f"{row.difference:+z.3f}"), "" if math.isnan(ends[0]) else f"{_number(ends[0])} to {_number(ends[1])}"
    )


def _coefficient(value: float, p: float, style: str = "") -> Cell:
    if math.isnan(value):
        return Cell("–", style=style)
    return Cell(number(value), "p < 0.001" if p < 0.001 else f"p = {p:.3f}", style=style)


def _number(value: float) -> str:
    return minus(f"{value:z.3f}")


def _brackets(row: MeanRow) -> str:
    return "" if math.isnan(row.low) else f" (95 % interval {_number(row.low)} to {_number(row.high)})"
