"""Embeddings of painted birds that hold their concepts, under as much noise as one likes: no network is needed."""

from __future__ import annotations

import torch
from torch import Tensor

from quantus_concepts.datasets import PaintedBirds

L, D = 30, 64
train, test = (
    PaintedBirds(400, split, image_size=48, n_classes=10, n_concepts=L)
    for split in ("train", "test")
)


def embeddings(birds: PaintedBirds, noise: float) -> Tensor:
    """Return (N, d): each concept that an image shows adds its own direction, noise is added to the sum."""
    directions = torch.randn(L, D, generator=torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(1 if birds.split == "train" else 2)
    return birds.concept_labels.float() @ directions + noise * torch.randn(
        len(birds), D, generator=generator
    )
