"""Importance of the concepts of images: what CEM, CGIM and CLM of a concept model begin with."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from quantus_concepts.metrics.host.checks import SELECT, checked_classes
from quantus_concepts.metrics.host.model import ConceptModel, concept_importances, shared_outputs


def image_importance(
    model: ConceptModel, x_batch: np.ndarray, y_batch: np.ndarray, kind: str, features: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return the importance (n, L) of the concepts of images for their explained classes, and the logits (n, K)."""
    outputs = shared_outputs(model, x_batch, features)
    classes = checked_classes(y_batch, outputs.logits)
    return concept_importances(model, outputs.values, classes, (kind,))[kind], outputs.logits


def check_concepts(name: str, axes: str, truth: np.ndarray, n_concepts: int) -> None:
    """Raise where ground truth (..., L) is about other concepts than the model's."""
    if truth.shape[-1] != n_concepts:
        raise ValueError(
            f"Expected argument `{name}` to have shape {axes} with the model's L = {n_concepts} concepts but got "
            f"{truth.shape}. {SELECT}"
        )
