"""Paired differences in reports: verdicts and tables of what `compare` returns."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence

import numpy as np
import pandas as pd

from quantus_concepts.comparison import NUMBERS
from quantus_concepts.functional import adjust_p_values
from quantus_concepts.studies._kit.report import Table, Writer, number

#: Largest adjusted p-value of a difference.
ALPHA = 0.05
ABOVE, SAME, BELOW, UNKNOWN = "above 0", "no difference", "below 0", "–"
DIFFERENCE, P, SAID = "first less second", "adjusted p", "verdict"
READING = {
    "Difference": "Of scores of the same images: taken image by image, with its 95 % interval. It can be clear where "
    "the intervals of the two numbers overlap.",
    "No difference": "The p-value, corrected for all comparisons of the table (Holm), is above .05: the difference may "
    "be luck. That does not show that the two are equal.",
}


def difference_text(row: Mapping[Hashable, float] | pd.Series) -> str:
    """Say whether a difference is above or below 0 by its p-value, corrected where it is; "–" without one."""
    p = float(row.get("p_adjusted", row.get("p", math.nan)))
    if math.isnan(p):
        return UNKNOWN
    if p > ALPHA:
        return SAME
    return ABOVE if row["difference"] > 0 else BELOW


def adjusted(results: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Join comparisons that answer one question, and correct their p-values for all of them (Holm)."""
    results = [result for result in results if len(result)]
    if not results:
        return pd.DataFrame(columns=["metric", "what", "a", "b", *NUMBERS])
    joined = pd.concat(results, ignore_index=True)
    return joined.assign(p_adjusted=adjust_p_values(joined["p"].to_numpy(float), "holm"))


def p_text(p: float) -> str:
    """Write a p-value."""
    return UNKNOWN if math.isnan(p) else "< .001" if p < 0.001 else f"{p:.3f}".removeprefix("0")


def comparison_table(
    name: str, title: str, result: pd.DataFrame, write: Writer | Mapping[str, Writer] = number, caption: str = ""
) -> Table:
    """Declare the table of a comparison: a row for each of its rows, whose columns ``what, a, b`` name it.

    The means of both are over the images in which both are defined. A column ``verdict`` stands in place of above or
    below 0.
    """
    keys = ["metric", "what", "a", "b"]
    parts = []
    for column, value in (("first", "value_a"), ("second", "value_b")):
        parts.append(result[keys].assign(column=column, value=result[value]))
    said = [row.get("verdict") or difference_text(row) for row in result.to_dict("records")]
    # A difference without an interval supports no conclusion.
    shown = result["difference"].where(result["low"].notna())
    differences = result[[*keys, "low", "high", "n"]].assign(value=shown, column=DIFFERENCE)
    parts.append(differences.assign(verdict=said))
    p_values = result["p_adjusted"].to_numpy(float)
    parts.append(result[keys].assign(value=p_values, text=[p_text(p) for p in p_values], column=P))
    parts.append(result[keys].assign(value=np.nan, text=said, column=SAID))
    cells = pd.concat(parts, ignore_index=True)
    undefined = cells["value"].isna() & cells["text"].isna()
    cells = cells.assign(text=cells["text"].mask(undefined, UNKNOWN).fillna(""), verdict=cells["verdict"].fillna(""))
    return Table(name, title, cells, keys[1:], ["column"], write, caption)
