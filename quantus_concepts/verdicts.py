"""The one rule by which reports, pages and `headline` conclude from scores."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence

import pandas as pd

from quantus_concepts.functional.statistics.intervals import relation
from quantus_concepts.metrics.concepts.names import ACCURACY as CLASS_ACCURACY
from quantus_concepts.metrics.concepts.names import DIRECTIONS, SCORE

ACCURACY = CLASS_ACCURACY.metric
#: What is concluded from a number, and from a paired difference.
ABOVE, WITHIN, BELOW, NO_VERDICT, UNKNOWN = "above", "within", "below", "no verdict", "–"
ABOVE_ZERO, NOT_SHOWN, BELOW_ZERO = "above 0", "not shown", "below 0"
#: What a range is of.
RANDOM_BANKS, CHANCE = "random banks", "chance"
#: Held-out accuracy below which directions hardly know their concepts, and the largest adjusted p of a difference.
WEAK, ALPHA = 0.6, 0.05
#: Of which neither more nor less is better.
NEITHER = ("negative first",)
#: The rankings that a verdict is about, fixed before looking.
RANKINGS = ("contribution", "value")
RULE = {
    "No verdict": "The class accuracy is not above the range of the model's random banks, and the mean accuracy of its "
    f"directions on images held back is below {WEAK:g} (or not known): the model knows neither its classes nor its "
    "concepts, so its concept scores have no verdict.",
    "Ranking": "Fixed before looking: the contribution, which decides the class, and the value beside it. The best of "
    "several rankings is partly the best by luck.",
    "Above, within, below": "Above: the whole 95 % interval (without one, the number) lies above the range of the "
    "model's own random banks. Within: interval and range overlap, whatever the number itself is. Below: the whole "
    "interval lies below. Where a model has no banks, a column says what the range is; without a range there is no "
    "verdict (–).",
    "Not shown": f"The p-value of a difference, corrected for all comparisons of the table (Holm), is above {ALPHA:g}: "
    "the difference may be luck. That does not show that the two are equal.",
    "Part specificity": "Compared with random banks only, never with 0: parts lie where they lie, so a map that is the "
    "same for all images and concepts scores above or below 0, by the part that is named first.",
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


def knows_classes(rows: pd.DataFrame) -> bool:
    """Whether one model's rows show that it knows something: its classes, above random banks, or its concepts.

    Heads on random directions of a trained network classify as well as those on its concepts; with an untrained network
    neither holds.
    """
    means = rows[(rows["what"] == SCORE) & rows["value"].notna()]
    accuracy, held_out = (means[means["metric"] == metric] for metric in (ACCURACY, DIRECTIONS))
    above = len(accuracy) > 0 and verdict_of(accuracy.iloc[0]) == ABOVE
    return above or (len(held_out) > 0 and held_out.iloc[0]["value"] >= WEAK)


def with_verdicts(rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows of models with a column ``verdict``, and ``against``: what their range is of.

    Parameters
    ----------
    rows : DataFrame
        Columns ``model, what, metric, value, low, high, random_low, random_high``; an ``against`` that is there stays.

    Returns
    -------
    DataFrame
        By `RULE`: a model that does not know its classes has "no verdict" on its concepts; the verdict on its accuracy
        stays.
    """
    ranged = rows[["random_low", "random_high"]].notna().all(axis=1)
    against = rows["against"] if "against" in rows else pd.Series(RANDOM_BANKS, rows.index).where(ranged, "")
    knowing = {model: knows_classes(own) for model, own in rows.groupby("model", sort=False)}
    silent: Sequence[bool] | pd.Series = [
        not knowing.get(model, False) and metric not in (ACCURACY, DIRECTIONS)
        for model, metric in zip(rows["model"], rows["metric"], strict=True)
    ]
    verdicts = pd.Series([verdict_of(row) for row in rows.to_dict("records")], rows.index, dtype=object)
    verdicts = verdicts.mask(rows["metric"].isin(NEITHER), UNKNOWN)
    return rows.assign(
        against=against, verdict=verdicts.mask(pd.Series(silent, rows.index) & (verdicts != UNKNOWN), NO_VERDICT)
    )
