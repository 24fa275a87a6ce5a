"""Two threads on one model: each gets the answer for its own images, and the model is left as it was."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor, nn

from captum_concepts import BottleneckCBM, CoAM, ConceptBank, LayerFeatures, PostHocCBM
from captum_concepts.backbones.layers import last_spatial_layer

PATIENCE = 60.0


class Gate(nn.Module):
    """The identity, in which the pass of one thread waits until another thread is through."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: int | None = None
        self.reached, self.opened = threading.Event(), threading.Event()

    def forward(self, x: Tensor) -> Tensor:
        if threading.get_ident() == self.waiting:
            self.reached.set()
            assert self.opened.wait(PATIENCE)
        return x


def network() -> nn.Sequential:
    first, last = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3)
    return nn.Sequential(first, Gate(), nn.BatchNorm2d(4), nn.ReLU(), Gate(), last, nn.AdaptiveAvgPool2d(2)).eval()


@pytest.fixture
def net() -> nn.Sequential:
    return network()


@pytest.fixture
def batches() -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.rand(n, 3, 8, 8, generator=generator) for n in (2, 3)]


def run_meanwhile(gate: Gate, slow: Callable[[], Tensor], fast: Callable[[], Tensor]) -> list[Tensor]:
    """Run `fast` from beginning to end while `slow`, in another thread, is at a gate in the middle of its pass."""

    def wait() -> Tensor:
        gate.waiting = threading.get_ident()
        return slow()

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(wait)
        assert gate.reached.wait(PATIENCE)
        try:
            second = pool.submit(fast).result(PATIENCE)
        finally:
            gate.opened.set()
        return [first.result(PATIENCE), second]


def runs(net: nn.Sequential) -> dict[str, Callable[[Tensor], Tensor]]:
    """All that runs a model; what holds it for itself comes last."""
    cbm = PostHocCBM(net, ConceptBank.random(5, 4), nn.Linear(5, 3)).eval()
    traditional = BottleneckCBM(net, nn.Linear(4, 5), nn.Linear(5, 3)).eval()
    return {
        "layer": LayerFeatures(net, "3"),
        "concept maps": lambda x: cbm.concept_maps(x).detach(),
        "classes": lambda x: cbm(x).detach(),
        "classes of a traditional model": lambda x: traditional(x).detach(),
        "concept maps of a traditional model": lambda x: traditional.concept_maps(x).detach(),
        "model of a layer": PostHocCBM(LayerFeatures(net, "3"), ConceptBank.random(5, 4), nn.Linear(5, 3)).eval(),
        "last spatial layer": lambda x: torch.tensor([int(last_spatial_layer(net, x))]),
        "CoAM of a layer": CoAM(net, "3", ConceptBank.random(5, 4)).attribute,
        "CoAM of a layer's input": lambda x: CoAM(net, "3", torch.ones(1, 4)).attribute(
            x, attribute_to_layer_input=True
        ),
        "CoAM of a model": CoAM.of(cbm).attribute,
    }


NAMES = list(runs(network()))


# Before the layer that is watched, and behind it, where a pass that ends at that layer does not come.
GATES = [(slow, 1) for slow in NAMES] + [(slow, 4) for slow in NAMES if "layer" not in slow or "CoAM" in slow]


# CoAM waits until the model is free.
@pytest.mark.parametrize("fast", [name for name in NAMES if not name.startswith("CoAM")])
@pytest.mark.parametrize(("slow", "gate"), GATES)
def test_a_pass_in_the_middle_of_another(
    net: nn.Sequential, batches: list[Tensor], slow: str, gate: int, fast: str
) -> None:
    every = runs(net)
    expected = [every[slow](batches[0]), every[fast](batches[1])]
    outputs = run_meanwhile(net[gate], lambda: every[slow](batches[0]), lambda: every[fast](batches[1]))
    for output, expected_output in zip(outputs, expected, strict=True):
        assert torch.equal(output, expected_output)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in net.modules())
