"""A limit of time for what has to end soon, whatever it is given."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

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
