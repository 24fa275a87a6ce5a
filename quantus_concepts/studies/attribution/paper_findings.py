"""The paper's findings, looked for in our numbers and reported whatever comes out."""

from __future__ import annotations

from collections.abc import Sequence

from quantus_concepts.studies.attribution.paper import HIGHEST_CONTRAST, MISLED, ROBUST
from quantus_concepts.studies.attribution.results import CONTROLS, TCAV, Record, against
from quantus_concepts.studies.attribution.writing import enumerate_names
from quantus_concepts.studies.findings import percent
from quantus_concepts.studies.records import find, select


def paper_findings(records: Sequence[Record]) -> list[tuple[str, str]]:
    """Say of each finding of the paper whether our numbers show it."""
    found = [
        ("MCS", _highest_contrast(records)),
        *((metric, _robust(records, metric)) for metric in ("IDR", "IIR")),
        ("IIR", _misled(records)),
    ]
    return [(metric, text) for metric, text in found if text]


def _judged(records: Sequence[Record], metric: str) -> list[Record]:
    return [r for r in select(records, metric=metric) if r.defined and r.method not in (*CONTROLS, TCAV)]


def _highest_contrast(records: Sequence[Record]) -> str:
    ours = find(records, metric="MCS", method=HIGHEST_CONTRAST)
    if ours is None or not ours.defined or len(_judged(records, "MCS")) < 2:
        return ""
    claim = f"The paper finds {HIGHEST_CONTRAST} highest in MCS (beside TCAV)."
    # Controls are left out: where one leads, it says nothing of the methods.
    others = [record for record in _judged(records, "MCS") if record is not ours]
    above = [record.method for record in others if against(record, ours) == "above"]
    if above:
        return f"{claim} Our figures disagree: {enumerate_names(above)} {_be(above)} higher, the intervals apart."
    beside = [record.method for record in others if against(record, ours) != "below"]
    if beside:
        same = enumerate_names(beside)
        return f"{claim} Our figures allow it but do not show it: it cannot be told apart from {same}."
    return f"{claim} Our figures agree."


def _robust(records: Sequence[Record], metric: str) -> str:
    """Compare each of the paper's two best methods with all others."""
    judged = _judged(records, metric)
    pair = [record for record in judged if record.method in ROBUST]
    others = [record for record in judged if record.method not in ROBUST]
    if len(pair) < len(ROBUST) or not others:
        return ""
    claim = f"The paper finds {enumerate_names(ROBUST)} highest in {metric}."
    beaten = []
    open_questions = []
    for record in pair:
        above = [other.method for other in others if against(other, record) == "above"]
        unclear = [other.method for other in others if against(other, record) in ("at", "")]
        if above:
            beaten.append(f"{enumerate_names(above)} {_be(above)} above {record.method}, the intervals apart")
        if unclear:
            open_questions.append(f"{record.method} cannot be told apart from {enumerate_names(unclear)}")
    if beaten:
        rest = f" {_sentence(open_questions)}" if open_questions else ""
        return f"{claim} Our figures disagree: {'; '.join(beaten)}.{rest}"
    if open_questions:
        return f"{claim} Our figures do not contradict it, but do not show it either: {'; '.join(open_questions)}."
    return f"{claim} Our figures agree: both are above every other method, the intervals apart."


def _misled(records: Sequence[Record]) -> str:
    others = [record for record in _judged(records, "IIR") if record.method not in ROBUST]
    if not others:
        return ""
    claim = (
        f"The paper finds that every other method calls the meaningless patch important for over "
        f"{percent(1 - MISLED)} of the images (an IIR below {percent(MISLED)})."
    )
    places: dict[str, list[str]] = {"below": [], "at": [], "above": [], "": []}
    for record in others:
        places[against(record, MISLED)].append(record.method)
    if len(places["below"]) == len(others):
        return f"{claim} Our figures agree, for all {len(others)}."
    parts = []
    if places["below"]:
        parts.append(f"it holds for {enumerate_names(places['below'])}")
    if places["above"]:
        parts.append(f"it does not for {enumerate_names(places['above'])}")
    if places["at"] or places[""]:
        parts.append(f"it is open for {enumerate_names(places['at'] + places[''])}")
    verdict = "Our figures disagree" if places["above"] else "Our figures do not show all of it"
    return f"{claim} {verdict}: {', '.join(parts)}."


def _be(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"


def _sentence(parts: Sequence[str]) -> str:
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}."
