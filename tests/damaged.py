"""Files that are none, or not what they seem, in place of good ones; with limits on time and memory."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from kills import in_time

resource = pytest.importorskip("resource", reason="limits on memory are those of Unix")
#: Room that a refusal may take, above what the process has: a file of a few bytes needs none.
ROOM = 1 << 29


class Loader(NamedTuple):
    """A file, and a call that reads it."""

    path: Path
    call: Callable[[], object]


def _as_pipe(path: Path, good: bytes) -> None:
    os.mkfifo(path)


def _as_folder(path: Path, good: bytes) -> None:
    path.mkdir()


def _as_device(path: Path, good: bytes) -> None:
    if not Path("/dev/zero").exists():
        pytest.skip("There is no device without an end here.")
    path.symlink_to("/dev/zero")


#: What a file is replaced by, and what becomes of one that can be opened.
DAMAGES: dict[str, Callable[[Path, bytes], object]] = {
    "pipe": _as_pipe,
    "folder": _as_folder,
    "device": _as_device,
    "empty": lambda path, good: path.write_bytes(b""),
    "random": lambda path, good: path.write_bytes(np.random.default_rng(0).bytes(3000)),
    "cut off": lambda path, good: path.write_bytes(good[: len(good) // 2]),
    "deep": lambda path, good: path.write_bytes(b"[" * 100_000 + b"]" * 100_000),
}


@contextmanager
def in_room(room: int = ROOM) -> Iterator[None]:
    """Let the process take no more than so much memory above what it has."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = Path("/proc/self/statm")
    used_bytes = int(pages.read_text().split()[0]) * resource.getpagesize() if pages.exists() else None
    if used_bytes is not None:
        resource.setrlimit(resource.RLIMIT_AS, (used_bytes + room, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def check_damaged(loader: Loader, damage: str) -> None:
    """Assert that a file that was damaged is refused by its name, in time and in little memory; put it back."""
    path, good = loader.path, loader.path.read_bytes()
    path.unlink()
    try:
        DAMAGES[damage](path, good)
        with in_time(), in_room(), pytest.raises((ValueError, OSError)) as caught:
            loader.call()
    finally:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
        path.write_bytes(good)
    message = str(caught.value)
    # The time limit must not have been reported as an error of the file.
    assert "Not done in" not in message
    # Where a table ends early, what contradicts it may be another one of the same folder.
    assert path.name in message or (damage == "cut off" and str(path.parent) in message), message
    assert len(message) < 3000, len(message)
    assert "\x1b" not in message
    assert "weights_only=False" not in message
