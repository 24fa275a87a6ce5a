"""Two threads that explain one model at the same time get the answers that each gets alone."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from captum.attr import GradientShap, GuidedBackprop, LayerGradCam, NoiseTunnel, Saliency
from torch import Tensor, nn

from captum_concepts import build_method, explain_func

ROUNDS = 6
IMAGES = [torch.rand(5, 3, 12, 12, generator=torch.Generator().manual_seed(seed)).numpy() for seed in (0, 1)]


class Output:
    """What models of Hugging Face return."""

    def __init__(self, logits: Tensor) -> None:
        self.logits = logits


class Slow(nn.Module):
    """A small network whose forward pass lets other threads run at every layer; its outputs have to be unwrapped."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng([]):
            torch.manual_seed(0)
            self.maps = nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Dropout(0.5))
            self.head = nn.Linear(6, 3)

    def forward(self, images: Tensor) -> Output:
        for part in self.maps:
            images = part(images)
            threading.Event().wait(0.001)
        return Output(self.head(images.mean((2, 3))))


def concurrently(calls: list[Callable[[], Any]]) -> list[list[Any]]:
    """Run each call several times in a thread of its own, all starting together."""
    start = threading.Barrier(len(calls))

    def repeated(call: Callable[[], Any]) -> list[Any]:
        start.wait()
        return [call() for _ in range(ROUNDS)]

    with ThreadPoolExecutor(len(calls)) as pool:
        return [future.result() for future in [pool.submit(repeated, call) for call in calls]]


def check_same(calls: list[Callable[[], np.ndarray]]) -> None:
    """Assert that calls that run at the same time give what each gives alone."""
    alone = [call() for call in calls]
    for expected, results in zip(alone, concurrently(calls), strict=True):
        for result in results:
            np.testing.assert_array_equal(result, expected)


METHODS = {
    "Saliency": explain_func(Saliency),
    "LayerGradCam": explain_func(LayerGradCam, layer="maps.2"),
    "GuidedBackprop": explain_func(GuidedBackprop),
    "SmoothGrad": explain_func(lambda m: NoiseTunnel(Saliency(m)), nt_samples=3),
    # Draws from the generators of both torch and NumPy.
    "GradientShap": explain_func(GradientShap, baselines=torch.zeros(2, 3, 12, 12), n_samples=3),
    "Grad-CAM": build_method("Grad-CAM"),
}


@pytest.mark.parametrize("name", METHODS)
def test_explanations(name):
    model = Slow().eval()
    states = torch.get_rng_state(), np.random.get_state()[2]  # noqa: NPY002
    explain = METHODS[name]
    weights = {key: value.clone() for key, value in model.state_dict().items()}
    check_same([lambda images=images: explain(model, images, 1) for images in IMAGES])
    assert all(module.training for module in model.modules())
    assert all(torch.equal(value, weights[key]) for key, value in model.state_dict().items())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert torch.equal(torch.get_rng_state(), states[0])
    assert np.random.get_state()[2] == states[1]  # noqa: NPY002


def test_methods_that_draw_on_two_models():
    """The generators are the process's, not the model's."""
    models = [Slow().eval(), Slow().eval()]
    explain = METHODS["GradientShap"]
    state = torch.get_rng_state()
    check_same([lambda i=i: explain(models[i], IMAGES[i], 1) for i in range(2)])
    assert torch.equal(torch.get_rng_state(), state)


def test_a_thread_of_the_users_still_gets_the_models_own_output():
    """While one thread explains, the user's own call in another returns what the model returns."""
    model = Slow().eval()

    def output_type() -> type:
        with torch.no_grad():
            return type(model(torch.from_numpy(IMAGES[1])))

    results = concurrently([lambda: METHODS["Saliency"](model, IMAGES[0], 1), output_type])
    assert results[1] == [Output] * ROUNDS
