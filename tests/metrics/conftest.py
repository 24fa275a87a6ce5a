"""The small world of `known_truth`, new for each test, which may change it."""

import pytest

from known_truth import World


@pytest.fixture
def world() -> World:
    return World()
