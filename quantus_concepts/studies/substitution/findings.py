"""What the numbers of the substitution study say, in sentences written from the numbers and their intervals."""

from __future__ import annotations

import pandas as pd

from quantus_concepts.studies._kit.findings import (
    RELATIONS,
    Finding,
    listed,
    number,
    percent,
    said,
    with_interval,
)
from quantus_concepts.studies._kit.results import against, one, pick
from quantus_concepts.studies.substitution.names import (
    CLASS_HARD,
    CURVE,
    IMAGE_HARD,
    MEMORISER,
    ORACLE,
    RANDOM,
    RECITER,
    TRAINED,
)

SIGNS = {"S+": "S+", "S-": "S−"}


def findings(frame: pd.DataFrame, correlation: float) -> list[Finding]:
    """Return what is said of one correlation, and of the curve; `frame` has the column `mark`."""
    # "Above" and "below" random directions are said where the 95 % interval of a number lies outside what 95 % of
    # many random banks score (the mark); of two models where their intervals do not overlap.
    rows = pick(frame, correlation=correlation, item_kind="")
    return said(
        _seen(rows),
        *(_against_random(rows, metric) for metric in SIGNS),
        _controls(rows),
        _recited(rows),
        _labels(rows),
        _moved(rows),
        _selective(rows),
        _curve(pick(frame, item_kind="")),
    )


def _name(row: pd.Series) -> str:
    return f"{row['model']} ({row['labels']})" if row["labels"] else str(row["model"])


def _of_trained(rows: pd.DataFrame, metric: str) -> pd.DataFrame:
    found = pick(rows, metric=metric, model=list(TRAINED))
    return found[found["value"].notna()].sort_values("value", kind="stable")


def _seen(rows: pd.DataFrame) -> Finding | None:
    found = _of_trained(rows, "S+")
    if found.empty:
        return None
    worst, best = found.iloc[0], found.iloc[-1]
    text = f"Of the trained models the {_name(best)} says most often that the attribute put in is there: "
    text += f"{with_interval(best)} of the images"
    differ = worst["value"] < best["value"]
    text += f"; the {_name(worst)} says so least often, {with_interval(worst)}." if differ else "."
    return Finding(text, "Seen")


def _against_random(rows: pd.DataFrame, metric: str) -> Finding | None:
    control = one(rows, metric=metric, model=RANDOM)
    found = _of_trained(rows, metric)
    if control is None or found.empty:
        return None
    groups = sorted(((mark, found[found["mark"] == mark]) for mark in RELATIONS), key=lambda each: len(each[1]))
    parts: list[str] = []
    for mark, group in groups:
        # All names but those of the largest group tell which the others are.
        listing = listed([_name(row) for _, row in group.iterrows()])
        who = f"{'the other' if parts else 'all'} {len(group)}" if mark == groups[-1][0] else listing
        parts += [f"{who} {'is' if len(group) == 1 else 'are'} {RELATIONS[mark]} them"] if len(group) else []
    ends = f"{100 * control['low']:.0f}–{100 * control['high']:.0f}"
    text = f"{SIGNS[metric]} of random directions is {percent(control['value'])} (95 % of the banks {ends}). "
    text += f"Of {len(found)} trained models {'; '.join(parts)}."
    return Finding(text, "Chance")


def _controls(rows: pd.DataFrame) -> Finding | None:
    parts = []
    for model in (ORACLE, MEMORISER, RECITER):
        found = [one(rows, metric=metric, model=model) for metric in SIGNS]
        if found[0] is not None and found[1] is not None:
            parts.append(f"{model} {percent(found[0]['value'])} and {percent(found[1]['value'])}")
    return Finding(f"S+ and S− of what is known beforehand: {'; '.join(parts)}.", "Controls") if parts else None


def _recited(rows: pd.DataFrame) -> Finding | None:
    found = _of_trained(rows, "recital")
    if found.empty:
        return None
    most = found.iloc[-1]
    text = f"All the class's concepts, the one taken out among them, are named most often by the {_name(most)}: "
    return Finding(f"{text}in {with_interval(most)} of the images.", "Recited")


def _labels(rows: pd.DataFrame) -> Finding | None:
    parts = []
    for model in TRAINED:
        by_class, by_image = (one(rows, metric="S+", model=model, labels=each) for each in (CLASS_HARD, IMAGE_HARD))
        if by_class is not None and by_image is not None:
            relation = RELATIONS.get(against(by_image, by_class), "beside")
            parts.append(f"{model} {percent(by_image['value'])}, {relation} {percent(by_class['value'])}")
    if not parts:
        return None
    return Finding(
        f"S+ of models trained with labels per image, and with those per class: {'; '.join(parts)}.", "Labels"
    )


def _moved(rows: pd.DataFrame) -> Finding | None:
    found, control = _of_trained(rows, "rises"), one(rows, metric="rises", model=RANDOM)
    seen = {_name(row): row["value"] for _, row in _of_trained(rows, "S+").iterrows()}
    if found.empty or control is None:
        return None
    best = found.iloc[-1]
    above = int((found["mark"] == "above").sum())
    text = (
        "Whatever the threshold, the value of the concept put in rises from the image before to the image after: most "
    )
    text += f"often that of the {_name(best)}, in {with_interval(best)} of the pairs, of which it says in "
    text += (
        f"{percent(seen[_name(best)])} that it is there; {above} of {len(found)} models are above random directions "
    )
    return Finding(f"{text}({percent(control['value'])}).", "Moved")


def _selective(rows: pd.DataFrame) -> Finding | None:
    found, control = _of_trained(rows, "selectivity"), one(rows, metric="selectivity", model=RANDOM)
    if found.empty or control is None:
        return None
    worst, best = found.iloc[0], found.iloc[-1]
    text = "Selectivity, 1 where only the touched concepts move and 0.5 where all others move as far, is "
    text += f"{number(worst['value'])} ({_name(worst)}) to {number(best['value'])} ({_name(best)}); of random "
    return Finding(f"{text}directions {number(control['value'])}.", "Selective")


def _curve(rows: pd.DataFrame) -> Finding | None:
    parts = []
    for model, (labels, *_) in CURVE.items():
        found = pick(rows, metric="S+", model=model, labels=labels).sort_values("correlation", kind="stable")
        found = found[found["value"].notna()]
        if len(found) > 1:
            first, last = found.iloc[0], found.iloc[-1]
            ends = f"{with_interval(first)} to {with_interval(last)}"
            relation = RELATIONS.get(against(last, first), "beside")
            parts.append(f"of the {model} from {ends}, {relation} where it began")
    if not parts:
        return None
    low, high = rows["correlation"].min(), rows["correlation"].max()
    return Finding(
        f"As attributes of the classes go together more, from correlation {low:g} to {high:g}, S+ goes "
        f"{'; '.join(parts)}.",
        "Correlation",
    )
