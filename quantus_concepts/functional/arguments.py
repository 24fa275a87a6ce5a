"""Arguments of the functions: arrays and lists as tensors, and checks of what tensors hold."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from captum_concepts.support.checks import check_binary, check_finite, to_array, to_class_indices, to_numpy

#: What the functions take as numbers.
Numbers = Tensor | npt.ArrayLike


def as_tensor(name: str, value: Numbers) -> Tensor:
    """Return a tensor as it is, and arrays and nested sequences of real numbers as one."""
    if isinstance(value, Tensor):
        return value
    # Neither negative strides nor arrays that cannot be written suit torch.
    return torch.as_tensor(np.require(to_array(name, value), requirements=("C", "W")))


def to_floats(name: str, value: Numbers) -> Tensor:
    """Return numbers as a floating-point tensor: whole ones and bools in the default dtype."""
    tensor = as_tensor(name, value)
    return tensor if tensor.is_floating_point() else tensor.to(torch.get_default_dtype())


def to_class_tensor(name: str, value: Numbers) -> Tensor:
    """Return indices (N,) as int64, also of whole floats, of (N, 1) and of one-hot rows."""
    return to_class_indices(name, as_tensor(name, value))


def to_clusters(clusters: Numbers | None, n: int, noun: str) -> np.ndarray:
    """Return the cluster (n,) of each of n scores, numbers or names: each by itself if None."""
    groups = np.arange(n) if clusters is None else to_numpy(clusters).ravel()
    if len(groups) != n:
        raise ValueError(
            f"Expected argument `clusters` to have shape (N,) = ({n},), one for each {noun}, but got {groups.shape}."
        )
    return groups


def check_zero_one(name: str, values: Tensor) -> None:
    """Raise unless every entry is 0 or 1; only a failure takes the values to the CPU."""
    if values.dtype != torch.bool and not ((values == 0) | (values == 1)).all():
        check_binary(name, values)


def check_within(name: str, values: Tensor, low: float, high: float, *, nan: bool = False, remedy: str = "") -> None:
    """Raise unless every entry lies in [low, high] or, with `nan`, is NaN."""
    inside = ~((values < low) | (values > high)) if nan else (values >= low) & (values <= high)
    if inside.all():
        return
    if not nan:
        check_finite(name, values)
    numbers = values[~values.isnan()]
    raise ValueError(
        f"Expected argument `{name}` to lie in [{low:g}, {high:g}] but got values from {numbers.min().item():g} to "
        f"{numbers.max().item():g}.{remedy and ' '}{remedy}"
    )


def check_filled(name: str, values: Tensor) -> None:
    """Raise if an axis after the first has no entry."""
    if 0 in values.shape[1:]:
        raise ValueError(
            f"Expected argument `{name}` to have at least one entry along each axis after the first but got shape "
            f"{tuple(values.shape)}."
        )
