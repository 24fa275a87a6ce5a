"""One concept model scored on images with a substitution, batch by batch: one row of numbers an image."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from captum_concepts._support.checks import check_shape, to_numpy
from quantus_concepts.functional.substitution import (
    MAJORITY,
    NO_CONCEPT,
    check_concepts,
    movement,
    recital,
    substitution,
)
from quantus_concepts.metrics.host.model import concept_outputs
from quantus_concepts.metrics.host.protocols import ConceptModel
from quantus_concepts.metrics.host.row_buffer import RowBuffer
from quantus_concepts.metrics.streaming.batches import ConceptBatch
from quantus_concepts.metrics.streaming.rows import ADDED_COLUMN, LABEL_COLUMN, PREDICTED_COLUMN, REMOVED_COLUMN

#: What is known of an image, and no score of it.
ABOUT = (LABEL_COLUMN, PREDICTED_COLUMN, ADDED_COLUMN, REMOVED_COLUMN)


class SubstitutionScorer:
    """The scores of one concept model on images with a substitution, and without where those are given, too."""

    def __init__(self, model: ConceptModel, threshold: float, class_concepts: np.ndarray | None) -> None:
        self.model, self.threshold = model, threshold
        self.shape = (0, 0)
        self._own = None if class_concepts is None else torch.as_tensor(class_concepts >= MAJORITY)
        self._rows = RowBuffer()
        self._names: list[str] = []

    def add(self, batch: ConceptBatch, features: Tensor | None, before: Tensor | None) -> None:
        """Score a batch; the features are those of its images with and without the substitution, where made already."""
        values, logits = concept_outputs(self.model, batch.images, features)[1:]
        added, removed = self._checked(batch, values, logits)
        found = substitution(values, added, removed, self.threshold)
        predicted = logits.argmax(1)
        columns = {
            LABEL_COLUMN: batch.labels,
            PREDICTED_COLUMN: predicted,
            ADDED_COLUMN: added,
            REMOVED_COLUMN: removed,
        }
        columns |= {"S+": found.added, "S-": found.removed}
        if self._own is not None:
            columns["recital"] = recital(values, self._own[batch.labels.cpu()], self.threshold)
        if batch.before is not None:
            earlier, earlier_logits = concept_outputs(self.model, batch.before, before)[1:]
            moved = movement(earlier, values, added, removed)
            columns |= {"added moves": moved.added, "removed moves": moved.removed, "others move": moved.others}
            # Whatever the threshold.
            rises = (moved.added > 0).float().masked_fill(moved.added.isnan(), torch.nan)
            columns |= {"rises": rises, "selectivity": moved.selectivity}
            columns |= {"class kept": predicted == earlier_logits.argmax(1)}
        self._names = list(columns)
        self._rows.add(checked_rows([*columns.values()], values, len(self._rows)))

    def take(self, rows: pd.DataFrame, shape: tuple[int, int]) -> None:
        """Take over the `columns` of images that another scorer scored."""
        self._names, self.shape = list(rows), shape
        self._rows.add(torch.tensor(rows.to_numpy(np.float32)))

    def scores(self) -> dict[str, np.ndarray]:
        """Return the scores (N,) of all images."""
        return {name: column for name, column in self.columns().items() if name not in ABOUT}

    def columns(self) -> dict[str, np.ndarray]:
        """Return the numbers (N,) of all images, in float64."""
        return dict(zip(self._names, to_numpy(self._rows.rows).astype(np.float64).T, strict=True))

    def _checked(self, batch: ConceptBatch, values: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return what was put in and taken out; raise where that, or what the model gives, is not as it should be."""
        n_classes, n_concepts = (None, None) if self._own is None else self._own.shape
        check_shape("values of the model", values, ("B", "L"), (None, n_concepts))
        check_shape("logits of the model", logits, ("B", "K"), (None, n_classes))
        self.shape = (logits.shape[1], values.shape[1])
        added, removed = substituted(batch)
        for name, concepts in ((ADDED_COLUMN, added), (REMOVED_COLUMN, removed)):
            check_concepts(name, concepts, len(values), values.shape[1])
        return added, removed


class SeenScorer:
    """The concept accuracy of one model on images without substitution: for some concepts, and for all."""

    def __init__(self, model: ConceptModel, threshold: float, concepts: np.ndarray) -> None:
        self.model, self.threshold = model, threshold
        self._concepts = torch.as_tensor(concepts)
        self._rows = RowBuffer()

    def add(self, batch: ConceptBatch, features: Tensor | None, before: Tensor | None) -> None:
        """Score a batch of images with concept labels."""
        values = concept_outputs(self.model, batch.images, features).values
        if batch.concepts is None:
            raise ValueError("Expected argument `seen` to give batches with concept labels but they have none.")
        check_shape("concept labels of `seen`", batch.concepts, ("B", "L"), tuple(values.shape))
        right = ((values >= self.threshold) == (batch.concepts.to(values.device) > 0.5)).float()
        some = right[:, self._concepts.to(values.device)].mean(1)
        self._rows.add(checked_rows([batch.labels, some, right.mean(1)], values, len(self._rows)))

    def columns(self) -> dict[str, np.ndarray]:
        """Return the numbers (N,) of all images, in float64."""
        return dict(zip((LABEL_COLUMN, "T_A", "T"), to_numpy(self._rows.rows).astype(np.float64).T, strict=True))


def substituted(batch: ConceptBatch) -> tuple[Tensor, Tensor]:
    """Return what was put into the images of a batch, and what taken out, or raise where that is not known."""
    if batch.added is None:
        raise ValueError(
            "Expected argument `added` to hold the concept put into each image but it is not given. Pass it, or a "
            "loader over a data set that has it, as PaintedSubstitutions and SUB do."
        )
    return batch.added, torch.full_like(batch.added, NO_CONCEPT) if batch.removed is None else batch.removed


def checked_rows(columns: Sequence[Tensor], values: Tensor, n_seen: int) -> Tensor:
    """Return columns (B,) as rows on the host; raise where concept values are not finite, before anything is kept."""
    finite = values.isfinite().all(1)
    # One transfer from the device for each batch.
    rows = torch.stack([each.to(values.device, torch.float32) for each in (*columns, finite)], 1).cpu()
    bad = (rows[:, -1] == 0).nonzero()
    if len(bad):
        raise ValueError(
            f"Expected only finite numbers but a concept value of image {n_seen + int(bad[0, 0])} (from 0) is NaN or "
            "infinity. Repair the image or the model's weights."
        )
    return rows[:, :-1]
