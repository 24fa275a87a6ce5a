"""Concept models that know what they say: one reads the picture, one recites its class."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Shown(nn.Module):
    """Concept values are the first pixels of an image."""

    def __init__(self, n_concepts: int) -> None:
        super().__init__()
        self.n_concepts = n_concepts

    def forward(self, images: Tensor) -> Tensor:
        return images[:, 0, 0, : self.n_concepts]


class Recited(nn.Module):
    """Concept values are those of the class, which the last pixel tells."""

    def __init__(self, class_concepts: Tensor) -> None:
        super().__init__()
        self.class_concepts = class_concepts.float()

    def forward(self, images: Tensor) -> Tensor:
        return self.class_concepts[images[:, 0, 0, -1].long()]


class TellingModel(nn.Module):
    """A concept model with a predictor that knows; it names the class of the largest of its first values."""

    def __init__(self, predictor: nn.Module, n_concepts: int, n_classes: int) -> None:
        super().__init__()
        self.features = nn.Identity()
        self.concept_predictor = predictor
        self.head = nn.Linear(n_concepts, n_classes, bias=False)
        with torch.no_grad():
            self.head.weight.copy_(torch.eye(n_classes, n_concepts))

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.concept_predictor(images))

    def concept_maps(self, images: Tensor, concepts: Tensor | None = None) -> Tensor:
        return self.concept_predictor(images)[:, :, None, None]


def images_showing(concepts: Tensor, labels: Tensor | None = None) -> Tensor:
    """Return images (N, 1, 2, .) that show concepts (N, L), and at the last pixel the class where it is given."""
    pixels = concepts.float() if labels is None else torch.cat([concepts, labels[:, None]], 1).float()
    return torch.stack([pixels, torch.zeros_like(pixels)], 1)[:, None]
