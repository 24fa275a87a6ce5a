"""Checks of tensor arguments that stay on the tensor's device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from captum_concepts._support.checks import check_binary, is_integral


def check_floating(name: str, value: Any) -> None:
    """Raise unless an argument is a tensor of real floating-point numbers."""
    if not isinstance(value, Tensor):
        raise TypeError(
            f"Expected argument `{name}` to be a torch.Tensor but got {type(value).__name__}. "
            "Convert it with torch.as_tensor."
        )
    if not value.is_floating_point():
        raise TypeError(
            f"Expected argument `{name}` to be of a floating-point dtype but got {value.dtype}. "
            "Convert it with .float()."
        )


def check_bool(name: str, value: Any) -> None:
    """Raise unless an argument is a tensor of bool."""
    if not isinstance(value, Tensor) or value.dtype != torch.bool:
        got = value.dtype if isinstance(value, Tensor) else type(value).__name__
        raise TypeError(
            f"Expected argument `{name}` to be a tensor of torch.bool but got {got}. Convert it with .bool()."
        )


def finite_rows(values: Tensor) -> Tensor:
    """Tell which samples hold neither NaN nor infinity."""
    flat = values.flatten(1)
    if not flat.shape[1]:
        return torch.ones(len(flat), dtype=torch.bool, device=flat.device)
    # Both extremes hand NaN on, and are much faster than looking at every value.
    return flat.amax(1).isfinite() & flat.amin(1).isfinite()


def check_indices(name: str, value: Any) -> None:
    """Raise unless an argument is a tensor of whole numbers, as classes are."""
    if not isinstance(value, Tensor) or not is_integral(value):
        got = value.dtype if isinstance(value, Tensor) else type(value).__name__
        raise TypeError(f"Expected argument `{name}` to be a tensor of an integer dtype but got {got}.")


def check_zero_one(name: str, value: Any) -> None:
    """Raise unless an argument is a tensor of nothing but 0 and 1."""
    if not isinstance(value, Tensor):
        raise TypeError(f"Expected argument `{name}` to be a torch.Tensor but got {type(value).__name__}.")
    if value.is_complex():
        raise TypeError(f"Expected argument `{name}` to be real but got {value.dtype}.")
    # The full message needs the values on the CPU; only a failure pays for that.
    if not ((value == 0) | (value == 1)).all():
        check_binary(name, value)


def check_top_l(name: str, value: Any, available: int, of_what: str) -> None:
    """Raise unless a number of concepts is an int from 1 to those there are."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"Expected argument `{name}` to be an int but got {type(value).__name__}.")
    if not 1 <= value <= available:
        raise ValueError(
            f"Expected argument `{name}` to lie in [1, {available}], the number of {of_what}, but got {value}."
        )


def check_size(name: str, value: Sequence[int]) -> tuple[int, int]:
    """Return an image size as two ints, or raise."""
    size = tuple(value) if isinstance(value, Sequence) else ()
    if len(size) != 2 or not all(type(side) is int and side >= 1 for side in size):
        raise ValueError(
            f"Expected argument `{name}` to be (M1, M2), height and width of the image in pixels, but got {value!r}."
        )
    return size[0], size[1]
