"""Objects on one line, as `repr` shows them: what they are and hold, never the numbers of an array, nor an address."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

#: Letters of a line, and of one value in it.
LINE, VALUE = 199, 60
_SHOWN = 3


def one_line(value: Any) -> str:
    """Return a dataclass or a named tuple with its fields."""
    names = [each.name for each in fields(value)] if is_dataclass(value) else value._fields
    return described(value, **{name: getattr(value, name) for name in names})


def described(value: Any, /, *facts: str, **settings: Any) -> str:
    """Return the class of an object with facts about it and its settings; those that are None are left out."""
    parts = [f"{name}={written(each)}" for name, each in settings.items() if each is not None]
    line = f"{type(value).__name__}({', '.join([*(clipped(fact, LINE) for fact in facts), *parts])})"
    return line if len(line) <= LINE else f"{line[: LINE - 4]}...)"


def written(value: Any) -> str:
    """Return a value as a line shows it: of arrays the shape, of modules and functions the name."""
    if isinstance(value, Tensor | np.ndarray) and value.ndim:
        return f"<{tuple(value.shape)}>"
    if isinstance(value, Tensor | np.ndarray | np.generic):
        return written(value.item())
    if isinstance(value, float):
        return repr(value) if len(repr(value)) < 8 else f"{value:.4g}"
    if isinstance(value, str | Path):
        text = str(value)
        # Of a path the end tells more.
        end = isinstance(value, Path) and len(text) > VALUE
        return repr(f"...{text[3 - VALUE :]}" if end else clipped(text, VALUE))
    if isinstance(value, functools.partial):
        return f"partial({written(value.func)})"
    if isinstance(value, nn.Module):
        return type(value).__name__
    if name := getattr(value, "__qualname__", ""):
        return str(name).rpartition("<locals>.")[2]
    if isinstance(value, Mapping):
        return _listed([f"{written(key)}: {written(each)}" for key, each in _first(value.items())], len(value), "{}")
    if isinstance(value, list | tuple | set | frozenset) and not hasattr(value, "_fields"):
        return _listed([written(each) for each in _first(value)], len(value), "()" if type(value) is tuple else "[]")
    return _own(value)


def clipped(text: str, length: int) -> str:
    """Truncate a text to `length` characters."""
    return text if len(text) <= length else f"{text[: length - 3]}..."


def signed(number: float, digits: int = 1) -> str:
    """Return a number with its sign."""
    return f"{number:+.{digits}f}".replace("-", "−")


def _first(values: Collection[Any]) -> list[Any]:
    return [each for each, _ in zip(values, range(_SHOWN), strict=False)]


def _listed(first: list[str], length: int, brackets: str) -> str:
    more = [f"... {length - len(first)} more"] if length > len(first) else []
    line = ", ".join([*first, *more]) + ("," if brackets == "()" and length == 1 else "")
    return f"{brackets[0]}{line}{brackets[1]}" if len(line) <= VALUE else f"<{length} in all>"


def _own(value: Any) -> str:
    """Return what an object says of itself where that is short and the same in every run, else its class."""
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple):  # a DataFrame
        return f"<{shape}>"
    plain: Any = object.__repr__
    text = repr(value) if type(value).__repr__ is not plain else ""
    fits = 0 < len(text) <= VALUE and "\n" not in text and " at 0x" not in text
    return text if fits else type(value).__name__
