"""NumPy's global generator, which libraries draw from, put back as it was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np


@contextmanager
def kept_numpy_state() -> Iterator[None]:
    """Put NumPy's global generator back as it was, whatever a library draws from it inside."""
    state = np.random.get_state()  # noqa: NPY002
    try:
        yield
    finally:
        np.random.set_state(state)  # noqa: NPY002
