"""Small concept models, networks and arrays that go together."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from captum.concept import CAV, Concept
from torch import Tensor, nn

from captum_concepts import Backbone, BottleneckCBM, ConceptBank, PostHocCBM, ResidualCBM


class Tower(nn.Module):
    """A text encoder that may give anything."""

    def __init__(self, embedding: Any = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))
        self.embedding = embedding

    def encode_text(self, tokens: Tensor) -> Any:
        return torch.ones(len(tokens), 2) if self.embedding is None else self.embedding


def trained_cav(weights: Any = ((1.0, 0.0), (-1.0, 0.0))) -> CAV:
    concepts = [Concept(0, "red", None), Concept(1, "blue", None)]
    return CAV(concepts, "layer", {"weights": torch.tensor(weights), "classes": [0, 1]})


def tokens(texts: list[str]) -> Tensor:
    return torch.zeros(len(texts), 3, dtype=torch.int64)


BANK = ConceptBank([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], names=["red", "blue", "long"])
FEATURES, PRESENT = np.arange(16.0).reshape(8, 2) % 5, np.eye(2, dtype=int)[np.arange(8) % 2]
IMAGES = torch.rand(8, 3, 8, 8)
BACKBONE = nn.Sequential(nn.Conv2d(3, 2, 3), nn.Sigmoid()).eval()
CBM = PostHocCBM(BACKBONE, BANK, nn.Linear(3, 2)).eval()
BOTTLENECK = BottleneckCBM(BACKBONE, nn.Linear(2, 3), nn.Linear(3, 2)).eval()
RESIDUAL = ResidualCBM(CBM, nn.Linear(2, 2)).eval()
CUT = Backbone(BACKBONE, "mean", None, 2)
NET = nn.Sequential(nn.Conv2d(3, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(72, 2)).eval()
CLASSES = torch.arange(8) % 2
LOADER = [(IMAGES, CLASSES, torch.from_numpy(PRESENT))]
