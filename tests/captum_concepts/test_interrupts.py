"""Ctrl-C in the middle of a forward pass: train flags, gradients, hooks and generators are as they were."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from captum.attr import DeepLift, LayerGradCam, NoiseTunnel, Saliency
from torch import Tensor, nn

from captum_concepts import (
    CoAM,
    ConceptBank,
    LayerFeatures,
    PostHocCBM,
    SteeredRISE,
    build_method,
    embed,
    explain_func,
    show_concepts,
    tcav_score,
)
from captum_concepts.support.running import evaluation_mode
from untouched import untouched


class CtrlC(nn.Module):
    """The identity, which is interrupted in one of its passes."""

    def __init__(self) -> None:
        super().__init__()
        self.passes = 10**9

    def forward(self, x: Tensor) -> Tensor:
        self.passes -= 1
        return self.interrupt(x) if self.passes < 0 else x

    @staticmethod
    def interrupt(_x: Tensor) -> Tensor:
        raise KeyboardInterrupt


def network() -> nn.Sequential:
    maps = (CtrlC(), nn.Conv2d(3, 4, 3), nn.ReLU(), CtrlC(), nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4))
    model = nn.Sequential(*maps, nn.AdaptiveAvgPool2d(1), nn.Flatten(), CtrlC(), nn.Linear(4, 3)).eval()
    # As a user may have it in the middle of a training.
    model[1].train()
    model[5].train()
    model[4].weight.requires_grad_(False)
    return model


IMAGES = torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))
BANK, HEAD = ConceptBank.random(5, 4), nn.Linear(5, 2)


def explained(explain: Callable[..., Any]) -> Callable[[nn.Module], object]:
    return lambda model: explain(model, IMAGES.numpy(), np.array([0, 1, 2, 0]))


CALLS: dict[str, Callable[[nn.Module], object]] = {
    "CoAM of a layer": lambda m: CoAM(m, "5", BANK).attribute(IMAGES, 1),
    "CoAM of a model": lambda m: CoAM(PostHocCBM(m[:6], BANK, HEAD)).attribute(IMAGES, 1),
    "explain_func": explained(explain_func(Saliency, batch_size=2)),
    "explain_func with hooks": explained(explain_func(DeepLift)),
    "explain_func of a layer": explained(explain_func(LayerGradCam, layer="5")),
    "explain_func with noise": explained(explain_func(lambda m: NoiseTunnel(Saliency(m)), nt_samples=2)),
    "SmoothGrad": explained(build_method("SmoothGrad", n_samples=2)),
    "guided Grad-CAM": explained(build_method("guided Grad-CAM")),
    "SteeredRISE": lambda m: SteeredRISE(m).attribute(IMAGES, 0, lam=0, n_masks=4, cells=2, batch_size=2),
    "TCAV": lambda m: tcav_score(m, ["5"], IMAGES + 1, IMAGES, IMAGES, 0, n_random=2),
    "embed": lambda m: embed(m[:6], [(IMAGES,), (IMAGES,)]),
    "LayerFeatures": lambda m: LayerFeatures(m, "3")(IMAGES),
    "show_concepts": lambda m: show_concepts(m, IMAGES, layer="5", bank=BANK),
}


@pytest.mark.filterwarnings("ignore:Setting backward hooks", "ignore:.*forward, backward hooks")
@pytest.mark.parametrize("passes", [0, 1])
@pytest.mark.parametrize("place", [0, 8])
@pytest.mark.parametrize("name", CALLS)
def test_an_interrupt_leaves_no_trace(name: str, place: int, passes: int) -> None:
    model = network()
    gradients = [parameter.requires_grad for parameter in model.parameters()]
    model[place].passes = passes
    numbers = torch.get_rng_state(), np.random.get_state()[1].tolist()  # noqa: NPY002
    interrupted = False
    with untouched(model):
        try:
            CALLS[name](model)
        except KeyboardInterrupt:
            interrupted = True
    # Some calls end before the last place, or run the model once.
    assert interrupted or passes or place == 8
    assert torch.is_grad_enabled()
    assert not torch.is_inference_mode_enabled()
    assert [parameter.requires_grad for parameter in model.parameters()] == gradients
    assert torch.equal(torch.get_rng_state(), numbers[0])
    assert np.random.get_state()[1].tolist() == numbers[1]  # noqa: NPY002


def test_an_interrupt_between_two_flags() -> None:
    class Stubborn(nn.Module):
        """A module whose mode cannot be set without an interrupt."""

        def __setattr__(self, name: str, value: Any) -> None:
            if name == "training" and not value and self.__dict__.get("training"):
                raise KeyboardInterrupt
            super().__setattr__(name, value)

    model = nn.Sequential(nn.ReLU(), Stubborn(), nn.ReLU())
    with pytest.raises(KeyboardInterrupt), evaluation_mode(model):
        pytest.fail("not interrupted")
    assert all(part.training for part in model.modules())
