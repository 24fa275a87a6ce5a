"""A painted bird, maps of known quality for its crown, and a concept model of birds with random banks."""

from __future__ import annotations

import matplotlib.pyplot as plt
import torch
from small_network import small_network, train
from torch.utils.data import DataLoader

from captum_concepts import PostHocCBM
from quantus_concepts.datasets import PaintedBirds
from quantus_concepts.functional import region_scores

birds = PaintedBirds(60, "test", image_size=64, n_classes=8, n_concepts=30, keep=True)
#: (N, P, H, W), as painted.
regions = torch.stack([birds.part_masks(i) for i in range(len(birds))])
crown, tail = (birds.part_names.index(name) for name in ("crown", "tail"))


def plot_scores() -> None:
    """Draw five maps over the outline of the crown, with their IoU, energy and hit."""
    bird = next(
        masks for masks in regions if masks[[crown, tail]].flatten(1).any(1).all()
    ).float()
    region, half = bird[crown], bird[crown].clone()
    half[:, : int(region.nonzero()[:, 1].float().mean())] = 0
    noise = torch.rand(64, 64, generator=torch.Generator().manual_seed(0))
    maps = {
        "the part": region,
        "half of it": half,
        "another part": bird[tail],
        "noise": noise,
        "constant": torch.ones(64, 64),
    }
    _, axes = plt.subplots(1, 5, figsize=(9, 2.8))
    for ax, (name, map_) in zip(axes, maps.items(), strict=True):
        iou, energy, hit = (
            score.item() for score in region_scores(map_[None], region[None])
        )
        ax.imshow(map_, cmap="magma", vmin=0, vmax=1)
        ax.contour(region, levels=[0.5], colors="white", linewidths=1)
        ax.set_title(
            f"{name}\nIoU {iou:.2f}\nenergy {energy:.2f}\nhit {hit:.2f}", fontsize=8
        )
        ax.axis("off")


def trained_model() -> PostHocCBM:
    """Return a concept model of a network that is trained on painted birds, with 39 random banks."""
    known = PaintedBirds(
        600, "train", image_size=64, n_classes=8, n_concepts=30, keep=True
    )
    torch.manual_seed(0)
    network = train(small_network(8), known.images(), known.labels, epochs=10)
    return PostHocCBM.fit(
        network.maps, DataLoader(known, 64), names=known.concept_names, random_banks=39
    )
