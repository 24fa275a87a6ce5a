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
from explanation_folders import write_folders
from quantus_concepts import score_ranges
from quantus_concepts.pasta.encoders.embedded_encoder import EmbeddedEncoder
from quantus_concepts.pasta.scorer import Scorer
from quantus_concepts.pasta.scorer_files import save_scorer
from quantus_concepts.studies.pasta.rate_command import pasta_score
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


def test_a_cluster_of_our_own_is_shut_down(tmp_path: Path, expected: States) -> None:
    make, environment = Noted(tmp_path / "notes"), dict(os.environ)
    check_same(scored(tmp_path, make), expected)
    assert not ray.is_initialized()
    assert dict(os.environ) == environment


def test_workers_give_the_same_and_make_their_scorer_once(cluster: str, tmp_path: Path, expected: States) -> None:
    make, environment = Noted(tmp_path / "notes"), dict(os.environ)
    check_same(scored(tmp_path, make), expected)
    calls = make.calls
    assert calls.pop("made") in (1, 2)
    assert calls == {f"range {start}": 1 for start in STARTS}
    # The cluster is not ours: it still runs.
    assert ray.is_initialized()
    assert dict(os.environ) == environment


def test_a_worker_that_dies_costs_its_range_and_one_that_raises_its_own(
    cluster: str, tmp_path: Path, expected: States
) -> None:
    make = Noted(tmp_path / "notes", {16: "die", 56: "raise"})
    with pytest.raises(ArithmeticError, match="no such number") as caught:
        scored(tmp_path, make)
    assert caught.value.__notes__[-1] == "Raised for items 56 to 60."
    assert make.calls["range 16"] == 2
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


def test_commands_give_the_same(cluster: str, tmp_path: Path) -> None:
    write_folders(tmp_path)
    encoder = EmbeddedEncoder(width=8)
    scorer = Scorer(encoder.dim, ("Q1",), ["cat", "dog", "bird"], (6, 5), encoder=encoder.name, settings={"size": 16})
    save_scorer(scorer, tmp_path / "scorer.safetensors")
    shared = {name: tmp_path / name for name in ("images", "explanations")}
    shared |= {"scorer": tmp_path / "scorer.safetensors", "device": "cpu", "batch_size": 2, "progress": False}
    table = [
        (pasta_score(**shared, out=tmp_path / engine, engine=engine) / "scores.csv").read_bytes()
        for engine in ("local", "ray")
    ]
    assert table[0] == table[1]
