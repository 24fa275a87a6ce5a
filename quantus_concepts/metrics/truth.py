"""Checks of the ground truth that several metrics bind."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from captum_concepts.checks import to_numpy
from quantus_concepts.metrics.protocols import is_concept_model


def class_labels(name: str, value: Any) -> np.ndarray:
    """Return (N,) class indices, or raise for anything else."""
    labels = to_numpy(value)
    if labels.ndim != 1:
        raise ValueError(f"Expected argument `{name}` to have shape (N,) but got {labels.shape}.")
    whole = labels.dtype.kind in "iu" or (labels.dtype.kind == "f" and bool((labels == np.floor(labels)).all()))
    if not whole or (labels < 0).any():
        raise ValueError(f"Expected argument `{name}` to hold class indices 0, 1, 2, ... but got {labels[:5]}...")
    return labels.astype(int)


def checked_classes(y_batch: np.ndarray, logits: Tensor) -> Tensor:
    """Return explained classes on the device of the logits, or raise where there is no such class."""
    n_classes = logits.shape[1]
    outside = (y_batch < 0) | (y_batch >= n_classes)
    if outside.any():
        raise ValueError(
            f"Expected argument `y_batch` to hold class indices 0 to {n_classes - 1}, the outputs of the model, but "
            f"got {int(y_batch[outside][0])}."
        )
    return torch.as_tensor(y_batch, dtype=torch.int64, device=logits.device)


def no_concept_model(metric: str, model: Any, x_batch: np.ndarray) -> str:
    """Say why a metric cannot use a model on images, and what to do; empty where that is not what is wrong."""
    if x_batch.ndim != 4 or model is None or is_concept_model(model):
        return ""
    return (
        f"argument `model`, {type(model).__name__}, is no concept model, which {metric} needs on images: "
        "captum_concepts.PostHocCBM.fit makes one of a classifier (or pass a head as `model` and concept values (N, L) "
        "as `x_batch`)"
    )
