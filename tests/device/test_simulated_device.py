"""The simulated device itself: what it refuses, what it counts, and that nothing of it stays."""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from simulated_device import simulated_device


def network() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 16, 2))


@pytest.fixture
def images() -> Tensor:
    return torch.rand(3, 3, 6, 6)


@pytest.mark.parametrize(
    "meeting",
    {
        "a sum": lambda here, there: here + there,
        "joined": lambda here, there: torch.cat([here, there]),
        "in place": lambda here, there: here.add_(there),
        "a mask": lambda here, there: there.masked_fill(here > 0, 0.0),
        "an index of the device": lambda here, there: here[there[:, 0, 0, 0].long()],
        "put by an index": lambda here, there: there.index_put_((torch.tensor([0]),), here[:1]),
        "a model": lambda here, there: network()(there),
    }.items(),
    ids=lambda case: case[0],
)
def test_two_devices_do_not_meet(meeting: tuple[str, Callable[[Tensor, Tensor], Tensor]], images: Tensor) -> None:
    with simulated_device() as simulation:
        there = images.to(simulation.device)
        assert torch.equal((there + 1).cpu(), images + 1)
        with pytest.raises(RuntimeError, match="same device"):
            meeting[1](images.clone(), there)


def test_the_rest_that_a_gpu_refuses(images: Tensor) -> None:
    with simulated_device() as simulation:
        there = images.to(simulation.device)
        for as_array in (there.numpy, lambda: np.asarray(there)):
            with pytest.raises(TypeError, match="to numpy"):
                as_array()
        with pytest.raises(RuntimeError, match="device type for generator"):
            torch.rand(2, device=simulation.device, generator=torch.Generator())
        # One number of the CPU goes with it, as on a GPU.
        assert torch.equal((there * torch.tensor(2.0)).cpu(), images * 2)


def test_what_crosses_is_counted(images: Tensor) -> None:
    for work, kinds in {
        lambda x: x.cpu(): {"to_host": 1},
        lambda x: images.clone().copy_(x): {"to_host": 1},
        lambda x: x.new_zeros(3).copy_(images[0, 0, 0, :3]): {"to_device": 1},
        lambda x: torch.tensor([1.0, 2.0], device=x.device): {"to_device": 1},
        lambda x: x[torch.tensor([0, 2])]: {"to_device": 1},
        lambda x: float(x[0, 0, 0, 0]): {"item": 1},
        lambda x: bool((x > 2).any()): {"item": 1},
        lambda x: torch.equal(x, x + 1): {"item": 1},
        lambda x: (x > 0.5).nonzero(): {"nonzero": 1},
        lambda x: x[x > 0.5]: {"nonzero": 1},
        lambda x: x.where(x > 0.5, 0).amax((2, 3)).softmax(1): {},
        lambda x: x.clone().masked_fill_(x > 0.5, 0): {},
    }.items():
        with simulated_device() as simulation:
            there = images.to(simulation.device)
            simulation.crossed.clear()
            work(there)
            assert simulation.kinds() == kinds


def test_forward_backward_and_a_step_are_those_of_the_cpu(images: Tensor) -> None:
    first = network()
    # Before the device is there: torch sets up its threads when it first goes backward.
    first(images).sum().backward()

    def learned(model: nn.Module, inputs: Tensor) -> list[Tensor]:
        inputs = inputs.clone().requires_grad_()
        optimiser = torch.optim.Adam(model.parameters(), 0.1)
        for _ in range(2):
            optimiser.zero_grad()
            model(inputs).square().sum().backward()
            optimiser.step()
        with torch.inference_mode(False):
            gradient = torch.autograd.grad(model(inputs).sum(), inputs)
        return [tensor.detach().cpu() for tensor in (*gradient, *model.parameters(), *model.buffers())]

    first.zero_grad()
    expected = learned(copy.deepcopy(first), images)
    with simulated_device() as simulation:
        tensors = learned(copy.deepcopy(first).to(simulation.device), images.to(simulation.device))
    for tensor, on_cpu in zip(tensors, expected, strict=True):
        assert torch.equal(tensor, on_cpu)


def test_nothing_stays_outside_the_block(images: Tensor) -> None:
    pytest.importorskip("torch.accelerator")
    before = torch.accelerator.is_available(), torch.__future__.get_overwrite_module_params_on_conversion()
    with simulated_device() as simulation:
        there = images.to(simulation.device)
        assert torch.accelerator.is_available()
    with pytest.raises(RuntimeError, match="inside its block only"):
        there + 1
    assert before == (torch.accelerator.is_available(), torch.__future__.get_overwrite_module_params_on_conversion())
