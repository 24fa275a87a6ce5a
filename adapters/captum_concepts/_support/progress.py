"""The progress bar, of one piece of work or of a whole run."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from threading import Lock
from typing import Any

from tqdm.auto import tqdm

from captum_concepts._support.files import printable

_BAR_FORMAT = "{desc}: {percentage:.0f} %|{bar}| {elapsed}, about {remaining} left"


def progress(iterable: Iterable[Any] | None = None, description: str = "", *, show: bool, **settings: Any) -> Any:
    """Return a bar of tqdm over an iterable: a widget in notebooks, silent where the stream is no terminal."""
    if _running:
        return _SilentBar(iterable, **settings | {"disable": True})
    return tqdm(iterable, printable(description), **{"disable": None if show else True, "leave": False} | settings)


@contextmanager
def whole_run(total: float, *, show: bool) -> Iterator[_RunBar]:
    """Show one bar for a whole run, which each piece of work inside moves instead of its own bar."""
    if _running:
        yield _running[-1]
        return
    bar = tqdm(total=total, bar_format=_BAR_FORMAT, smoothing=0, disable=None if show else True, leave=False)
    _running.append(_RunBar(bar))
    try:
        with bar:
            yield _running[-1]
    finally:
        _running.pop()


@contextmanager
def part(description: str, share: float) -> Iterator[None]:
    """Map progress inside this block to a share of the overall bar, if there is one."""
    if not _running:
        yield
        return
    run = _running[-1]
    end = run.start(description, share)
    yield
    run.reach(end)


def hide_bars() -> AbstractContextManager[None]:
    """Take bars off the terminal while something else is written there."""
    return tqdm.external_write_mode(file=sys.stderr)


class _RunBar:
    """The bar of a run, moved by pieces of work in any thread."""

    def __init__(self, bar: Any) -> None:
        self.bar = bar
        self.lock = Lock()
        self.start("", 0)

    def start(self, description: str, share: float) -> float:
        """Begin a part and return where the bar is at its end."""
        with self.lock:
            self.begin, self.share, self.done, self.known = self.bar.n, share, 0.0, 0.0
            self.bar.set_description_str(printable(description))
        return self.begin + share

    def add(self, done: float, announced: float) -> None:
        """Count finished and newly announced work of the part."""
        with self.lock:
            self.done, self.known = self.done + done, self.known + announced
            if done and self.known:
                place = self.begin + self.share * min(self.done / self.known, 1)
                self.bar.update(max(place - self.bar.n, 0))

    def reach(self, place: float) -> None:
        """Move the bar to a place; work of an interrupted run does not count for the speed."""
        with self.lock:
            missing = max(place - self.bar.n, 0)
            if not self.done and not self.bar.disable:
                self.bar.initial += missing
            self.bar.update(missing)
            self.done = 0.0


class _SilentBar(tqdm):
    """A bar that is not shown and moves that of the whole run."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.whole = _running[-1]
        self.whole.add(0, (self.total or 0) - self.n)

    def __iter__(self) -> Iterator[Any]:
        for item in self.iterable:
            yield item
            self.update()

    def update(self, n: float | None = 1) -> None:
        """Do as much of the work."""
        self.whole.add(n or 0, 0)


_running: list[_RunBar] = []
