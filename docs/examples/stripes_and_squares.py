"""Pictures of which it is known who looks where: grey stripes, and a speckled square that is red or blue."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import Tensor, nn

SIZE, SQUARE = 32, 12


class SceneModel(nn.Module):
    """Do the stripes lie or stand? It reads green, which the colour of a square does not change."""

    def forward(self, images: Tensor) -> Tensor:
        """Return logits (N, 2)."""
        green = images[:, 1]
        lie, stand = (
            green.diff(dim=1).square().mean((1, 2)),
            green.diff(dim=2).square().mean((1, 2)),
        )
        return 100 * torch.stack([lie, stand], 1)


class ObjectModel(nn.Module):
    """Is the square red or blue? Where there is none the two are equal, and it sees nothing."""

    def forward(self, images: Tensor) -> Tensor:
        """Return logits (N, 2)."""
        difference = images[:, 0] - images[:, 2]
        return 100 * torch.stack(
            [difference.relu().mean((1, 2)), (-difference).relu().mean((1, 2))], 1
        )


class Pictures(NamedTuple):
    """N pictures in three versions, and what is known of them."""

    scenes: np.ndarray  # (N, 3, H, W): stripes alone
    covered: np.ndarray  # with a square that covers the stripes
    tinted: np.ndarray  # with a square through which the stripes are seen, in green, as if it were not there
    masks: np.ndarray  # (N, 1, H, W): where the square is
    scene_labels: np.ndarray  # 0: stripes lie, 1: they stand
    object_labels: np.ndarray  # 0: red, 1: blue


def draw(n: int = 40, seed: int = 0) -> Pictures:
    """Draw some."""
    rng = np.random.default_rng(seed)
    scene_labels, object_labels = np.arange(n) % 2, np.arange(n) // 2 % 2
    bands = np.where((np.arange(SIZE) + rng.integers(0, 16, (n, 1))) % 16 < 8, 0.3, 0.7)
    scenes = np.full((n, 3, SIZE, SIZE), 0.5)
    scenes[:, 1] = np.where(
        scene_labels[:, None, None] == 0, bands[:, :, None], bands[:, None, :]
    )
    masks = np.zeros((n, 1, SIZE, SIZE), dtype=bool)
    for mask, (row, column) in zip(
        masks[:, 0], rng.integers(2, SIZE - SQUARE - 2, (n, 2)), strict=True
    ):
        mask[row : row + SQUARE, column : column + SQUARE] = True
    speckles = rng.random((n, SIZE, SIZE))
    strong, weak = 0.6 + 0.4 * speckles, 0.4 * speckles
    is_red = (object_labels == 0)[:, None, None]
    red, blue = np.where(is_red, strong, weak), np.where(is_red, weak, strong)
    tinted, covered = (
        np.where(masks, np.stack([red, g, blue], 1), scenes)
        for g in (scenes[:, 1], 0.5 + 0 * red)
    )
    return Pictures(
        *(images.astype(np.float32) for images in (scenes, covered, tinted)),
        masks,
        scene_labels,
        object_labels,
    )


def plot_maps(
    rows: Sequence[tuple[str, nn.Module, np.ndarray, np.ndarray]],
    methods: Mapping[str, Callable],
    mask: np.ndarray,
    titles: Mapping[str, str],
) -> None:
    """Draw the first image of each row (title, model, images, labels), and its map by each method."""
    _, axes = plt.subplots(len(rows), 1 + len(methods), figsize=(9, 4))
    for number, (row, (title, model, images, labels)) in enumerate(
        zip(axes, rows, strict=True)
    ):
        row[0].imshow(images[0].transpose(1, 2, 0))
        row[0].set_ylabel(title)
        for ax, (name, method) in zip(row[1:], methods.items(), strict=True):
            ax.imshow(
                abs(method(model, images[:1], labels[:1])[0]).sum(0), cmap="magma"
            )
            ax.contour(mask, levels=[0.5], colors="white", linewidths=0.8)
            if number == 0:
                ax.set_title(f"{name}\n{titles[name]}", fontsize=9)
    for ax in axes.flat:
        ax.set(xticks=[], yticks=[])


def plot_faithfulness(
    maps: Mapping[str, np.ndarray], scores: Mapping[str, tuple[float, float, float]]
) -> None:
    """Draw the first map of each name, and bars of sufficiency, necessity and F."""
    _, axes = plt.subplots(1, 4, figsize=(9, 2.6), width_ratios=(1, 1, 1, 1.7))
    for ax, (name, a_batch) in zip(axes, maps.items(), strict=False):
        ax.imshow(a_batch[0, 0], cmap="magma")
        ax.set_title(name, fontsize=9)
        ax.axis("off")
    for number, name in enumerate(maps):
        places = np.arange(3) + 0.27 * (number - 1)
        axes[3].bar(places, scores[name], width=0.25, label=name)
    axes[3].axhline(0.77, color="#777777", linestyle="--")
    names = ["sufficiency", "necessity", "F"]
    axes[3].set(xticks=range(3), xticklabels=names, ylim=(0, 1.02))
    axes[3].legend(
        frameon=False, fontsize=8, loc="upper right", bbox_to_anchor=(1, 0.75)
    )
