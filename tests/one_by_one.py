"""Tables in which good arguments have one that is bad, and which of what is public such tables are about."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any

from refusals import Refusal

NAN, INF = math.nan, math.inf
#: Kinds of errors of paths, beside those of other arguments.
ANY = (ValueError, TypeError, OSError)
#: What no path of something that is there can be.
NO_PATHS = ("", "nowhere", "a\0b", "~nosuchuser/x", "x" * 300, "file.txt/x", None, 3)
NO_FOLDERS, NO_FILES = (*NO_PATHS, "file.txt"), (*NO_PATHS, "folder")
#: What no whole number from 0 can be.
NO_SEEDS = (-1, 1.5, "3", NAN)

Bad = Mapping[str, Iterable[Any]]


def refusals(
    what: str, call: Callable[..., Any], good: Callable[[], Mapping[str, Any]], bad: Bad
) -> dict[str, Refusal]:
    """Make a case of each bad value of each argument, beside good values of the others."""
    return {
        f"{what}-{name}={shown(value)} ({number})": Refusal(
            lambda name=name, value=value: call(**{**good(), name: value}),  # type: ignore[misc]
            f"`{name}",
            ANY,
        )
        for name, values in bad.items()
        for number, value in enumerate(values)
    }


def shown(value: Any) -> str:
    """Write a bad value so that it tells a case from others."""
    if hasattr(value, "dtype"):
        return f"{type(value).__name__}{tuple(value.shape)}{value.dtype}{value.ravel()[:1].tolist()}"
    return (
        repr(value)[:40] if isinstance(value, str | float | int | tuple | list | dict | None) else type(value).__name__
    )


def public_callables(package: ModuleType) -> set[str]:
    """Return the names of what a package exports to be called."""
    return {name for name in package.__all__ if callable(getattr(package, name))}
