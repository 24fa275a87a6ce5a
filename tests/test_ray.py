"""Scores by tasks of Ray, on a cluster of two processors and on one of our own."""

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
def cluster() -> Iterator[str]:
    """A cluster of two processors, and its address."""
    with mock.patch.dict(os.environ), tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        settings: dict[str, Any] = {"num_cpus": 2, "include_dashboard": False, "log_to_driver": False}
        context = ray.init("local", logging_level="ERROR", _temp_dir=folder, **settings)
        yield context.address_info["address"]
        ray.shutdown()


@pytest.fixture
def expected(tmp_path: Path) -> States:
    return score_ranges(Noted(tmp_path / "expected"), N, size=SIZE)


def scored(folder: Path, make: Any) -> States:
    return score_ranges(make, N, size=SIZE, store=folder / "out", key="run", engine="ray")


def driven(folder: Path, environment: dict[str, str]) -> int:
    """Score by another process, which one of the ranges kills; return how it ended."""
    command = [sys.executable, range_scorers.__file__, str(folder)]
    return subprocess.run(command, env=os.environ | environment, check=False).returncode


def test_workers_give_the_same_and_make_their_scorer_once(tmp_path: Path, expected: States) -> None:
    make, environment = Noted(tmp_path / "notes"), dict(os.environ)
    check_same(scored(tmp_path, make), expected)
    calls = make.calls
    assert calls.pop("made") in (1, 2)
    assert calls == {f"range {start}": 1 for start in STARTS}
    # The cluster is not ours: it still runs.
    assert ray.is_initialized()
    assert dict(os.environ) == environment


def test_a_worker_that_dies_costs_its_range_and_one_that_raises_its_own(tmp_path: Path, expected: States) -> None:
    make = Noted(tmp_path / "notes", {16: "die", 56: "raise"})
    with pytest.raises(ArithmeticError, match="no such number") as caught:
        scored(tmp_path, make)
    assert caught.value.__notes__[-1] == "Raised for items 56 to 60."
    assert make.calls["range 16"] <= 2
    repaired = Noted(tmp_path / "repaired", {24: "die"} if 24 not in saved(tmp_path / "out") else {56: "die"})
    check_same(scored(tmp_path, repaired), expected)
    assert 2 in repaired.calls.values()


def test_a_factory_that_kills_its_worker_ends_in_an_error(tmp_path: Path) -> None:
    with pytest.raises(ray.exceptions.WorkerCrashedError) as caught:
        scored(tmp_path, kill_the_worker)
    assert caught.value.__notes__ == ["Raised for items 0 to 7."]
    assert not (tmp_path / "out").exists()


def test_a_driver_killed_with_its_cluster_going_on_leaves_what_is_done(
    cluster: str, tmp_path: Path, expected: States
) -> None:
    assert driven(tmp_path, {"RAY_ADDRESS": cluster}) == -signal.SIGKILL
    check_the_rest(tmp_path, expected)


def test_a_driver_killed_with_its_own_cluster_leaves_what_is_done(tmp_path: Path, expected: States) -> None:
    # Names of sockets are short.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        assert driven(tmp_path, {"RAY_TMPDIR": folder}) == -signal.SIGKILL
    check_the_rest(tmp_path, expected)


def check_the_rest(folder: Path, expected: States) -> None:
    there = saved(folder / "out")
    assert {0, 8} <= there < set(STARTS)
    again = Noted(folder / "again")
    check_same(score_ranges(again, N, size=SIZE, store=folder / "out", key="run"), expected)
    assert again.calls == {"made": 1} | {f"range {start}": 1 for start in STARTS if start not in there}


def test_a_cluster_of_our_own_is_shut_down(tmp_path: Path, expected: States) -> None:
    make = f"Noted(Path({str(tmp_path / 'notes')!r}))"
    # As a notebook or a test has it: on the path of this process, and in no variable that workers inherit.
    code = f"""
import sys
sys.path[:0] = {[folder for folder in sys.path if folder]!r}
import os, ray
from pathlib import Path
from range_scorers import *
before = dict(os.environ)
score_ranges({make}, N, size=SIZE, store={str(tmp_path / "out")!r}, key="run", engine="ray")
assert not ray.is_initialized()
assert dict(os.environ) == before
"""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        subprocess.run([sys.executable, "-c", code], env=inherited | {"RAY_TMPDIR": folder}, check=True)
    again = Noted(tmp_path / "again")
    check_same(scored(tmp_path, again), expected)
    assert not again.calls


def test_commands_give_the_same(tmp_path: Path) -> None:
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
