"""Scorers of ranges that workers can import: they record their calls in a folder, and die, kill or raise at a range."""

from __future__ import annotations

import os
import signal
import sys
import time
import uuid
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

N, BATCH = 61, 4
STARTS = range(0, N, 8)


@dataclass
class Noted:
    """A factory; `at` tells by the start of a range what happens there, "die" and "kill DRIVER" only once."""

    folder: Path
    at: dict[int, str] = field(default_factory=dict)
    #: Workers to wait for before the first range is scored.
    workers: int = 1

    def __call__(self) -> Callable[[int, int], pd.DataFrame]:
        self.note("made")
        # Without PyTorch, which would take most of a worker's start.
        rng = np.random.default_rng(1)
        self.layers = rng.standard_normal((64, 48), np.float32), rng.standard_normal((48, 3), np.float32)
        self.images = rng.random((N, 64), np.float32)
        return self.score

    def score(self, start: int, stop: int) -> pd.DataFrame:
        self.note(f"range {start}")
        end = time.monotonic() + 60
        while self.calls["made"] < self.workers and time.monotonic() < end:
            time.sleep(0.05)
        what = self.at.get(start, "")
        once = what not in ("", "raise", "warn") and not (self.folder / f"done {start}").exists()
        if once:
            (self.folder / f"done {start}").touch()
            if what != "die":
                self.wait_for(start - 16)
            os.kill(os.getpid() if what == "die" else int(what.removeprefix("kill ")), signal.SIGKILL)
        if what == "raise":
            raise ArithmeticError("no such number")
        if what == "warn":
            warnings.warn("these are no birds", RuntimeWarning, stacklevel=1)
        batches = [self.images[at : min(at + BATCH, stop)] for at in range(start, stop, BATCH)]
        values = np.concatenate([np.tanh(batch @ self.layers[0]) @ self.layers[1] for batch in batches])
        values[values < 0] = np.nan
        table = pd.DataFrame(values, columns=list("abc"))
        table.insert(0, "image", range(start, stop))
        return table.assign(name=[f"image {row}" for row in range(start, stop)], code=[row.tobytes() for row in values])

    def wait_for(self, start: int) -> None:
        """Wait until the driver, which may be slow, has written a range."""
        end = time.monotonic() + 60
        while time.monotonic() < end and start not in named(self.folder.parent / "out"):
            time.sleep(0.05)

    def note(self, what: str) -> None:
        self.folder.mkdir(exist_ok=True)
        (self.folder / f"{what} {uuid.uuid4().hex}").touch()

    @property
    def calls(self) -> Counter[str]:
        """How often it was called, and its scorers by range."""
        return Counter(path.name.rpartition(" ")[0] for path in self.folder.glob("[mr]* *"))


def scored(folder: Path, make: Any = None, **changed: Any) -> pd.DataFrame:
    """Score all items by ranges of eight."""
    from quantus_concepts import score_shards

    settings = {"fingerprint": {"run": 1}, "shard_size": 8, "batch_size": BATCH, **changed}
    return score_shards(make or Noted(folder / "notes"), N, folder / "out", **settings)


def named(out: Path) -> set[int]:
    """Return where the ranges begin that have a file in a folder."""
    return {int(file.name[:9]) for file in out.glob("[0-9]*.safetensors")}


def check_same(table: pd.DataFrame, expected: pd.DataFrame) -> None:
    """Hold tables against each other to the bit."""
    pd.testing.assert_frame_equal(table, expected, check_exact=True)
    assert [*table["code"]] == [*expected["code"]]


def drive(folder: str, address: str) -> None:
    """Score on a cluster, by a process that one of the ranges kills."""
    scored(Path(folder), Noted(Path(folder) / "notes", {24: f"kill {os.getpid()}"}), engine="ray", address=address)


if __name__ == "__main__":
    drive(*sys.argv[1:])
