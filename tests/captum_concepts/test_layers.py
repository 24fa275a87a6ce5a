"""Layers found by name, run up to, and chosen by default, on networks small enough to compute by hand."""

from __future__ import annotations

import pytest
import timm
import torch
from torch import Tensor, nn
from torchvision import models
from torchvision.ops import Permute

from captum_concepts.backbones.layers import LayerFeatures, find_layer, last_spatial_layer, layer_channels, layer_name
from untouched import untouched


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1)
        self.norm = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.relu(x + self.norm(self.conv(x)))


class Net(nn.Module):
    """A residual network whose pool and head come after `layer3`; `spare` is never called."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, stride=2, padding=1)
        self.layer1 = nn.Sequential(Block(4), Block(4))
        self.layer3 = nn.Sequential(nn.Conv2d(4, 6, 3, stride=2, padding=1), Block(6))
        self.drop = nn.Identity()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(6, 2)
        self.spare = nn.Linear(2, 2)
        self.heads_run = 0

    def forward(self, x: Tensor) -> Tensor:
        x = self.drop(self.layer3(self.layer1(self.stem(x))))
        self.heads_run += 1
        return self.head(self.pool(x).flatten(1))


@pytest.fixture
def net() -> Net:
    return Net().eval()


@pytest.fixture
def images() -> Tensor:
    return torch.randn(2, 3, 16, 24, generator=torch.Generator().manual_seed(1))


def hooks(model: nn.Module) -> int:
    return sum(len(module._forward_hooks) for module in model.modules())


class Scale(nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return self.factor * x


def test_output_of_a_layer_by_hand() -> None:
    model = nn.Sequential(Scale(2), Scale(3), Scale(5))
    image = torch.ones(1, 1, 1, 2)
    assert LayerFeatures(model, "1")(image).tolist() == [[[[6, 6]]]]
    assert LayerFeatures(model, model[2])(image).tolist() == [[[[30, 30]]]]
    # One inside another stops at its own layer.
    inner = LayerFeatures(model, "0")
    assert LayerFeatures(nn.Sequential(inner, Scale(7)), "1")(image).tolist() == [[[[14, 14]]]]
    assert LayerFeatures(nn.Sequential(inner, Scale(7)), "0.model.0")(image).tolist() == [[[[2, 2]]]]


def test_nothing_of_the_users_is_changed(net: Net, images: Tensor) -> None:
    net.train()
    with untouched(net, images):
        assert last_spatial_layer(net, images) == "layer3"
        assert layer_channels(net, "layer3", images) == 6
        with pytest.raises(ValueError, match=r"layer 'head' to give maps \(N, d, h, w\) but got shape \(2, 2\)"):
            layer_channels(net, "head", images)
    net.eval().layer1.train()
    modes = [module.training for module in net.modules()]
    LayerFeatures(net, "layer3")(images)
    assert [module.training for module in net.modules()] == modes


def test_last_spatial_layer_of_known_networks(net: Net, images: Tensor) -> None:
    assert last_spatial_layer(net, images) == "layer3"
    image = torch.zeros(1, 3, 64, 64)
    assert last_spatial_layer(timm.create_model("test_resnet"), image) == "layer4"
    assert last_spatial_layer(nn.Sequential(net, nn.Softmax(1)), images) == "0.layer3"
    assert hooks(net) == 0


def test_maps_with_channels_last_are_not_taken_for_maps() -> None:
    layers = nn.Conv2d(3, 64, 8, stride=8), Permute([0, 2, 3, 1]), nn.LayerNorm(64)
    assert last_spatial_layer(nn.Sequential(*layers), torch.zeros(1, 3, 32, 32)) == "0"


def test_layer_called_twice_is_not_the_last() -> None:
    relu = nn.ReLU()
    layers = nn.Conv2d(3, 4, 1), relu, nn.Conv2d(4, 4, 1), relu, nn.Flatten()
    assert last_spatial_layer(nn.Sequential(*layers), torch.zeros(1, 3, 4, 4)) == "2"


class Wrapper(nn.Module):
    """A model in a wrapper of the user's own, so that it is known by what it does and not by its class."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.net = model

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


def test_the_embedding_of_patches_is_not_taken_for_the_last_maps() -> None:
    image = torch.zeros(2, 3, 32, 32)
    for model, name in (
        (models.VisionTransformer(32, 8, 2, 2, 16, 32), "net.conv_proj"),
        (timm.create_model("test_vit", img_size=32), "net.patch_embed.proj"),
    ):
        with pytest.raises(ValueError, match=rf"`layer` to be given for Wrapper.*tokens after '{name}'"):
            last_spatial_layer(Wrapper(model), image)
    # Tokens inside, maps at the end: Swin of torchvision permutes them back, and ConvNeXt goes to and fro.
    swin = models.SwinTransformer([4, 4], 8, [1, 1], [2, 2], [4, 4])
    assert last_spatial_layer(swin, image) == "permute"
    assert last_spatial_layer(timm.create_model("test_convnext"), torch.zeros(1, 3, 64, 64)) == "stages"


def test_layers_that_are_not_there_or_give_no_maps(net: Net, images: Tensor) -> None:
    with pytest.raises(ValueError, match=r"`layer` to name a layer of Net but got 'layr3'\. Nearest: \['layer3'"):
        find_layer(net, "layr3")
    assert layer_name(net, net.layer3[1].conv) == "layer3.1.conv"
    with pytest.raises(ValueError, match="to be part of Net"):
        layer_name(net, nn.Conv2d(3, 4, 3))
    with pytest.raises(RuntimeError, match="Expected Net to run its layer 'spare' but it did not"):
        LayerFeatures(net, "spare")(images)
    assert hooks(net) == 0
    with pytest.raises(TypeError, match="layer '0' to give a tensor but got tuple"):
        LayerFeatures(nn.Sequential(nn.LSTM(3, 4)), "0")(torch.zeros(1, 2, 3))
    with pytest.raises(ValueError, match="`layer` to name a layer of Sequential"):
        last_spatial_layer(nn.Sequential(nn.Flatten(), nn.Linear(12, 2)), torch.zeros(1, 3, 2, 2))
