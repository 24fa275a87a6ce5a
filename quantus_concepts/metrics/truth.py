"""Checks of the ground truth that several metrics bind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from captum_concepts.checks import check_binary, check_finite, to_array
from quantus_concepts.metrics.protocols import REMEDY, is_concept_model, lacking


def known_to(loader: Any) -> Callable[[str, Any], Any]:
    """Return what looks up in the data set of a loader, by its name, a ground truth that is not given."""
    dataset = getattr(loader, "dataset", None)
    return lambda name, given: getattr(dataset, name, None) if given is None else given


def class_labels(name: str, value: Any) -> np.ndarray:
    """Return (N,) class indices, or raise for anything else."""
    labels = to_array(name, value)
    if labels.ndim != 1:
        raise ValueError(f"Expected argument `{name}` to have shape (N,) but got {labels.shape}.")
    # Infinity, too, is its own floor.
    whole = labels.dtype.kind in "iu" or (
        labels.dtype.kind == "f" and bool((np.isfinite(labels) & (labels == np.floor(labels))).all())
    )
    if not whole or (labels < 0).any():
        raise ValueError(f"Expected argument `{name}` to hold class indices 0, 1, 2, ... but got {labels[:5]}...")
    return labels.astype(int)


def checked_class_concepts(value: Any) -> np.ndarray:
    """Return how far concepts belong to classes, (K, L) in [0, 1] of float64, or raise."""
    truth = to_array("class_concepts", value)
    if truth.ndim != 2 or not truth.size:
        raise ValueError(f"Expected argument `class_concepts` to have shape (K, L) but got {truth.shape}.")
    check_finite("class_concepts", truth)
    if truth.min() < 0 or truth.max() > 1:
        raise ValueError(
            f"Expected argument `class_concepts` to lie in [0, 1] but got values from {truth.min()} to "
            f"{truth.max()}. Divide percentages by 100."
        )
    return truth.astype(float)


def checked_presence(value: Any) -> np.ndarray:
    """Return which concepts images show, (N, L) of 0 and 1, or raise."""
    labels = to_array("concept_labels", value)
    if labels.ndim != 2:
        raise ValueError(f"Expected argument `concept_labels` to have shape (N, L) but got {labels.shape}.")
    check_binary("concept_labels", labels)
    # Torch warns of what cannot be written, as the array of a DataFrame is.
    return np.require(labels, requirements="W")


def concepts_of(table: Any) -> list[str] | None:
    """Return the names of the columns of a DataFrame; None for anything else."""
    return [str(name) for name in table.columns] if isinstance(table, pd.DataFrame) else None


def check_concept_order(name: str, columns: Sequence[str] | None, model: Any) -> None:
    """Raise where a model has the concept of a column elsewhere; names that only one of them knows tell nothing."""
    if columns is None:
        return
    known = list(getattr(getattr(model, "bank", None), "names", ()))
    for place, column in enumerate(columns):
        if column in known and known.index(column) != place:
            raise ValueError(
                f"Expected argument `{name}` to have the concepts of the model in their order but column {place} is "
                f"{column!r}, the model's concept {known.index(column)}. Pass `table[model.bank.names]`."
            )


def checked_parts(value: Any) -> np.ndarray:
    """Return the part of each concept, (L,) of int with -1 for none, or raise."""
    parts = to_array("part_of_concept", value)
    if parts.ndim != 1 or parts.dtype.kind not in "iu":
        raise ValueError(
            f"Expected argument `part_of_concept` to have shape (L,) and whole numbers but got shape {parts.shape} "
            f"and dtype {parts.dtype}."
        )
    _check_signed("part_of_concept", parts)
    if (parts < -1).any():
        raise ValueError(f"Expected argument `part_of_concept` to be at least -1 but got {parts.min()}.")
    return parts


def _check_signed(name: str, indices: np.ndarray) -> None:
    if indices.dtype.kind == "u":
        raise ValueError(
            f"Expected argument `{name}` to have a signed dtype, in which -1 means none, but got {indices.dtype}, in "
            "which -1 becomes a large number. Pass whole numbers as int64."
        )


def checked_substitutes(name: str, value: Any) -> np.ndarray:
    """Return the concept put into, or taken out of, each image, (N,) of int with -1 for none, or raise."""
    concepts = to_array(name, value)
    if concepts.ndim != 1 or concepts.dtype.kind not in "iu":
        raise ValueError(
            f"Expected argument `{name}` to have shape (N,) and whole numbers but got shape {concepts.shape} and dtype "
            f"{concepts.dtype}."
        )
    _check_signed(name, concepts)
    if (concepts < -1).any():
        raise ValueError(
            f"Expected argument `{name}` to hold concepts from 0, or -1 for none, but got {int(concepts.min())}."
        )
    return concepts.astype(np.int64)


def checked_points(value: Any, parts: np.ndarray) -> np.ndarray:
    """Return the places of the parts, (N, P, Q, 2) of float64 with NaN where not visible, or raise."""
    array = to_array("points", value)
    if array.ndim == 3:
        array = array[:, :, None]
    if array.ndim != 4 or array.shape[-1] != 2:
        raise ValueError(
            "Expected argument `points` to have shape (N, P, 2) or (N, P, Q, 2), x and y of each part with NaN where "
            f"it is not visible, but got {np.shape(value)}."
        )
    if parts.max(initial=-1) >= array.shape[1]:
        raise ValueError(
            f"Expected argument `part_of_concept` to name parts below P = {array.shape[1]}, the parts in `points`, "
            f"but got {parts.max()}."
        )
    return array.astype(float)


def checked_classes(y_batch: np.ndarray, logits: Tensor) -> Tensor:
    """Return explained classes on the device of the logits, or raise where there is no such class."""
    n_classes = logits.shape[1]
    outside = (y_batch < 0) | (y_batch >= n_classes)
    if outside.any():
        raise ValueError(
            f"Expected argument `y_batch` to hold class indices 0 to {n_classes - 1}, the outputs of the model, but "
            f"got {int(y_batch[outside][0])}. Classes are counted from 0."
        )
    return torch.as_tensor(y_batch, dtype=torch.int64, device=logits.device)


def no_concept_model(metric: str, model: Any, x_batch: np.ndarray) -> str:
    """Say why a metric cannot use a model on images, and what to do; empty where that is not what is wrong."""
    if x_batch.ndim != 4 or model is None or is_concept_model(model):
        return ""
    return (
        f"argument `model`, {type(model).__name__}, is no concept model, which {metric} needs on images (it is one "
        f"{lacking(model)}): {REMEDY} (or pass a head as `model` and concept values (N, L) as `x_batch`)"
    )
