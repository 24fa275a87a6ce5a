"""The devices that runs are held against: the simulated one always, and a GPU where the machine has one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from both_devices import Work, assert_near, assert_same


@pytest.fixture(params=["simulated", "real"])
def assert_as_on_the_cpu(request: pytest.FixtureRequest) -> Callable[[Work], None]:
    """Return what asserts that some work gives what it gives on the CPU, on one device or the other."""
    return assert_same if request.param == "simulated" else assert_near
