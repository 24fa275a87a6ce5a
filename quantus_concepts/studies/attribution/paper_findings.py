"""The paper's findings, looked for in our numbers and reported whatever comes out."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from quantus_concepts.studies.attribution.standings import judged
from quantus_concepts.studies.findings import listed, percent
from quantus_concepts.studies.results import against

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
        return f"{claim} Our figures allow it but do not show it: it cannot be told apart from {listed(beside)}."
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
            open_questions.append(f"{row['method']} cannot be told apart from {listed(unclear)}")
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
