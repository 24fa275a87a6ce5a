"""Tables of bad input: a good call of which one argument is spoilt, and whether all public callables are in them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any

import numpy as np
import torch

from refusals import Refusal

NAN, INF = float("nan"), float("inf")
Table = Mapping[str, Mapping[str, Refusal]]
Bad = Mapping[str, Any]

TEXT: Bad = {"text": "many"}
NOTHING: Bad = {"None": None}
#: What is no number at all.
NO_NUMBER: Bad = {**TEXT, "a list": [1.0], "complex": 1j, "a bool": True}
#: What is no whole number.
NO_COUNT: Bad = {**NO_NUMBER, "a fraction": 1.5, "NaN": NAN}
#: What is no number of things.
NO_POSITIVE: Bad = {**NO_COUNT, "zero": 0, "negative": -1}
NO_SEED: Bad = {**NO_COUNT, "negative": -1}
#: What is no array of numbers.
NO_ARRAY: Bad = {
    "text": np.array([["a", "b"]]),
    "objects": np.array([[object(), None]]),
    "complex": np.array([[1j, 0]]),
    "ragged": [[1.0], [1.0, 2.0]],
    "a number": 3.0,
}
NO_MODULE: Bad = {"None": None, "text": "resnet18", "a list": [1], "a class": torch.nn.Linear}
NO_FUNCTION: Bad = {"text": "mean", "a number": 3}
NO_CHOICE: Bad = {"text": "nonsense", "None": None, "a number": 1, "an array": np.array(["a", "b"])}


def spoilt(
    call: Callable[..., object], good: Callable[[], Mapping[str, Any]] | Mapping[str, Any], **bad: Bad
) -> dict[str, Refusal]:
    """Return a case for each bad value of each argument of an otherwise good call."""

    def case(name: str, value: Any) -> Refusal:
        return Refusal(lambda: call(**{**(good() if callable(good) else good), name: value}), f"`{name}`")

    return {f"{name}: {what}": case(name, value) for name, values in bad.items() for what, value in values.items()}


def public_callables(package: ModuleType, own: tuple[str, ...]) -> Iterator[str]:
    """Yield the functions and classes that a package exports, and public methods of the classes that take something."""
    for name in package.__all__:
        value = getattr(package, name)
        if isinstance(value, type):
            yield name
            yield from (f"{name}.{method}" for method in _methods(value, own))
        elif callable(value):
            yield name


def _methods(value: type, own: tuple[str, ...]) -> Iterable[str]:
    found: dict[str, None] = {}
    for each in value.__mro__:
        if each.__module__.partition(".")[0] not in own:
            continue
        for name, member in vars(each).items():
            function = getattr(member, "__func__", member)
            if (name.startswith("_") and name != "__call__") or not inspect.isfunction(function):
                continue
            if len(inspect.signature(function).parameters) > 1:
                found[name] = None
    return found
