"""Checks of tensor arguments that stay on the tensor's device."""

from __future__ import annotations

from typing import Any

from captum_concepts._support.constraints import Floats


def check_floating(name: str, value: Any) -> None:
    """Raise unless an argument is a tensor of real floating-point numbers."""
    Floats("...").check_kind(name, value)
