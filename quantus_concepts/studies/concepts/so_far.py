"""The numbers of most weight, over all seeds or those that are done."""

from __future__ import annotations

from typing import Any

import pandas as pd

from quantus_concepts.studies.concepts.names import MODELS, RANDOM
from quantus_concepts.studies.findings import number
from quantus_concepts.studies.results import against_control, names, over_seeds, pick
from quantus_concepts.studies.tables import Table

_CONTRIBUTION: dict[str, Any] = {"explanation": "contribution"}
SHOWN: dict[str, dict[str, Any]] = {
    "first concept present (CEM)": {"metric": "CEM", "set": "correct", "l": 1, **_CONTRIBUTION},
    "in the right place (CLM, α = 1)": {"metric": "CLM", "alpha": 1, "l": 1, **_CONTRIBUTION},
    "important where it belongs (CGIM)": {"metric": "CGIM", "item_kind": "concept", "item": "", **_CONTRIBUTION},
    "class accuracy": {"metric": "accuracy", "item_kind": ""},
}
NO_INTERVALS = "One seed: how far seeds lie apart is not known yet, so there are no intervals over them; "
NO_INTERVALS += "≈ and ▼ go by those within it."
INTERVALS = "Small numbers: 95 % intervals over {} seeds, wide while there are few."


def joined(frame: pd.DataFrame) -> pd.DataFrame:
    """Average over seeds, and mark what is not surely above random directions."""
    rows = over_seeds(
        frame.astype({"l": float}), lambda row: (-1, 1) if row["metric"] == "CGIM" else (0, 1), controls=[RANDOM]
    )
    return rows.assign(mark=against_control(rows, RANDOM))


def so_far(frame: pd.DataFrame, n_seeds: int) -> Table:
    """Return the table that is shown while other seeds are still to come."""
    done = len(names(frame, "seed"))
    # Joining all rows of a seed takes a second.
    plain = frame.astype({"l": float})
    asked = [pick(plain, model=list(MODELS), **wanted).assign(row=row) for row, wanted in SHOWN.items()]
    cells = joined(pd.concat(asked, ignore_index=True))
    cells["text"] = [_text(row, intervals=done > 1) for _, row in cells.iterrows()]
    order = pd.CategoricalDtype([name for name in MODELS if name in set(cells["model"])], ordered=True)
    intervals = INTERVALS.format(done) if done > 1 else NO_INTERVALS
    return Table(
        f"After {done} of {n_seeds} seeds",
        f"In %, CGIM as cosine; concepts by contribution. Random directions: what 97.5 % of the banks do not exceed. "
        f"≈ 95 % interval meets what 95 % of them score, ▼ lies below. {intervals}",
        cells.astype({"model": order}),
        ["row"],
        ["model"],
        labels={name: "\n".join(name.rsplit(" ", 1)) for name in MODELS} | {RANDOM: "random\n97.5 %"},
    )


def _text(row: pd.Series, *, intervals: bool) -> str:
    scale, decimals = (1, 2) if row["metric"] == "CGIM" else (100, 1)
    if row["model"] == RANDOM and not pd.isna(row["high"]):
        return number(scale * row["high"], decimals)
    text = number(scale * row["value"], decimals)
    if not intervals or pd.isna(row["low"]):
        return text
    return f"{text} ({number(scale * row['low'], decimals)}–{number(scale * row['high'], decimals)})"
