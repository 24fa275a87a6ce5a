"""Numbers that stand beside the metrics: accuracy of classes and concepts, and how often absence speaks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from quantus_concepts.metrics.concepts import names as col
from quantus_concepts.metrics.host.batch import Batch
from quantus_concepts.metrics.host.observing import Known, Observer, Result, Scored


class Accuracy(Observer):
    """Whether the predicted class is the true one."""

    name = col.ACCURACY.metric

    @classmethod
    def observe(cls, metrics: Sequence[Accuracy], batch: Batch) -> Scored:
        """Compare the classes of some samples."""
        return Scored(batch.correct)


class Density(Observer):
    """The share of concepts that images show, of tables of images."""

    name = col.DENSITY.metric
    sample_truth = needed = ("concept_labels",)
    in_table = False

    @classmethod
    def observe(cls, metrics: Sequence[Density], batch: Batch) -> Scored:
        """Count the concepts of some samples."""
        return Scored(torch.as_tensor(batch.truth["concept_labels"]).mean(1, dtype=torch.float32))


class ConceptAccuracy(Observer):
    """Share of the concepts, or of some (their indices), that are predicted rightly by the model's threshold."""

    name = col.CONCEPT_ACCURACY.metric
    sample_truth = needed = ("concept_labels",)

    def __init__(self, concepts: Tensor | None = None) -> None:
        self.concepts = concepts

    def missing(self, batch: Batch) -> str:
        """Return the name of what a batch has to have and lacks, "" for nothing."""
        return "value_threshold" if batch.threshold is None else super().missing(batch)

    @classmethod
    def observe(cls, metrics: Sequence[ConceptAccuracy], batch: Batch) -> Scored:
        """Compare the concepts of some samples."""
        threshold = cast(float, batch.threshold)
        right = ((batch.values >= threshold) == (batch.tensor("concept_labels") > 0.5)).float()
        right, concepts = right.masked_fill(batch.values.isnan(), torch.nan), metrics[0].concepts
        right = right if concepts is None else right[:, concepts.to(right.device)]
        return Scored(right.mean(1), clusters=batch.clusters)


class SeenAccuracy(ConceptAccuracy):
    """The concept accuracy on images without substitution, Bader et al. (2025): T_A, or T of all concepts."""

    def __init__(self, name: str, concepts: Tensor | None = None) -> None:
        super().__init__(concepts)
        self.name = name  # type: ignore[misc]

    @classmethod
    def usual(cls, known: Known) -> Sequence[Any]:
        """Return none: these are other images than those of a table."""
        return []

    @classmethod
    def observe(cls, metrics: Sequence[Any], batch: Batch) -> Scored:
        """Compare the concepts of some samples."""
        return Scored(super().observe(metrics, batch).scores, clusters=batch.true_classes.int())

    def finish(self, observed: Scored) -> Result:
        """Return the scores of all batches."""
        return replace(super().finish(observed), chance=col.CHANCE)


class NegativeFirst(Observer):
    """Whether the first concept by contribution speaks by being absent."""

    name = col.NEGATIVE_FIRST.metric
    importance, top_l = "contribution", 1

    @classmethod
    def usual(cls, known: Known) -> Sequence[NegativeFirst]:
        """Return the usual variants for a table."""
        return [cls()] if cls.importance in known.variants.explanations else []

    @classmethod
    def observe(cls, metrics: Sequence[NegativeFirst], batch: Batch) -> Scored:
        """Look at the value of the first concept of some samples."""
        found = batch.importance((cls.importance,), batch.values.shape[1], "concept_labels")
        # Only its sign is needed; NaN, which ranks first, has none.
        return Scored(batch.values.gather(1, found.order[0, :, :1])[:, 0], clusters=batch.clusters)

    def finish(self, observed: Scored) -> Result:
        """Return which of the first concepts of all batches speak by being absent."""
        first = observed.scores.numpy()
        return super().finish(replace(observed, scores=np.where(np.isnan(first), np.nan, first < 0)))
