"""Scores by ranges: the same to the bit however many there are, and none computed twice."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from kills import killed
from quantus_concepts import score_ranges
from range_scorers import SIZE, STARTS, N, Noted, States, check_same, saved


@pytest.fixture
def expected(tmp_path):
    score = Noted(tmp_path / "expected")()
    return [score(start, min(start + SIZE, N)) for start in STARTS]


def scored(folder: Path, make: Any = None, **changed: Any) -> States:
    settings: dict[str, Any] = {"size": SIZE, "store": folder / "out", "key": "run", **changed}
    return score_ranges(make or Noted(folder / "notes"), N, **settings)


@pytest.mark.parametrize("size", [4, 64])
def test_any_number_of_ranges_gives_the_same(size, tmp_path, expected):
    states = scored(tmp_path, size=size)
    assert torch.equal(*(torch.cat([state["scores"] for state in each]) for each in (states, expected)))
    again = Noted(tmp_path / "again")
    check_same(scored(tmp_path, again, size=size), states)
    assert not again.calls


def test_without_a_store_nothing_is_written(tmp_path, expected, monkeypatch):
    monkeypatch.chdir(tmp_path)
    check_same(score_ranges(Noted(tmp_path / "notes"), N, size=SIZE), expected)
    assert {path.name for path in tmp_path.iterdir()} == {"expected", "notes"}


@pytest.mark.parametrize("number", [3, 4])
def test_a_process_killed_goes_on_where_it_was(number, tmp_path, expected):
    assert killed(lambda: scored(tmp_path), number) == -signal.SIGKILL
    there = saved(tmp_path / "out")
    again = Noted(tmp_path / "again")
    check_same(scored(tmp_path, again), expected)
    assert again.calls == {"made": 1} | {f"range {start}": 1 for start in STARTS if start not in there}


def test_a_range_that_raises_leaves_those_before_it(tmp_path, expected):
    with pytest.raises(ArithmeticError, match="no such number") as caught:
        scored(tmp_path, Noted(tmp_path / "notes", {16: "raise"}))
    assert caught.value.__notes__ == ["Raised for items 16 to 23."]
    repaired = Noted(tmp_path / "repaired")
    check_same(scored(tmp_path, repaired), expected)
    assert repaired.calls == {"made": 1} | {f"range {start}": 1 for start in STARTS if start >= 16}


def test_a_damaged_file_is_computed_again(tmp_path, expected):
    scored(tmp_path)
    (tmp_path / "out" / "run-000000016-000000024.safetensors").write_bytes(b"PAR1")
    again = Noted(tmp_path / "again")
    with pytest.warns(UserWarning, match="run-000000016-000000024.safetensors cannot be read"):
        check_same(scored(tmp_path, again), expected)
    assert again.calls == {"made": 1, "range 16": 1}


def test_runs_of_other_keys_never_mix(tmp_path, expected):
    other = scored(tmp_path, lambda: lambda start, stop: {"scores": torch.zeros(stop - start)}, key="other")
    check_same(scored(tmp_path), expected)
    check_same(scored(tmp_path, lambda: pytest.fail("scored again"), key="other"), other)


class Memory(dict):
    """A store of one's own."""

    load, save = dict.get, dict.__setitem__


def test_a_store_of_ones_own(tmp_path, expected):
    store = Memory()
    check_same(scored(tmp_path, store=store), expected)
    assert len(store) == len(STARTS)
    again = Noted(tmp_path / "again")
    check_same(scored(tmp_path, again, store=store), expected)
    assert not again.calls


def test_bad_arguments(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="`key` to name what the states depend on"):
        scored(tmp_path, key="")
    with pytest.raises(ValueError, match=r"`key` to be part of a file's name but got '\.\./run-"):
        scored(tmp_path, key="../run")
    with pytest.raises(ValueError, match="`engine` to be one of"):
        scored(tmp_path, engine="dask")
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setattr("captum_concepts.lazy.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"ray: python -m pip install '\.\[ray\]'"):
        scored(tmp_path, engine="ray")
    assert not (tmp_path / "out").exists()
