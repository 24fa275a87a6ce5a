"""Lines of a log, in place of progress bars, where the output of a command is no terminal."""

from __future__ import annotations

import sys
import time

from captum_concepts.support.files import printable

#: Seconds between two lines about bars.
LINE_EVERY = 60.0


class Log:
    """Lines with the time on stderr, while `is_on`, which the command line sets; the stream of bars as well."""

    def __init__(self) -> None:
        self.is_on = False
        self._last = time.monotonic()

    def line(self, text: str) -> None:
        """Write a line with the time."""
        if self.is_on:
            self._last = time.monotonic()
            sys.stderr.write(f"{time.strftime('%H:%M:%S')} {printable(text)}\n")
            sys.stderr.flush()

    def write(self, text: str) -> None:
        """Write what a bar shows, at most once in `LINE_EVERY` seconds."""
        if text.strip() and time.monotonic() - self._last >= LINE_EVERY:
            self.line(text.strip())

    def flush(self) -> None:
        """Do nothing: lines are flushed as they are written."""


LOG = Log()
