"""Painted birds whose crown is seen, and maps of known quality for it: on the crown, on the tail, and noise."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import torch

from quantus_concepts.datasets import PaintedBirds

birds = PaintedBirds(
    n_images=60, split="test", image_size=64, n_classes=8, n_concepts=30
)
crown, tail = (birds.part_names.index(name) for name in ("crown", "tail"))
points = birds.points[:, :, 0].numpy()
seen = ~np.isnan(points[:, (crown, tail)]).any((1, 2))
#: (N, 3, 64, 64), and the places of the parts (N, P, 2) as x, y.
images, points = birds.images()[torch.as_tensor(seen)].numpy(), points[seen]


def maps_at(part: int, wide: float = 14) -> np.ndarray:
    """Return maps (N, 1, H, W) that are largest near a part, within the error of the eye."""
    y, x = np.mgrid[:64, :64]
    centre = points[:, part] + np.random.default_rng(0).normal(0, 4, (len(points), 2))
    distance = (x - centre[:, 0, None, None]) ** 2 + (y - centre[:, 1, None, None]) ** 2
    return np.exp(-distance / 2 / wide**2)[:, None].astype(np.float32)


explanations = {
    "on the crown": maps_at(crown),
    "on the tail": maps_at(tail),
    "noise": np.random.default_rng(1).random(
        (len(images), 1, 64, 64), dtype=np.float32
    ),
}
#: The pixel of the crown (N, 1, H, W).
marked = np.zeros((len(images), 1, 64, 64), dtype=bool)
column, row = points[:, crown].round().astype(int).T
marked[np.arange(len(images)), 0, row, column] = True


def plot_regions() -> None:
    """Draw the regions of the first image for alpha 1 (yellow) and 3 (white), and the annotated place."""
    _, axes = plt.subplots(1, 3, figsize=(8, 2.9))
    for ax, (name, maps) in zip(axes, explanations.items(), strict=True):
        ax.imshow(images[0].transpose(1, 2, 0))
        for alpha, colour in ((3, "white"), (1, "yellow")):
            limit = np.quantile(maps[0, 0], 1 - alpha / 12)
            ax.contour(maps[0, 0], levels=[limit], colors=colour, linewidths=1)
        ax.plot(*points[0, crown], "x", color="black", markersize=9, markeredgewidth=2)
        ax.set_title(name)
        ax.axis("off")
