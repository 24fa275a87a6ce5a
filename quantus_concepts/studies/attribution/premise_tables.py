"""Tables of what was checked of the models, in the form of the paper's Figure 3."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from quantus_concepts.studies.attribution import paper as published
from quantus_concepts.studies.attribution.premises import CommonalityRow, PremiseCheck
from quantus_concepts.studies.attribution.truth import mark, unverified
from quantus_concepts.studies.attribution.writing import divergence, points
from quantus_concepts.studies.report_tables import Cell, ReportTable, Row

PAPER = "paper"


def premise_table(premises: Sequence[PremiseCheck], paper: bool = False) -> ReportTable:
    """Return the premise checks in the form of the paper's Figure 3, top."""
    lines: list[tuple[str, str, Callable[[float], str]]] = [
        ("accuracy on X_os", "accuracy_with", points),
        ("without the common feature", "accuracy_without", points),
        ("of the correct, remain correct without it", "remains_correct", points),
        ("only the common feature", "accuracy_only", points),
        ("chance", "chance", points),
        ("median KL, same prediction", "median_kl_same", divergence),
        ("median KL, changed prediction", "median_kl_changed", divergence),
    ]
    rows = []
    for label, name, write in lines:
        cells = []
        for check in premises:
            cells.append(Cell(_written(getattr(check, name), write), _test_set(check, name)))
            if paper and check.model in published.PREMISES:
                value = published.PREMISES[check.model].get(name, math.nan)
                shown = value / 100 if write is points else value
                cells.append(Cell(_written(shown, write), style=PAPER))
        rows.append(Row(label, tuple(cells)))
    columns = []
    for check in premises:
        columns.append((check.model, f"common feature: {check.feature}; n = {check.n}"))
        if paper and check.model in published.PREMISES:
            columns.append((PAPER, ""))
    missing = tuple(check.model for check in premises if not check.verified)
    return ReportTable(
        "Premises",
        "Does the model ignore what it should ignore? Accuracies and shares in %, median divergence of the "
        "predictions with and without the common feature.",
        tuple(columns),
        tuple(rows),
        unverified=mark(missing),
    )


def _test_set(check: PremiseCheck, name: str) -> str:
    """Name the image set of an accuracy."""
    alone, removed = ("X_0s", "X_og") if check.feature == "scene" else ("X_og", "X_0s")
    return {"accuracy_without": removed, "accuracy_only": alone}.get(name, "")


def _written(value: float, write: Callable[[float], str]) -> str:
    return "–" if math.isnan(value) else write(value)


def commonality_table(
    commonality: Sequence[CommonalityRow], premises: Sequence[PremiseCheck], paper: bool = False
) -> ReportTable:
    """Return accuracy of the target class over commonality, as the paper's Figure 3, bottom."""
    ordered = sorted(commonality, key=lambda row: row.k)
    rows = [
        Row("with the object", tuple(Cell(_written(row.accuracy_with, points)) for row in ordered)),
        Row("without it", tuple(Cell(_written(row.accuracy_without, points)) for row in ordered)),
        Row("drop", tuple(Cell(_written(row.drop, points)) for row in ordered)),
    ]
    if paper:
        known = [published.COMMONALITY.get(round(row.k, 6), (math.nan, math.nan)) for row in ordered]
        rows += [
            Row(label, tuple(Cell("" if math.isnan(pair[at]) else f"{pair[at]:.0f}", style=PAPER) for pair in known))
            for at, label in enumerate(("paper, with the object", "paper, without it"))
        ]
    return ReportTable(
        "Commonality",
        "Accuracy on the target class in %, with the object and without it, for models trained with the object in a "
        "share k of the scene classes.",
        tuple((f"k = {row.k:g}", f"n = {row.n}") for row in ordered),
        tuple(rows),
        unverified=mark(unverified("relative MCS", premises, commonality)),
    )
