"""What holds for all tests.

PyTorch is loaded where it is needed: the process that deals out the tests would load it before the others begin.
"""

from __future__ import annotations

import functools
import gc
import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

#: What takes longest begins first, so that no process waits for the other's last file; the recorded runs before those
#: who look at their folders.
LONGEST = ("test_golden.py", "test_ray.py", "test_studies.py", "test_readme.py", "test_run.py", "test_painted_birds.py")


def pytest_configure(config: pytest.Config) -> None:
    """Let pytest-xdist take files in the order of collection; by itself those of many tests come first."""
    config.option.loadscopereorder = False
    # While everything is loaded there is nothing to collect, and looking for it takes a third of the time.
    gc.disable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files first, then those of many tests."""
    counts = Counter(item.path for item in items)
    place = {name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: (place.get(item.path.name, len(place)), -counts[item.path], item.path))


def pytest_collection_finish() -> None:
    """Leave what is loaded by now, most objects there are, out of every later collection of garbage."""
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True, scope="session")
def _few_threads() -> Iterator[None]:
    # The tests' models are tiny. On a busy machine threads that wait for each other make them ten times slower. Who
    # sets OMP_NUM_THREADS, as `tox -e kernels` does, wants to see them with as many.
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", 1)))
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True, scope="session")
def _commands_built_once() -> Iterator[None]:
    # Typer builds all commands anew for each call: most of what a refusal takes.
    from typer.main import get_command

    build = functools.cache(lambda app, n_commands: get_command(app))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("typer.main.get_command", lambda app: build(app, len(app.registered_commands)))
        yield


@pytest.fixture(scope="session")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function that does a run of `golden.runs` once for all tests and processes, and tells its folder."""
    folder = tmp_path_factory.getbasetemp()
    # Each process of pytest-xdist has a folder of its own in the one of all.
    folder = (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "golden"
    folder.mkdir(exist_ok=True)

    def run_once(name: str) -> Path:
        # Loads every study.
        from golden.runs import done_once

        return done_once(name, folder)

    return run_once


def _seed() -> None:
    import numpy as np
    import torch

    np.random.seed(0)  # noqa: NPY002
    # `torch.manual_seed` formats the stack for accelerators that are not there: a minute in ten thousand tests.
    torch.default_generator.manual_seed(0)


@pytest.fixture(autouse=True, scope="module")
def _same_weights_in_fixtures() -> None:
    _seed()


@pytest.fixture(autouse=True)
def _same_weights_in_tests() -> None:
    # Layers that tests build draw from the global generators: the same every time, and alone as among others.
    _seed()
