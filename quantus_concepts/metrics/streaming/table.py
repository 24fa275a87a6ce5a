"""Tables of scores: a row for each number with its interval, of random banks with their range, or for each image."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor

from captum_concepts.support.checks import to_numpy
from quantus_concepts.functional.arguments import Numbers
from quantus_concepts.functional.statistics.intervals import CONFIDENCE
from quantus_concepts.metrics.concepts import names as col
from quantus_concepts.metrics.host.predictions import ConceptPredictions
from quantus_concepts.metrics.host.scores import MetricScores, Row, nanmean, score_row

#: Ends of a range, as of `functional.baseline_range`.
RANGE = ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2)
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
#: The columns that name a row.
KEYS = [*SCORE_COLUMNS][: [*SCORE_COLUMNS].index("value")]


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


def names_of(rows: ConceptPredictions) -> dict[str, list[str]]:
    """Return the names of classes and concepts, by "class" and "concept": their numbers if none are known."""
    found = {}
    for kind, argument, count in zip(("class", "concept"), ("class_names", "concept_names"), rows.shape, strict=True):
        names = rows.about.get(argument)
        if names is not None and len(names) != count:
            raise ValueError(f"Expected argument `{argument}` to hold {count} names but got {len(names)}.")
        found[kind] = [str(number) for number in range(count)] if names is None else list(names)
    return found


def model_rows(scores: Iterable[MetricScores], items: Mapping[str, Sequence[str]], model: str) -> list[Row]:
    """Return the rows of one model."""
    found = (row for each in scores if each.in_table for row in each.rows(items))
    return [row | {"model": model} for row in found]


def range_table(
    controls: Iterable[Sequence[MetricScores]], items: Mapping[str, Sequence[str]], model: str
) -> pd.DataFrame:
    """Return the rows of baseline models: for each number their mean, and the range of 95 % of them.

    Of each model only its numbers are kept.
    """
    numbers = [_numbers(scores) for scores in controls]
    # A baseline model may have shown too few images for some numbers.
    fields = max((of for of, _, _ in numbers), key=len)
    keys = [*_keys(fields, items)]
    draws, chances = np.full((2, len(numbers), len(keys)), math.nan)
    for place, (of_fields, values, of_chances) in enumerate(numbers):
        if of_fields == fields:
            draws[place], chances[place] = values, of_chances
            continue
        columns = {tuple(key.items()): column for column, key in enumerate(keys)}
        own = [columns.get(tuple(key.items()), -1) for key in _keys(of_fields, items)]
        known = np.array(own) >= 0
        draws[place, np.array(own)[known]], chances[place, np.array(own)[known]] = values[known], of_chances[known]
    return draws_table([key | {"model": model} for key in keys], draws, chances)


def _numbers(scores: Sequence[MetricScores]) -> tuple[list[tuple[Row, bool]], np.ndarray, np.ndarray]:
    """Return the fields of each variant, and all numbers with their chances, each mean before those of its items."""
    fields, values, chances = list[tuple[Row, bool]](), list[np.ndarray](), list[np.ndarray]()
    for each in (of for of in scores if of.in_table):
        means, chance, _ = each.means
        fields += [(row, each.lists_items) for row in each.fields]
        if each.fields[0].get("item_kind") and each.lists_items:
            means = np.concatenate([means[None], each.values]).T.ravel()
            chance = np.concatenate([chance[None], np.full(each.values.shape, math.nan)]).T.ravel()
        values.append(means)
        chances.append(chance)
    return fields, np.concatenate([[], *values]), np.concatenate([[], *chances])


def _keys(fields: Sequence[tuple[Row, bool]], items: Mapping[str, Sequence[str]]) -> Iterator[Row]:
    for each, lists_items in fields:
        yield each
        yield from (each | {"item": item} for item in items.get(each.get("item_kind", ""), ()) if lists_items)


def draws_table(keys: Sequence[Row], draws: np.ndarray, chances: np.ndarray) -> pd.DataFrame:
    """Return rows of the numbers (B, M) of B baseline models: mean, range of 95 % of them, and mean chance."""
    missing, ends, ordered = np.isnan(draws).sum(0), np.full((3, len(keys)), math.nan), np.sort(draws, 0)
    # Numbers that as many models have, together; those of the others come last.
    for n in {*(len(draws) - missing).tolist()} - {0}:
        numbers = ordered[:n, missing == len(draws) - n]
        ends[:, missing == len(draws) - n] = numbers.mean(0), *np.quantile(numbers, RANGE, axis=0, method="weibull")
    of_chance = (~np.isnan(chances)).sum(0)
    with np.errstate(invalid="ignore"):
        chance = np.nansum(chances, 0) / of_chance
    numbers = {"value": ends[0], "low": ends[1], "high": ends[2], "n": len(draws) - missing, "undefined": missing}
    return score_table(keys).assign(what=col.RANDOM_RANGE, **numbers, chance=chance)


def without_cgim_range(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table without the range of CGIM of random banks, which are no baseline for a truth that was fitted."""
    of_banks = (table["what"] == col.RANDOM_RANGE) & table["metric"].isin((col.CGIM, col.CGIM_CORRELATION))
    return table.assign(**{end: table[end].mask(of_banks) for end in ("low", "high")})


def direction_rows(name: str, accuracy: Any, names: Sequence[str]) -> list[Row]:
    """Return how well a model's directions know their concepts on samples held back; nothing where that is unknown."""
    if accuracy is None or bool(np.isnan(to_numpy(accuracy)).all()):
        return []
    return item_rows(accuracy, names, model=name, metric=col.DIRECTIONS, item_kind="concept")


def image_table(model: str, rows: ConceptPredictions, scores: Sequence[MetricScores]) -> pd.DataFrame:
    """Return a row for each image and score of a model."""
    columns = [
        pd.DataFrame(
            {
                **_NO_VARIANT,
                **{name: fields[name] for name in fields if name in _NO_VARIANT},
                "value": each.values[:, place],
            }
        )
        for each in scores
        for place, fields in enumerate(each.fields)
        if each.intervals and not fields.get("item_kind") and fields.get("set", "all") == "all"
    ]
    table = pd.concat(columns).rename_axis("image").reset_index().astype({"l": "float64", "alpha": "float64"})
    labels, predicted = (to_numpy(of).astype(np.int64) for of in (rows.labels, rows.classes))
    table.insert(1, "label", labels[table["image"]])
    table.insert(2, "predicted", predicted[table["image"]])
    table.insert(0, "model", model)
    table.insert(table.columns.get_loc("value"), "item", "")
    return table


def class_tables(scores: Mapping[str, Sequence[MetricScores]], concepts: Sequence[str]) -> list[pd.DataFrame]:
    """Return rows about classes by which CGIM is compared: the importance of concepts for each class, and the truth."""
    tables, truth = [], None
    for model, of_model in scores.items():
        for each in of_model:
            if each.by_class is not None:
                matrices, truth = each.by_class
                about = {"model": model, "metric": col.CLASS_IMPORTANCE}
                for matrix, fields in zip(matrices, each.fields, strict=True):
                    of_kind = {name: fields[name] for name in ("explanation", "convention")}
                    tables.append(_class_table(matrix, concepts, **about, **of_kind))
    if truth is not None:
        about = {"model": "", "metric": col.CLASS_CONCEPTS, "explanation": "", "convention": ""}
        tables.append(_class_table(truth, concepts, **about))
    return tables


def _class_table(matrix: Tensor, concepts: Sequence[str], **fields: str) -> pd.DataFrame:
    """Return a row for each class and concept of a matrix (K, L)."""
    label, item = np.indices(matrix.shape).reshape(2, -1)
    named = {"image": -1, "label": label, "predicted": -1, "l": math.nan, "alpha": math.nan, "baseline": ""}
    return pd.DataFrame({**fields, **named, "item": np.array(concepts)[item], "value": to_numpy(matrix).ravel()})


#: The fields of a score of an image, empty.
_NO_VARIANT = dict.fromkeys(("metric", "explanation", "baseline", "convention"), "") | {
    "l": math.nan,
    "alpha": math.nan,
}
