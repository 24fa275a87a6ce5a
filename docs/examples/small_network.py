"""A network small enough to be trained while a page of the documentation is built."""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor, nn

from quantus_concepts.datasets import PaintedBirds


def small_network(n_classes: int, width: int = 24) -> nn.Sequential:
    """Return three convolutions, whose maps (N, 4 * width, H / 8, W / 8) are `maps`, averaged, and a linear layer."""

    def block(inputs: int, outputs: int, stride: int) -> list[nn.Module]:
        convolution = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        return [convolution, nn.BatchNorm2d(outputs), nn.ReLU()]

    maps = nn.Sequential(
        *block(3, width, 2),
        *block(width, 2 * width, 2),
        *block(2 * width, 4 * width, 2),
    )
    pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return nn.Sequential(
        OrderedDict(maps=maps, pool=pool, classes=nn.Linear(4 * width, n_classes))
    )


def train(
    network: nn.Module, images: Tensor, labels: Tensor, epochs: int = 6, seed: int = 0
) -> nn.Module:
    """Train on images in memory, and return the network in eval mode."""
    generator = torch.Generator().manual_seed(seed)
    steps = epochs * -(-len(images) // 50)
    optimiser = torch.optim.AdamW(network.parameters(), weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, max_lr=5e-3, total_steps=steps
    )
    # Faster on a CPU.
    network.to(memory_format=torch.channels_last).train()
    for _ in range(epochs):
        for rows in torch.randperm(len(images), generator=generator).split(50):
            optimiser.zero_grad()
            nn.functional.cross_entropy(network(images[rows]), labels[rows]).backward()
            optimiser.step()
            schedule.step()
    return network.eval()


def trained_on_birds(
    n_train: int,
    n_test: int,
    n_classes: int = 8,
    n_concepts: int = 40,
    epochs: int = 10,
) -> tuple[nn.Module, PaintedBirds, PaintedBirds]:
    """Return a network that is trained on painted birds, the birds it was trained on, and others to test it."""
    training, test = (
        PaintedBirds(
            n,
            split,
            image_size=64,
            n_classes=n_classes,
            n_concepts=n_concepts,
            keep=True,
        )
        for n, split in ((n_train, "train"), (n_test, "test"))
    )
    torch.manual_seed(0)
    network = small_network(n_classes)
    return train(network, training.images(), training.labels, epochs), training, test
