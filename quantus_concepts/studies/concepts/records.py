"""From the scores of one model to the records of the result table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from quantus_concepts.studies.concepts.results import Record, baseline_name, mean_record


def as_record(row: dict[str, Any], seed: int) -> Record:
    """Turn a row of `score_concepts` into a record."""
    baseline = row.pop("baseline")
    missing = {name for name in ("l", "alpha") if pd.isna(row[name])}
    row = {name: None if name in missing else value for name, value in row.items()}
    return Record(**row | {"model": baseline_name(baseline, row["model"]) if baseline else row["model"], "seed": seed})


def accuracy_record(
    labels: np.ndarray,
    predicted: np.ndarray,
    model: str,
    seed: int | None = None,
    item_kind: str = "",
    item: str = "",
) -> Record:
    """Return the record of a class accuracy."""
    return mean_record(labels == predicted, model=model, metric="accuracy", item_kind=item_kind, item=item, seed=seed)
