"""Metrics of two processes of `torch.distributed`, joined, are those of one to the bit."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from torch import distributed

SCRIPT = Path(__file__).with_name("gloo_process.py")


@pytest.mark.skipif(not distributed.is_available(), reason="PyTorch was built without torch.distributed")
@pytest.mark.filterwarnings("ignore")
def test_two_processes_give_what_one_gives(tmp_path: Path) -> None:
    started = [
        subprocess.Popen([sys.executable, "-W", "ignore", SCRIPT, str(rank), "2", tmp_path], stderr=subprocess.PIPE)
        for rank in range(2)
    ]
    try:
        failed = [process.communicate(timeout=200)[1] for process in started]
    finally:
        for process in started:
            process.kill()
    assert [process.returncode for process in started] == [0, 0], failed
    spec = importlib.util.spec_from_file_location("gloo_process", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    alone = module.joined(0, 1, module.fresh())
    for rank in range(2):
        with np.load(tmp_path / f"{rank}.npz") as saved:
            for name, scores in alone.items():
                assert np.array_equal(saved[name], scores, equal_nan=True)
