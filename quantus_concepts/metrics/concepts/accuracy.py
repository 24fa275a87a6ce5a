"""Numbers that stand beside the metrics: accuracy of classes and concepts, and how often absence speaks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from quantus_concepts.metrics.concepts import names as col
from quantus_concepts.metrics.host.observing import Batch, Known, Observer, Scored


class Accuracy(Observer):
    """Whether the predicted class is the true one."""

    name = col.ACCURACY.metric

    @classmethod
    def usual(cls, known: Known) -> Sequence[Accuracy]:
        """Return the usual variants for a table."""
        return [cls()]

    @classmethod
    def observe(cls, metrics: Sequence[Accuracy], batch: Batch) -> Scored:
        """Compare the classes of some samples."""
        return Scored(batch.labels == batch.predicted)


class Density(Observer):
    """The share of concepts that images show, of tables of images."""

    name = col.DENSITY.metric
    observed_truth = ("concept_labels",)
    in_table = False

    @classmethod
    def usual(cls, known: Known) -> Sequence[Density]:
        """Return the usual variants for a table."""
        return [cls()]

    @classmethod
    def observe(cls, metrics: Sequence[Density], batch: Batch) -> Scored:
        """Count the concepts of some samples."""
        return Scored(batch.of("concept_labels").mean(1, dtype=torch.float32))


class ConceptAccuracy(Observer):
    """Share of the concepts, or of some (their indices), that are predicted rightly by the model's threshold."""

    name = col.CONCEPT_ACCURACY.metric
    observed_truth = ("concept_labels",)
    needs_threshold = True

    def __init__(self, concepts: Tensor | None = None) -> None:
        self.concepts = concepts

    @classmethod
    def usual(cls, known: Known) -> Sequence[ConceptAccuracy]:
        """Return the usual variants for a table."""
        return [cls()]

    @classmethod
    def observe(cls, metrics: Sequence[ConceptAccuracy], batch: Batch) -> Scored:
        """Compare the concepts of some samples."""
        right = ((batch.values >= batch.threshold) == (batch.of("concept_labels") > 0.5)).float()
        concepts = metrics[0].concepts
        right = right if concepts is None else right[:, concepts.to(right.device)]
        return Scored(right.mean(1), clusters=batch.predicted.int())


class SeenAccuracy(ConceptAccuracy):
    """The concept accuracy on images without substitution, Bader et al. (2025): T_A, or T of all concepts."""

    chance = col.CHANCE

    def __init__(self, name: str, concepts: Tensor | None = None) -> None:
        super().__init__(concepts)
        self.name = name  # type: ignore[misc]

    @classmethod
    def usual(cls, known: Known) -> Sequence[Any]:
        """Return none: there are no usual images without substitution."""
        return []

    @classmethod
    def observe(cls, metrics: Sequence[Any], batch: Batch) -> Scored:
        """Compare the concepts of some samples."""
        return Scored(super().observe(metrics, batch).scores, clusters=batch.labels.int())


class NegativeFirst(Observer):
    """Whether the first concept by contribution speaks by being absent."""

    name = col.NEGATIVE_FIRST.metric
    importance, top_l = "contribution", 1

    @classmethod
    def usual(cls, known: Known) -> Sequence[NegativeFirst]:
        """Return the usual variants for a table."""
        return [cls()] if cls.importance in known.explanations else []

    @classmethod
    def observe(cls, metrics: Sequence[NegativeFirst], batch: Batch) -> Scored:
        """Look at the value of the first concept of some samples."""
        found = batch.importance((cls.importance,), batch.values.shape[1], "concept_labels").values
        negative = batch.values.gather(1, batch.order((cls.importance,), found)[0, :, :1])[:, 0] < 0
        return Scored(negative, clusters=batch.classes.int())
