"""Checks of what every metric is called with, before anything is computed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from captum.attr import Attribution
from quantus.helpers import asserts
from torch import nn

from captum_concepts.checks import check_callable, check_materialised, check_module


def check_inputs(
    model: nn.Module | None,
    x_batch: np.ndarray,
    y_batch: np.ndarray,
    explain_func: Callable[..., np.ndarray] | None,
) -> None:
    """Raise for arguments no metric can work with, before anything is computed."""
    if model is not None:
        check_module("model", model)
    check_materialised("model", model)
    if x_batch.ndim < 2:
        raise ValueError(f"Expected argument `x_batch` to have shape (N, ...) but got {x_batch.shape}.")
    if len(x_batch) == 0:
        raise ValueError("Expected argument `x_batch` to hold at least one sample but it is empty.")
    if y_batch.shape != (len(x_batch),):
        if y_batch.ndim == 0:
            remedy = " One sample is a batch of one: `x_batch[None]`, `y_batch[None]`."
        elif y_batch.ndim == 2:
            remedy = f" It holds class indices: `y_batch{'.argmax(1)' if y_batch.shape[1] > 1 else '[:, 0]'}`."
        else:
            remedy = ""
        raise ValueError(
            f"Expected argument `y_batch` to have shape (N,) = ({len(x_batch)},) but got {y_batch.shape}.{remedy}"
        )
    if y_batch.dtype.kind not in "iu":
        raise TypeError(
            f"Expected argument `y_batch` to hold whole numbers but got dtype {y_batch.dtype}. It holds class indices: "
            "`y_batch.astype(int)`."
        )
    if explain_func is not None:
        check_explains("explain_func", explain_func)
        asserts.assert_explain_func(explain_func=explain_func)


def check_explains(name: str, function: Any) -> None:
    """Raise unless a function explains any model it is given, as a Captum attribution does not by itself."""
    # The method of an attribution is bound to one model.
    owner = getattr(function, "__self__", None) if getattr(function, "__name__", "") == "attribute" else function
    made = owner if isinstance(owner, type) else type(owner)
    if issubclass(made, Attribution) and (made is function or owner is not function or not callable(function)):
        raise TypeError(
            f"Expected argument `{name}` to be a function (model, inputs, targets, **kwargs) but got Captum's "
            f"{made.__name__}. Wrap the class: captum_concepts.explain_func({made.__name__})."
        )
    check_callable(name, function)


def check_images(x_batch: np.ndarray) -> None:
    """Raise unless inputs are images."""
    if x_batch.ndim != 4:
        raise ValueError(f"Expected argument `x_batch` to be images (N, C, H, W) but got shape {x_batch.shape}.")


def check_passed(custom_batch: Any, names: Sequence[str]) -> Mapping[str, Any]:
    """Return the ground truth passed with a call, by the name of its argument, or raise for anything else."""
    passed: Mapping[str, Any] = {} if custom_batch is None else custom_batch
    if not isinstance(passed, Mapping):
        raise TypeError(
            f"Expected argument `custom_batch` to be a mapping from one of {list(names)} to an array but got "
            f"{type(custom_batch).__name__}."
        )
    unknown = set(passed) - set(names)
    if unknown:
        raise ValueError(
            f"Expected the keys of argument `custom_batch` to be among {list(names)} but got {sorted(unknown)}."
        )
    return passed


def check_aligned_truth(truth: Mapping[str, np.ndarray], n_samples: int) -> None:
    """Raise unless every array of ground truth has one row for each sample."""
    for name, value in truth.items():
        if len(value) != n_samples:
            by_class = " Of a table by class pass `table[labels]`." if name == "concept_labels" else ""
            raise ValueError(
                f"Expected argument `{name}` to have one row for each sample of `x_batch`, {n_samples}, but got "
                f"{len(value)}. What is bound in the constructor must be aligned with `x_batch`; for loops over a "
                f'loader pass custom_batch={{"{name}": ...}} with each call.{by_class}'
            )
