from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from quantus_concepts.studies._models.networks import FineResNet, Normalised, OverlappingMeans, network_builder

OWN = """
import torch
from torch import nn

MEAN, STD = (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)


def network():
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 7)
    )

"""


@pytest.fixture
def file(tmp_path) -> Path:
    path = tmp_path / "own.py"
    path.write_text(OWN)
    return path


def images(size: int = 32) -> torch.Tensor:
    return torch.rand(2, 3, size, size, generator=torch.Generator().manual_seed(0))


def test_normalisation_by_hand():
    network = Normalised(nn.Identity(), (0.5, 0.25, 0.0), (0.5, 0.25, 2.0))
    normalised = network(torch.ones(1, 3, 2, 2))
    assert normalised[0, :, 0, 0].tolist() == [1.0, 3.0, 0.5]
    assert torch.equal(Normalised(nn.Identity())(images()), images())
    with pytest.raises(ValueError, match="`std` to be positive"):
        Normalised(nn.Identity(), (0.5,), (0.0,))


@pytest.mark.parametrize("name", ["squeezenet1_1", "googlenet", "resnet10t.c3_in1k"])
def test_networks_of_the_libraries_get_classes_of_their_own(name):
    build = network_builder(name, "none", image_size=64)
    first, again, other = build(5, 0), build(5, 0), build(3, 1)
    assert not first.training
    assert first(images(64)).shape == (2, 5)
    assert other(images(64)).shape == (2, 3)
    assert torch.equal(first(images(64)), again(images(64)))
    assert not any(getattr(part, "inplace", False) for part in first.modules())
    # In training too the output is one tensor.
    assert first.train()(images(64)).shape == (2, 5)


def test_the_backbone_is_that_of_the_file_and_the_last_layer_is_fresh(file):
    state = torch.random.get_rng_state()
    build = network_builder(f"{file}:network", image_size=16)
    first, second = build(3, 0), build(3, 1)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert torch.equal(first.network[0].weight, second.network[0].weight)
    assert not torch.equal(first.network[4].weight, second.network[4].weight)
    assert first.network[4].out_features == 3
    assert first.mean.flatten().tolist() == [0.5] * 3
    # Copies: training one does not change the other.
    with torch.no_grad():
        first.network[0].weight.zero_()
    assert second.network[0].weight.abs().sum() > 0


def test_the_small_network_is_without_stride():
    network = network_builder("small", image_size=32, channels=16)(4, 2)
    assert not network.training
    expected = FineResNet(4, 16, 2).eval()
    assert torch.equal(network(images()), expected(images()))
    assert all(part.stride == (1, 1) for part in network.modules() if isinstance(part, torch.nn.Conv2d))
    assert network.features(images()).shape == (len(images()), 16, 4, 4)
    # What is there without arguments.
    assert network_builder()(3, 0)(images()).shape == (len(images()), 3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"spec": "small", "image_size": 30}, "multiple of 8 for the small network but got 30"),
        ({"spec": "small", "weights": "weights.pt"}, "no argument `weights` for the small network"),
        (
            {"spec": "vit_tiny_patch16_224", "weights": "none", "image_size": 64},
            r"take images of shape \(3, 64, 64\)",
        ),
    ],
)
def test_bad_input_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        network_builder(**arguments)


def test_a_network_needs_a_layer_that_can_be_replaced(file):
    file.write_text(OWN.replace("nn.Flatten(), nn.Linear(4, 7)", "nn.Flatten()"))
    with pytest.raises(ValueError, match="no linear layer that could be replaced"):
        network_builder(f"{file}:network", image_size=16)


def test_overlapping_means_are_those_of_pooling():
    ours, theirs = OverlappingMeans(4), nn.AvgPool2d(4, 2, 1)
    maps = torch.randn(3, 4, 8, 12, generator=torch.Generator().manual_seed(0)).requires_grad_()
    assert not ours.state_dict()
    torch.testing.assert_close(ours(maps), theirs(maps))
    gradients = [torch.autograd.grad(of(maps).square().sum(), maps)[0] for of in (ours, theirs)]
    torch.testing.assert_close(*gradients)
