"""The report of the attribution benchmark: one HTML file with everything in it, in light and in dark."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Any

from markupsafe import Markup, escape
from matplotlib.figure import Figure

from quantus_concepts.studies.attribution import paper as published
from quantus_concepts.studies.attribution.premise_tables import commonality_table, premise_table
from quantus_concepts.studies.attribution.premises import CommonalityRow, PremiseCheck
from quantus_concepts.studies.attribution.results import TCAV, Record
from quantus_concepts.studies.attribution.robustness_page import IN_THE_PAPER, robustness_table
from quantus_concepts.studies.attribution.tables import (
    TCAV_SCALE,
    count_table,
    method_table,
    relative_table,
)
from quantus_concepts.studies.attribution.truth import mark, unverified
from quantus_concepts.studies.attribution.verdicts import verdicts
from quantus_concepts.studies.attribution.writing import enumerate_names, minus
from quantus_concepts.studies.charts import png_base64
from quantus_concepts.studies.page import render_page
from quantus_concepts.studies.records import find, select
from quantus_concepts.studies.report_tables import ReportTable

#: By figure: the metric it rests on, and what it shows.
FIGURES = {
    "mcs": ("MCS", "Does the object get more when the model needs it? Bars with 95 % intervals; right is better."),
    "robustness": (
        "robustness",
        "MCS where objects are smaller or larger than in training, in the middle or in a corner, with 95 % intervals. "
        f"{IN_THE_PAPER}",
    ),
    "relative": (
        "relative MCS",
        "Does the contrast fall as the object becomes common? Each panel is one method, the band its 95 % interval; "
        "dashed, the same in all, what removing the object costs. Both scales have their zero at one height.",
    ),
    "correlation": ("correlation", "How closely each curve follows the accuracy drop, with 95 % intervals."),
    "idr": ("IDR", "How often the unimportant object gets less than what it covers, with 95 % intervals."),
    "iir": (
        "IIR",
        "How often a patch that changes nothing leaves its region's attribution as it was, with 95 % intervals.",
    ),
    "perturbation": (
        "perturbation",
        "How much that patch changes the attribution, relative to what it was; lower is better.",
    ),
    "sheet_mcs": ("MCS", "The same images explained for the model of objects and the model of scenes."),
    "sheet_relative": ("relative MCS", "Maps of models that saw the object in a share k of the classes."),
    "sheet_idr": ("IDR", "The model of scenes explained with the object and without it."),
    "sheet_iir": ("IIR", "Images explained with and without a patch that changes nothing."),
}
#: How the names of sheets begin, which may else be those of figures.
SHEET = "sheet_"
OUTLINED = " Outlined: the mask; in each map its mean attribution. Dark is 0, bright is 1."
FREE = "Does not rest on the premises: each patch is checked on its own image."


def render_report(
    *,
    title: str,
    records: Sequence[Record],
    premises: Sequence[PremiseCheck],
    commonality: Sequence[CommonalityRow],
    figures: Mapping[str, Figure],
    sheets: Mapping[str, Figure],
    settings: Mapping[str, Any],
    sheet_captions: Mapping[str, str] | None = None,
    notes: Sequence[str] = (),
    versions: Mapping[str, str] | None = None,
    paper: bool = False,
    created: datetime | None = None,
) -> str:
    """Return the report as one self-contained HTML document."""
    present = list(dict.fromkeys(record.metric for record in records))
    missing = {metric: unverified(metric, premises, commonality) for metric in present}
    missing = {metric: models for metric, models in missing.items() if models}
    doubted = [metric for metric in ("MCS", "relative MCS", "IDR") if metric in missing]
    captions = {_sheet_name(name): text for name, text in (sheet_captions or {}).items()}
    drawn = {**figures, **{_sheet_name(name): figure for name, figure in sheets.items()}}
    placed = {
        name: _figure(name, figure, captions.get(name), premises, commonality, bool(missing))
        for name, figure in drawn.items()
    }
    if "mcs" in placed and find(records, method=TCAV, metric="MCS") is not None:
        placed["mcs"]["caption"] += f" {TCAV_SCALE}"
        if paper:
            placed["mcs"]["caption"] += f" The paper's baseline of TCAV is {minus(f'{published.TCAV_BASELINE:g}')}."
    said = verdicts(records, premises, commonality)
    return render_page(
        "attribution.html.j2",
        title=title,
        created=f"{created or datetime.now():%d %B %Y, %H:%M}",
        seeds=sorted({record.seed for record in records if record.seed is not None}),
        doubted=_capital(enumerate_names(doubted)) if doubted else "",
        doubted_alone=len(doubted) == 1,
        doubted_models=", ".join(dict.fromkeys(model for metric in doubted for model in missing[metric])),
        verdicts=[(topic, [v.text for v in group]) for topic, group in groupby(said, key=lambda v: v.topic)],
        notes=notes,
        premises=[(premise.holds, premise.sentence) for check in premises for premise in check.premises],
        tables={table.name: table for table in _tables(records, premises, commonality, paper)},
        figures=placed,
        sections={
            section: any(name in placed for name in (section, f"sheet_{section}", *also))
            for section, also in (("mcs", ()), ("relative", ("correlation",)), ("idr", ()), ("iir", ("perturbation",)))
        },
        other_figures=[name for name in placed if name not in FIGURES],
        settings=settings,
        versions=versions or {},
        paper=published.SOURCE if paper else "",
        source=published.SOURCE,
        signs=signs,
    )


def write_report(path: Path | str, **content: Any) -> None:
    """Write `render_report` to a file."""
    Path(path).write_text(render_report(**content), encoding="utf-8")


def signs(text: str) -> Markup:
    """Set the names of models and image sets, f_o or X_os, with an index."""
    return Markup(
        re.sub(
            r"\b([fXg])_(os|og|0s|[os0c])(?:\^k)?(?![\w])",
            lambda found: f"<i>{found[1]}</i><sub>{found[2]}</sub>" + ("<sup>k</sup>" if found[0][-2:] == "^k" else ""),
            str(escape(text)),
        )
    )


def _tables(
    records: Sequence[Record], premises: Sequence[PremiseCheck], commonality: Sequence[CommonalityRow], paper: bool
) -> list[ReportTable]:
    tables = []
    if premises:
        tables.append(premise_table(premises, paper))
    if commonality:
        tables.append(commonality_table(commonality, premises, paper))
    tables += [method_table(records, premises), count_table(records)]
    if select(records, metric="robustness"):
        tables.append(robustness_table(records, premises))
    if select(records, metric="relative MCS"):
        tables.append(relative_table(records, premises, commonality))
    return [table for table in tables if table.rows and table.columns]


def _capital(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}"


def _sheet_name(name: str) -> str:
    return name if name.startswith(SHEET) else f"{SHEET}{name}"


def _figure(
    name: str,
    figure: Figure,
    caption: str | None,
    premises: Sequence[PremiseCheck],
    commonality: Sequence[CommonalityRow],
    doubted: bool,
) -> dict[str, Any]:
    metric, general = FIGURES.get(name, ("", name.replace("_", " ").capitalize() + "."))
    text = caption or general
    if name.startswith(SHEET):
        text = f"{text.rstrip()}{OUTLINED}"
    if doubted and metric in ("IIR", "perturbation"):
        text = f"{text} {FREE}"
    return {
        "data": png_base64(figure),
        "caption": text,
        "unverified": mark(unverified(metric, premises, commonality)),
        "wide": name == "relative" or name.startswith(SHEET),
    }
