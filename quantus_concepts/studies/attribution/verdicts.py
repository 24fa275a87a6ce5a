"""Sentences that say what the numbers mean, written from the numbers and their intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from quantus_concepts.studies.attribution.paper_findings import paper_findings
from quantus_concepts.studies.attribution.premises import CommonalityRow, PremiseCheck
from quantus_concepts.studies.attribution.results import (
    RANDOM,
    SOBEL,
    TCAV,
    Record,
    against,
    against_reference,
    leaders,
)
from quantus_concepts.studies.attribution.robustness_page import robustness_verdict
from quantus_concepts.studies.attribution.truth import FAMILY, family_holds, unverified
from quantus_concepts.studies.attribution.writing import contrast, correlation, enumerate_names, points, span, whole
from quantus_concepts.studies.findings import percent
from quantus_concepts.studies.records import find, select
from quantus_concepts.studies.verdict import Verdict

#: A share of patches left out from which the report warns.
MANY_LEFT_OUT = 0.5


def verdicts(
    records: Sequence[Record],
    premises: Sequence[PremiseCheck],
    commonality: Sequence[CommonalityRow] = (),
) -> list[Verdict]:
    """Return what can be said on the premises, each metric, the controls, and the paper's findings."""
    # "Above" and "below" are said where 95 % intervals do not overlap or exclude a fixed value, otherwise that two
    # numbers cannot be told apart.
    said = [
        ("Premises", "", _premises(records, premises)),
        ("MCS", "MCS", _contrast(records)),
        ("TCAV", "MCS", _tcav(records)),
        ("Size and place", "robustness", robustness_verdict(records)),
        ("Relative MCS", "relative MCS", _relative(records, premises, commonality)),
        ("IDR", "IDR", _dependence(records)),
        ("IIR", "IIR", _independence(records)),
        ("Controls", "", _controls(records)),
        ("Not defined", "", _undefined(records)),
        *(("The paper's findings", metric, text) for metric, text in paper_findings(records)),
    ]
    verdicts_made = []
    for topic, metric, text in said:
        if text:
            doubt = " (Ground truth not verified.)" if unverified(metric, premises, commonality) else ""
            verdicts_made.append(Verdict(topic, text + doubt))
    return verdicts_made


def _premises(records: Sequence[Record], premises: Sequence[PremiseCheck]) -> str:
    parts = []
    for check in premises:
        failed = [premise.sentence for premise in check.premises if not premise.holds]
        if failed:
            parts.append(f"{check.model} is not verified. {' '.join(failed)}")
    verified = [check.model for check in premises if check.verified]
    if verified:
        rest = "every premise holds" if len(verified) == 1 else "every premise of each holds"
        parts.insert(0, f"The ground truth of {enumerate_names(verified)} is verified: {rest}.")
    resting = {metric: unverified(metric, premises) for metric in ("MCS", "IDR") if select(records, metric=metric)}
    checked = {check.model for check in premises}
    unchecked = dict.fromkeys(name for names in resting.values() for name in names if name not in checked)
    if unchecked:
        parts.append(f"The premises of {enumerate_names(unchecked)} were not checked.")
    doubted = [metric for metric, models in resting.items() if models]
    if doubted:
        parts.append(
            f"What is said on {enumerate_names(doubted)} below therefore judges the methods by a truth these models "
            "need not follow."
        )
    return " ".join(parts)


def _contrast(records: Sequence[Record]) -> str:
    best = leaders(records, "MCS")
    if not best:
        return ""
    parts = [_leading(best, "has the highest MCS", _contrast_with_interval)]
    parts += _groups(
        records,
        "MCS",
        "Above a random mask of the same size",
        "not told apart from it",
        "below it",
    )
    return " ".join(parts)


def _contrast_with_interval(record: Record) -> str:
    shown = span(record)
    return f"{contrast(record.value)}, 95 % interval {shown}" if shown else contrast(record.value)


def _share_with_interval(record: Record) -> str:
    shown = span(record, whole)
    return f"{percent(record.value)}, 95 % interval {shown}" if shown else percent(record.value)


def _leading(best: Sequence[Record], claim: str, write: Callable[[Record], str]) -> str:
    """Name the best, and what cannot be told apart from it."""
    first = f"{best[0].method} {claim} ({write(best[0])})"
    if len(best) == 1:
        return f"{first}; no other method's interval overlaps its own."
    others = enumerate_names(record.method for record in best[1:])
    overlapped = f"that of {others}" if len(best) == 2 else f"those of {others}"
    return f"{first}, but its interval overlaps {overlapped}: which of them is best cannot be told."


def _groups(records: Sequence[Record], metric: str, above: str, at: str, below: str) -> list[str]:
    """Sort the methods by how they stand to their reference and name them."""
    names: dict[str, list[str]] = {"above": [], "at": [], "below": []}
    for record in _judged(records, metric):
        names.get(against_reference(records, record), []).append(record.method)
    said = [
        f"{phrase}: {enumerate_names(names[place])}"
        for place, phrase in (("above", above), ("at", at), ("below", below))
        if names[place]
    ]
    text = "; ".join(said)
    return [f"{text[0].upper()}{text[1:]}."] if text else []


def _judged(records: Iterable[Record], metric: str) -> list[Record]:
    """Return the defined numbers of the methods themselves: no control, no TCAV."""
    return [r for r in select(records, metric=metric) if r.defined and r.method not in (RANDOM, SOBEL, TCAV)]


def _tcav(records: Sequence[Record]) -> str:
    record = find(records, metric="MCS", method=TCAV)
    if record is None:
        return ""
    if not record.defined:
        return "No layer's score passed its significance test in both models, so there is no contrast."
    text = f"The score differs by {_contrast_with_interval(record)} between the models"
    if not math.isnan(record.reference):
        text += f", {contrast(record.reference)} with random concepts"
    return f"{text}. It is one number for all images and on a scale of its own: it is not ranked beside the maps."


def _relative(
    records: Sequence[Record], premises: Sequence[PremiseCheck], commonality: Sequence[CommonalityRow]
) -> str:
    best = leaders(records, "correlation")
    if not best:
        return ""
    parts = []
    rows = sorted(commonality, key=lambda row: row.k)
    if len(rows) > 1:
        first, last = rows[0], rows[-1]
        parts.append(
            f"Removing the object costs the target class {points(first.drop)} points of accuracy at k = {first.k:g} "
            f"and {points(last.drop)} at k = {last.k:g}."
        )
        if not family_holds(premises, commonality):
            parts.append(
                f"So it is not verified for the models {FAMILY} that the object matters where it is rare and does not "
                "where it is common: there is no established trend for the curves to follow."
            )
    parts.append(
        _leading(best, "follows the accuracy drop most closely", lambda r: f"r = {correlation(r.value)}, {span(r)}")
    )
    weak = [r.method for r in _judged(records, "correlation") if against(r, 0.0) in ("at", "below")]
    if weak:
        parts.append(f"No positive correlation is established for {enumerate_names(weak)}.")
    return " ".join(parts)


def _dependence(records: Sequence[Record]) -> str:
    best = leaders(records, "IDR")
    if not best:
        return ""
    parts = [_leading(best, "has the highest IDR", _share_with_interval)]
    parts += _groups(
        records,
        "IDR",
        "Above the 50 % of a random map",
        "not told apart from it",
        "below it, so that in most images the unimportant object gets no less than what it covers",
    )
    return " ".join(parts)


def _independence(records: Sequence[Record]) -> str:
    best = leaders(records, "IIR")
    if not best:
        return ""
    parts = [
        _leading(best, "has the highest IIR", _share_with_interval),
        "There is no chance value: IIR depends on the grain of the map.",
    ]
    chance = find(records, metric="IIR", method=RANDOM)
    if chance is not None and chance.defined:
        parts.append(f"For comparison, the random map has {percent(chance.value)}.")
    counted = select(records, metric="IIR")
    left_out = max(record.unconverged for record in counted)
    total = max(record.n + record.undefined for record in counted)
    if left_out:
        parts.append(f"{left_out} of {total} patches did not converge and were left out.")
        if left_out > MANY_LEFT_OUT * total:
            parts.append("That is most of them: the rest are a selection of the images.")
    return " ".join(parts)


def _controls(records: Sequence[Record]) -> str:
    parts = []
    chance = find(records, metric="MCS", method=RANDOM)
    if chance is not None and chance.defined:
        parts.append(_control(chance, 0.0, "MCS", _contrast_with_interval(chance), "0"))
    rate = find(records, metric="IDR", method=RANDOM)
    if rate is not None and rate.defined:
        parts.append(_control(rate, 0.5, "IDR", _share_with_interval(rate), "50 %"))
    if any("does not hold" in part for part in parts):
        parts.append("One such interval in twenty misses by chance alone; a repetition with another seed tells.")
    edges = find(records, metric="MCS", method=SOBEL)
    if edges is not None and edges.defined:
        parts.append(
            "The edge detector's MCS is exactly 0, as it must be for a map that sees no model."
            if edges.value == 0
            else f"The edge detector's MCS is {contrast(edges.value)} and not exactly 0, though it sees no model: "
            "something is wrong with the measurement."
        )
    return " ".join(parts)


def _control(record: Record, expected: float, metric: str, shown: str, written: str) -> str:
    place = against(record, expected)
    if not place:
        return ""
    holds = "holds" if place == "at" else "does not hold"
    return f"The interval of the random map's {metric} ({shown}) {holds} the expected {written}."


def _undefined(records: Sequence[Record]) -> str:
    metrics: dict[str, list[str]] = {}
    for record in records:
        if not record.defined and record.metric in ("MCS", "IDR", "IIR", "correlation") and record.method != TCAV:
            metrics.setdefault(record.method, []).append(record.metric)
    return " ".join(f"{method} has no {enumerate_names(names)}." for method, names in metrics.items())
