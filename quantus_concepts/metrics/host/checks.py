"""Checks of the metrics' ground truth: classes, concepts, parts."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import torch
from captum.attr import Attribution
from torch import Tensor

from captum_concepts.support.checks import (
    check_callable,
    check_finite,
    check_logits,
    check_shape,
    to_array,
    to_class_indices,
    to_numpy,
)
from quantus_concepts.functional.arguments import Numbers

E = TypeVar("E")

#: Ground truth of samples by the name of its argument, a row for each.
Truth = dict[str, Any]


def to_classes(name: str, value: Numbers, *, filled: bool = False) -> np.ndarray:
    """Return class indices (N,), at least one if `filled`; also of whole floats, of (N, 1) and of one-hot rows."""
    labels = to_class_indices(name, value)
    if filled and not len(labels):
        raise ValueError(f"Expected argument `{name}` to hold the class of at least one image but it is empty.")
    if labels.ndim != 1 or (labels < 0).any():
        raise ValueError(
            f"Expected argument `{name}` to hold class indices (N,), 0, 1, 2, ..., or one-hot rows (N, K), but got "
            f"shape {tuple(labels.shape)}: {labels.flatten()[:5].tolist()}."
        )
    return to_numpy(labels)


def to_class_concepts(name: str, value: Numbers) -> np.ndarray:
    """Return how far concepts belong to classes, (K, L) of float64 in [0, 1], or raise."""
    table = to_array(name, value)
    check_shape(name, table, ("K", "L"), (None, None))
    if not table.size:
        raise ValueError(f"Expected argument `{name}` to hold at least one class and concept but got {table.shape}.")
    check_finite(name, table)
    if table.min() < 0 or table.max() > 1:
        raise ValueError(
            f"Expected argument `{name}` to lie in [0, 1] but got values from {table.min():g} to {table.max():g}. "
            "Divide percentages by 100."
        )
    return np.array(table, dtype=float)


def to_numbers(name: str, value: Numbers, axis: str = "N") -> np.ndarray:
    """Return numbers of parts or concepts, one for each item of an axis, -1 for none, as int64; or raise."""
    numbers = to_array(name, value)
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
        raise ValueError(
            f"Expected argument `{name}` to have shape ({axis},) and whole numbers but got shape {numbers.shape} and "
            f"dtype {numbers.dtype}."
        )
    if numbers.dtype.kind == "u":
        raise ValueError(
            f"Expected argument `{name}` to have a signed dtype, in which -1 means none, but got {numbers.dtype}, in "
            "which -1 becomes a large number. Pass whole numbers as int64."
        )
    if (numbers < -1).any():
        raise ValueError(
            f"Expected argument `{name}` to hold numbers from 0, or -1 for none, but got {int(numbers.min())}."
        )
    return numbers.astype(np.int64)


def to_parts(name: str, value: Numbers) -> np.ndarray:
    """Return the part of each concept, (L,) of int64, -1 for none; or raise."""
    return to_numbers(name, value, "L")


def check_explainer(name: str, value: E) -> E:
    """Return a function that explains any model it is given, or raise; a Captum attribution is none by itself."""
    # The method of an attribution is bound to one model.
    owner = getattr(value, "__self__", None) if getattr(value, "__name__", "") == "attribute" else value
    attribution = owner if isinstance(owner, type) else type(owner)
    if issubclass(attribution, Attribution) and (attribution is value or owner is not value or not callable(value)):
        raise TypeError(
            f"Expected argument `{name}` to be a function (model, inputs, targets, **kwargs) but got Captum's "
            f"{attribution.__name__}. Wrap the class: captum_concepts.explain_func({attribution.__name__})."
        )
    check_callable(name, value)
    return value


def check_parts(parts: np.ndarray, points: np.ndarray) -> None:
    """Raise if a concept is about a part that the points (N, P, Q, 2) do not have."""
    if parts.max(initial=-1) >= points.shape[1]:
        raise ValueError(
            f"Expected argument `part_of_concept` to name parts below P = {points.shape[1]}, the parts in `points`, "
            f"but got {parts.max()}."
        )


#: Remedy for truth of other concepts than the model's.
SELECT = "If the model's bank leaves concepts out, `dataset.select(model.bank.names)` has the truth of the others."


def checked_classes(y_batch: np.ndarray, logits: Tensor) -> Tensor:
    """Return explained classes on the device of the logits, or raise where there is no such class."""
    check_classes("y_batch", y_batch, logits.shape[1])
    return torch.as_tensor(y_batch, dtype=torch.int64, device=logits.device)


def check_classes(name: str, classes: np.ndarray, n_classes: int, first: int = 0) -> None:
    """Raise where classes, those of the samples from `first` on, name an output that the model does not have."""
    outside = np.flatnonzero((classes < 0) | (classes >= n_classes))
    if outside.size:
        raise ValueError(
            f"Expected argument `{name}` to hold class indices 0 to {n_classes - 1}, the outputs of the model, but got "
            f"{int(classes[outside[0]])} at {first + int(outside[0])}. Are they counted from 1, or those of another "
            "model?"
        )


def check_outputs(outputs: Tensor, n_images: int) -> Tensor:
    """Return what a model gives for images, or raise unless it is (N, K) with an output for each of two classes."""
    if outputs.ndim != 2 or len(outputs) != n_images:
        raise ValueError(
            f"Expected argument `model` to return outputs (N, K) = ({n_images}, *) but got shape "
            f"{tuple(outputs.shape)}."
        )
    return check_logits(outputs)


def check_image_axes(x_batch: np.ndarray) -> None:
    """Raise unless inputs are images."""
    if x_batch.ndim != 4:
        raise ValueError(f"Expected argument `x_batch` to be images (N, C, H, W) but got shape {x_batch.shape}.")


SHOWN = 5


def check_mask_size(name: str, masks: np.ndarray, x_batch: np.ndarray) -> None:
    """Raise unless there is one mask for each image, of the same size."""
    if len(masks) != len(x_batch):
        raise ValueError(
            f"Expected argument `{name}` to have {len(x_batch)} masks, one for each image, but got {len(masks)}."
        )
    if masks.shape[2:] != x_batch.shape[2:]:
        raise ValueError(
            f"Expected argument `{name}` to have the size of the images, (H, W) = {x_batch.shape[2:]}, but got "
            f"{masks.shape[2:]}. Resize the masks with nearest-neighbour interpolation."
        )


def join_numbers(indices: np.ndarray) -> str:
    """Write indices for a message, the first few by number."""
    first = ", ".join(str(index) for index in indices[:SHOWN])
    return f"{first} and {len(indices) - SHOWN} more" if len(indices) > SHOWN else first
