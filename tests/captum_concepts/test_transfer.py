"""Tensors to the host in one transfer."""

from __future__ import annotations

import torch

from captum_concepts._support.running import to_host
from simulated_device import simulated_device


def test_tensors_of_all_kinds_cross_at_once_and_as_they_are():
    given = [
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
        there = [each.to(simulation.device) for each in given]
        simulation.crossed.clear()
        own, *found = to_host(here, *there)
        assert simulation.kinds() == {"to_host": 1}
    assert own.data_ptr() == here.data_ptr()
    for one, other in zip(found, given, strict=True):
        torch.testing.assert_close(one, other.detach(), rtol=0, atol=0, equal_nan=True)
    assert not any(each.requires_grad for each in found)
    assert to_host() == []
