"""What holds for all tests."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import chdir
from pathlib import Path

import numpy as np
import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def _few_threads() -> Iterator[None]:
    # The tests' models are tiny. On a busy machine threads that wait for each other make them ten times slower. Who
    # sets OMP_NUM_THREADS, as `tox -e kernels` does, wants to see them with as many.
    before = torch.get_num_threads()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", 1)))
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function that does a run of `golden.runs` once for all tests and processes, and tells its folder."""
    folder = tmp_path_factory.getbasetemp()
    # Each process of pytest-xdist has a folder of its own in the one of all.
    folder = (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "golden"
    folder.mkdir(exist_ok=True)

    def made(name: str) -> Path:
        # Loads every study.
        from golden.runs import done_once

        return done_once(name, folder)

    return made


@pytest.fixture(scope="module")
def empty_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Work in an empty folder: nothing that a bad input writes goes unseen."""
    with chdir(tmp_path_factory.mktemp("empty")):
        yield


def _seed() -> None:
    np.random.seed(0)  # noqa: NPY002
    torch.manual_seed(0)


@pytest.fixture(autouse=True, scope="module")
def _same_weights_in_fixtures() -> None:
    _seed()


@pytest.fixture(autouse=True)
def _same_weights_in_tests() -> None:
    # Layers that tests build draw from the global generators: the same every time, and alone as among others.
    _seed()
