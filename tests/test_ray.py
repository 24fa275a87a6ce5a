"""Scores by tasks of Ray, on a cluster of our own and on one of two processors."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import range_scorers
from fixtures_commands import write_own_images
from golden.runs import smaller
from quantus_concepts import score_ranges
from quantus_concepts.metrics import ranges
from quantus_concepts.studies.app import main
from range_scorers import SIZE, STARTS, N, Noted, States, check_same, kill_the_worker, saved

ray = pytest.importorskip("ray", reason="the extra ray is not installed")


@pytest.fixture(scope="module", autouse=True)
def _folder_of_ray() -> Iterator[None]:
    # Names of sockets are short. A task is tried twice.
    with mock.patch.dict(os.environ), tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.environ.update(RAY_TMPDIR=folder, RAY_USAGE_STATS_ENABLED="0", RAY_TASK_MAX_RETRIES="1")
        yield


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """A cluster of two processors, and its address."""
    settings: dict[str, Any] = {"num_cpus": 2, "include_dashboard": False, "log_to_driver": False}
    yield ray.init("local", logging_level="ERROR", **settings).address_info["address"]
    ray.shutdown()


@pytest.fixture
def expected(tmp_path: Path) -> States:
    return score_ranges(Noted(tmp_path / "expected"), N, size=SIZE)


def scored(folder: Path, make: Any) -> States:
    return score_ranges(make, N, size=SIZE, store=folder / "out", key="run", engine="ray")


def check_the_rest(folder: Path, expected: States, there: set[int]) -> None:
    """Assert that the rest, and no more, is scored without Ray."""
    again = Noted(folder / "again")
    check_same(score_ranges(again, N, size=SIZE, store=folder / "out", key="run"), expected)
    assert again.calls == {"made": 1} | {f"range {start}": 1 for start in STARTS if start not in there}


def test_a_cluster_that_requires_a_token_ends_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> None:  # as Ray does where only the cluster requires one
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise ConnectionError("Failed to connect to Ray cluster at 127.0.0.1:6379")

    monkeypatch.setattr(ray, "init", refuse)
    on_sigterm = signal.getsignal(signal.SIGTERM)
    with pytest.raises(ConnectionError, match=r"Failed to connect .*: set RAY_AUTH_MODE=token here as well"):
        scored(tmp_path, Noted(tmp_path / "notes"))
    assert signal.getsignal(signal.SIGTERM) is on_sigterm


def test_a_cluster_of_our_own_is_shut_down_and_runs_nothing_of_the_working_directory(
    tmp_path: Path, expected: States, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("torch", "numpy", "quantus_concepts", "captum_concepts", "sitecustomize"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'executed')!r}, 'a').write({name!r})\n")
    monkeypatch.chdir(tmp_path)
    make, environment, on_sigterm = Noted(tmp_path / "notes"), dict(os.environ), signal.getsignal(signal.SIGTERM)
    check_same(scored(tmp_path, make), expected)
    # Ray's handler would abort the process, with the exit status 134.
    assert signal.getsignal(signal.SIGTERM) is on_sigterm
    assert not (tmp_path / "executed").exists()
    assert not ray.is_initialized()
    assert dict(os.environ) == environment
    calls = make.calls
    assert calls.pop("made") >= 1
    assert calls == {f"range {start}": 1 for start in STARTS}


def test_a_worker_that_dies_costs_its_range_and_one_that_raises_its_own(
    cluster: str, tmp_path: Path, expected: States
) -> None:
    make, environment = Noted(tmp_path / "notes", {16: "die", 56: "raise"}), dict(os.environ)
    with pytest.raises(ArithmeticError, match="no such number") as caught:
        scored(tmp_path, make)
    # The cluster is not ours: it still runs.
    assert ray.is_initialized()
    assert dict(os.environ) == environment
    assert caught.value.__notes__[-1] == "Raised for items 56 to 60."
    assert make.calls["range 16"] == 2
    # Two workers and the one in place of the dead, each of which makes its scorer once for all its ranges.
    assert make.calls["made"] <= 4
    there = saved(tmp_path / "out")
    assert {0, 16} <= there < set(STARTS)
    check_the_rest(tmp_path, expected, there)


def test_a_factory_that_kills_its_worker_ends_in_an_error(cluster: str, tmp_path: Path) -> None:
    with pytest.raises(ray.exceptions.WorkerCrashedError) as caught:
        scored(tmp_path, kill_the_worker)
    assert caught.value.__notes__ == ["Raised for items 0 to 7."]
    assert not (tmp_path / "out").exists()


def test_a_driver_killed_leaves_what_is_done(cluster: str, tmp_path: Path, expected: States) -> None:
    # Another process, which one of the ranges kills.
    command = [sys.executable, range_scorers.__file__, str(tmp_path)]
    driver = subprocess.run(command, env=os.environ | {"RAY_ADDRESS": cluster}, check=False)
    assert driver.returncode == -signal.SIGKILL
    there = saved(tmp_path / "out")
    assert {0, 8} <= there < set(STARTS)
    check_the_rest(tmp_path, expected, there)


def test_workers_that_cannot_start_end_in_a_sentence(
    cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranges, "PATIENCE", 1.0)
    with pytest.raises(TimeoutError, match="too few of GPU"):
        score_ranges(Noted(tmp_path / "notes"), N, size=SIZE, engine="ray", num_gpus=1)
    (tmp_path / "sitecustomize.py").write_text("import os\nos._exit(1)\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        TimeoutError, match=r"No worker of Ray has started yet, after 3 s: its processes start slowly .* or end"
    ):
        scored(tmp_path, Noted(tmp_path / "notes"))


NETWORK = """
import torch
from torch import nn
MEAN, STD = (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)
def model():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2))
"""


def test_a_command_gives_the_same(cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_own_images(tmp_path)
    (tmp_path / "network.py").write_text(NETWORK)
    monkeypatch.chdir(tmp_path)
    options = "--data folder --root fruit --concepts concepts.csv --min-images 1 --no-sweep --no-interventions"
    options += " --no-progress --device cpu --backbone network.py:model"
    for engine in ("local", "ray"):
        with smaller(figures=False):
            assert main(["benchmark", "concepts", *options.split(), "--engine", engine, "--out", engine]) == 0
    local, on_ray = ((tmp_path / engine / "results.csv").read_bytes() for engine in ("local", "ray"))
    assert local == on_ray
