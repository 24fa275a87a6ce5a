"""Tables of this study, over the frame of its results and that of its premises."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd

from quantus_concepts.studies.attribution.global_method import TCAV
from quantus_concepts.studies.attribution.number_texts import (
    WRITERS,
    contrast,
    points,
    span,
    two_digits,
    whole,
)
from quantus_concepts.studies.attribution.standings import (
    CONTROLS,
    GroundTruth,
    against_reference,
    leaders,
    methods_of,
)
from quantus_concepts.studies.findings import number
from quantus_concepts.studies.results import PAPER, names, one, pick, published
from quantus_concepts.studies.tables import MARKS, Table

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
TERMINAL_HEADINGS = {**HEADINGS, "MCS baseline": "random\nmask", "perturbation": "pert."}
TCAV_SCALE = (
    "TCAV is a difference of its scores: one number for all images, on a scale of its own; random concepts stand in "
    "place of a random mask."
)
#: What the paper's text says of its red bars, which is all there is: its Figure 5 is a picture.
ROBUSTNESS_IN_THE_PAPER = (
    'The paper draws such bars in its Figure 5 and says that MCS "is robust to the scale and location of objects"; it '
    "prints no number for them, so that none stands beside ours."
)
#: Rows of the table of premises.
PREMISES: dict[str, tuple[str, Callable[[float], str]]] = {
    "accuracy with": ("accuracy on X_os", points),
    "accuracy without": ("without the common feature", points),
    "remains correct": ("of the correct, remain correct without it", points),
    "accuracy only": ("only the common feature", points),
    "chance": ("chance", points),
    "median KL same": ("median KL, same prediction", two_digits),
    "median KL changed": ("median KL, changed prediction", two_digits),
}
#: Image sets of accuracies, by what the common feature is.
IMAGE_SETS = {
    ("scene", "accuracy without"): "X_og",
    ("scene", "accuracy only"): "X_0s",
    ("object", "accuracy without"): "X_0s",
    ("object", "accuracy only"): "X_og",
}


def paper_numbers() -> pd.DataFrame:
    """Return the paper's numbers; its own models stand under ``of``."""
    found = published(__package__)
    return found.assign(k=pd.to_numeric(found["k"]))


def premise_table(truth: GroundTruth, paper: bool) -> Table:
    """Declare the premise checks in the form of the paper's Figure 3, top."""
    theirs, features = paper_numbers(), {check.model: check.feature for check in truth.checks}
    cells = []
    for metric, (label, write) in PREMISES.items():
        for model, feature in features.items():
            ours = pick(truth.premises, model=model, metric=metric)["value"].iloc[0]
            small = IMAGE_SETS.get((feature, metric), "")
            cells.append({"row": label, "column": model, "text": _written(ours, write), "small": small})
            if paper:
                value = one(theirs, of=model, metric=metric)
                text = "–" if value is None else write(value["value"])
                cells.append({"row": label, "column": f"{PAPER} {model}", "text": text, "style": PAPER})
    heads = {check.model: f"common feature: {check.feature}; n = {check.n}" for check in truth.checks}
    missing = [check.model for check in truth.checks if not check.verified]
    return Table(
        "Premises",
        "Does the model ignore what it should ignore? Accuracies and shares in %, median divergence of the predictions "
        "with and without the common feature.",
        pd.DataFrame(cells),
        ["row"],
        ["column"],
        labels={f"{PAPER} {model}": PAPER for model in features},
        heads=heads,
        unverified=f"ground truth not verified ({', '.join(missing)})" if missing else "",
    )


def commonality_table(truth: GroundTruth, paper: bool) -> Table:
    """Declare accuracy of the target class over commonality, as the paper's Figure 3, bottom."""
    labels = {"accuracy with": "with the object", "accuracy without": "without it", "accuracy drop": "drop"}
    found = truth.premises[truth.premises["k"].notna()].sort_values("k", kind="stable")
    found = pd.concat([pick(found, metric=metric) for metric in labels])
    found = found.assign(row=found["metric"].map(labels), text=[_written(value, points) for value in found["value"]])
    if paper:
        theirs = pick(paper_numbers(), of="f_s^k")
        theirs = theirs[theirs["k"].isin(found["k"])]
        text = [whole(value) for value in theirs["value"]]
        rows = f"{PAPER}, " + theirs["metric"].map(labels)
        found = pd.concat([found, theirs.assign(row=rows, text=text, style=PAPER)])
    return Table(
        "Commonality",
        "Accuracy on the target class in %, with the object and without it, for models trained with the object in a "
        "share k of the scene classes.",
        found.drop(columns="value"),
        ["row"],
        ["k"],
        labels={k: f"k = {k:g}" for k in found["k"]},
        heads={k: f"n = {n:g}" for k, n in zip(found["k"], found["n"], strict=True) if n == n},
        unverified=truth.mark("relative MCS"),
    )


def method_table(frame: pd.DataFrame, truth: GroundTruth) -> Table:
    """Declare the main table: methods and metrics."""
    chosen = _main(frame)
    best = {(row["metric"], row["method"]) for metric in HEADINGS for row in _leaders(frame, metric)}
    # A random mask's number is a reference: there is no best one.
    cells = [
        _number(row)
        | {"mark": _mark(frame, row)}
        | {"best": row["metric"] != "MCS baseline" and (row["metric"], row["method"]) in best}
        for _, row in chosen.iterrows()
    ]
    tcav = f" {TCAV_SCALE}" if TCAV in methods_of(chosen) else ""
    return _of_methods(
        "All methods",
        "Higher is better for MCS, IDR and IIR, lower for the average perturbation.",
        chosen,
        cells,
        labels=HEADINGS,
        heads={metric: _counted(chosen, metric) for metric in HEADINGS},
        key="Small numbers are 95 % intervals. Bold: the best, and what cannot be told apart from it. ≈ not "
        "distinguishable from its random mask (MCS) or from 50 % (IDR), ▼ below it. Grey: controls, which know nothing "
        f"of the model.{tcav}",
        unverified=truth.mark(*names(chosen, "metric")),
    )


def count_table(frame: pd.DataFrame) -> Table:
    """Declare how many scores were defined and how many patches were left out."""
    chosen = _main(frame)
    chosen = chosen[chosen["metric"] != "MCS baseline"]
    cells = [{"text": f"{row['n']} of {row['n'] + row['undefined']}"} for _, row in chosen.iterrows()]
    left_out = pick(chosen, metric=["IIR", "perturbation"]).groupby("method", sort=False, as_index=False).first()
    cells += [{"text": str(count)} for count in left_out["unconverged"]]
    return _of_methods(
        "Scores that were defined",
        "Of all images: those that every model concerned classifies correctly and whose score has a value.",
        pd.concat([chosen, left_out.assign(metric="patches left out")]),
        cells,
        heads={"patches left out": "not converged"},
        key="A score is undefined where an image is not classified correctly, a patch did not converge, the map "
        "failed, or (IIR, perturbation) the attribution of the region is 0. Undefined scores enter no mean.",
    )


def relative_table(frame: pd.DataFrame, truth: GroundTruth) -> Table:
    """Declare relative MCS by commonality, with the correlation to the accuracy drop."""
    chosen = pick(frame, metric=["relative MCS", "correlation"])
    levels = sorted(chosen["k"].dropna().unique())
    best = [row["method"] for row in leaders(frame, "correlation")]
    cells: list[dict[str, Any]] = []
    for method in methods_of(chosen):
        rows = pick(chosen, method=method)
        for k in levels:
            # Two decimals of the ends, or ten intervals do not fit on a page; results.csv has all.
            cells += [{"row": method, "column": k} | _number(row, number) for _, row in pick(rows, k=k).iterrows()]
        cells += [
            {"row": method, "column": "correlation", "best": method in best, "mark": _mark(frame, row)} | _number(row)
            for _, row in pick(rows, metric="correlation").iterrows()
        ]
    drops = truth.drops
    cells += [
        {"row": "accuracy drop", "column": k, "text": contrast(value), "style": PAPER}
        for k, value in zip(drops["k"], drops["value"], strict=True)
        if k in levels
    ]
    cells += [{"row": "accuracy drop", "column": "correlation", "text": "", "style": PAPER}] if len(drops) else []
    return Table(
        "Relative MCS",
        "Contrast of the model of commonality k with that of k = 1, and Pearson's correlation of the curve with the "
        "accuracy lost when the object is removed.",
        pd.DataFrame(cells),
        ["row"],
        ["column"],
        labels={k: f"k = {k:g}" for k in levels},
        controls=CONTROLS,
        key="Small numbers are 95 % bootstrap intervals over images.",
        unverified=truth.mark("relative MCS"),
    )


def robustness_table(frame: pd.DataFrame, truth: GroundTruth) -> Table:
    """Declare MCS by method under every change of size and place."""
    changed = pick(frame, metric="robustness")
    usual = pick(frame, metric="MCS", method=list(methods_of(changed))).assign(variant="as trained")
    chosen = pd.concat([usual, changed])
    counts = changed.groupby("variant", sort=False)["n"].max()
    return _of_methods(
        "Robustness",
        "MCS of the same models on test images in which the object is smaller (.35 to .45 of the side) or larger (.8 "
        "to .9) than in training (.58 to .71), or always in the middle or in a corner.",
        chosen,
        [_number(row) for _, row in chosen.iterrows()],
        column="variant",
        heads={variant: f"n = {n}" for variant, n in counts.items()},
        key="Small numbers are 95 % intervals. Images that either model classifies wrongly are left out. "
        f"{ROBUSTNESS_IN_THE_PAPER}",
        unverified=truth.mark("robustness"),
    )


def terminal_method_table(frame: pd.DataFrame, truth: GroundTruth, width: int) -> Table:
    """Declare the main table as the terminal has room for it."""
    wide = width >= WIDE
    chosen = _main(frame, *(["correlation"] if wide else []))
    note = (
        "≈ not told apart from its random mask (MCS) or from 50 % (IDR), ▼ below it. "
        "± and brackets: 95 % intervals. Pert.: average perturbation, lower is better."
    )
    return _of_methods(
        "Do explanations give importance to what does not matter?",
        note,
        chosen,
        [{"text": _terminal_text(frame, row, wide)} for _, row in chosen.iterrows()],
        labels=TERMINAL_HEADINGS,
        unverified=truth.mark(*names(chosen, "metric")).capitalize(),
    )


def _of_methods(
    title: str,
    note: str,
    chosen: pd.DataFrame,
    cells: Sequence[dict[str, Any]],
    *,
    column: str = "metric",
    **settings: Any,
) -> Table:
    """Declare a table of a row a method: `cells` are what is written of the rows of the frame."""
    shown = pd.DataFrame(cells)
    shown["method"], shown[column] = chosen["method"].to_numpy(), chosen[column].to_numpy()
    order = {method: place for place, method in enumerate(methods_of(chosen))}
    shown = shown.sort_values("method", key=lambda methods: methods.map(order), kind="stable")
    return Table(title, note, shown, ["method"], [column], controls=CONTROLS, **settings)


def _main(frame: pd.DataFrame, *more: str) -> pd.DataFrame:
    """Return the rows of the main table, in the order of its columns."""
    return pd.concat([pick(frame, metric=metric) for metric in (*HEADINGS, *more)])


def _leaders(frame: pd.DataFrame, metric: str) -> list[pd.Series]:
    return leaders(frame, metric, lowest=metric == "perturbation")


def _number(row: pd.Series, write_ends: Callable[[float], str] | None = None) -> dict[str, Any]:
    if math.isnan(row["value"]):
        return {"text": "–", "small": ""}
    return {"text": WRITERS[row["metric"]](row["value"]), "small": span(row, write_ends)}


def _mark(frame: pd.DataFrame, row: pd.Series) -> str:
    # A control is meant to be at its reference; the findings say whether it is.
    return "" if row["method"] in CONTROLS else MARKS.get(against_reference(frame, row), "")


def _counted(frame: pd.DataFrame, metric: str) -> str:
    # TCAV counts something else than images.
    counts = frame.loc[(frame["metric"] == metric) & (frame["method"] != TCAV), "n"]
    if not counts.any():
        return ""
    low, high = counts.min(), counts.max()
    return f"n = {low}" if low == high else f"n = {low}–{high}"


def _terminal_text(frame: pd.DataFrame, row: pd.Series, wide: bool) -> str:
    metric = row["metric"]
    if math.isnan(row["value"]):
        return "–"
    write = whole if metric in ("IDR", "IIR") else WRITERS[metric]
    text = _mark(frame, row) + write(row["value"])
    if math.isnan(row["low"]) or metric == "MCS baseline" or (metric == "perturbation" and not wide):
        return text
    if metric == "MCS":
        return f"{text} ±{contrast((row['high'] - row['low']) / 2)}"
    return f"{text} ({span(row, write)})"


def _written(value: float, write: Callable[[float], str]) -> str:
    return "–" if math.isnan(value) else write(value)
