"""Small networks, made for two CPU cores."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


@contextmanager
def with_seed(seed: int) -> Iterator[None]:
    """Seed the CPU's global generator, from which torch initialises layers, and put it back afterwards."""
    # torch.manual_seed would seed the generators of other devices too, which are not kept here.
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


def convolution(channels_in: int, channels_out: int, stride: int = 1) -> nn.Sequential:
    """Return a convolution of 3 x 3 with batch norm and ReLU."""
    return nn.Sequential(
        nn.Conv2d(channels_in, channels_out, 3, stride, padding=1, bias=False),
        nn.BatchNorm2d(channels_out),
        nn.ReLU(),
    )


class Residual(nn.Module):
    """Two convolutions around which the input goes unchanged."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = convolution(channels, channels)
        self.second = nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels))
        # A module, not a function: guided backpropagation finds only modules.
        self.relu = nn.ReLU()

    def forward(self, maps: Tensor) -> Tensor:
        """Return maps (N, C, H, W) of the size of the input."""
        return self.relu(maps + self.second(self.first(maps)))


class Folded(nn.PixelUnshuffle):
    """``PixelUnshuffle`` of images of three channels; what is folded already stays as it is."""

    def forward(self, input: Tensor) -> Tensor:
        """Return images (N, 48, H / 4, W / 4)."""
        return super().forward(input) if input.shape[1] == 3 else input


def fold_images(images: Tensor) -> Tensor:
    """Return images (N, 3, H, W) of uint8 as the first layer folds them, (N, 48, H / 4, W / 4), channels last."""
    # Folded once for all batches: bytes are a quarter of the work of floats, and four neighbours move as one number.
    n, channels, height, width = images.shape
    fours = images.contiguous().view(torch.int32).view(n, channels, height // 4, 4, width // 4)
    return fours.permute(0, 2, 4, 1, 3).contiguous().view(torch.uint8).flatten(3).permute(0, 3, 1, 2)


class SmallResNet(nn.Module):
    """A residual network of stride 8 with average pooling and a linear layer."""

    # Concept maps of stride 32 are too coarse to point at a part of a small image; here they have a place for each
    # 8 pixels. Made for two CPU cores: the first layer folds 4 x 4 pixels into channels.

    def __init__(self, n_outputs: int, channels: int = 64, seed: int = 0) -> None:
        super().__init__()
        with with_seed(seed):
            self.features = self._features(channels)
            self.classifier = nn.Linear(channels, n_outputs)
        self.channels = channels

    def _features(self, channels: int) -> nn.Sequential:
        return nn.Sequential(
            Folded(4),
            convolution(48, channels // 2),
            convolution(channels // 2, channels, stride=2),
            Residual(channels),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Return logits (N, n_outputs) of images (N, 3, H, W); H and W are multiples of 8."""
        maps = self.features(images)
        if maps.requires_grad and maps.is_contiguous(memory_format=torch.channels_last):
            # The gradient of the mean comes in the other format, which the ReLU before takes ten times as long for.
            maps.register_hook(lambda gradient: gradient.contiguous(memory_format=torch.channels_last))
        return self.classifier(maps.mean((2, 3)))
