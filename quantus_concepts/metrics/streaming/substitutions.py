"""Rows of the images in which one attribute is replaced: by attribute, group and class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from quantus_concepts.functional.arguments import Numbers
from quantus_concepts.functional.concepts.substitution import pair_numbers
from quantus_concepts.metrics.concepts import names as col
from quantus_concepts.metrics.concepts.substitution import Substituted
from quantus_concepts.metrics.host.alignment import TruthLookup
from quantus_concepts.metrics.host.checks import to_classes, to_numbers
from quantus_concepts.metrics.host.rows import Row
from quantus_concepts.metrics.streaming.engine import ModelState
from quantus_concepts.metrics.streaming.state import ConceptState
from quantus_concepts.metrics.streaming.table import control_table, mean_row, model_rows, names_of, score_table


def bound_substitutions(
    truth_of: TruthLookup, added: Numbers | None, removed: Numbers | None, labels: Numbers | None
) -> dict[str, np.ndarray | None]:
    """Return arrays with a row for each image that go before those of the loader's batches."""
    put_in = truth_of("added", added, to_numbers)
    if put_in is not None and not (put_in >= 0).any():
        raise ValueError(
            "Expected argument `added` to hold a concept of the model but all are -1: what was put in and the model's "
            "concepts have nothing in common. Name the concepts as the data set does."
        )
    return {
        "added": put_in,
        "removed": truth_of("removed", removed, to_numbers),
        "labels": truth_of.argument("labels", labels, to_classes),
    }


class AboutImages:
    """Pair, class, and concepts put in and taken out of each image, by name."""

    def __init__(
        self,
        labels: np.ndarray,
        added: np.ndarray,
        removed: np.ndarray,
        pairs: np.ndarray | None,
        class_names: Sequence[str],
        concept_names: Sequence[str],
    ) -> None:
        self.labels, self.added, self.removed = (column.astype(np.int64) for column in (labels, added, removed))
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

    def rows(
        self, scores: Mapping[str, np.ndarray], chances: Mapping[str, np.ndarray], *, intervals: bool = True
    ) -> list[Row]:
        """Return the rows of one model: of all images, and of those of one attribute, group or class."""
        attributes = self._concept_names[self.added]
        groups = np.array([name.partition("::")[0] if "::" in name else "" for name in attributes])
        kinds = (("attribute", attributes), ("group", groups), ("class", self.class_names[self.labels]))
        every, unknown = np.ones(len(self.labels), bool), np.full(len(self.labels), np.nan)
        parts = [("", "", every)]
        parts += [(kind, str(item), items == item) for kind, items in kinds for item in np.unique(items[items != ""])]
        return [
            mean_row(
                column[chosen],
                self._pairs[chosen],
                chances=chances.get(metric, unknown)[chosen],
                intervals=intervals,
                metric=metric,
                item_kind=kind,
                item=item,
            )
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


def about_images(
    state: ConceptState,
    pairs: np.ndarray | None,
    class_names: Sequence[str] | None,
    concept_names: Sequence[str] | None,
) -> AboutImages:
    """Return pair, class and concepts of the images of a stream of substitutions."""
    first = state.columns[0]
    shown = next(seen for seen in first.observed.values() if isinstance(seen, Substituted))
    columns = (first.facts.labels.numpy(), shown.added.numpy(), shown.removed.numpy())
    return AboutImages(*columns, pairs, *names_of(first, class_names, concept_names))


def substitution_images(state: ConceptState, about: AboutImages) -> pd.DataFrame:
    """Return a row for each image and score of the models."""
    tables = []
    for name, of_model in state.models:
        predicted = about.class_names[of_model.facts.predicted.numpy()]
        tables.append(about.images(_scores(of_model), name, predicted))
    return pd.concat(tables, ignore_index=True)


def substitution_table(state: ConceptState, about: AboutImages, accuracies: Sequence[ModelState]) -> pd.DataFrame:
    """Return a row for each number, models in order and controls last.

    With `accuracies` also those of images without substitution.
    """
    half = dict.fromkeys((col.PLUS.metric, col.MINUS.metric), np.full(len(about.labels), col.CHANCE))
    tables: list[list[Row]] = []
    for place, of_model in enumerate(state.columns):
        # Intervals of controls come from their spread, not from images.
        intervals = place < len(state.names)
        name = state.names[place] if intervals else state.control
        rows = about.rows(_scores(of_model), half, intervals=intervals)
        if accuracies:
            rows += model_rows(accuracies[place], [], [], model=name, intervals=intervals)
        tables.append([row | {"model": name} for row in rows])
    n_models = len(state.names)
    frames = [score_table(rows) for rows in tables[:n_models]]
    if state.control:
        frames.append(control_table(tables[n_models:]))
    return pd.concat(frames, ignore_index=True)


def _scores(state: ModelState) -> dict[str, np.ndarray]:
    return {fields["metric"]: result.scores for _, fields, result in state.results()}
