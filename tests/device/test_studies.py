"""The commands of the studies on another device: they run to the end, and say what they say on the CPU."""

from __future__ import annotations

import shlex
from concurrent.futures import Executor, Future
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from torch import Tensor

from fixtures_commands import COMMANDS as SMALLEST
from golden.runs import smaller
from quantus_concepts.functional.bottleneck.sparse_heads import elastic_net_path
from quantus_concepts.studies.app import main
from simulated_device import simulated_device

#: Every benchmark as small as it runs; two with more of what they can do, one without what the CPU alone does.
COMMANDS = {words: f"{words} {arguments}" for words, arguments in SMALLEST.items() if words.startswith("benchmark ")}
COMMANDS["benchmark concepts"] = COMMANDS["benchmark concepts"].replace("n_train=60,n_test=18", "n_train=36,n_test=9")
COMMANDS["benchmark concepts"] += " --precision float32"
COMMANDS["benchmark substitution"] = COMMANDS["benchmark substitution"].replace(
    "n_train=30,n_test=15", "n_train=24,n_test=6"
)
COMMANDS |= {
    "benchmark attribution": "benchmark attribution --n-train 2 --n-test 1 --image-size 32 --epochs 1 --n-images 2 "
    "--n-patches 2 --patch-steps 2 --n-samples 2 --n-steps 2 --methods grad-cam --no-tcav",
    "benchmark pasta": "benchmark pasta --n-images 20 --n-per-image 12 --image-size 32 --seeds 1 --epochs 1 "
    "--n-explained 2 --n-masks 2 --classifier-epochs 1",
}


class InTurn(Executor):
    """Runs calls in this thread: the simulation exists only in the thread that began it."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def submit(self, call: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Call, and keep what comes of it."""
        future: Future[Any] = Future()
        try:
            future.set_result(call(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


def short_path(values: Tensor, classes: Tensor, n_classes: int, *_: int) -> list[tuple[Tensor, Tensor]]:
    """Fit heads for two penalties by two steps each."""
    return elastic_net_path(values, classes, n_classes, 2, 2, 1)


@pytest.mark.parametrize("study", COMMANDS)
def test_a_command_runs_there(study: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quantus_concepts.painted.training.ThreadPoolExecutor", InTurn)
    # They are fitted on the CPU, where each of their thousands of operations passes the simulation.
    monkeypatch.setattr("quantus_concepts.functional.bottleneck.sparse_heads.elastic_net_path", short_path)
    real = torch.cuda.is_available()
    tables = []
    for device in ("cpu", "cuda" if real else "sim:0"):
        out = tmp_path / device
        command = f"{COMMANDS[study]} --device {device} --no-progress --out {shlex.quote(str(out))}"
        with nullcontext() if real else simulated_device(), smaller(figures=False):
            assert main(shlex.split(command)) == 0
        tables.append(pd.read_csv(out / "results.csv"))
    expected, on_device = tables
    if real:
        # Networks trained with other roundings are other networks.
        assert on_device.dtypes.equals(expected.dtypes)
        assert on_device.notna().any().equals(expected.notna().any())
    else:
        pd.testing.assert_frame_equal(on_device, expected, rtol=1e-3, atol=1e-4)
