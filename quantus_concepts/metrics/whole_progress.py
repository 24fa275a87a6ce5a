"""How far a whole call is, and how long it will take."""

from __future__ import annotations

import time
import warnings
from typing import Any

from captum_concepts.progress import progress

#: Seconds after which progress shows by itself.
LONG = 2.0
#: Seconds from which on somebody without a bar is told how long it will take.
VERY_LONG = 60.0
#: Updates that are timed for it; the one before them is not, since it warms up.
TIMED = 3

clock = time.monotonic


class DurationWarning(UserWarning):
    """Says how long a call will take where no bar can be seen; nothing about its result."""


class WholeProgress:
    """One bar over all of a call's work; where it cannot be seen, one warning says how long the work will take."""

    # A warning: a log line is hidden unless logging is set up, and prints cannot be silenced. It comes only where the
    # bar is off or the stream is no terminal, once, and only for more than a minute.

    def __init__(self, description: str, total: int, unit: str, show: bool | None, *, tell: str = "") -> None:
        delay = 0 if show else LONG
        self.bar = progress(description=description, total=total, unit=unit, show=show is not False, delay=delay)
        self.total, self.tell = total, tell
        self.done = self.updates = 0
        self.first = 0, 0.0

    def update(self, count: int) -> None:
        """Count what is done."""
        self.bar.update(count)
        if not self.tell or self.updates > TIMED:
            return
        self.updates += 1
        self.done += count
        if self.updates == 1:
            self.first = self.done, clock()
        elif self.updates == TIMED + 1:
            seconds = (clock() - self.first[1]) / max(self.done - self.first[0], 1) * (self.total - self.done)
            if seconds > VERY_LONG and self.bar.disable:
                warnings.warn(self.tell.format(duration=duration_text(seconds)), DurationWarning, stacklevel=2)

    def close(self) -> None:
        """Take the bar away."""
        self.bar.close()

    def __enter__(self) -> WholeProgress:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def duration_text(seconds: float) -> str:
    """Write a duration for people."""
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{seconds / 3600:.1f} h"
