"""Paired differences in reports: verdicts and tables of what `compare` returns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from quantus_concepts.functional import adjust_p_values
from quantus_concepts.results.comparison import NUMBERS
from quantus_concepts.results.verdicts import RULE, UNKNOWN, difference_verdict
from quantus_concepts.studies._kit.report import Table, Writer, number

DIFFERENCE, P, SAID = "first less second", "adjusted p", "verdict"
READING = {
    "Difference": "Of scores of the same images: taken image by image, with its 95 % interval. It can be clear where "
    "the intervals of the two numbers overlap.",
    "Not shown": RULE["Not shown"],
}


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
    said = [row.get("verdict") or difference_verdict(row) for row in result.to_dict("records")]
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
