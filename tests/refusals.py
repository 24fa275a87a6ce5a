"""What every bad input has to meet: it is refused by name, in time, and nothing is written."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from quantus_concepts.studies.app import EXIT_BAD_INPUT, main

#: Far above what a refusal takes on a loaded machine: what takes longer hangs, or computes before it looks.
SECONDS = 60


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


def files(folder: Path = Path()) -> set[tuple[str, int]]:
    """Return what lies below a folder: names and, but for folders, sizes."""
    return {(str(path), 0 if path.is_dir() else path.lstat().st_size) for path in folder.rglob("*")}


@dataclass(frozen=True)
class Refusal:
    """One bad input: the call that gets it and what the message has to name."""

    call: Callable[[], object]
    names: str
    kinds: type[Exception] | tuple[type[Exception], ...] = (ValueError, TypeError)

    def check(self) -> None:
        """Assert that the call is refused early, by name, and leaves no file in the working directory."""
        before = files()
        with in_time(), pytest.raises(self.kinds) as caught:
            self.call()
        message = str(caught.value)
        assert self.names in message, message
        assert len(message.split()) > 3, message
        assert files() == before


def check_all(refusals: Mapping[str, Refusal]) -> None:
    """Check each of many bad inputs, and tell all that are not refused as they should be.

    As a test of its own each would take several times what it takes to be refused.
    """
    wrong = {}
    for what, refusal in refusals.items():
        try:
            refusal.check()
        except (Exception, NotInTime, pytest.fail.Exception) as error:
            wrong[what] = f"{type(error).__name__}: {error}"
    assert refusals
    assert not wrong, "\n".join(f"{what}: {told}" for what, told in wrong.items())


def check_command(arguments: Sequence[str], names: str, capsys: pytest.CaptureFixture[Any]) -> None:
    """Assert that a command ends with the code of bad input and one line that names it, and writes nothing."""
    before = files()
    with in_time():
        code = main(arguments)
    told = capsys.readouterr()
    assert code == EXIT_BAD_INPUT, (arguments, told)
    lines = [line for line in told.err.splitlines() if line.startswith("Error: ")]
    assert len(lines) == 1, told.err
    assert names in lines[0], lines[0]
    assert "Traceback" not in told.err
    assert told.out == ""
    assert files() == before
