"""Scores by workers of Ray, on a cluster of two processors of this machine."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import shard_scorers
from concept_ranges import BATCH, OnSimulatedDevice, Samples, check_concepts
from explanation_folders import write_folders
from quantus_concepts import score_concepts, score_shards
from quantus_concepts.metrics import ConceptRanges
from quantus_concepts.metrics import distributed as shards
from quantus_concepts.metrics.ray_workers import read_authentication, score_here
from quantus_concepts.pasta.encoders.embedded_encoder import EmbeddedEncoder
from quantus_concepts.pasta.scorer import Scorer
from quantus_concepts.pasta.scorer_files import save_scorer
from quantus_concepts.studies._models.loading import sample_loader
from quantus_concepts.studies.pasta.rate_command import pasta_score
from shard_scorers import STARTS, N, Noted, check_same, named, scored
from tiny_models import SharingConceptModel

ray = pytest.importorskip("ray", reason="the extra ray is not installed")


def started(folder: str) -> Any:
    """Start a cluster; on a busy machine Ray may find after half a minute that this took too long."""
    for attempt in range(3):
        try:
            return ray.init(
                "local",
                num_cpus=2,
                # Ray is given a number of GPUs; none of them is used.
                num_gpus=2,
                include_dashboard=False,
                log_to_driver=False,
                logging_level="ERROR",
                _temp_dir=folder,
            )
        except Exception:
            ray.shutdown()
            if attempt == 2:
                raise
    return None


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[str]:
    """A cluster of two processors, and its address."""
    tests = Path(shard_scorers.__file__).parent
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        # Ray would write a token to the home directory.
        patch.setenv("RAY_AUTH_MODE", "token")
        patch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
        patch.setenv("PYTHONPATH", str(tests), prepend=os.pathsep)
        read_authentication()
        context = started(folder)
        yield context.address_info["address"]
        ray.shutdown()
    read_authentication()


@pytest.fixture
def expected(tmp_path: Path) -> pd.DataFrame:
    return Noted(tmp_path / "whole")()(0, N)


def test_two_workers_give_the_same_and_warn_here_once(tmp_path: Path, expected: pd.DataFrame) -> None:
    make = Noted(tmp_path / "notes", dict.fromkeys((0, 8, 32, 56), "warn"), workers=2)
    with pytest.warns(RuntimeWarning) as caught:
        check_same(scored(tmp_path, make, engine="ray", n_workers=2), expected)
    assert [(str(warning.message), warning.filename) for warning in caught] == [
        ("these are no birds", shard_scorers.__file__)
    ]
    assert make.calls == {"made": 2} | {f"range {start}": 1 for start in STARTS}
    # Ours it was not: it still runs.
    assert ray.is_initialized()


def test_a_worker_that_dies_costs_its_range_and_one_that_raises_no_other(
    tmp_path: Path, expected: pd.DataFrame
) -> None:
    names = [f"bird {number}" for number in range(N)]
    make = Noted(tmp_path / "notes", {16: "die", 32: "raise"}, workers=2)
    with pytest.raises(ValueError, match=r"1 of 8 ranges .* 32 to 39 \(bird 32 to bird 39\): ArithmeticError: no such"):
        scored(tmp_path, make, engine="ray", n_workers=2, names=names)
    calls = make.calls
    # The worker that takes the place of the dead one may come when all is done.
    assert calls.pop("made") in (2, 3)
    assert calls == {f"range {start}": 1 for start in STARTS} | {"range 16": 2}
    repaired = Noted(tmp_path / "repaired")
    check_same(scored(tmp_path, repaired), expected)
    assert repaired.calls == {"made": 1, "range 32": 1}


def test_a_process_killed_with_its_cluster_going_on_leaves_what_is_done(
    cluster: str, tmp_path: Path, expected: pd.DataFrame
) -> None:
    done = subprocess.run([sys.executable, shard_scorers.__file__, tmp_path, cluster], check=False)
    assert done.returncode == -signal.SIGKILL
    there = named(tmp_path / "out")
    # One worker took them in order; the third may have come back just too late to be written.
    assert {0, 8} <= there <= {0, 8, 16}
    again = Noted(tmp_path / "again")
    check_same(scored(tmp_path, again), expected)
    assert again.calls == {"made": 1} | {f"range {start}": 1 for start in STARTS if start not in there}


def test_workers_that_a_cluster_cannot_hold_are_refused(tmp_path: Path) -> None:
    make = Noted(tmp_path / "notes")
    with pytest.raises(ValueError, match="`n_workers` to be at most 2, as many workers of 1 CPUs and 0 GPUs"):
        scored(tmp_path, make, engine="ray", n_workers=3)
    with pytest.raises(ValueError, match="`n_workers` to be at most 0"):
        scored(tmp_path, make, engine="ray", num_gpus=3)
    lock = threading.Lock()
    with pytest.raises(TypeError, match=r"`make_scorer` to be picklable but it is not \(cannot pickle '_thread.lock'"):
        scored(tmp_path, lambda: lock, engine="ray")
    assert not make.calls


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


def test_two_workers_with_a_simulated_device_each_give_the_same(tmp_path: Path) -> None:
    make, data = OnSimulatedDevice(tmp_path / "notes", workers=2), Samples()
    rows = score_shards(
        make,
        len(data),
        tmp_path / "out",
        fingerprint={"run": 1},
        shard_size=BATCH,
        batch_size=BATCH,
        engine="ray",
        n_workers=2,
        num_gpus=1,
    )
    model = SharingConceptModel(0)
    table = ConceptRanges(model, data, batch_size=BATCH).table(rows)
    expected = score_concepts(model, sample_loader(data, BATCH))
    pd.testing.assert_frame_equal(table, expected, check_exact=True)
    assert {path.name for path in make.notes.iterdir()} == {"0", "1"}


def test_what_a_study_sends_to_workers_scores_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def sent(make_scorer: Callable[[], Any], ranges: Sequence[tuple[int, int]]) -> Any:
        # As a worker gets it: by way of Ray's store, whose arrays cannot be written to.
        return score_here(ray.get(ray.put(make_scorer)), ranges)

    monkeypatch.setattr(shards, "score_here", sent)
    check_concepts(tmp_path, "local", None)
