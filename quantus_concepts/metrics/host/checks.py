"""Checks of the metrics' ground truth: classes, concepts, points, masks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from captum.attr import Attribution
from torch import Tensor
from torch.utils.data import Subset

from captum_concepts.support.checks import (
    check_binary,
    check_callable,
    check_finite,
    check_shape,
    to_array,
)
from quantus_concepts.functional.arguments import Numbers

Explainer = TypeVar("Explainer")

#: Ground truth of samples by the name of its argument, a row for each.
Truth = dict[str, np.ndarray]

#: What data sets know of each image, with a row for each.
OF_IMAGES = ("added", "removed", "pairs")


def truth_lookup(loader: object) -> Callable[..., Any]:
    """Return a function that looks up ground truth that is not given in the data set of a loader, and checks it."""
    dataset, rows = getattr(loader, "dataset", None), None
    while isinstance(dataset, Subset):
        rows = np.asarray(dataset.indices) if rows is None else np.asarray(dataset.indices)[rows]
        dataset = dataset.dataset

    def truth_of(
        name: str, argument: Any, check: Callable[[str, Any], Any] | None = None, of_images: bool = False
    ) -> Any:
        truth = argument
        if truth is None:
            truth = getattr(dataset, name, None)
            if rows is not None and truth is not None and (of_images or name in OF_IMAGES):
                truth = to_array(name, truth)[rows]
        return truth if check is None or truth is None else check(name, truth)

    return truth_of


def model_names(model: object) -> tuple[Sequence[str] | None, Sequence[str] | None]:
    """Return the names of classes and of concepts that a concept model, or the first of several, has; None for none."""
    first = next(iter(model.values()), None) if isinstance(model, Mapping) else model
    return getattr(first, "class_names", None), getattr(getattr(first, "concept_layer", None), "names", None)


def to_classes(name: str, value: Numbers, *, filled: bool = False) -> np.ndarray:
    """Return class indices (N,), at least one if `filled`; also of whole floats, of (N, 1) and of one-hot rows."""
    labels = to_array(name, value)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    elif labels.ndim == 2 and np.isin(labels, (0, 1)).all() and (labels.sum(1) == 1).all():
        labels = labels.argmax(1)
    if filled and not len(labels):
        raise ValueError(f"Expected argument `{name}` to hold the class of at least one image but it is empty.")
    # Infinity, too, is its own floor.
    whole = labels.dtype.kind in "iu" or (labels.dtype.kind == "f" and bool((np.floor(labels) == labels).all()))
    if labels.ndim != 1 or not whole or not np.isfinite(labels).all() or (labels < 0).any():
        raise ValueError(
            f"Expected argument `{name}` to hold class indices (N,), 0, 1, 2, ..., or one-hot rows (N, K), but got "
            f"{labels.dtype} of shape {labels.shape}: {labels.ravel()[:5]}."
        )
    return labels.astype(np.int64)


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


def to_points(name: str, value: Numbers) -> np.ndarray:
    """Return places (x, y) of parts, (N, P, Q, 2) of float64 with NaN where not visible, or raise."""
    array = to_array(name, value)
    if array.ndim == 3:
        array = array[:, :, None]
    if array.ndim != 4 or array.shape[-1] != 2:
        raise ValueError(
            f"Expected argument `{name}` to have shape (N, P, 2) or (N, P, Q, 2), x and y of each part with NaN where "
            f"it is not visible, but got {np.shape(value)}."
        )
    return array.astype(float)


def to_masks(name: str, value: Numbers, *, usable: bool = False) -> np.ndarray:
    """Return masks (N, 1, H, W) of bool, with `usable` not all of them empty or full; or raise."""
    array = to_array(name, value)
    masks = array[:, None] if array.ndim == 3 else array
    if masks.ndim != 4 or masks.shape[1] != 1:
        raise ValueError(
            f"Expected argument `{name}` to have shape (N, 1, H, W) or (N, H, W), one mask for each image, but got "
            f"{array.shape}."
        )
    check_binary(name, masks)
    masks = masks.astype(bool)
    if usable and len(masks) and unusable_masks(masks).all():
        kind = "full" if masks.all() else "empty" if not masks.any() else "empty or full"
        raise ValueError(
            f"Expected argument `{name}` to mark the pixels of the region the metric asks about but all {len(masks)} "
            f"masks are {kind}."
        )
    return masks


def to_explainer(name: str, value: Explainer) -> Explainer:
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


def check_concept_order(name: str, columns: Sequence[str] | None, model: object) -> None:
    """Raise where a model has the concept of a column elsewhere; names that only one of them knows tell nothing."""
    if columns is None:
        return
    concepts = list(getattr(getattr(model, "bank", None), "names", ()))
    for place, column in enumerate(columns):
        if column in concepts and concepts.index(column) != place:
            raise ValueError(
                f"Expected argument `{name}` to have the concepts of the model in their order but column {place} is "
                f"{column!r}, the model's concept {concepts.index(column)}. Pass `table[model.bank.names]`."
            )


def checked_classes(y_batch: np.ndarray, logits: Tensor) -> Tensor:
    """Return explained classes on the device of the logits, or raise where there is no such class."""
    check_classes("y_batch", y_batch, logits.shape[1])
    return torch.as_tensor(y_batch, dtype=torch.int64, device=logits.device)


def check_classes(name: str, classes: np.ndarray, n_classes: int) -> None:
    """Raise where classes name an output that the model does not have."""
    outside = np.flatnonzero((classes < 0) | (classes >= n_classes))
    if outside.size:
        raise ValueError(
            f"Expected argument `{name}` to hold class indices 0 to {n_classes - 1}, the outputs of the model, but got "
            f"{int(classes[outside[0]])} at {int(outside[0])}. Are they counted from 1, or those of another model?"
        )


def check_outputs(outputs: Tensor, n_images: int) -> Tensor:
    """Return what a model gives for images, or raise unless it is (N, K)."""
    if outputs.ndim != 2 or len(outputs) != n_images:
        raise ValueError(
            f"Expected argument `model` to return outputs (N, K) = ({n_images}, *) but got shape "
            f"{tuple(outputs.shape)}."
        )
    return outputs


def check_images(x_batch: np.ndarray) -> None:
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


def unusable_masks(masks: np.ndarray) -> np.ndarray:
    """Return (N,) of bool: which masks mark no pixel, or every one."""
    flat = masks.reshape(len(masks), -1)
    return np.logical_or(~flat.any(1), flat.all(1))


def join_numbers(indices: np.ndarray) -> str:
    """Write indices for a message, the first few by number."""
    first = ", ".join(str(index) for index in indices[:SHOWN])
    return f"{first} and {len(indices) - SHOWN} more" if len(indices) > SHOWN else first
