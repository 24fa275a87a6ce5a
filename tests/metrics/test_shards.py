"""Scores by ranges: the same to the bit however many there are, and none done twice but where a worker died."""

from __future__ import annotations

import errno
import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from filelock import FileLock
from torch import nn

from captum_concepts._support import disk_cache
from kills import killed
from quantus_concepts import score_shards
from quantus_concepts.metrics import distributed
from shard_scorers import STARTS, N, Noted, check_same, named, scored


@pytest.fixture
def at_once(tmp_path: Path) -> pd.DataFrame:
    return Noted(tmp_path / "whole")()(0, N)


@pytest.mark.parametrize("shard_size", [4, 28, 64])
def test_any_number_of_ranges_gives_the_same(shard_size: int, tmp_path: Path, at_once: pd.DataFrame) -> None:
    check_same(scored(tmp_path, shard_size=shard_size), at_once)
    assert at_once[list("abc")].isna().any(axis=None)
    again = Noted(tmp_path / "again")
    check_same(scored(tmp_path, again, shard_size=shard_size), at_once)
    assert not again.calls


@pytest.mark.parametrize("number", [3, 4, 7])
def test_a_process_killed_goes_on_where_it_was(number: int, tmp_path: Path, at_once: pd.DataFrame) -> None:
    assert killed(lambda: scored(tmp_path), number) == -signal.SIGKILL
    there = named(tmp_path / "out")
    again = Noted(tmp_path / "again")
    check_same(scored(tmp_path, again), at_once)
    assert again.calls["made"] == 1
    assert sum(again.calls.values()) == 1 + len(STARTS) - len(there)
    assert not [*(tmp_path / "out").glob(".*")]


def test_a_range_that_raises_raises_after_the_other_ranges(tmp_path: Path, at_once: pd.DataFrame) -> None:
    make = Noted(tmp_path / "notes", {8: "raise", 56: "raise"})
    message = r"^2 of 8 ranges failed, items 8 to 15, 56 to 60: ArithmeticError: no such number\."
    with pytest.raises(ValueError, match=message) as caught:
        scored(tmp_path, make)
    assert "shard_scorers.py" in caught.value.__notes__[0]
    assert make.calls == {"made": 1} | {f"range {start}": 1 for start in STARTS}
    repaired = Noted(tmp_path / "repaired")
    check_same(scored(tmp_path, repaired), at_once)
    assert repaired.calls == {"made": 1, "range 8": 1, "range 56": 1}


def test_where_all_fail_not_all_are_tried(tmp_path: Path) -> None:
    make = Noted(tmp_path / "notes", dict.fromkeys(range(N), "raise"))
    with pytest.raises(ValueError, match=r"8 of 16 ranges failed, items 0 to 3, .*; and 3 more"):
        scored(tmp_path, make, shard_size=4)
    assert sum(make.calls.values()) == 1 + 8
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("damage", [b"", b"PAR1", None])
def test_a_damaged_file_is_made_again(damage: bytes | None, tmp_path: Path, at_once: pd.DataFrame) -> None:
    scored(tmp_path)
    (file,) = (tmp_path / "out").glob("000000016-*")
    content = file.read_bytes()
    changed = content[:-9] + bytes([content[-9] ^ 1]) + content[-8:]
    file.write_bytes(changed if damage is None else damage)
    again = Noted(tmp_path / "again")
    with pytest.warns(UserWarning, match=f"{file.name} cannot be used .*: what it held is computed again"):
        check_same(scored(tmp_path, again), at_once)
    assert again.calls == {"made": 1, "range 16": 1}


def test_a_file_of_another_run_is_not_taken(tmp_path: Path, at_once: pd.DataFrame) -> None:
    other = tmp_path / "other"
    scored(other, lambda: lambda start, stop: at_once[start:stop].assign(a=0.0), fingerprint={"run": 2})
    scored(tmp_path)
    (mine,), (theirs,) = ([*(folder / "out").glob("000000016-*")] for folder in (tmp_path, other))
    theirs.replace(mine)
    with pytest.warns(UserWarning, match="not what was written"):
        check_same(scored(tmp_path), at_once)


def test_a_file_that_is_gone_is_made_again(tmp_path: Path, at_once: pd.DataFrame) -> None:
    scored(tmp_path)
    (file,) = (tmp_path / "out").glob("000000016-*")
    file.unlink()
    again = Noted(tmp_path / "again")
    check_same(scored(tmp_path, again), at_once)
    assert again.calls == {"made": 1, "range 16": 1}


def test_a_second_driver_is_refused(tmp_path: Path, at_once: pd.DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributed, "_PATIENCE", 0.1)
    (tmp_path / "out").mkdir()
    with FileLock(tmp_path / "out" / distributed.LOCK), pytest.raises(ValueError, match="another process scores into"):
        scored(tmp_path)
    check_same(scored(tmp_path), at_once)
    assert not (tmp_path / "out" / distributed.LOCK).exists()


def test_foreign_files_are_neither_read_nor_deleted(tmp_path: Path, at_once: pd.DataFrame) -> None:
    scored(tmp_path)
    (file,) = (tmp_path / "out").glob("000000016-*")
    other_files = [tmp_path / "out" / name for name in (f"{file.stem[:-4]}beef.safetensors", "notes.txt", ".hidden")]
    for other_file in other_files:
        other_file.write_text("mine")
    file.unlink()
    if not hasattr(os, "mkfifo"):
        pytest.skip("needs named pipes")
    os.mkfifo(file)
    with pytest.warns(UserWarning, match="it is a named pipe"):
        check_same(scored(tmp_path), at_once)
    assert [other_file.read_text() for other_file in other_files] == ["mine"] * len(other_files)


WEIGHTS = torch.ones(3)


@pytest.mark.parametrize(
    ("changed", "same"),
    [
        ({}, True),
        ({"weights": torch.ones(3)}, True),
        ({"bias": 1.0}, False),
        ({"weights": torch.zeros(3)}, False),
        ({"weights": torch.ones(3).double()}, False),
        ({"file": b"2"}, False),
        ({"run": 2}, False),
    ],
)
def test_runs_of_other_content_never_mix(
    changed: dict[str, Any], same: bool, tmp_path: Path, at_once: pd.DataFrame
) -> None:
    def fingerprint(
        file: bytes = b"1", weights: torch.Tensor = WEIGHTS, bias: float = 0.0, **more: Any
    ) -> dict[str, Any]:
        (tmp_path / "data").write_bytes(file)
        model = nn.Linear(2, 2)
        model.load_state_dict({"weight": torch.eye(2), "bias": torch.full((2,), bias)})
        return {"model": model, "weights": weights, "array": np.arange(2), "data": tmp_path / "data"} | more

    other = at_once.assign(a=0.0)
    check_same(scored(tmp_path, lambda: lambda start, stop: other[start:stop], fingerprint=fingerprint()), other)
    check_same(scored(tmp_path, fingerprint=fingerprint(**changed)), other if same else at_once)
    check_same(scored(tmp_path, lambda: pytest.fail("scored again"), fingerprint=fingerprint()), other)


def test_other_columns_raise(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"the columns \['0'\] for every range but it gave \['8'\] for items 8 to 15"):
        scored(tmp_path, lambda: lambda start, stop: pd.DataFrame({f"{start}": [1]}))


def test_a_missing_extra_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ValueError, match=r"ray: python -m pip install 'quantus-concepts\[ray\]'"):
        scored(tmp_path, engine="ray")
    assert not (tmp_path / "out").exists()


def test_ray_is_loaded_only_for_its_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert len(scored(tmp_path)) == N


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (pd.DataFrame({0: [1.0]}), r"name each column by a text of its own but got \[0\]"),
        (pd.DataFrame([[1.0, 2.0]], columns=["a", "a"]), r"by a text of its own but got \['a', 'a'\]"),
        (pd.DataFrame({"a": [{1}]}), "its rows fit in no file: .* got set"),
        (pd.DataFrame({"a": [(1,)]}), "its rows fit in no file: .* got 'a'"),
    ],
)
def test_rows_that_no_file_can_hold_cost_their_range(rows: pd.DataFrame, message: str, tmp_path: Path) -> None:
    good = pd.DataFrame({"a": [1.0]})
    with pytest.raises(ValueError, match=f"1 of 8 ranges failed, items 16 to 23: .*{message}"):
        scored(tmp_path, lambda: lambda start, stop: rows if start == 16 else good)
    assert len([*(tmp_path / "out").glob("*.safetensors")]) == 7


def test_a_folder_that_is_none_raises_and_a_full_one_warns(tmp_path: Path, at_once: pd.DataFrame) -> None:
    make = Noted(tmp_path / "notes")
    (tmp_path / "file").touch()
    for out in ("file", "file/below"):
        with pytest.raises(ValueError, match=r"`out` to name a folder but .*file is none"):
            score_shards(make, N, tmp_path / out, fingerprint={})
    assert not make.calls
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(disk_cache, "save_file", full)
        with pytest.warns(
            UserWarning, match=r"cannot be written \(No space left on device\): the run goes on"
        ) as warned:
            check_same(scored(tmp_path, make), at_once)
    assert len(warned) == 1


def full(*_: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("name", ["address", "n_workers", "num_gpus"])
def test_settings_of_a_cluster_raise_here(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"`{name}` has no effect with engine='local'"):
        scored(tmp_path, **{name: "auto" if name == "address" else 2})


def test_an_address_without_a_cluster_raises(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="the extra ray is not installed")
    with pytest.raises(ValueError, match=r"`address` to be that of a Ray cluster, .*'127.0.0.1:9' \(.*refused"):
        scored(tmp_path, engine="ray", address="127.0.0.1:9")


def test_an_address_that_is_none_leaves_no_handler(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="the extra ray is not installed")
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(ValueError, match=r"'127.0.0.1:x' \(Unable to parse port"):
        scored(tmp_path, engine="ray", address="127.0.0.1:x")
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize("address", ["", "local"])
def test_a_cluster_of_our_own_has_no_address(address: str, tmp_path: Path) -> None:
    # Ray would start one with a token in the home directory and its files under /tmp/ray.
    with pytest.raises(ValueError, match=r"`address` to be HOST:PORT .* Leave it out"):
        scored(tmp_path, engine="ray", address=address)


def test_texts_of_workers_that_are_stored_otherwise_are_kept(tmp_path: Path, at_once: pd.DataFrame) -> None:
    # Commands keep texts as Python's; workers of Ray have pandas' default, Arrow where it is installed.
    with pd.option_context("mode.string_storage", "python"):
        rows = scored(tmp_path, lambda: lambda start, stop: at_once[start:stop])
    assert rows["name"].tolist() == at_once["name"].tolist()
