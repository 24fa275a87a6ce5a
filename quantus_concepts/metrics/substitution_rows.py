"""Rows of scores of images with a substitution: all of them, and by what was put in, its group, and class."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from quantus_concepts.functional.intervals import interval
from quantus_concepts.functional.substitution import pair_numbers
from quantus_concepts.metrics.records import nanmean
from quantus_concepts.metrics.score_rows import Row
from quantus_concepts.metrics.truth import checked_substitutes, class_labels

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
    """Sum up scores: mean of the defined ones, and what chance gives for them; of a model alone the interval, too."""
    known = ~np.isnan(scores)
    bounds = (-math.inf, math.inf) if metric in UNBOUNDED else (0.0, 1.0)
    low, high = interval(scores, bounds, clusters) if alone else (math.nan, math.nan)
    return {
        "metric": metric,
        "value": nanmean(scores),
        "low": low,
        "high": high,
        "n": int(known.sum()),
        "undefined": int((~known).sum()),
        "chance": nanmean(chances[known]),
    }
