"""The rule for discovered concepts: which of them are stable, used, and so worth keeping."""

from __future__ import annotations

import math

import pandas as pd

from quantus_concepts.metrics.discovered.rows import (
    BEST,
    EVERYTHING,
    HALVES,
    RANDOM_ACTIVATIONS,
    RANDOM_DIRECTIONS,
    SAME_VARIANCE,
    SHARE,
)

ABOVE, BELOW, NOT_SHOWN = "above", "below", "not shown"
NO_EFFECT = "it is not shown that removing everything lowers the logit of the class"


def add_verdicts(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table of `score_discovered` whose column ``verdict`` compares each row with its random banks."""
    (everything,) = table[table["metric"] == EVERYTHING].to_dict("records")
    banks = table[table["baseline"].isin([RANDOM_DIRECTIONS, RANDOM_ACTIVATIONS, SAME_VARIANCE])]
    found = []
    for row in table.to_dict("records"):
        of_row = (banks["metric"] == row["metric"]) & (banks["item"] == (BEST if row["item"] else ""))
        ranges = banks[of_row & (banks["l"].eq(row["l"]) | math.isnan(row["l"]))]
        verdict = ""
        if row["baseline"] == "" and row["n"] and row["l"] != 0 and ranges["low"].notna().any():
            low, high = ranges["low"].min(), ranges["high"].max()
            # A number without an interval is its own.
            own = [row["value"] if math.isnan(row[end]) else row[end] for end in ("low", "high")]
            above = own[0] > high and (row["metric"] != SHARE or everything["low"] > 0)
            # A concept is compared with the best of a bank, which most concepts are below.
            below = own[1] < low and not row["item"]
            verdict = ABOVE if above else BELOW if below else NOT_SHOWN
        found.append(verdict)
    return table.assign(verdict=found)


def verdicts(table: pd.DataFrame) -> pd.DataFrame:
    """Say which concepts of a table of `score_discovered` to keep.

    *Stable*: in every split a concept agrees better with what the halves of the images give than the best concept of a
    random bank, over halves and over all places. *Used*: without it the logit of the class falls further, in the images
    in which it is the strongest, than without the best concept of a random bank: of activations, and of directions of
    the same variance. It is compared with the best one because the best of all concepts is what one would keep, and
    with the end of its interval. Keep a concept that is both.

    Parameters
    ----------
    table : DataFrame
        What `score_discovered` returned.

    Returns
    -------
    DataFrame
        A row for each concept: ``stable``, ``used`` and ``keep`` (bool), and ``reason``, why nothing can be said of it:
        if removing everything does not lower the logit of the class, no concept is used.
    """
    own = table[(table["baseline"] == "") & (table["item"] != "")]
    names = list(dict.fromkeys(own["item"]))
    frame = pd.DataFrame(index=pd.Index(names, name="concept"))
    for column, metric in (("stable", HALVES), ("used", SHARE)):
        frame[column] = own[own["metric"] == metric].set_index("item")["verdict"].reindex(names).eq(ABOVE)
    frame["keep"] = frame["stable"] & frame["used"]
    of_bank = table[(table["baseline"] == "") & (table["item"] == "")].drop_duplicates("metric").set_index("metric")
    reason = of_bank["reason"][HALVES] or of_bank["reason"][EVERYTHING]
    if not reason and not of_bank["low"][EVERYTHING] > 0:
        reason = NO_EFFECT
    own_reasons = own[own["metric"] == SHARE].set_index("item")["reason"].reindex(names).fillna("")
    frame["reason"] = reason or own_reasons
    return frame
