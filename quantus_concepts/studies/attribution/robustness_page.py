"""MCS under other sizes and places of the object: as a table, a figure and a sentence."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from quantus_concepts.studies.attribution.plot import METHOD, WIDTH, draw_bar, legend, name_rows, zero_line
from quantus_concepts.studies.attribution.premises import PremiseCheck
from quantus_concepts.studies.attribution.results import CONTROLS, TCAV, Record, against, methods_of
from quantus_concepts.studies.attribution.truth import mark, unverified
from quantus_concepts.studies.attribution.writing import contrast, enumerate_names, span
from quantus_concepts.studies.charts import new_axes
from quantus_concepts.studies.records import find, select
from quantus_concepts.studies.report_tables import Cell, ReportTable, Row

#: Reds, as the paper's bars, from dark to light.
COLOURS = ("#8C2D04", "#CC4C02", "#EC7014", "#FEB24C")
#: How a sentence names a change.
WORDS = {"centre": "in the middle", "corner": "in a corner"}
#: What the paper's text says of these bars, which is all there is: its Figure 5 is a picture.
IN_THE_PAPER = (
    'The paper draws such bars in its Figure 5 and says that MCS "is robust to the scale and location of objects"; it '
    "prints no number for them, so that none stands beside ours."
)


def robustness_table(records: Sequence[Record], premises: Sequence[PremiseCheck]) -> ReportTable:
    """Return MCS by method under every change."""
    chosen = select(records, metric="robustness")
    rows = []
    for method in methods_of(chosen):
        found = [find(records, metric="MCS", method=method), *select(chosen, method=method)]
        cells = [Cell("–") if r is None or not r.defined else Cell(contrast(r.value), span(r)) for r in found]
        rows.append(Row(method, tuple(cells), method in CONTROLS))
    counts = {r.variant: max(o.n for o in select(chosen, variant=r.variant)) for r in chosen}
    return ReportTable(
        "Robustness",
        "MCS of the same models on test images in which the object is smaller (.35 to .45 of the side) or larger (.8 "
        "to .9) than in training (.58 to .71), or always in the middle or in a corner.",
        (("as trained", ""), *((variant, f"n = {n}") for variant, n in counts.items())),
        tuple(rows),
        f"Small numbers are 95 % intervals. Images that either model classifies wrongly are left out. {IN_THE_PAPER}",
        mark(unverified("robustness", premises)),
    )


def plot_robustness(records: Sequence[Record], ax: Axes | None = None) -> tuple[Figure, Axes]:
    """Draw MCS as trained, and below it under every change, as the paper's Figure 5."""
    chosen = select(records, metric="robustness")
    methods = methods_of(chosen)
    variants = list(dict.fromkeys(record.variant for record in chosen))
    fig, ax = new_axes(ax, (WIDTH, 1.3 + 0.72 * len(methods)))
    zero_line(ax)
    height = 0.8 / (1 + len(variants))
    for place, method in enumerate(methods):
        found = [find(records, metric="MCS", method=method), *select(chosen, method=method)]
        for number, (record, colour) in enumerate(zip(found, (METHOD, *COLOURS), strict=False)):
            if record is not None:
                draw_bar(ax, place - 0.4 + (number + 0.5) * height, record, colour, height, label=False)
    name_rows(ax, methods)
    ax.set_xlabel("MCS by size and place of the object")
    legend(ax, [Patch(color=colour) for colour in (METHOD, *COLOURS)], ["as trained", *variants])
    return fig, ax


def robustness_verdict(records: Sequence[Record]) -> str:
    """Say which methods' MCS a change of size or place moves, by intervals that do not overlap."""
    moved: dict[str, list[str]] = {}
    for record in select(records, metric="robustness"):
        usual = find(records, metric="MCS", method=record.method)
        if usual is None or record.method in (*CONTROLS, TCAV) or against(record, usual) not in ("above", "below"):
            continue
        way = "higher" if record.value > usual.value else "lower"
        moved.setdefault(f"{way} where objects are {WORDS.get(record.variant, record.variant)}", []).append(
            record.method
        )
    if not select(records, metric="robustness"):
        return ""
    if not moved:
        return "No method's MCS can be told from its own with objects of the usual size at random places."
    said = "; ".join(f"{way} for {enumerate_names(names)}" for way, names in moved.items())
    return f"Beyond its interval, MCS is {said}."
