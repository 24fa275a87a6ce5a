"""Scorers of ranges that workers can import: they note their calls in a folder, and die, kill or raise at a range."""

from __future__ import annotations

import os
import signal
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from quantus_concepts import score_ranges

N, BATCH, SIZE = 61, 4, 8
STARTS = range(0, N, SIZE)
States = list[dict[str, Tensor]]


@dataclass
class Noted:
    """A factory; `at` tells by the start of a range what happens there, "die" and "kill DRIVER" only once."""

    folder: Path
    at: dict[int, str] = field(default_factory=dict)

    def __call__(self) -> Callable[[int, int], dict[str, Tensor]]:
        self.note("made")
        draw = torch.Generator().manual_seed(1)
        self.images, self.weights = (torch.randn(shape, generator=draw) for shape in ((N, 64), (64, 3)))
        return self.score

    def score(self, start: int, stop: int) -> dict[str, Tensor]:
        self.note(f"range {start}")
        what = self.at.get(start, "")
        if what == "raise":
            for other in (other for other, fate in self.at.items() if fate == "die"):
                self.wait_for(other)
            raise ArithmeticError("no such number")
        if what and not (self.folder / f"done {start}").exists():
            (self.folder / f"done {start}").touch()
            if what != "die":
                self.wait_for(start - 2 * SIZE)
            os.kill(os.getpid() if what == "die" else int(what.removeprefix("kill ")), signal.SIGKILL)
        batches = [self.images[at : min(at + BATCH, stop)] for at in range(start, stop, BATCH)]
        scores = torch.cat([torch.tanh(batch @ self.weights) for batch in batches])
        # A view, and memory that two tensors share, which no file can hold as they are.
        return {"scores": scores, "sum": scores.double().sum(0), "transposed": scores.T}

    def wait_for(self, start: int) -> None:
        """Wait until the driver, which may be slow, has written a range."""
        end = time.monotonic() + 60
        while time.monotonic() < end and start not in saved(self.folder.parent / "out"):
            time.sleep(0.05)

    def note(self, what: str) -> None:
        self.folder.mkdir(exist_ok=True)
        (self.folder / f"{what} {uuid.uuid4().hex}").touch()

    @property
    def calls(self) -> Counter[str]:
        """How often it was called, and its scorers by range."""
        return Counter(path.name.rpartition(" ")[0] for path in self.folder.glob("[mr]* *"))


def kill_the_worker() -> Callable[[int, int], dict[str, Tensor]]:
    """A factory that ends its process."""
    os.kill(os.getpid(), signal.SIGKILL)
    return lambda start, stop: {}


def saved(out: Path) -> set[int]:
    """Return where the ranges begin that have a file in a folder."""
    return {int(file.stem.split("-")[-2]) for file in out.glob("*.safetensors") if not file.name.startswith(".")}


def check_same(states: States, expected: States) -> None:
    """Hold states against each other to the bit."""
    assert [set(state) for state in states] == [set(state) for state in expected]
    for state, other in zip(states, expected, strict=True):
        for name, tensor in state.items():
            torch.testing.assert_close(tensor, other[name], rtol=0, atol=0, equal_nan=True)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    make = Noted(folder / "notes", {24: f"kill {os.getpid()}"})
    score_ranges(make, N, size=SIZE, store=folder / "out", key="run", engine="ray")
