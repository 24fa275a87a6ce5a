"""The report: one HTML file with everything in it, readable from disk, in light and in dark."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from quantus_concepts.studies.charts import png_base64
from quantus_concepts.studies.concepts import paper as published
from quantus_concepts.studies.concepts.controls import control_of
from quantus_concepts.studies.concepts.palette import EXPLANATION_LABELS
from quantus_concepts.studies.concepts.plot_cgim import ranked_items
from quantus_concepts.studies.concepts.results import (
    EXPLANATIONS,
    GAUSSIAN,
    ORACLE,
    OTHER_IMAGE,
    PLAIN,
    POST_HOC,
    RANDOM,
    TRADITIONAL,
    Record,
    models_of,
    over_seeds,
    seeds_of,
)
from quantus_concepts.studies.concepts.tables import CHANCE, MARKS, PAPER, SET_NAMES, PaperTable, defined_frame
from quantus_concepts.studies.concepts.verdicts import verdicts
from quantus_concepts.studies.page import render_page
from quantus_concepts.studies.records import select

LEGEND = {
    POST_HOC: "Concept directions found in a trained backbone, and a linear head on the projections.",
    TRADITIONAL: "A concept layer trained with the concept labels of each image; sigmoid values.",
    ORACLE: "The true attributes as values and a Gaussian at each true part as map: the best one can do.",
    RANDOM: "The post-hoc CBM with random directions in place of concepts, drawn many times, each with a head of its "
    "own: what knowing nothing scores. Mean over the banks, in small type where 95 % of them lie.",
    PLAIN: "The backbone with its own classifier, without a bottleneck.",
    OTHER_IMAGE: "Baseline of CLM: the same maps, scored against the parts of another image.",
    GAUSSIAN: "Baseline of CLM: one blob at the centre of every image, scored against the true parts.",
}

CAPTIONS = {
    "cem": "Is the concept ranked first {whose}? Means with 95 % intervals; grey is what 95 % of random banks score.",
    "clm": "Is the map's strongest region where the concept is? Dashed lines know nothing of the concept, and the grey "
    "band is what 95 % of random banks score, the maps of each on some 200 of the images.",
    "cgim_histograms": "Do importance and truth agree? As the paper's Figure 2; best is one bar at 1. Nothing is held "
    "against 0: the grey band is where the means of 95 % of random banks lie.",
    "concepts": "The best and the worst concepts, and in grey what 95 % of random banks score for them.",
    "classes": "The best and the worst classes, and in grey what 95 % of random banks score for them.",
    "gallery": "Correctly classified images, and below them wrong ones, with the concepts ranked first, their "
    "contributions to the predicted class, and their maps. ✓ {present} or ✗ not; “no …” speaks for the class by being "
    "absent, and its map shows where the concept would be.",
}


#: Held-out accuracy below which a direction hardly knows its concept.
WEAK = 0.6


@dataclass(frozen=True)
class _Cell:
    text: str
    range: str = ""
    mark: str = ""
    style: str = ""


def render_report(
    *,
    title: str,
    records: Sequence[Record],
    tables: Sequence[PaperTable],
    figures: Mapping[str, Figure | bytes],
    settings: Mapping[str, Any],
    notes: Sequence[str] = (),
    versions: Mapping[str, str] | None = None,
    paper: bool = False,
    linear_pool: bool = True,
    by_class: bool = False,
    created: datetime | None = None,
) -> str:
    """Return the report as one self-contained HTML document."""
    joined = over_seeds(records)
    seeds = seeds_of(records)
    models = models_of(joined)
    present = {record.model.split(",")[0] for record in joined}
    words = {
        "whose": "one of the image's class" if by_class else "in the image",
        "present": "a concept of the image's class" if by_class else "present in the image",
    }
    placed = {
        name: {
            "data": png_base64(figure),
            "caption": CAPTIONS.get(name, name.replace("_", " ").capitalize()).format(**words),
        }
        for name, figure in figures.items()
    }
    return render_page(
        "concepts.html.j2",
        title=title,
        created=f"{created or datetime.now():%d %B %Y, %H:%M}",
        verdicts=verdicts(joined, by_class),
        tables={table.name: _grid(table) for table in tables},
        figures=placed,
        other_figures=[name for name in placed if name not in CAPTIONS],
        legend={name: text for name, text in LEGEND.items() if name in present},
        main_model=POST_HOC if POST_HOC in models or not models else models[0],
        extremes=[_extremes(joined, kind) for kind in ("concept", "class")],
        lists=[_full_list(joined, kind) for kind in ("concept", "class")],
        directions=_directions(joined),
        by_class=by_class,
        n_banks=_n_banks(records),
        defined=_defined(joined),
        seeds=seeds,
        notes=notes,
        linear_pool=linear_pool,
        has_locations=bool(select(joined, metric="CLM")),
        settings=settings,
        versions=versions or {},
        paper=published.SOURCE if paper else "",
    )


def write_report(path: Path | str, **content: Any) -> None:
    """Write `render_report` to a file."""
    Path(path).write_text(render_report(**content), encoding="utf-8")


def _grid(table: PaperTable) -> dict[str, Any]:
    """Lay a table out for the template: groups of columns, groups of rows, cells as text."""
    columns = list(table.values.columns)
    heads = [(name, len(list(group))) for name, group in groupby(column[0] for column in columns)]
    groups = []
    for group, members in groupby(enumerate(table.values.index), key=lambda place: place[1][0]):
        rows = [
            {
                "label": _row_label(row),
                "baseline": row[1] in (OTHER_IMAGE, GAUSSIAN),
                "cells": [_cell(table, place, index, column) for index, column in enumerate(columns)],
            }
            for place, row in members
        ]
        groups.append({"label": SET_NAMES.get(group, group), "rows": rows})
    return {
        "name": table.name,
        "caption": table.caption,
        "heads": heads,
        "subheads": [column[1] for column in columns],
        "starts": _starts(columns),
        "groups": groups,
        "labelled": any(row["label"] for group in groups for row in group["rows"]),
        "marked": any(cell.mark for group in groups for row in group["rows"] for cell in row["cells"]),
    }


def _starts(columns: list[tuple[str, str]]) -> list[bool]:
    """Say which columns begin a new group, where the template draws a line."""
    return [index == 0 or column[0] != columns[index - 1][0] for index, column in enumerate(columns)]


def _row_label(row: tuple[str, str]) -> str:
    sign = EXPLANATIONS.get(row[1])
    return f"{sign} · {row[1]}" if sign else row[1]


def _cell(table: PaperTable, row: int, index: int, column: tuple[str, str]) -> _Cell:
    value, low, high = (float(frame.iat[row, index]) for frame in (table.values, table.low, table.high))
    style = {PAPER: "paper", CHANCE: "chance"}.get(column[0], "")
    if math.isnan(value):
        return _Cell("", style=style)
    shown = _range(low, high, table.decimals)
    baseline = table.values.index[row][1] in (OTHER_IMAGE, GAUSSIAN)
    mark = "" if baseline else MARKS.get(table.marks.iat[row, index], "")
    return _Cell(_minus(f"{value:.{table.decimals}f}"), shown, mark, style)


def _range(low: float, high: float, decimals: int) -> str:
    if math.isnan(low):
        return ""
    # Whole percents keep twelve columns on a page; small numbers need a decimal. results.csv has all.
    shown = 0 if decimals == 1 and high >= 10 else decimals
    joint = " to " if low < 0 else "–"
    return _minus(f"{low:.{shown}f}{joint}{high:.{shown}f}")


def _minus(text: str) -> str:
    return text.replace("-", "−")


def _number(record: Record | None) -> str:
    return "" if record is None or math.isnan(record.value) else _minus(f"{record.value:.2f}")


def _extremes(records: Sequence[Record], kind: str) -> dict[str, Any]:
    best, worst = ranked_items(records, item_kind=kind, count=5)
    controls = select(records, metric="CGIM", model=RANDOM, item_kind=kind, explanation="contribution")
    if not worst and len(best) > 1:
        middle = (len(best) + 1) // 2
        best, worst = best[:middle], best[middle:]
    return {
        "kind": kind,
        "plural": "classes" if kind == "class" else "concepts",
        "best": [(record.item, _number(record), _control_range(controls, record)) for record in best],
        "worst": [(record.item, _number(record), _control_range(controls, record)) for record in reversed(worst)],
    }


def _control_range(controls: Sequence[Record], record: Record) -> str:
    control = control_of(controls, record)
    return "" if control is None else _range(control.low, control.high, 2)


def _full_list(records: Sequence[Record], kind: str) -> dict[str, Any]:
    """All CGIM scores, model by model, as the paper's Tables 6 to 8."""
    found = [record for record in select(records, metric="CGIM", item_kind=kind) if record.item]
    models = [model for model in models_of(found) if model in (POST_HOC, TRADITIONAL)] or models_of(found)
    controls = {(r.explanation, r.item): _range(r.low, r.high, 2) for r in found if r.model == RANDOM}
    accuracies = {r.item: r for r in select(records, metric="CAV accuracy", item_kind=kind)}
    scores = {(record.model, record.explanation, record.item): record for record in found}
    names = dict.fromkeys(record.item for record in found)
    return {
        "plural": "classes" if kind == "class" else "concepts",
        "models": models,
        "explanations": list(EXPLANATION_LABELS.values()),
        "has_control": bool(controls),
        "has_accuracy": bool(accuracies),
        "rows": [
            (
                name,
                [
                    *(_number(scores.get((model, sign, name))) for model in models for sign in EXPLANATIONS),
                    *(controls.get((sign, name), "") for sign in EXPLANATIONS if controls),
                    *([_accuracy(accuracies.get(name))] if accuracies else []),
                ],
            )
            for name in names
        ],
    }


def _accuracy(record: Record | None) -> str:
    return _number(record) + (" (weak)" if record is not None and record.value < WEAK else "")


def _directions(records: Sequence[Record]) -> dict[str, Any]:
    """Return the quality of the concept directions: their mean, and the names of those not better than a guess."""
    found = [record for record in select(records, metric="CAV accuracy") if not math.isnan(record.value)]
    items = sorted((record for record in found if record.item), key=lambda record: record.value)
    return {
        "mean": next((_number(record) for record in found if not record.item), ""),
        "weak": [(record.item, _number(record)) for record in items if record.value < WEAK],
        "unknown": sum(math.isnan(r.value) for r in select(records, metric="CAV accuracy") if r.item),
        "limit": f"{WEAK:g}",
    }


def _n_banks(records: Sequence[Record]) -> int:
    single = (record for record in records if record.model == RANDOM and record.seed is not None)
    return max((record.n + record.undefined for record in single), default=0)


def _defined(records: Sequence[Record]) -> dict[str, Any]:
    frame = defined_frame(records)
    rows = [(str(name), [str(entry) for entry in line]) for name, line in zip(frame.index, frame.values, strict=True)]
    return {"models": [str(column) for column in frame.columns], "rows": rows}
