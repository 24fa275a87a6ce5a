"""Numbers that stand beside the metrics: accuracy of classes and concepts, and how often absence speaks."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from quantus_concepts.metrics.concepts import names as col
from quantus_concepts.metrics.host.predictions import ConceptPredictions
from quantus_concepts.metrics.host.scores import MetricScores


def accuracy(rows: ConceptPredictions) -> MetricScores:
    """Score whether the predicted class is the true one."""
    return _one(col.ACCURACY, rows.correct)


def concept_accuracy(rows: ConceptPredictions) -> MetricScores:
    """Score the share of the concepts that are predicted rightly by the model's threshold."""
    return _one(col.CONCEPT_ACCURACY, right_concepts(rows), rows.classes)


def negative_first(rows: ConceptPredictions) -> MetricScores:
    """Score whether the first concept by contribution speaks by being absent."""
    kind = "contribution"
    first = cast(Tensor, rows.values).gather(1, rows.ranked(kind, 1)[0])[:, 0]
    # NaN, which ranks first, has no sign.
    negative = (first < 0).double().masked_fill(first.isnan(), torch.nan)
    more: dict[str, Any] = {"explanation": kind, "l": 1, "convention": rows.convention(kind)}
    return _one(col.NEGATIVE_FIRST, negative, rows.classes, **more)


def density(rows: ConceptPredictions) -> MetricScores:
    """Return the share of concepts that images show, of tables of images."""
    return _one(col.DENSITY, torch.as_tensor(shares_shown(rows, torch.float32)), in_table=False)


def shares_shown(rows: ConceptPredictions, kind: torch.dtype) -> np.ndarray:
    """Return the share (n,) of the concepts that each image shows, in a dtype."""
    labels = rows.truth["concept_labels"]
    return torch.cat([(labels[part] > 0).mean(1, dtype=kind) for part in rows.chunks()]).numpy()


def right_concepts(rows: ConceptPredictions, concepts: Tensor | None = None) -> Tensor:
    """Return the share (n,) of the concepts, or of some (their indices), that are predicted rightly."""
    shares = []
    for part in rows.chunks():
        values = cast(Tensor, rows.values)[part]
        right = ((values >= cast(float, rows.threshold)) == (rows.truth["concept_labels"][part] > 0.5)).float()
        right = right.masked_fill(values.isnan(), torch.nan)
        shares.append((right if concepts is None else right[:, concepts]).mean(1))
    return torch.cat(shares)


def seen_accuracies(rows: ConceptPredictions, put_in: np.ndarray) -> list[MetricScores]:
    """Score concept accuracy on images without substitution, Bader et al. (2025): T_A, and T of all concepts."""
    concepts = {col.ACCURACY_ADDED: torch.as_tensor(put_in), col.ACCURACY_ALL: None}
    return [
        _one(metric, right_concepts(rows, of), rows.labels.int(), chance=col.CHANCE) for metric, of in concepts.items()
    ]


def _one(
    metric: str,
    values: Tensor,
    clusters: Tensor | None = None,
    *,
    chance: float = np.nan,
    in_table: bool = True,
    **more: Any,
) -> MetricScores:
    of_rows = None if clusters is None else clusters.numpy()
    return MetricScores(
        [{"metric": metric, **more}], values.double().numpy()[:, None], chance, of_rows, in_table=in_table
    )
