"""What everything stands on: progress, files that appear when they are complete, a user's file, transfers."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from captum_concepts.support.files import write_atomically
from captum_concepts.support.running import run_file, to_host
from simulated_device import simulated_device


def test_a_file_appears_when_it_is_complete(tmp_path: Path) -> None:
    target = tmp_path / "result.txt"
    target.write_text("before")
    with pytest.raises(ZeroDivisionError), write_atomically(target) as temporary:
        temporary.write_text(str(1 // 0))
    assert target.read_text() == "before"
    with write_atomically(target) as temporary:
        temporary.write_text("after")
        assert temporary.parent == tmp_path
        assert target.read_text() == "before"
    assert target.read_text() == "after"
    assert list(tmp_path.iterdir()) == [target]


def test_to_host_moves_all_tensors_in_one_transfer():
    tensors = [
        torch.tensor(2.5),
        torch.tensor([True, False, True]),
        torch.arange(6).view(2, 3).T,
        torch.empty(0, 4),
        torch.tensor([1.5, float("nan")], dtype=torch.bfloat16),
        torch.tensor([[1 / 3]], dtype=torch.float64),
        torch.ones(2, requires_grad=True),
    ]
    with simulated_device() as simulation:
        here = torch.tensor([7])
        there = [tensor.to(simulation.device) for tensor in tensors]
        simulation.crossed.clear()
        on_host, *copies = to_host(here, *there)
        assert simulation.kinds() == {"to_host": 1}
    assert on_host.data_ptr() == here.data_ptr()
    for copied, other in zip(copies, tensors, strict=True):
        torch.testing.assert_close(copied, other.detach(), rtol=0, atol=0, equal_nan=True)
    assert not any(tensor.requires_grad for tensor in copies)
    assert to_host() == []


def test_a_users_file_may_be_called_as_a_library_and_its_errors_are_named(tmp_path: Path) -> None:
    path = tmp_path / "torch.py"
    path.write_text("n = 2\n")
    assert run_file(path).n == 2
    assert sys.modules["torch"] is torch
    path.write_text("1 / 0")
    with pytest.raises(ValueError, match=r"torch.py cannot be run: ZeroDivisionError: division by zero"):
        run_file(path)
