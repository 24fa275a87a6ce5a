"""Tables of the attribution study."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from captum_concepts.attributions.methods import CONTROL_METHODS
from quantus_concepts.metrics import PremiseCheck
from quantus_concepts.studies._kit.findings import minus, number
from quantus_concepts.studies._kit.results import PAPER, against, names, one, pick, published
from quantus_concepts.studies._kit.tables import MARKS, Table
from quantus_concepts.studies.attribution.global_method import TCAV


def contrast(value: float) -> str:
    """Write a difference of concept attributions."""
    return "0" if value == 0 else minus(f"{value:z.3f}")


def ratio(value: float) -> str:
    """Write a ratio that may be of any size."""
    if value == 0 or 0.1 <= value < 100:
        return f"{value:.2f}"
    return f"{value:.0f}" if 100 <= value < 10_000 else two_digits(value)


def points(value: float) -> str:
    """Write a share in percent without the sign."""
    return minus(f"{100 * value:z.1f}")


def whole(value: float) -> str:
    """Write a share in whole percents without the sign."""
    return f"{100 * value:.0f}"


def two_digits(value: float) -> str:
    """Write a number of any size, a divergence for instance."""
    text = f"{value:#.2g}".rstrip(".")
    number, sign, power = text.partition("e")
    return minus(f"{number}e{int(power)}" if sign else text)


WRITERS: dict[str, Callable[[float], str]] = {
    "MCS": contrast,
    "MCS baseline": contrast,
    "relative MCS": contrast,
    "robustness": contrast,
    "IDR": points,
    "IIR": points,
    "perturbation": ratio,
    "correlation": number,
}


def span(row: Mapping[str, Any], write: Callable[[float], str] | None = None) -> str:
    """Write a row's interval."""
    low, high = row["low"], row["high"]
    if math.isnan(low) or math.isnan(high) or low == high:
        return ""
    write = write or WRITERS[row["metric"]]
    return f"{write(low)}{' to ' if low < 0 else '–'}{write(high)}"


#: Methods that know nothing of the model.
CONTROLS = tuple(CONTROL_METHODS)
RANDOM, SOBEL = CONTROLS
#: Models whose premises a metric rests on. IIR and perturbation rest on none: a patch is checked on its own image.
RESTS_ON = {"MCS": ("f_o", "f_s"), "MCS baseline": ("f_o", "f_s"), "IDR": ("f_s",), "robustness": ("f_o", "f_s")}
#: The models of relative MCS, as the report names them.
OF_COMMONALITY = "f_s^k"


@dataclass(frozen=True)
class GroundTruth:
    """What was checked of the models: their premises, and what removing the object costs by commonality."""

    checks: Sequence[PremiseCheck]
    premises: pd.DataFrame

    @property
    def drops(self) -> pd.DataFrame:
        """What removing the object costs the target class, a row for each k, ascending."""
        return pick(self.premises, metric="accuracy drop").sort_values("k")

    @property
    def trend_holds(self) -> bool:
        """Whether the object matters where it is rare and does not where it is in every class."""
        drops = self.drops
        if not self.checks or len(drops) < 2 or drops["k"].iloc[-1] != 1:
            return False
        # Accuracies are quotients: a drop of exactly the limit must not exceed it by rounding.
        limit = self.checks[0].limits.drop + 1e-9
        return bool(drops["value"].iloc[-1] <= limit < drops["value"].iloc[0])

    def unverified(self, *metrics: str) -> list[str]:
        """Return the models whose premises metrics rest on and which were not verified."""
        verified = {check.model for check in self.checks if check.verified}
        missing: dict[str, None] = {}
        for metric in metrics:
            if metric in ("relative MCS", "correlation"):
                missing |= {} if self.trend_holds else {OF_COMMONALITY: None}
            else:
                missing |= dict.fromkeys(model for model in RESTS_ON.get(metric, ()) if model not in verified)
        return list(missing)

    def mark(self, *metrics: str) -> str:
        """Return the mark that captions and tables carry."""
        models = self.unverified(*metrics)
        return f"ground truth not verified ({', '.join(models)})" if models else ""


def methods_of(frame: pd.DataFrame) -> list[str]:
    """Return the methods that occur, controls last: the order of every table and figure."""
    found = names(frame, "method")
    return [name for name in found if name not in CONTROLS] + [name for name in found if name in CONTROLS]


def judged(frame: pd.DataFrame, metric: str) -> list[pd.Series]:
    """Return the defined numbers of the methods themselves: no control, no TCAV."""
    return [row for row in defined(frame, metric) if row["method"] not in (*CONTROLS, TCAV)]


def defined(frame: pd.DataFrame, metric: str) -> list[pd.Series]:
    """Return the rows of a metric that have a number."""
    found = pick(frame, metric=metric)
    return [row for _, row in found[found["value"].notna()].iterrows()]


def against_reference(frame: pd.DataFrame, row: pd.Series) -> str:
    """Say whether a number lies above, at or below what it is to be held against."""
    mask = one(frame, metric="MCS baseline", method=row["method"]) if row["metric"] == "MCS" else None
    return against(row, float(row["reference"]) if mask is None or math.isnan(mask["low"]) else mask)


def leaders(frame: pd.DataFrame, metric: str, *, lowest: bool = False) -> list[pd.Series]:
    """Return the best of the methods and all that cannot be distinguished from it."""
    sign = 1 if lowest else -1
    # TCAV's contrast is on a scale of its own; its correlation is not.
    out = CONTROLS if metric == "correlation" else (*CONTROLS, TCAV)
    found: Iterable[pd.Series] = (row for row in defined(frame, metric) if row["method"] not in out)
    ordered = sorted(found, key=lambda row: sign * row["value"])
    return [row for row in ordered if row is ordered[0] or against(row, ordered[0]) == "at"]


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
        key="Small numbers are 95 % intervals. Bold: the best, and what cannot be distinguished from it. ≈ not "
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
        "≈ not distinguishable from its random mask (MCS) or from 50 % (IDR), ▼ below it. "
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
