"""The progress bar."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from tqdm.auto import tqdm

from captum_concepts.support.files import printable

T = TypeVar("T")


def progress(iterable: Iterable[T] | None = None, description: str = "", *, show: bool, **settings: object) -> Any:
    """Return a bar of tqdm over an iterable: a widget in notebooks, silent where the stream is no terminal."""
    return tqdm(iterable, printable(description), **{"disable": None if show else True, "leave": False} | settings)


def hide_bars() -> AbstractContextManager[None]:
    """Take bars off the terminal while something else is written there."""
    return tqdm.external_write_mode(file=sys.stderr)
