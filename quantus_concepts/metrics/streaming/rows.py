"""Rows of result tables: value, low, high, n, undefined and chance."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from captum_concepts._support.checks import to_numpy
from quantus_concepts.functional.intervals import distribution
from quantus_concepts.functional.substitution import pair_numbers
from quantus_concepts.metrics.host.call import nanmean
from quantus_concepts.metrics.host.checks import checked_substitutes, class_labels
from quantus_concepts.metrics.host.rows import Row, score_row
from quantus_concepts.metrics.streaming.columns import (
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


def score_table(rows: Sequence[Row]) -> pd.DataFrame:
    """Return rows as a table of `COLUMNS`; what a row does not name is empty."""
    return pd.DataFrame([COLUMNS | row for row in rows], columns=list(COLUMNS)).astype({"l": "Int64"})


def mean_row(scores: Any, *, clusters: Any = None, intervals: bool = True, **fields: Any) -> Row:
    """Sum up scores of samples; cosines lie in [-1, 1], all others in [0, 1]."""
    bounds = (-1.0, 1.0) if fields["metric"] == "CGIM" else (0.0, 1.0)
    return score_row(scores, bounds, clusters, intervals=intervals, **fields)


def item_rows(scores: Any, names: Sequence[str], *, intervals: bool = True, **fields: Any) -> list[Row]:
    """Return one row per concept or class, and first the one of their mean."""
    values = np.asarray(to_numpy(scores), dtype=np.float64)
    if values.shape != (len(names),):
        raise ValueError(f"Expected argument `scores` to have shape ({len(names)},) but got {values.shape}.")
    single = [score_row(value, intervals=False, **fields, item=name) for name, value in zip(names, values, strict=True)]
    return [mean_row(values, intervals=intervals, **fields), *single]


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


LABEL_COLUMN, PREDICTED_COLUMN, ADDED_COLUMN, REMOVED_COLUMN = "label", "predicted", "added", "removed"
#: In units of the values; the others lie in [0, 1].
UNBOUNDED = ("added moves", "removed moves", "others move")


def bound_substitutions(added: Any, removed: Any, labels: Any) -> dict[str, np.ndarray | None]:
    """Check what is bound beside a loader."""
    concepts = {
        name: None if value is None else checked_substitutes(name, value)
        for name, value in ((ADDED_COLUMN, added), (REMOVED_COLUMN, removed))
    }
    put_in = concepts[ADDED_COLUMN]
    if put_in is not None and not (put_in >= 0).any():
        raise ValueError(
            "Expected argument `added` to hold a concept of the model but all are -1: what was put in and the model's "
            "concepts have nothing in common. Name the concepts as the data set does."
        )
    return concepts | {"labels": None if labels is None else class_labels("labels", labels)}


def checked_seen(seen: Any) -> Iterable[Any] | None:
    """Return batches of images without substitution, or raise where nothing can be gone through."""
    if isinstance(seen, str) or not isinstance(seen, Iterable | None):
        raise TypeError(f"Expected argument `seen` to give batches, as a DataLoader does, but got {seen!r:.80}.")
    return seen


def bound_pairs(pairs: Any) -> np.ndarray | None:
    """Check which images are said to share a recipe."""
    return None if pairs is None else class_labels("pairs", pairs)


class AboutImages:
    """What images are about: pairs, what was put in and its group, and class, each by name."""

    def __init__(
        self,
        columns: Mapping[str, np.ndarray],
        pairs: np.ndarray | None,
        class_names: Sequence[str],
        concept_names: Sequence[str],
    ) -> None:
        self.labels, self.added, self.removed = (
            columns[name].astype(np.int64) for name in (LABEL_COLUMN, ADDED_COLUMN, REMOVED_COLUMN)
        )
        self.class_names, self._concept_names = np.array(class_names), np.array([*concept_names, ""])
        self._pairs = pair_numbers(self.labels, self.added) if pairs is None else pairs
        if len(self._pairs) != len(self.labels):
            raise ValueError(
                f"Expected argument `pairs` to have shape (N,) = ({len(self.labels)},), one for each image, but got "
                f"{self._pairs.shape}."
            )

    @property
    def put_in(self) -> np.ndarray:
        """The concepts that are put in anywhere."""
        return np.unique(self.added[self.added >= 0])

    def rows(self, scores: Mapping[str, np.ndarray], chances: Mapping[str, np.ndarray], alone: bool) -> list[Row]:
        """Return the rows of one model: of all images, and of those of one attribute, group or class."""
        attributes = self._concept_names[self.added]
        groups = np.array([name.partition("::")[0] if "::" in name else "" for name in attributes])
        kinds = (("attribute", attributes), ("group", groups), ("class", self.class_names[self.labels]))
        every, unknown = np.ones(len(self.labels), bool), np.full(len(self.labels), np.nan)
        parts = [("", "", every)]
        parts += [(kind, str(item), items == item) for kind, items in kinds for item in np.unique(items[items != ""])]
        return [
            summed(metric, column[chosen], self._pairs[chosen], chances.get(metric, unknown)[chosen], alone)
            | {"item_kind": kind, "item": item}
            for kind, item, chosen in parts
            for metric, column in scores.items()
        ]

    def images(self, scores: Mapping[str, np.ndarray], model: str, predicted: np.ndarray) -> pd.DataFrame:
        """Return the scores of one model, a row for each image and score."""
        about = pd.DataFrame(
            {
                "model": model,
                "image": np.arange(len(self.labels)),
                "pair": self._pairs,
                "class": self.class_names[self.labels],
                "added": self._concept_names[self.added],
                "removed": self._concept_names[self.removed],
                "predicted": predicted,
            }
        )
        tables = [about.assign(metric=metric, value=column) for metric, column in scores.items()]
        return pd.concat(tables, ignore_index=True)


def summed(metric: str, scores: np.ndarray, clusters: np.ndarray, chances: np.ndarray, alone: bool = True) -> Row:
    """Sum up scores, and what chance gives for the defined ones; the interval for a model alone."""
    bounds = (-math.inf, math.inf) if metric in UNBOUNDED else (0.0, 1.0)
    row = score_row(scores, bounds, clusters, intervals=alone, metric=metric)
    return row | {"chance": nanmean(chances[~np.isnan(scores)])}
