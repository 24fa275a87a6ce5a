"""Rows of a result table: a mean of scores with its interval, the number of scores, and what chance gives."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from captum_concepts.checks import to_numpy
from quantus_concepts.functional.intervals import distribution, interval
from quantus_concepts.functional.substitution import pair_numbers
from quantus_concepts.metrics.concept_scorer import (
    ADDED,
    CONCEPT_ACCURACY,
    DENSITY,
    INTERVENED,
    LABEL,
    LOCATION_CHANCE,
    NEGATIVE_FIRST,
    PREDICTED,
    SUBSTITUTED,
    ConceptScorer,
    Score,
)
from quantus_concepts.metrics.records import nanmean

#: Of the tables `score_concepts` returns, with what a row holds that says nothing of them.
COLUMNS: dict[str, Any] = {
    "model": "",
    "metric": "",
    "explanation": "",
    "baseline": "",
    "set": "all",
    "l": None,
    "alpha": math.nan,
    "item_kind": "",
    "item": "",
    "value": math.nan,
    "low": math.nan,
    "high": math.nan,
    "n": 0,
    "undefined": 0,
    "chance": math.nan,
}

Row = dict[str, Any]


def score_table(rows: Sequence[Row]) -> pd.DataFrame:
    """Return rows as a table of `COLUMNS`; what a row does not name is empty."""
    return pd.DataFrame([COLUMNS | row for row in rows], columns=list(COLUMNS)).astype({"l": "Int64"})


def mean_row(scores: Any, *, clusters: Any = None, intervals: bool = True, **fields: Any) -> Row:
    """Sum up scores of samples: mean of the defined ones, their number, 95 % interval."""
    values = np.asarray(to_numpy(scores), dtype=np.float64).ravel()
    defined = values[~np.isnan(values)]
    low = high = math.nan
    if intervals:
        low, high = interval(values, (-1.0, 1.0) if fields["metric"] == "CGIM" else (0.0, 1.0), clusters)
    mean = float(defined.mean()) if defined.size else math.nan
    return fields | _counted(mean, defined.size, values.size) | {"low": low, "high": high}


def item_rows(scores: Any, names: Sequence[str], *, intervals: bool = True, **fields: Any) -> list[Row]:
    """Return one row per concept or class, and first the one of their mean."""
    values = np.asarray(to_numpy(scores), dtype=np.float64)
    if values.shape != (len(names),):
        raise ValueError(f"Expected argument `scores` to have shape ({len(names)},) but got {values.shape}.")
    single = [
        fields | _counted(float(value), 1 - int(np.isnan(value)), 1) | {"item": name, "low": math.nan, "high": math.nan}
        for name, value in zip(names, values, strict=True)
    ]
    return [mean_row(values, intervals=intervals, **fields), *single]


def _counted(value: float, n: int, of: int) -> Row:
    return {"value": value, "n": int(n), "undefined": int(of - n)}


def model_table(scorer: ConceptScorer, model: str, classes: Sequence[str], concepts: Sequence[str]) -> pd.DataFrame:
    """Sum the scores of one model up."""
    return score_table(model_rows(scorer, model, classes, concepts))


def model_rows(
    scorer: ConceptScorer, model: str, classes: Sequence[str], concepts: Sequence[str], *, intervals: bool = True
) -> list[Row]:
    """Sum the scores of one model up; intervals, which take longer than all else, where asked for."""
    columns = scorer.columns()
    labels, clusters = columns[LABEL], columns[PREDICTED].astype(np.int64)
    correct = labels == clusters
    shared: dict[str, Any] = {"clusters": clusters, "intervals": intervals}
    rows = [mean_row(correct, metric="accuracy", intervals=intervals)]
    for score in (CONCEPT_ACCURACY, NEGATIVE_FIRST):
        if score in columns:
            rows.append(mean_row(columns[score], **shared, **_named(score)))
    if ADDED in columns:
        pairs = pair_numbers(labels, columns[ADDED])
        for score, chance in zip(SUBSTITUTED, (0.5, 0.5, math.nan), strict=True):
            if score in columns:
                by_pair = shared | {"clusters": pairs, "chance": chance}
                rows.append(mean_row(columns[score], **by_pair, **_named(score)))
    for score, column in columns.items():
        if score.metric == INTERVENED:
            # People's answers are often those of the class.
            rows.append(mean_row(column, clusters=labels, intervals=intervals, **_named(score)))
    existence = {score: column for score, column in columns.items() if score.metric == "CEM"}
    for which, chosen in (("all", np.ones(len(labels), bool)), ("correct", correct)):
        chance = float(columns[DENSITY][chosen].mean()) if existence and chosen.any() else math.nan
        for score, column in existence.items():
            # As the metric has it: what does not belong to the set is undefined.
            defined = np.where(chosen, column, np.nan)
            rows.append(mean_row(defined, **shared, **_named(score), set=which, chance=chance))
    located = {score: column for score, column in columns.items() if score.metric == "CLM"}
    # A model's own first, then its baselines.
    for score, column in sorted(located.items(), key=lambda item: bool(item[0].baseline)):
        chance = (score.alpha or math.nan) / 12
        if (of_places := score._replace(metric=LOCATION_CHANCE)) in columns:
            chance = nanmean(np.where(np.isnan(column), np.nan, columns[of_places]))
        rows.append(mean_row(column, **shared, **_named(score), chance=chance))
    if scorer.variants.class_concepts is not None:
        for kind, names in (("concept", concepts), ("class", classes)):
            for explanation, scores in scorer.agreement(kind).items():
                fields = {"metric": "CGIM", "item_kind": kind, "explanation": explanation, "set": "correct"}
                rows += item_rows(scores, names, intervals=intervals, **fields)
    return [row | {"model": model} for row in rows]


def _named(score: Score) -> Row:
    return {name: value for name, value in score._asdict().items() if value is not None}


def control_table(controls: Sequence[Sequence[Row]]) -> pd.DataFrame:
    """Return of each number, in the rows of models that know nothing, its mean and where 95 % of them lie."""
    values, chances = (
        np.array([[row.get(name, math.nan) for row in rows] for rows in controls]) for name in ("value", "chance")
    )
    found = np.array([distribution(column) for column in values.T]).reshape(-1, 3)
    missing = np.isnan(values).sum(0)
    return score_table(controls[0]).assign(
        value=found[:, 0],
        low=found[:, 1],
        high=found[:, 2],
        n=len(controls) - missing,
        undefined=missing,
        chance=[nanmean(column) for column in chances.T],
    )


def image_table(scorer: ConceptScorer, model: str) -> pd.DataFrame:
    """Return the scores of one model, a row for each image and number."""
    columns = {score: each for score, each in scorer.columns().items() if score.metric != LOCATION_CHANCE}
    columns.pop(ADDED, None)
    labels, predicted = (columns.pop(score).astype(np.int64) for score in (LABEL, PREDICTED))
    table = pd.concat([pd.DataFrame({**score._asdict(), "value": column}) for score, column in columns.items()])
    table = table.rename_axis("image").reset_index().astype({"l": "Int64", "alpha": "float64"})
    table.insert(1, "label", labels[table["image"]])
    table.insert(2, "predicted", predicted[table["image"]])
    table.insert(0, "model", model)
    return table
