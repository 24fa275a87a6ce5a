"""Representations of objects on one line, and names and numbers as pictures show them."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from torch import Tensor, nn

T = TypeVar("T")
#: Letters of a line, and of one value in it.
LINE, VALUE = 199, 60
_SHOWN = 3


def one_line(value: Any) -> str:
    """Return a dataclass or a named tuple with its fields."""
    names = [field.name for field in fields(value)] if is_dataclass(value) else value._fields
    return describe(value, **{name: getattr(value, name) for name in names})


def in_one_line(kind: type[T]) -> type[T]:
    """Print the instances of a dataclass or a named tuple on one line."""
    kind.__repr__ = one_line  # type: ignore[method-assign]
    return kind


def describe(value: object, /, *facts: str, **settings: object) -> str:
    """Return the class of an object with facts about it and its settings; those that are None are left out."""
    parts = [f"{name}={show_value(setting)}" for name, setting in settings.items() if setting is not None]
    line = f"{type(value).__name__}({', '.join([*(clip_text(fact, LINE) for fact in facts), *parts])})"
    return line if len(line) <= LINE else f"{line[: LINE - 4]}...)"


def show_value(value: object) -> str:
    """Return a value as a line shows it: of arrays the shape, of modules and functions the name."""
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple) and shape:  # arrays, tensors and tables
        return f"<{tuple(shape)}>"
    if isinstance(value, Tensor | np.ndarray | np.generic):
        return show_value(value.item())
    if isinstance(value, float):
        return repr(value) if len(repr(value)) < 8 else f"{value:.4g}"
    if isinstance(value, Path) and len(str(value)) > VALUE:
        return repr(f"...{str(value)[3 - VALUE :]}")  # its end is what tells it
    if isinstance(value, str | Path):
        return repr(clip_text(str(value), VALUE))
    if isinstance(value, functools.partial):
        return f"partial({show_value(value.func)})"
    if isinstance(value, nn.Module):
        return type(value).__name__
    if name := getattr(value, "__qualname__", ""):
        return str(name).rpartition("<locals>.")[2]
    if isinstance(value, Mapping):
        entries = [f"{show_value(key)}: {show_value(item)}" for key, item in islice(value.items(), _SHOWN)]
        return _list_items(entries, len(value), "{}")
    if isinstance(value, list | tuple | set | frozenset) and not hasattr(value, "_fields"):
        items = [show_value(item) for item in islice(value, _SHOWN)]
        return _list_items(items, len(value), "()" if type(value) is tuple else "[]")
    plain: Any = object.__repr__
    text = repr(value) if type(value).__repr__ is not plain else ""
    # Addresses are others in every run.
    fits = 0 < len(text) <= VALUE and "\n" not in text and " at 0x" not in text
    return text if fits else type(value).__name__


def _list_items(first: list[str], length: int, brackets: str) -> str:
    more = [f"... {length - len(first)} more"] if length > len(first) else []
    line = ", ".join([*first, *more]) + ("," if brackets == "()" and length == 1 else "")
    return f"{brackets[0]}{line}{brackets[1]}" if len(line) <= VALUE else f"<{length} in all>"


def clip_text(text: str, length: int) -> str:
    """Truncate a text to `length` characters."""
    return text if len(text) <= length else f"{text[: length - 3]}..."


def readable_name(name: str) -> str:
    """Return the name of a concept as pictures show it: "bill shape: needle" for "has_bill_shape::needle"."""
    return re.sub(r"\bhas_", "", name).replace("::", ": ").replace("_", " ")


def signed_text(number: float, digits: int = 1) -> str:
    """Return a number with its sign."""
    return f"{number:+.{digits}f}".replace("-", "−")
