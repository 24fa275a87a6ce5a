"""The errors that docstrings name, as one parametrized test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Case = tuple[Callable[[], Any], str]


def refusals(*cases: Case, error: type[Exception] | tuple[type[Exception], ...] = ValueError) -> Callable[..., None]:
    """Return a test of calls whose error begins with "Expected argument" and the pattern beside the call."""

    @pytest.mark.parametrize(("call", "message"), cases)
    def test_refused(call: Callable[[], Any], message: str) -> None:
        with pytest.raises(error, match=f"^Expected argument {message}"):
            call()

    return test_refused
