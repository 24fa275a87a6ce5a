"""Networks that training has wrapped: factories see through, or say what is in the way."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from torch import nn
from torchvision import models

from captum_concepts import from_torchvision


class LightningModule(nn.Module):
    """As much of Lightning's as is looked at."""


class OptimizedModule(nn.Module):
    """As much of what `torch.compile` returns as is looked at, without the seconds that its import takes."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self._orig_mod = network


class Trained(LightningModule):
    def __init__(self, **parts: nn.Module) -> None:
        super().__init__()
        self.loss = nn.CrossEntropyLoss()
        for name, part in parts.items():
            setattr(self, name, part)


@pytest.fixture(scope="module")
def network() -> nn.Module:
    return models.ResNet(models.resnet.BasicBlock, [1, 1, 1, 1]).eval()


WRAPPERS: dict[str, Callable[[nn.Module], nn.Module]] = {
    "DataParallel": nn.DataParallel,
    "compiled": OptimizedModule,
    "Lightning": lambda network: Trained(model=network),
    "Lightning by another name": lambda network: Trained(encoder=network),
    "all of them": lambda network: nn.DataParallel(Trained(net=OptimizedModule(network))),
}


@pytest.mark.parametrize("name", WRAPPERS)
def test_the_network_inside_is_cut(name: str, network: nn.Module) -> None:
    backbone = from_torchvision(WRAPPERS[name](network))
    assert backbone.features.get_submodule("layer4") is network.layer4


def test_distributed_models_are_seen_through(network: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    # Made without its constructor, which wants a group of processes.
    parallel = nn.parallel.DistributedDataParallel.__new__(nn.parallel.DistributedDataParallel)
    nn.Module.__init__(parallel)
    parallel.module = network
    assert from_torchvision(parallel).channels == 512


def test_which_of_two_networks_is_asked(network: nn.Module) -> None:
    with pytest.raises(ValueError, match=r"Trained, of whose parts \['teacher', 'student'\] have weights.*teacher"):
        from_torchvision(Trained(teacher=network, student=nn.Linear(2, 2)))
    with pytest.raises(ValueError, match="torchvision family"):
        from_torchvision(Trained())
