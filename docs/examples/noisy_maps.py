"""Maps of painted birds, from a map on the bird to noise."""

from __future__ import annotations

from collections.abc import Mapping

import matplotlib.pyplot as plt
import numpy as np

from quantus_concepts.datasets import PaintedBirds

birds = PaintedBirds(
    n_images=24, split="test", image_size=64, n_classes=5, n_concepts=30
)
images, labels = birds.images().numpy(), birds.labels.numpy()
on_the_bird = np.stack([birds.part_masks(i).any(0) for i in range(len(birds))]).astype(
    np.float32
)
noise = np.random.default_rng(0).random(on_the_bird.shape).astype(np.float32)
#: Maps (N, 1, H, W) by their share of noise.
noisy_maps = {
    share: ((1 - share) * on_the_bird + share * noise)[:, None]
    for share in (0, 0.25, 0.5, 0.75, 1)
}


def plot_noisy_maps(scores: Mapping[float, float]) -> None:
    """Draw the maps of the first image, with their mean scores over all."""
    _, axes = plt.subplots(1, len(noisy_maps), figsize=(9, 2.4))
    for ax, (share, maps) in zip(axes, noisy_maps.items(), strict=True):
        ax.imshow(images[0].transpose(1, 2, 0))
        ax.imshow(maps[0, 0], cmap="bwr", alpha=0.5)
        ax.set_title(f"noise {share:.0%}\n{scores[share]:.2f}", fontsize=9)
        ax.axis("off")
