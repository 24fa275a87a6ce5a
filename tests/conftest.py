"""What holds for all tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from quantus_concepts.benchmark.training import one_thread


@pytest.fixture(autouse=True, scope="session")
def _small_operations_on_one_core() -> Iterator[None]:
    # The tests' models are tiny. On a busy machine threads that wait for each other make them ten times slower.
    with one_thread():
        yield
