"""Warnings of a run, kept for its report."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def warnings_as_notes() -> Iterator[list[str]]:
    """Collect warnings; yield the list, which is full only at the end."""
    notes: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        yield notes
    notes += dict.fromkeys(" ".join(str(warning.message).split()) for warning in caught)
