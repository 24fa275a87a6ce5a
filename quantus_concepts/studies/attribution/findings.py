"""What the numbers of the attribution study say, in sentences."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pandas as pd

from quantus_concepts.studies._kit.findings import Finding, listed, number, percent, said
from quantus_concepts.studies._kit.results import against, one, pick
from quantus_concepts.studies.attribution.global_method import TCAV
from quantus_concepts.studies.attribution.tables import (
    CONTROLS,
    OF_COMMONALITY,
    RANDOM,
    SOBEL,
    GroundTruth,
    against_reference,
    contrast,
    judged,
    leaders,
    points,
    span,
    whole,
)

#: Highest in MCS and in correlation (Figures 5 and 7 of Yang and Kim), next to TCAV.
HIGHEST_CONTRAST = "Grad-CAM"
#: Highest in IDR and IIR (Figure 9), in the paper's order.
ROBUST = ["Grad-CAM", "vanilla gradient"]
#: Every other method has an IIR below this (Section 5.3).
MISLED = 0.2


def paper_findings(frame: pd.DataFrame) -> list[tuple[str, str]]:
    """Say of each finding of the paper whether our numbers show it."""
    found = [
        ("MCS", _highest_contrast(judged(frame, "MCS"))),
        *((metric, _robust(judged(frame, metric), metric)) for metric in ("IDR", "IIR")),
        ("IIR", _misled(judged(frame, "IIR"))),
    ]
    return [(metric, text) for metric, text in found if text]


def _highest_contrast(rows: Sequence[pd.Series]) -> str:
    # Controls are left out: where one leads, it says nothing of the methods.
    ours = [row for row in rows if row["method"] == HIGHEST_CONTRAST]
    others = [row for row in rows if row["method"] != HIGHEST_CONTRAST]
    if not ours or not others:
        return ""
    claim = f"The paper finds {HIGHEST_CONTRAST} highest in MCS (beside TCAV)."
    above = [row["method"] for row in others if against(row, ours[0]) == "above"]
    if above:
        return f"{claim} Our figures disagree: {listed(above)} {_be(above)} higher, the intervals apart."
    beside = [row["method"] for row in others if against(row, ours[0]) != "below"]
    if beside:
        return f"{claim} Our figures allow it but do not show it: it cannot be distinguished from {listed(beside)}."
    return f"{claim} Our figures agree."


def _robust(rows: Sequence[pd.Series], metric: str) -> str:
    """Compare each of the paper's two best methods with all others."""
    pair = [row for row in rows if row["method"] in ROBUST]
    others = [row for row in rows if row["method"] not in ROBUST]
    if len(pair) < len(ROBUST) or not others:
        return ""
    claim = f"The paper finds {listed(ROBUST)} highest in {metric}."
    beaten, open_questions = [], []
    for row in pair:
        above = [other["method"] for other in others if against(other, row) == "above"]
        unclear = [other["method"] for other in others if against(other, row) in ("at", "")]
        if above:
            beaten.append(f"{listed(above)} {_be(above)} above {row['method']}, the intervals apart")
        if unclear:
            open_questions.append(f"{row['method']} cannot be distinguished from {listed(unclear)}")
    unclear_text = "; ".join(open_questions)
    if beaten:
        rest = f" {unclear_text[0].upper()}{unclear_text[1:]}." if open_questions else ""
        return f"{claim} Our figures disagree: {'; '.join(beaten)}.{rest}"
    if open_questions:
        return f"{claim} Our figures do not contradict it, but do not show it either: {unclear_text}."
    return f"{claim} Our figures agree: both are above every other method, the intervals apart."


def _misled(rows: Sequence[pd.Series]) -> str:
    others = [row for row in rows if row["method"] not in ROBUST]
    if not others:
        return ""
    claim = (
        f"The paper finds that every other method calls the meaningless patch important for over "
        f"{percent(1 - MISLED)} of the images (an IIR below {percent(MISLED)})."
    )
    places: dict[str, list[str]] = {"below": [], "above": [], "open": []}
    for row in others:
        place = against(row, MISLED)
        places[place if place in places else "open"].append(row["method"])
    if len(places["below"]) == len(others):
        return f"{claim} Our figures agree, for all {len(others)}."
    phrases = {"below": "it holds for", "above": "it does not for", "open": "it is open for"}
    parts = [f"{phrase} {listed(places[place])}" for place, phrase in phrases.items() if places[place]]
    verdict = "Our figures disagree" if places["above"] else "Our figures do not show all of it"
    return f"{claim} {verdict}: {', '.join(parts)}."


def _be(methods: Sequence[str]) -> str:
    return "is" if len(methods) == 1 else "are"


#: A share of patches left out from which the report warns.
MANY_LEFT_OUT = 0.5
#: How a sentence names a change.
WORDS = {"centre": "in the middle", "corner": "in a corner"}


def findings(frame: pd.DataFrame, truth: GroundTruth) -> list[Finding]:
    """Return what can be said on the premises, each metric, the controls, and the paper's findings."""
    # "Above" and "below" are said where 95 % intervals do not overlap or exclude a fixed value, otherwise that two
    # numbers cannot be distinguished.
    made = [
        ("Premises", "", premises(frame, truth)),
        ("MCS", "MCS", model_contrast(frame)),
        ("TCAV", "MCS", tcav(frame)),
        ("Size and place", "robustness", robustness(frame)),
        ("Relative MCS", "relative MCS", relative_contrast(frame, truth)),
        ("IDR", "IDR", dependence(frame)),
        ("IIR", "IIR", independence(frame)),
        ("Controls", "", controls(frame)),
        ("Not defined", "", undefined(frame)),
        *(("The paper's findings", metric, text) for metric, text in paper_findings(frame)),
    ]
    doubt = " (Ground truth not verified.)"
    return said(
        *(Finding(text + (doubt if truth.unverified(metric) else ""), topic) for topic, metric, text in made if text)
    )


def premises(frame: pd.DataFrame, truth: GroundTruth) -> str:
    """Say whose premises hold, and what rests on those that do not."""
    parts = []
    for check in truth.checks:
        failed = [premise.sentence for premise in check.premises if not premise.holds]
        if failed:
            parts.append(f"{check.model} is not verified. {' '.join(failed)}")
    verified = [check.model for check in truth.checks if check.verified]
    if verified:
        rest = "every premise holds" if len(verified) == 1 else "every premise of each holds"
        parts.insert(0, f"The ground truth of {listed(verified)} is verified: {rest}.")
    resting = {metric: truth.unverified(metric) for metric in ("MCS", "IDR") if len(pick(frame, metric=metric))}
    checked = {check.model for check in truth.checks}
    unchecked = list(dict.fromkeys(name for models in resting.values() for name in models if name not in checked))
    if unchecked:
        parts.append(f"The premises of {listed(unchecked)} were not checked.")
    doubted = [metric for metric, models in resting.items() if models]
    if doubted:
        parts.append(
            f"What is said on {listed(doubted)} below therefore judges the methods by a truth these models need not "
            "follow."
        )
    return " ".join(parts)


def model_contrast(frame: pd.DataFrame) -> str:
    """Say which method has the highest MCS, and which are above their random masks."""
    best = leaders(frame, "MCS")
    if not best:
        return ""
    groups = _groups(frame, "MCS", "Above a random mask of the same size", "not distinguishable from it", "below it")
    return " ".join([_leading(best, "has the highest MCS", _contrast_with_interval), *groups])


def dependence(frame: pd.DataFrame) -> str:
    """Say which method has the highest IDR, and which are above chance."""
    best = leaders(frame, "IDR")
    if not best:
        return ""
    below = "below it, so that in most images the unimportant object gets no less than what it covers"
    groups = _groups(frame, "IDR", "Above the 50 % of a random map", "not distinguishable from it", below)
    return " ".join([_leading(best, "has the highest IDR", _share_with_interval), *groups])


def independence(frame: pd.DataFrame) -> str:
    """Say which method has the highest IIR, and how many patches there were."""
    best = leaders(frame, "IIR")
    if not best:
        return ""
    parts = [
        _leading(best, "has the highest IIR", _share_with_interval),
        "There is no chance value: IIR depends on the grain of the map.",
    ]
    chance = one(frame, metric="IIR", method=RANDOM)
    if chance is not None:
        parts.append(f"For comparison, the random map has {percent(chance['value'])}.")
    counted = pick(frame, metric="IIR")
    left_out, total = counted["unconverged"].max(), (counted["n"] + counted["undefined"]).max()
    if left_out:
        parts.append(f"{left_out} of {total} patches did not converge and were left out.")
        if left_out > MANY_LEFT_OUT * total:
            parts.append("That is most of them: the rest are a selection of the images.")
    return " ".join(parts)


def tcav(frame: pd.DataFrame) -> str:
    """Say how TCAV's scores of the two models differ."""
    if pick(frame, metric="MCS", method=TCAV).empty:
        return ""
    row = one(frame, metric="MCS", method=TCAV)
    if row is None:
        return "No layer's score passed its significance test in both models, so there is no contrast."
    text = f"The score differs by {_contrast_with_interval(row)} between the models"
    if not math.isnan(row["reference"]):
        text += f", {contrast(row['reference'])} with random concepts"
    return f"{text}. It is one number for all images and on a scale of its own: it is not ranked beside the maps."


def robustness(frame: pd.DataFrame) -> str:
    """Say which methods' MCS a change of size or place moves, by intervals that do not overlap."""
    changed = pick(frame, metric="robustness")
    if changed.empty:
        return ""
    moved: dict[str, list[str]] = {}
    for _, row in changed.iterrows():
        usual = one(frame, metric="MCS", method=row["method"])
        if usual is None or row["method"] in (*CONTROLS, TCAV) or against(row, usual) not in ("above", "below"):
            continue
        way = "higher" if row["value"] > usual["value"] else "lower"
        moved.setdefault(f"{way} where objects are {WORDS.get(row['variant'], row['variant'])}", []).append(
            row["method"]
        )
    if not moved:
        return "No method's MCS can be distinguished from its own with objects of the usual size at random places."
    return f"Beyond its interval, MCS is {'; '.join(f'{way} for {listed(names)}' for way, names in moved.items())}."


def relative_contrast(frame: pd.DataFrame, truth: GroundTruth) -> str:
    """Say which method's curve follows the accuracy drop, and whether there is one to follow."""
    best = leaders(frame, "correlation")
    if not best:
        return ""
    parts, drops = [], truth.drops
    if len(drops) > 1:
        (first_k, first), (last_k, last) = (drops[["k", "value"]].iloc[place] for place in (0, -1))
        parts.append(
            f"Removing the object costs the target class {points(first)} points of accuracy at k = {first_k:g} and "
            f"{points(last)} at k = {last_k:g}."
        )
        if not truth.trend_holds:
            parts.append(
                f"So it is not verified for the models {OF_COMMONALITY} that the object matters where it is rare and "
                "does not where it is common: there is no established trend for the curves to follow."
            )
    parts.append(
        _leading(
            best,
            "follows the accuracy drop most closely",
            lambda row: f"r = {number(row['value'])}, {span(row)}",
        )
    )
    weak = [row["method"] for row in judged(frame, "correlation") if against(row, 0.0) in ("at", "below")]
    if weak:
        parts.append(f"No positive correlation is established for {listed(weak)}.")
    return " ".join(parts)


def controls(frame: pd.DataFrame) -> str:
    """Say whether what knows nothing scores what it must."""
    parts = []
    for metric, expected, write, written in (
        ("MCS", 0.0, _contrast_with_interval, "0"),
        ("IDR", 0.5, _share_with_interval, "50 %"),
    ):
        row = one(frame, metric=metric, method=RANDOM)
        if row is not None and (place := against(row, expected)):
            holds = "holds" if place == "at" else "does not hold"
            parts.append(f"The interval of the random map's {metric} ({write(row)}) {holds} the expected {written}.")
    if any("does not hold" in part for part in parts):
        parts.append("One such interval in twenty misses by chance alone; a repetition with another seed tells.")
    edges = one(frame, metric="MCS", method=SOBEL)
    if edges is not None:
        parts.append(
            "The edge detector's MCS is exactly 0, as it must be for a map that sees no model."
            if edges["value"] == 0
            else f"The edge detector's MCS is {contrast(edges['value'])} and not exactly 0, though it sees no model: "
            "something is wrong with the measurement."
        )
    return " ".join(parts)


def undefined(frame: pd.DataFrame) -> str:
    """Name the methods that lack a number."""
    missing = pick(frame, metric=["MCS", "IDR", "IIR", "correlation"])
    missing = missing[missing["value"].isna() & (missing["method"] != TCAV)]
    lacking: dict[tuple[str, ...], list[str]] = {}
    for method, group in missing.groupby("method", sort=False):
        lacking.setdefault(tuple(group["metric"]), []).append(str(method))
    return " ".join(
        f"{listed(methods)} {'has' if len(methods) == 1 else 'have'} no {listed(metrics)}."
        for metrics, methods in lacking.items()
    )


def _contrast_with_interval(row: pd.Series) -> str:
    shown = span(row)
    return f"{contrast(row['value'])}, 95 % interval {shown}" if shown else contrast(row["value"])


def _share_with_interval(row: pd.Series) -> str:
    shown = span(row, whole)
    return f"{percent(row['value'])}, 95 % interval {shown}" if shown else percent(row["value"])


def _leading(best: Sequence[pd.Series], claim: str, write: Callable[[pd.Series], str]) -> str:
    """Name the best, and what cannot be distinguished from it."""
    first = f"{best[0]['method']} {claim} ({write(best[0])})"
    if len(best) == 1:
        return f"{first}; no other method's interval overlaps its own."
    others = listed([row["method"] for row in best[1:]])
    overlapped = f"that of {others}" if len(best) == 2 else f"those of {others}"
    return f"{first}, but its interval overlaps {overlapped}: which of them is best cannot be known."


def _groups(frame: pd.DataFrame, metric: str, above: str, at: str, below: str) -> list[str]:
    """Sort the methods by how they stand to their reference and name them."""
    groups: dict[str, list[str]] = {"above": [], "at": [], "below": []}
    for row in judged(frame, metric):
        groups.get(against_reference(frame, row), []).append(row["method"])
    phrases = zip(groups.values(), (above, at, below), strict=True)
    text = "; ".join(f"{phrase}: {listed(methods)}" for methods, phrase in phrases if methods)
    return [f"{text[0].upper()}{text[1:]}."] if text else []
