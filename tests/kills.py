"""Interrupt and kill: functions that fail or take too long, and a process killed at a change of the file system."""

from __future__ import annotations

import hashlib
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any
from unittest import mock

import pytest

#: Names by which folders of runs are run.
OWN = {"run.json", ".lock", "cache", ".quantus-concepts", ".quantus-concepts.json"}
#: Windows has no such signal, and no fork.
KILL = getattr(signal, "SIGKILL", signal.SIGTERM)
NO_FORK = "needs fork"
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason=NO_FORK)
#: By which files change their names, or come and go; before each of them a process may be killed.
OPERATIONS = ("rename", "replace", "unlink", "mkdir", "rmdir")
#: Far above what a refusal takes on a loaded machine: what takes longer hangs, or computes before it looks.
SECONDS = 60


def raising(error: BaseException) -> Callable[..., None]:
    """Return a function that raises an error whatever it is called with, to stand in place of another."""

    def call(*_: object, **__: object) -> None:
        raise error

    return call


@contextmanager
def changes(do: Callable[[int], object], operations: tuple[str, ...] = OPERATIONS) -> Iterator[list[int]]:
    """Call `do` with the number of each change of the file system before it happens; yield a list with the count."""
    count = [0]

    def watched(operation: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **keywords: Any) -> Any:
            count[0] += 1
            do(count[0])
            return operation(*arguments, **keywords)

        return call

    with mock.patch.multiple(os, **{name: watched(getattr(os, name)) for name in operations}):
        yield count


def killed(work: Callable[[], object], number: int, sign: int = KILL) -> int:
    """Do some work in a child that gets a signal before its change of the given number; return how it ended."""

    def strike(count: int) -> None:
        if count == number:
            os.kill(os.getpid(), sign)

    if not hasattr(os, "fork"):
        pytest.skip(NO_FORK)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            with changes(strike):
                work()
            code = 0
        except BaseException:
            code = 3
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def contents(folder: Path, *, hidden: bool = False, read: Callable[[Path], str] = digest) -> dict[str, str]:
    """Return the digest, or text, of every file of a folder by its name; without the run's own unless `hidden`."""
    return {
        path.relative_to(folder).as_posix(): read(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
        and (hidden or not (OWN & set(path.relative_to(folder).parts) or path.name.startswith(".part-")))
    }


class NotInTime(BaseException):
    """No error that a loader could take for one of a file."""


@contextmanager
def in_time(seconds: int = SECONDS) -> Iterator[None]:
    """Fail if the block takes too long; a read that waits for ever is interrupted. Windows has no alarm for that."""
    if not hasattr(signal, "SIGALRM"):
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise NotInTime(f"Not done in {seconds} s.")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
