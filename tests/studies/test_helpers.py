"""Tasks done by this process and another."""

from __future__ import annotations

import os
import subprocess
from functools import partial

import pytest

from helped_tasks import met
from quantus_concepts.studies.helpers import Helpers


@pytest.fixture(scope="module")
def helpers():
    with Helpers(1) as started:
        yield started
        processes = [each.process for each in started._helpers]
    assert processes
    assert all(each.poll() is not None for each in processes)


@pytest.fixture
def pair(tmp_path):
    """Two tasks that end when each of two processes has one."""
    return lambda does="": [partial(met, tmp_path, os.getpid(), does) for _ in range(2)]


def test_each_process_does_a_task_in_one_thread_and_what_cannot_be_sent_stays_here(helpers, pair):
    found = dict(helpers.results([lambda: os.getpid(), *pair()]))
    assert found[0] == os.getpid()
    (one, threads), (other, other_threads) = found[1], found[2]
    assert sorted((one, other)) == sorted((os.getpid(), helpers._helpers[0].process.pid))
    assert threads == other_threads == 1


def test_warnings_of_helpers_are_given_here(helpers, pair):
    with pytest.warns(UserWarning, match="of a helper"):
        assert len(list(helpers.results(pair("warn")))) == 2


def test_what_a_task_raises_is_raised(helpers, pair, tmp_path):
    with pytest.raises(ArithmeticError, match="of a helper"):
        list(helpers.results(pair("raise")))
    # Nothing of it is left over.
    assert dict(helpers.results([partial(len, "ab"), partial(len, "a")])) == {0: 2, 1: 1}


# The last: the helper is gone.
def test_the_task_of_a_helper_that_dies_is_done_here(helpers, pair):
    with pytest.warns(UserWarning, match="ended before it was done"):
        found = dict(helpers.results(pair("die")))
    assert [process for process, _ in found.values()] == [os.getpid()] * 2
    assert dict(helpers.results([partial(len, "ab"), partial(len, "a")])) == {0: 2, 1: 1}


def test_without_helpers_tasks_are_done_in_their_order(monkeypatch):
    def refused(*_: object, **__: object) -> None:
        raise OSError("no more processes")

    monkeypatch.setattr(subprocess, "Popen", refused)
    with Helpers(2) as none:
        assert list(none.results([partial(len, "ab"), partial(len, "a")])) == [(0, 2), (1, 1)]
