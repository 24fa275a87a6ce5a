"""Answers and findings of the attribution study: sentences over its frame, with all intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import pandas as pd

from captum_concepts.attributions.methods import CONTROL_METHODS
from quantus_concepts.metrics import PremiseCheck
from quantus_concepts.studies._kit.findings import (
    Finding,
    Row,
    compared,
    join_words,
    leader,
    minus,
    number,
    percent,
    points,
    said,
    sentence,
    three,
    with_intervals,
)
from quantus_concepts.studies._kit.results import against, names, one, pick
from quantus_concepts.studies.attribution.global_method import TCAV

#: Methods without knowledge of the model.
CONTROLS = tuple(CONTROL_METHODS)
RANDOM, SOBEL = CONTROLS
#: Models whose premises a metric rests on. IIR and perturbation rest on none: a patch is checked on its own image.
RESTS_ON = {"MCS": ("f_o", "f_s"), "MCS baseline": ("f_o", "f_s"), "IDR": ("f_s",), "robustness": ("f_o", "f_s")}
#: The models of relative MCS, as the report names them.
OF_COMMONALITY = "f_s^k"
#: A share of patches left out from which the report warns.
MANY_LEFT_OUT = 0.5


def any_size(value: float) -> str:
    """Write a number of any size with two digits."""
    return "–" if math.isnan(value) else minus(f"{value:.2g}")


WRITERS: dict[str, Callable[[float], str]] = {
    "MCS": three,
    "MCS baseline": three,
    "relative MCS": number,
    "robustness": three,
    "IDR": points,
    "IIR": points,
    "perturbation": any_size,
    "correlation": number,
    "accuracy drop": number,
}


@dataclass(frozen=True)
class GroundTruth:
    """The checked premises of the models, and the accuracy lost without the object by commonality."""

    checks: Sequence[PremiseCheck]
    premises: pd.DataFrame

    @property
    def drops(self) -> pd.DataFrame:
        """The accuracy that the target class loses without the object, a row for each k, ascending."""
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
    methods = names(frame, "method")
    return [name for name in methods if name not in CONTROLS] + [name for name in methods if name in CONTROLS]


def of_methods(frame: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return the defined numbers of the methods themselves: no control, no TCAV, whose scale is another one."""
    rows = pick(frame, metric=metric)
    return rows[rows["value"].notna() & ~rows["method"].isin([*CONTROLS, TCAV])]


def reference_of(frame: pd.DataFrame, row: Row) -> Row | float:
    """Return what a number is held against: of MCS the same with a random mask, of a correlation 0."""
    mask = one(frame, metric="MCS baseline", method=row["method"]) if row["metric"] == "MCS" else None
    if mask is not None and not math.isnan(mask["low"]):
        return mask
    return 0.0 if row["metric"] == "correlation" else float(row["reference"])


def best_of(frame: pd.DataFrame, metric: str) -> list[str]:
    """Return the best method, and those that cannot be distinguished from it."""
    rows = of_methods(frame, metric).sort_values("value", ascending=metric == "perturbation", kind="stable")
    # A random mask's number is a reference: there is no best one.
    if rows.empty or metric == "MCS baseline":
        return []
    first = rows.iloc[0]
    return [first["method"], *(row["method"] for _, row in rows[1:].iterrows() if against(row, first) == "at")]


#: By metric: the question, how its numbers are written, and what they are held against.
QUESTIONS: dict[str, tuple[str, Callable[[float], str], str]] = {
    "MCS": ("Changes with the model", three, "a random mask"),
    "IDR": ("Leaves alone what does not matter", percent, "a random map"),
    "IIR": ("Unmoved by a patch without effect", percent, ""),
}
#: Methods that the paper finds highest in a metric (Figures 5 and 9, without TCAV).
CLAIMS = {"MCS": ["Grad-CAM"], "IDR": ["Grad-CAM", "vanilla gradient"], "IIR": ["Grad-CAM", "vanilla gradient"]}
#: Every other method has an IIR below this (Section 5.3).
MISLED = 0.2


def answers(frame: pd.DataFrame, truth: GroundTruth) -> list[Finding]:
    """Return one short line for each question: how many methods pass, and the best with its baseline."""
    wrong = truth.unverified(*(metric for metric in RESTS_ON if metric in set(frame["metric"])))
    lines = [Finding(f"not verified ({', '.join(wrong)})" if wrong else "verified", "Ground truth")]
    for metric, (question, write, baseline) in QUESTIONS.items():
        rows = of_methods(frame, metric)
        if rows.empty:
            continue
        best = rows.loc[rows["value"].idxmax()]
        control = one(frame, metric=metric, method=RANDOM)
        text = f"best {best['method']} ({write(best['value'])}"
        if baseline:
            above = [row for _, row in rows.iterrows() if against(row, reference_of(frame, row)) == "above"]
            text = f"{len(above)} of {len(rows)} methods above {baseline}; {text}"
        if baseline and not math.isnan(best["reference"]):
            text += f", {baseline} {write(best['reference'])}"
        elif control is not None:
            text += f", the random map {write(control['value'])}"
        lines.append(Finding(f"{text})", question))
    return lines


def findings(frame: pd.DataFrame, truth: GroundTruth) -> list[Finding]:
    """Return what can be said on the premises, each metric, the controls, and the paper's findings."""
    # "Above" and "below" are said where 95 % intervals do not overlap or exclude a fixed value, otherwise that two
    # numbers cannot be distinguished.
    against_reference = partial(reference_of, frame)
    rows = {metric: of_methods(frame, metric) for metric in ("MCS", "IDR", "IIR", "correlation")}
    sure = {metric: with_intervals(of) for metric, of in rows.items()}
    texts = [
        ("Premises", "", _premises(frame, truth)),
        ("MCS", "MCS", leader(rows["MCS"], "MCS is highest for", "method", three)),
        ("MCS", "MCS", compared(sure["MCS"], against_reference, "Above a random mask of the same size", "method")),
        *(("TCAV", "MCS", _tcav(frame)) for _ in pick(frame, metric="MCS", method=TCAV).index),
        *(("Size and place", "robustness", text) for text in _robustness(frame)),
        *(("Relative MCS", "relative MCS", text) for text in _relative(truth, rows, sure)),
        ("IDR", "IDR", leader(rows["IDR"], "IDR is highest for", "method")),
        ("IDR", "IDR", compared(sure["IDR"], 0.5, "Above the 50 % of a random map", "method")),
        ("IIR", "IIR", leader(rows["IIR"], "IIR is highest for", "method")),
        ("IIR", "IIR", _patches(frame)),
        *(("Controls", "", text) for text in _controls(frame)),
        *(("Not defined", "", text) for text in _undefined(frame)),
        *(("The paper's findings", metric, _claim(sure[metric], metric, best)) for metric, best in CLAIMS.items()),
        ("The paper's findings", "IIR", _misled(sure["IIR"])),
    ]
    doubt = " (not verified)"
    return said(*(Finding(text, topic + (doubt if truth.unverified(metric) else "")) for topic, metric, text in texts))


def _premises(frame: pd.DataFrame, truth: GroundTruth) -> str:
    verified = [check.model for check in truth.checks if check.verified]
    parts = [f"Every premise of {join_words(verified)} holds."] if verified else []
    for check in truth.checks:
        failed = [premise.sentence for premise in check.premises if not premise.holds]
        parts += [f"{check.model} is not verified. {' '.join(failed)}"] if failed else []
    resting = {metric: truth.unverified(metric) for metric in ("MCS", "IDR") if len(pick(frame, metric=metric))}
    doubted = [metric for metric, models in resting.items() if models]
    if doubted:
        models = join_words(truth.unverified(*resting))
        parts.append(f"So {join_words(doubted)} judge the methods by a truth that {models} need not follow.")
    return " ".join(parts)


def _tcav(frame: pd.DataFrame) -> str:
    row = one(frame, metric="MCS", method=TCAV)
    if row is None:
        return "No layer's score passed its significance test in both models, so there is no contrast."
    baseline = None if math.isnan(row["reference"]) else float(row["reference"])
    text = sentence("The score differs by {} between the models", row, {"random concepts": baseline}, write=three)
    return f"{text} It is one number for all images and on a scale of its own: it is not ranked with the maps."


def _robustness(frame: pd.DataFrame) -> list[str]:
    changed = with_intervals(of_methods(frame, "robustness"))
    return [
        compared(
            pick(changed, variant=variant),
            lambda row: one(frame, metric="MCS", method=row["method"]),
            f"Objects {variant}: MCS above that as trained",
            "method",
        )
        for variant in names(changed, "variant")
    ]


def _relative(truth: GroundTruth, rows: Mapping[str, pd.DataFrame], sure: Mapping[str, pd.DataFrame]) -> list[str]:
    drops = truth.drops
    if len(drops) < 2:
        return []
    costs = join_words([f"{percent(row['value'])} at k = {row['k']:g}" for _, row in drops.iloc[[0, -1]].iterrows()])
    doubt = "" if truth.trend_holds else ": there is no established trend for the curves to follow"
    return [
        f"Removing the object costs the target class {costs} of accuracy{doubt}.",
        leader(rows["correlation"], "r is highest for", "method", number),
        compared(sure["correlation"], 0.0, "Positive correlation", "method"),
    ]


def _patches(frame: pd.DataFrame) -> str:
    counted = pick(frame, metric="IIR")
    if counted.empty:
        return ""
    text = "There is no chance value: IIR depends on the grain of the map. "
    text += sentence("The random map has {}", one(frame, metric="IIR", method=RANDOM))
    left_out, total = counted["unconverged"].max(), (counted["n"] + counted["undefined"]).max()
    if left_out:
        text += f" {left_out} of {total} patches did not converge and were left out."
        text += " The rest are a selection of the images." if left_out > MANY_LEFT_OUT * total else ""
    return text


def _controls(frame: pd.DataFrame) -> list[str]:
    texts = []
    for metric, expected, write in (("MCS", 0.0, three), ("IDR", 0.5, percent)):
        row = one(frame, metric=metric, method=RANDOM)
        if row is not None and (relation := against(row, expected)):
            text = sentence(f"The random map's {metric} is {{}}", row, {"what is expected": expected}, write=write)
            texts.append(text if relation == "at" else f"{text} One such interval in twenty misses by chance.")
    edges = one(frame, metric="MCS", method=SOBEL)
    if edges is not None:
        value = three(edges["value"])
        texts.append(
            "The edge detector's MCS is exactly 0, as it must be for a map without knowledge of the model."
            if edges["value"] == 0
            else f"The edge detector's MCS is {value} and not exactly 0: something is wrong with the measurement."
        )
    return texts


def _undefined(frame: pd.DataFrame) -> list[str]:
    missing = pick(frame, metric=["MCS", "IDR", "IIR", "correlation"])
    missing = missing[missing["value"].isna() & (missing["method"] != TCAV)]
    lacking = missing.groupby("method", sort=False)["metric"].agg(lambda metrics: join_words(list(metrics)))
    return [
        f"No {metrics}: {join_words(list(group.index))}." for metrics, group in lacking.groupby(lacking, sort=False)
    ]


def _claim(rows: pd.DataFrame, metric: str, best: Sequence[str]) -> str:
    """Hold the paper's best methods against all others."""
    ours, others = pick(rows, method=list(best)), rows[~rows["method"].isin(best)]
    if len(ours) < len(best) or others.empty:
        return ""
    here = (compared(others, row, f"Above {row['method']} here", "method") for _, row in ours.iterrows())
    return f"The paper finds {join_words(list(best))} highest in {metric}. {' '.join(here)}"


def _misled(rows: pd.DataFrame) -> str:
    others = rows[~rows["method"].isin(CLAIMS["IIR"])]
    if others.empty:
        return ""
    claim = f"The paper finds every other method's IIR below {percent(MISLED)}."
    return f"{claim} {compared(others, MISLED, f'Above {percent(MISLED)} here', 'method')}"
