"""Rows of result tables: value, low, high, n, undefined and chance."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor

from captum_concepts.support.checks import to_numpy
from quantus_concepts.functional.arguments import Numbers
from quantus_concepts.functional.statistics.intervals import distribution
from quantus_concepts.metrics.concepts import names as col
from quantus_concepts.metrics.host.metric import mean_chance, nanmean
from quantus_concepts.metrics.host.observing import Observer, Result
from quantus_concepts.metrics.host.rows import Row, score_row
from quantus_concepts.metrics.streaming.engine import ModelState

#: Columns of the tables, with the value of a row that does not set them.
SCORE_COLUMNS: dict[str, Any] = {
    "model": "",
    "what": col.SCORE,
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
    "reason": "",
    "convention": "",
}


def score_table(rows: Sequence[Row]) -> pd.DataFrame:
    """Return rows as a table of `SCORE_COLUMNS`; what a row does not name is empty."""
    table = pd.DataFrame([SCORE_COLUMNS | row for row in rows], columns=list(SCORE_COLUMNS)).astype({"l": "float64"})
    return table.assign(what=kinds_of_rows(table))


def kinds_of_rows(table: pd.DataFrame) -> np.ndarray:
    """Return what the rows of a table are, those of random banks too: score, item (a concept or class) or baseline."""
    items, baselines = (table[name].fillna("") != "" for name in ("item", "baseline"))
    return np.select([items, baselines], [col.ITEM, col.BASELINE], col.SCORE)


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

    The mean has no interval over its items: the scores of a model's concepts, or classes, depend on each other.
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
    classes, concepts = names_of(models[0][1], class_names, concept_names)
    rows_of = partial(model_rows, classes=classes, concepts=concepts)
    tables = [score_table(rows_of(columns, model=name)) for name, columns in models]
    for control, states in controls.items():
        of_control = partial(rows_of, model=control, intervals=False)
        tables.append(control_table([*map(of_control, states)]))
    return pd.concat(tables, ignore_index=True)


def names_of(
    state: ModelState, class_names: Sequence[str] | None, concept_names: Sequence[str] | None
) -> tuple[list[str], list[str]]:
    """Return the names of the classes and of the concepts: their numbers where none are known."""
    n_classes, n_concepts = state.facts.shape
    classes = _named_or_numbered("class_names", class_names, n_classes)
    return classes, _named_or_numbered("concept_names", concept_names, n_concepts)


def _named_or_numbered(argument: str, names: Sequence[str] | None, count: int) -> list[str]:
    if names is not None and len(names) != count:
        raise ValueError(f"Expected argument `{argument}` to hold {count} names but got {len(names)}.")
    return [str(number) for number in range(count)] if names is None else list(names)


def model_rows(
    state: ModelState, classes: Sequence[str], concepts: Sequence[str], *, model: str, intervals: bool = True
) -> list[Row]:
    """Return the rows of one model; for a control without intervals, which take most of the time."""
    rows: list[Row] = []
    for metric, fields, result in state.results():
        if metric.in_table:
            rows += _rows_of(metric, fields, result, {"concept": concepts, "class": classes}, intervals)
    return [row | {"model": model} for row in rows]


def _rows_of(
    metric: Observer, fields: Row, result: Result, names: Mapping[str, Sequence[str]], intervals: bool
) -> list[Row]:
    """Return the row of a mean over samples; of scores of concepts or classes first their mean, then each."""
    if result.summary is not None and not len(result.scores):
        return [fields | result.summary | {"chance": mean_chance(result)}]
    if metric.of_samples:
        row = score_row(result.scores, metric.bounds, result.clusters, intervals=intervals, **fields)
        reason = result.commonest_reason() if row["undefined"] and intervals else ""
        return [row | {"chance": mean_chance(result), "reason": reason}]
    items = item_rows(result.scores, names[fields["item_kind"]], **fields)
    items[0] |= result.summary or {}
    if intervals and result.interval is not None:
        items[0]["low"], items[0]["high"] = result.interval()
    if items[0]["undefined"] and intervals:
        items[0]["reason"] = result.commonest_reason()
    # The items of a baseline say nothing.
    return items[:1] if metric.baseline else items


def without_cgim_range(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table without the range of CGIM of random banks, which are no baseline for a truth that was fitted."""
    of_banks = (table["what"] == col.RANDOM_RANGE) & table["metric"].isin((col.CGIM, col.CGIM_CORRELATION))
    return table.assign(**{end: table[end].mask(of_banks) for end in ("low", "high")})


def direction_rows(name: str, model: object) -> list[Row]:
    """Return how well a model's directions know their concepts on samples held back; nothing where that is unknown."""
    bank = getattr(model, "bank", None)
    accuracy = getattr(bank, "test_accuracy", None)
    if bank is None or accuracy is None or bool(accuracy.isnan().all()):
        return []
    return item_rows(accuracy.double(), bank.names, model=name, metric=col.DIRECTIONS, item_kind="concept")


def control_table(controls: Sequence[Sequence[Row]]) -> pd.DataFrame:
    """Return the rows of controls: for each number their mean, and the range of 95 % of them."""
    # A control may have seen too few images for some numbers.
    names = [*SCORE_COLUMNS][: [*SCORE_COLUMNS].index("value")]
    by_name = [{tuple(str(row.get(name)) for name in names): row for row in rows} for rows in controls]
    most = max(by_name, key=len)
    values, chances = (
        np.array([[rows.get(key, {}).get(name, math.nan) for key in most] for rows in by_name])
        for name in ("value", "chance")
    )
    ranges = np.array([distribution(column) for column in values.T]).reshape(-1, 3)
    missing = np.isnan(values).sum(0)
    return score_table([*most.values()]).assign(
        what=col.RANDOM_RANGE,
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
    tables, of_classes, truth = [], [], None
    for name, state in models:
        tables.append(_image_table(state, name))
        for _, fields, result in state.results():
            if result.by_class is not None:
                means, truth = result.by_class
                of_explanation = {"metric": col.CLASS_IMPORTANCE, "explanation": fields["explanation"]}
                of_explanation["convention"] = fields["convention"]
                of_classes.append(_class_table(means, concepts, model=name, **of_explanation))
    if truth is not None:
        of_classes.append(
            _class_table(truth, concepts, model="", metric=col.CLASS_CONCEPTS, explanation="", convention="")
        )
    return pd.concat([*tables, *of_classes], ignore_index=True)


def _class_table(matrix: Tensor, concepts: Sequence[str], **fields: str) -> pd.DataFrame:
    """Return a row for each class and concept of a matrix (K, L)."""
    label, item = np.indices(matrix.shape).reshape(2, -1)
    named = {"image": -1, "label": label, "predicted": -1, "l": math.nan, "alpha": math.nan, "baseline": ""}
    return pd.DataFrame({**fields, **named, "item": np.array(concepts)[item], "value": to_numpy(matrix).ravel()})


def _image_table(state: ModelState, model: str) -> pd.DataFrame:
    columns = [
        pd.DataFrame({**_NO_VARIANT, **{name: fields[name] for name in fields if name in _NO_VARIANT}, "value": scores})
        for metric, fields, scores in (
            (metric, fields, result.scores)
            for metric, fields, result in state.results()
            if metric.of_samples and result.summary is None and fields.get("set", "all") == "all"
        )
    ]
    table = pd.concat(columns).rename_axis("image").reset_index().astype({"l": "float64", "alpha": "float64"})
    labels, predicted = state.facts.labels.numpy().astype(np.int64), state.facts.predicted.numpy().astype(np.int64)
    table.insert(1, "label", labels[table["image"]])
    table.insert(2, "predicted", predicted[table["image"]])
    table.insert(0, "model", model)
    table.insert(table.columns.get_loc("value"), "item", "")
    return table


#: The fields of a score of an image, empty.
_NO_VARIANT = dict.fromkeys(("metric", "explanation", "baseline", "convention"), "") | {
    "l": math.nan,
    "alpha": math.nan,
}
