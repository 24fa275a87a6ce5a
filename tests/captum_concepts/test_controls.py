"""Control attributions: random numbers that answer the same question alike, and SciPy's edges."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import ndimage, stats
from torch import Tensor, nn

from captum_concepts.attributions.controls import RandomAttribution, SobelEdges
from captum_concepts.attributions.explain import explain_func
from tiny_models import seeded
from untouched import untouched


def net(seed: int = 0) -> nn.Module:
    layers = nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5)
    return seeded(nn.Sequential(*layers), seed)


@pytest.fixture
def images() -> Tensor:
    return torch.randn(6, 3, 9, 7, generator=torch.Generator().manual_seed(0))


TARGETS = torch.tensor([0, 1, 2, 3, 4, 0])


def test_random_is_a_function_of_the_question(images):
    maps = RandomAttribution(net()).attribute(images, TARGETS)
    assert maps.shape == images.shape
    assert maps.dtype == images.dtype
    again = RandomAttribution(net()).attribute(images.clone().requires_grad_(), TARGETS.tolist())
    assert torch.equal(maps, again)
    # Neither the batch nor the order matters.
    order = torch.tensor([5, 1, 0])
    assert torch.equal(RandomAttribution(net()).attribute(images[order], TARGETS[order]), maps[order])


def correlation(first: Tensor, second: Tensor) -> float:
    return float(np.corrcoef(first.numpy().ravel(), second.numpy().ravel())[0, 1])


def test_random_is_another_for_every_other_question(images):
    model = net()
    maps = RandomAttribution(model).attribute(images, 0)
    nearly = images.clone()
    nearly[:, 0, 0, 0] += 1e-6
    lower = net()
    with torch.no_grad():
        lower[0].weight[0, 0, 0, 0] += 1
    other_calls = {
        "seed": RandomAttribution(model, seed=1).attribute(images, 0),
        "target": RandomAttribution(model).attribute(images, 1),
        "no target": RandomAttribution(model).attribute(images),
        "image": RandomAttribution(model).attribute(nearly, 0),
        "model": RandomAttribution(net(1)).attribute(images, 0),
        "first layer": RandomAttribution(lower).attribute(images, 0),
        "no model": RandomAttribution(lambda x: x).attribute(images, 0),
        "sample": maps.roll(1, 0),
    }
    for name, other in other_calls.items():
        # 1134 pairs: a correlation of independent numbers has a standard deviation of 0.03.
        assert abs(correlation(maps, other)) < 0.15, name
        assert not (maps == other).flatten(1).all(1).any(), name


def test_random_is_uniform_and_at_chance():
    images = torch.rand(400, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    maps = RandomAttribution(net()).attribute(images, 0).numpy()
    assert maps.min() >= 0
    assert maps.max() < 1
    assert stats.kstest(maps.ravel(), "uniform").pvalue > 1e-3
    # The mean within a mask differs between two models by 0, and is lower for one in half of the images.
    second = RandomAttribution(net(1)).attribute(images, 0).numpy()
    difference = (maps - second)[:, :, :4].mean((1, 2, 3))
    # Each within four standard errors of chance.
    assert abs(stats.ttest_1samp(difference, 0).statistic) < 4
    assert abs(stats.ttest_1samp(difference < 0, 0.5).statistic) < 4


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_edges_are_scipys(images, dtype):
    images = images.to(dtype)
    edges = SobelEdges(net()).attribute(images, TARGETS)
    assert edges.dtype == dtype
    # One plane at a time: SciPy smooths along all other axes.
    planes = images.double().numpy().reshape(-1, 9, 7)
    slow = [np.hypot(*(ndimage.sobel(plane, axis=axis, mode="nearest") for axis in (0, 1))) for plane in planes]
    expected = np.reshape(slow, images.shape)
    np.testing.assert_allclose(edges.numpy(), expected, atol=1e-5 if dtype == torch.float32 else 1e-12)


def test_edges_by_hand():
    image = torch.tensor([[0.0, 0, 1, 1]]).repeat(4, 1)[None, None]
    # A step of 1 seen through the weights 1, 2, 1; nothing at the border.
    expected = torch.tensor([[0.0, 4, 4, 0]]).repeat(4, 1)[None, None]
    assert torch.equal(SobelEdges(net()).attribute(image), expected)
    assert torch.equal(SobelEdges(net()).attribute(image.mT), expected.mT)
    assert torch.equal(SobelEdges(net()).attribute(torch.full((1, 2, 3, 3), 7.0)), torch.zeros(1, 2, 3, 3))


@pytest.mark.parametrize("control", [RandomAttribution, SobelEdges])
def test_hosts(images, control):
    model = net()
    attribution = control(model)
    with untouched(model, images):
        single = attribution.attribute(images, target=1)
    explained = explain_func(control, batch_size=4)(model, images.numpy(), TARGETS.numpy())
    np.testing.assert_array_equal(explained, attribution.attribute(images, TARGETS).numpy())
    # Not an explanation of the same question: the models differ.
    assert (single == control(net(1)).attribute(images, 1)).all() == (control is SobelEdges)
    # Places in outputs of more axes, as in all of Captum; the model is not run.
    for place in ((1, 0, 3), [(1, 0, 3)] * len(images)):
        assert control(len).attribute(images, place).shape == images.shape


def test_edges_of_whole_numbers_are_refused(images):
    with pytest.raises(TypeError, match="`inputs` to hold floats"):
        SobelEdges(net()).attribute(images.byte())
