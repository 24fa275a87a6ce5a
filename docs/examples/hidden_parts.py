"""Painted birds with hidden parts: as they are, with a disc over the wing, and painted without it."""

from __future__ import annotations

import matplotlib.pyplot as plt
import torch
from small_network import small_network
from small_network import train as fit_network
from torch import nn

from quantus_concepts.datasets import PaintedBirds
from quantus_concepts.functional import hide_part

train, test = (
    PaintedBirds(n, split, image_size=64, n_classes=8, n_concepts=30, keep=True)
    for n, split in ((600, "train"), (96, "test"))
)
#: The test images without each part (N, P, 3, H, W).
without = torch.stack(
    [
        torch.stack([test.without_part(i, p) for p in test.part_names])
        for i in range(len(test))
    ]
)


def plot_hidden_wings() -> None:
    """Draw six birds as they are, with a disc over the wing, and painted without it."""
    wing = test.part_names.index("wing")
    disc = hide_part(test.images(), test.points[:, wing])
    _, axes = plt.subplots(3, 6, figsize=(8, 4))
    for row, images in zip(axes, (test.images(), disc, without[:, wing]), strict=True):
        for ax, image in zip(row, images[:6], strict=True):
            ax.imshow(image.permute(1, 2, 0).clamp(0, 1))
            ax.axis("off")


def networks() -> dict[str, nn.Module]:
    """Return a network that is trained on the birds, and one that is not."""
    torch.manual_seed(0)
    trained = fit_network(small_network(8), train.images(), train.labels, epochs=10)
    return {"trained": trained, "untrained": small_network(8).eval()}
