"""Rows of result tables: value, low, high, n, undefined and chance."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from captum_concepts._support.checks import to_numpy
from quantus_concepts.functional.arguments import Numbers
from quantus_concepts.functional.cgim import agreement
from quantus_concepts.functional.intervals import distribution
from quantus_concepts.functional.substitution import pair_numbers
from quantus_concepts.metrics.concepts import names as col
from quantus_concepts.metrics.concepts.names import Score
from quantus_concepts.metrics.host.metric import nanmean
from quantus_concepts.metrics.host.rows import Row, score_row
from quantus_concepts.metrics.streaming.model_state import ModelState

#: Columns of the tables, with the value of a row that does not set them.
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


def score_table(rows: Sequence[Row]) -> pd.DataFrame:
    """Return rows as a table of `COLUMNS`; what a row does not name is empty."""
    return pd.DataFrame([COLUMNS | row for row in rows], columns=list(COLUMNS)).astype({"l": "float64"})


def mean_row(
    scores: np.ndarray,
    clusters: np.ndarray | None,
    *,
    chances: np.ndarray | float | None = None,
    intervals: bool = True,
    **fields: Any,
) -> Row:
    """Return the row of a metric's mean over samples; `clusters` (N,) of samples that depend on each other, or None."""
    row = score_row(scores, col.BOUNDS.get(fields["metric"], (0.0, 1.0)), clusters, intervals=intervals, **fields)
    if chances is None:
        return row
    # Averaged over the defined scores.
    return row | {"chance": nanmean(np.where(np.isnan(scores), np.nan, chances))}


def item_rows(scores: Numbers, names: Sequence[str], **fields: Any) -> list[Row]:
    """Return one row per concept or class, and first the one of their mean.

    The mean has no interval: the scores of a model's concepts, or classes, are not independent of each other.
    """
    values = np.asarray(to_numpy(scores), dtype=np.float64)
    rows = [(values, ""), *zip(values, names, strict=True)]
    return [mean_row(scores, None, intervals=False, **fields, item=name) for scores, name in rows]


def concept_table(
    models: Sequence[tuple[str, ModelState]],
    controls: Mapping[str, Sequence[ModelState]],
    class_names: Sequence[str] | None,
    concept_names: Sequence[str] | None,
) -> pd.DataFrame:
    """Return a row for each number, models in their order and the controls of each name after them."""
    names = names_of(models[0][1], class_names, concept_names)
    tables = [score_table(model_rows(columns, *names, model=name)) for name, columns in models]
    for control, states in controls.items():
        of_control = partial(model_rows, classes=names[0], concepts=names[1], model=control, intervals=False)
        tables.append(control_table([*map(of_control, states)]))
    return pd.concat(tables, ignore_index=True)


def names_of(
    model_columns: ModelState, class_names: Sequence[str] | None, concept_names: Sequence[str] | None
) -> tuple[list[str], list[str]]:
    """Return the names of the classes and of the concepts: their numbers where none are known."""
    n_classes, n_concepts = model_columns.shape
    classes = _named_or_numbered("class_names", class_names, n_classes)
    return classes, _named_or_numbered("concept_names", concept_names, n_concepts)


def _named_or_numbered(argument: str, names: Sequence[str] | None, count: int) -> list[str]:
    if names is not None and len(names) != count:
        raise ValueError(f"Expected argument `{argument}` to hold {count} names but got {len(names)}.")
    return [str(number) for number in range(count)] if names is None else list(names)


def model_rows(
    model_columns: ModelState, classes: Sequence[str], concepts: Sequence[str], *, model: str, intervals: bool = True
) -> list[Row]:
    """Return the rows of one model; for a control without intervals, which take most of the time."""
    columns = model_columns.columns()
    labels, predicted = columns[col.LABEL], columns[col.PREDICTED].astype(np.int64)
    correct = labels == predicted

    def row(score: Score, scores: np.ndarray, clusters: np.ndarray, **fields: Any) -> Row:
        named = {name: value for name, value in score._asdict().items() if value is not None}
        return mean_row(scores, clusters, intervals=intervals, **named, **fields)

    rows = [mean_row(correct, None, metric=col.ACCURACY.metric, intervals=intervals)]
    rows += [
        row(score, columns[score], predicted)
        for score in (col.CONCEPT_ACCURACY, col.NEGATIVE_FIRST)
        if score in columns
    ]
    if col.ADDED in columns:
        pairs = pair_numbers(labels, columns[col.ADDED])
        for score, chance in zip(col.SUBSTITUTED, (col.CHANCE, col.CHANCE, math.nan), strict=True):
            if score in columns:
                rows.append(row(score, columns[score], pairs, chance=chance))
    # People's answers are often those of the class.
    rows += [row(score, column, labels) for score, column in columns.items() if score.metric == col.INTERVENED]
    existence = {score: column for score, column in columns.items() if score.metric == col.CEM}
    for which, chosen in (("all", np.ones(len(labels), bool)), ("correct", correct)):
        chance = float(columns[col.DENSITY][chosen].mean()) if existence and chosen.any() else math.nan
        # As in the metric, samples outside the set are undefined. A recital is that of the true class.
        for score, column in existence.items():
            clusters = labels if score.baseline else predicted
            rows.append(row(score, np.where(chosen, column, np.nan), clusters, set=which, chance=chance))
        rows += [
            row(score, column, predicted, set=which, chance=0.0)
            for score, column in model_columns.gains(None if which == "all" else correct).items()
        ]
        if model_columns.baselines and model_columns.label_counts is not None:
            counts = model_columns.label_counts[0 if which == "all" else 1, -1]
            rows += _commonest_rows(counts, model_columns.top_l, len(labels), set=which, chance=chance)
    located = {score: column for score, column in columns.items() if score.metric == col.CLM}
    # A model's own first, then its baselines.
    for score, column in sorted(located.items(), key=lambda item: bool(item[0].baseline)):
        chances = columns.get(score._replace(metric=col.LOCATION_CHANCE))
        rows.append(row(score, column, predicted, chance=(score.alpha or math.nan) / 12, chances=chances))
    specific = {score: column for score, column in columns.items() if score.metric == col.PART_SPECIFICITY}
    rows += [
        row(score, column, predicted, chance=0.0)
        for score, column in sorted(specific.items(), key=lambda item: bool(item[0].baseline))
    ]
    truth = model_columns.class_concepts
    if truth is not None:
        for kind, names in (("concept", concepts), ("class", classes)):
            fields = {"item_kind": kind, "set": "correct"}
            for metric, centred in ((col.CGIM, False), (col.CGIM_CORRELATION, True)):
                for explanation, scores in model_columns.agreement(kind, centred=centred).items():
                    rows += item_rows(scores, names, metric=metric, explanation=explanation, **fields)
            if model_columns.baselines and model_columns.sums is not None:
                same = agreement(torch.ones_like(truth), truth, kind).numpy()
                baseline = col.SAME_IMPORTANCE
                rows.append(
                    mean_row(
                        *(same, None),
                        intervals=False,
                        metric=col.CGIM,
                        baseline=baseline,
                        item_kind=kind,
                        set="correct",
                    )
                )
    return [entry | {"model": model} for entry in rows]


def _commonest_rows(counts: Tensor, tops: Sequence[int], n_images: int, **fields: Any) -> list[Row]:
    """Return CEM of the l commonest concepts, for each l, by the counts (L + 1,) of `count_labels`."""
    commonest, n = counts[:-1].sort(descending=True).values, int(counts[-1])
    fields |= {"metric": col.CEM, "baseline": col.COMMONEST_CONCEPT, "n": n, "undefined": n_images - n}
    return [{**fields, "l": top, "value": int(commonest[:top].sum()) / (top * n) if n else math.nan} for top in tops]


def control_table(controls: Sequence[Sequence[Row]]) -> pd.DataFrame:
    """Return the rows of controls: for each number their mean, and the range of 95 % of them."""
    values, chances = (
        np.array([[row.get(name, math.nan) for row in rows] for rows in controls]) for name in ("value", "chance")
    )
    ranges = np.array([distribution(column) for column in values.T]).reshape(-1, 3)
    missing = np.isnan(values).sum(0)
    return score_table(controls[0]).assign(
        value=ranges[:, 0],
        low=ranges[:, 1],
        high=ranges[:, 2],
        n=len(controls) - missing,
        undefined=missing,
        chance=[nanmean(column) for column in chances.T],
    )


def concept_images(
    models: Sequence[tuple[str, ModelState]], class_names: Sequence[str] | None, concept_names: Sequence[str] | None
) -> pd.DataFrame:
    """Return a row for each image and score of the models, and those about classes by which CGIM is compared."""
    _, concepts = names_of(models[0][1], class_names, concept_names)
    tables = [_image_table(columns, name) for name, columns in models]
    for name, columns in models:
        importance = columns.class_importance()
        for explanation, matrix in zip(columns.explanations, () if importance is None else importance, strict=False):
            fields = {"model": name, "metric": col.CLASS_IMPORTANCE, "explanation": explanation}
            tables.append(_class_table(matrix, concepts, **fields))
    truth = models[0][1].class_concepts
    if truth is not None and models[0][1].sums is not None:
        tables.append(_class_table(truth, concepts, model="", metric=col.CLASS_CONCEPTS, explanation=""))
    return pd.concat(tables, ignore_index=True)


def _class_table(matrix: Tensor, concepts: Sequence[str], **fields: str) -> pd.DataFrame:
    """Return a row for each class and concept of a matrix (K, L)."""
    label, item = np.indices(matrix.shape).reshape(2, -1)
    named = {"image": -1, "label": label, "predicted": -1, "l": math.nan, "alpha": math.nan, "baseline": ""}
    return pd.DataFrame({**fields, **named, "item": np.array(concepts)[item], "value": to_numpy(matrix).ravel()})


def _image_table(model_columns: ModelState, model: str) -> pd.DataFrame:
    columns = {
        score: column
        for score, column in model_columns.columns().items()
        if score not in (col.ADDED, col.REMOVED) and score.metric != col.LOCATION_CHANCE
    }
    labels, predicted = (columns.pop(score).astype(np.int64) for score in (col.LABEL, col.PREDICTED))
    columns = {col.ACCURACY: (labels == predicted).astype(np.float64), **columns, **model_columns.gains()}
    table = pd.concat([pd.DataFrame({**score._asdict(), "value": column}) for score, column in columns.items()])
    table = table.rename_axis("image").reset_index().astype({"l": "float64", "alpha": "float64"})
    table.insert(1, "label", labels[table["image"]])
    table.insert(2, "predicted", predicted[table["image"]])
    table.insert(0, "model", model)
    table.insert(table.columns.get_loc("value"), "item", "")
    return table
