"""The one rule by which reports, pages and `headline` conclude from scores."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from typing import Any

import pandas as pd

from quantus_concepts.functional.statistics.intervals import relation
from quantus_concepts.metrics.concepts.names import (
    ACCURACY,
    AUC_WITHIN,
    BASELINE,
    CEM,
    CGIM,
    CGIM_CORRELATION,
    CLM,
    CONCEPT_AUC,
    COVERAGE,
    DIRECTIONS,
    ENERGY_INSIDE,
    ITEM,
    MEAN_PLACE,
    MEAN_REGION,
    PART_SPECIFICITY,
    POINTING_GAME,
    REGION_IOU,
    SCORE,
    SHUFFLED_IMAGES,
)

#: What is concluded from a number, and from a paired difference.
ABOVE, WITHIN, BELOW, NO_VERDICT, UNKNOWN = "above", "within", "below", "no verdict", "–"
ABOVE_ZERO, NOT_SHOWN, BELOW_ZERO = "above 0", "not shown", "below 0"
#: What a range is of.
RANDOM_BANKS, CHANCE = "random banks", "chance"
#: Held-out accuracy below which directions hardly know their concepts, and the largest adjusted p of a difference.
WEAK, ALPHA = 0.6, 0.05
#: What the low end of the concept AUC has to be above, beside its random banks, for praise.
KNOWS = 0.55
#: Of which neither more nor less is better.
NEITHER = ("negative first", COVERAGE)
#: Of which less is better: they are blamed, and never praised.
LEAKAGE = ("concept-task leakage", "inter-concept leakage")
BLAMED = ("head gap", *LEAKAGE, "concept Brier score", "concept calibration error")
#: What says by itself whether classes or concepts are known.
OF_KNOWLEDGE = (ACCURACY, CONCEPT_AUC, AUC_WITHIN, DIRECTIONS)
#: The rankings that a verdict is about, fixed before looking.
RANKINGS = ("effect", "value")
#: Rankings of the papers, which depend on where the zero of the values is.
BY_CONVENTION = ("weight", "contribution")
#: Baselines whose number praise has to be above, too.
CONTROLS = {CLM: MEAN_PLACE, PART_SPECIFICITY: MEAN_PLACE, CGIM_CORRELATION: SHUFFLED_IMAGES}
CONTROLS |= dict.fromkeys((REGION_IOU, ENERGY_INSIDE, POINTING_GAME), MEAN_REGION)
RULE = {
    "Above, within, below": "Above: the whole 95 % interval lies above the range of the model's own random banks. "
    "Within: interval and range overlap, whatever the number itself is. Below: the whole interval lies below. Where a "
    "model has no banks, a column says what the range is.",
    "No verdict": "The row would be above, but the concept AUC of the model is not: the low end of its interval has to "
    f"be above its random banks and {KNOWS:g}. A model that does not know its concepts is not praised for them. "
    "“Within” and what is blamed always stand; where no concept AUC is measured, nothing is withheld.",
    "–": "No verdict is possible: a number without interval or random banks, or for which random banks are no "
    "baseline. Those are CEM (the commonest concepts score high) and the cosine CGIM (any positive importance does); "
    "rankings by weight and contribution, and by value all but the concept AUC and the CGIM correlation of concepts "
    "over all images, since a constant added to the values, which changes no prediction, moves them.",
    "Ranking": "Fixed before looking: the effect, what a class loses without the concept, and the value beside it. The "
    "best of several rankings is partly the best by luck.",
    "Blamed": "Head gap, leakage and errors of probabilities are blamed where they are above random banks (leakage, "
    "which has no interval, by its number), and never praised.",
    "Part specificity": "Compared with random banks and with the mean place of the part in other images, never with 0: "
    "parts lie where they lie, so a map that is the same for all images scores above or below 0, by the part that is "
    "named first. So is CLM; scores of regions are compared with the mean region of the part.",
    "CGIM correlation": "Praise asks for more than random banks where these are measured: banks fitted to shuffled "
    "images, which know labels and no image. A fitted model without knowledge can be above random banks.",
    "Not shown": f"The p-value of a difference, corrected for all comparisons of the table (Holm), is above {ALPHA:g}: "
    "the difference may be luck. That does not show that the two are equal.",
}


def verdict_of(row: Mapping[Hashable, float] | pd.Series) -> str:
    """Return "above", "within" or "below" the random range of a row, "–" without one; a number is its own interval."""
    value, *ends = (float(row.get(name, math.nan)) for name in ("value", "low", "high", "random_low", "random_high"))
    low, high = (value if math.isnan(end) else end for end in ends[:2])
    return {"above": ABOVE, "at": WITHIN, "below": BELOW, "": UNKNOWN}[relation((low, high), (ends[2], ends[3]))]


def difference_verdict(row: Mapping[Hashable, float] | pd.Series) -> str:
    """Say whether a difference is above or below 0 by its p-value, corrected where it is; "–" without one."""
    p = float(row.get("p_adjusted", row.get("p", math.nan)))
    if math.isnan(p):
        return UNKNOWN
    if p > ALPHA:
        return NOT_SHOWN
    return ABOVE_ZERO if row["difference"] > 0 else BELOW_ZERO


def no_baseline(row: Mapping[Hashable, Any] | pd.Series) -> str:
    """Return why random banks are no baseline for a row; "" where they are."""
    metric, ranking = row["metric"], row.get("explanation")
    if metric in NEITHER:
        return "neither more nor less is better"
    if ranking in BY_CONVENTION:
        return "moves with the zero of the values"
    if metric == CEM:
        return "commonest concepts score high"
    if metric == CGIM:
        return "a cosine: 0 is not its zero"
    if ranking == "value":
        if metric != CGIM_CORRELATION or row.get("item_kind") == "class":
            return "moves with the zero of the values"
        if row.get("set", "all") != "all":
            return "the choice of images alone correlates"
    return ""


def doubt(rows: pd.DataFrame) -> str:
    """Return why one model's scores are no praise: its concept AUC is not above random banks; "" where it is.

    Also "" where no concept AUC is measured beside random banks.
    """
    found = rows[(rows["metric"] == CONCEPT_AUC) & (rows["what"] == SCORE)]
    for row in found.to_dict("records"):
        low, top = (float(row.get(name, math.nan)) for name in ("low", "random_high"))
        if not math.isnan(top) and not low > max(top, KNOWS):
            return f"concept AUC from {low:.2f}, not above {max(top, KNOWS):.2f}"
    return ""


def with_verdicts(rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows of models with columns ``verdict``, ``why``, and ``against``: what their range is of.

    Parameters
    ----------
    rows : DataFrame
        Columns ``model, what, metric, value, low, high, random_low, random_high``, and what else the rows are named by
        (``explanation``, ``set``, ``l``, ``alpha``, ``item_kind``); an ``against`` that is there stays. Rows of
        baselines (`CONTROLS`), and the items of the concept AUC, are read where they are there.

    Returns
    -------
    DataFrame
        By `RULE`. ``why`` says why there is no verdict or no praise, what a verdict rests on, or is empty.
    """
    ranged = rows[["random_low", "random_high"]].notna().all(axis=1)
    against = rows["against"] if "against" in rows else pd.Series(RANDOM_BANKS, rows.index).where(ranged, "")
    doubts = {model: doubt(own) for model, own in rows.groupby("model", sort=False)}
    tops = _tops_of_controls(rows)
    judged = [_judge(row, doubts.get(row["model"], ""), tops.get(_key(row)), rows) for row in rows.to_dict("records")]
    verdict, why = (pd.Series(part, rows.index, dtype=object) for part in zip(*judged, strict=True))
    return rows.assign(against=against, verdict=verdict, why=why)


def _judge(row: Mapping[Hashable, Any], doubt: str, control: float | None, rows: pd.DataFrame) -> tuple[str, str]:
    """Return the verdict on a row, and why."""
    if row["what"] != SCORE:
        return UNKNOWN, ""
    metric, number = row["metric"], {name: float(row.get(name, math.nan)) for name in ("value", "low", "random_high")}
    if why := no_baseline(row):
        return UNKNOWN, why
    if math.isnan(number["value"]):
        return UNKNOWN, "undefined"
    if math.isnan(number["random_high"]):
        return UNKNOWN, "no random banks"
    if math.isnan(number["low"]) and metric not in LEAKAGE:
        return UNKNOWN, "no interval"
    theirs = row.get("random_convention")
    if row.get("explanation") == "effect" and theirs and theirs != row.get("convention"):
        return UNKNOWN, f"the banks count from the {theirs}"
    said = verdict_of(row)
    if metric in BLAMED:
        return (UNKNOWN, "less is better, and not praised") if said == BELOW else (said, "")
    if metric == CONCEPT_AUC:
        return said, _own_ranges(rows, row["model"])
    if said != ABOVE:
        return said, ""
    if control is not None and not number["low"] > control:
        return WITHIN, f"{CONTROLS[metric]}: to {control:.2f}"
    if doubt and metric not in OF_KNOWLEDGE:
        return NO_VERDICT, doubt
    return said, "random banks alone" if metric == CGIM_CORRELATION and control is None else ""


def _key(row: Mapping[Hashable, Any]) -> tuple[str, ...]:
    """Return what a row and its control have in common."""
    return tuple(
        str(row.get(name, "")) for name in ("model", "metric", "explanation", "set", "l", "alpha", "item_kind")
    )


def _tops_of_controls(rows: pd.DataFrame) -> dict[tuple[str, ...], float]:
    """Return the number of each control of `CONTROLS`: the top of its range, or its mean."""
    tops = {}
    for row in rows[rows["what"] == BASELINE].to_dict("records"):
        if row.get("baseline") == CONTROLS.get(row["metric"], ""):
            # The interval of a baseline that looks at images is not a range of draws.
            top = float(row["high"] if row["baseline"] == SHUFFLED_IMAGES else row["value"])
            if not math.isnan(top):
                tops[_key(row)] = top
    return tops


def _own_ranges(rows: pd.DataFrame, model: str) -> str:
    """Count the concepts of a model whose AUC is above and below the range of their own random banks."""
    items = rows[(rows["what"] == ITEM) & (rows["model"] == model) & (rows["metric"] == CONCEPT_AUC)]
    items = items[items[["value", "random_low", "random_high"]].notna().all(axis=1)]
    if items.empty:
        return ""
    above, below = (items["value"] > items["random_high"]).sum(), (items["value"] < items["random_low"]).sum()
    return f"{above} of {len(items)} concepts above their own range" + (f", {below} below" if below else "")
