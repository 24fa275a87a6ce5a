"""A small planted world for tests of the trial: four classes, eight concepts of four parts, without pictures."""

from __future__ import annotations

import torch

from quantus_concepts.metrics.host.looks import Looked
from quantus_concepts.metrics.host.predictions import ConceptPredictions
from quantus_concepts.testing.damages import DIRECTIONS, FITTED, HIDDEN, MAPS, OFFSETS, SIZE

N, K, L, P = 160, 4, 8, 4
PARTS = torch.arange(L) // 2


def planted_rows(seed: int = 0) -> ConceptPredictions:
    """Return rows whose values are the labels with noise; maps are 1 at the part's place."""
    generator = torch.Generator().manual_seed(seed)
    classes = torch.arange(N) % K
    table = (torch.rand(K, L, generator=torch.Generator().manual_seed(5)) < 0.5).float()
    flips = torch.rand(N, L, generator=generator) < 0.1
    labels = torch.where(flips, 1 - table[classes], table[classes])
    space = torch.cat([2 * labels - 1 + 0.3 * torch.randn(N, L, generator=generator), torch.eye(K)[classes]], 1)
    space[:, L:] += 0.2 * torch.randn(N, K, generator=generator)
    directions = torch.eye(L + K)[:L]
    points = torch.rand(N, P, 1, 2, generator=generator) * 12 + 2
    grid = torch.arange(16) + 0.0
    place = points[:, PARTS, 0]
    distance = (place[..., 0, None, None] - grid) ** 2 + (place[..., 1, None, None] - grid[:, None]) ** 2
    hidden = space[:, None].repeat(1, P, 1)
    for part in range(P):
        hidden[:, part, :L][:, part == PARTS] *= 0.2
    return ConceptPredictions(
        classes=classes,
        values=space[:, :L].clone(),
        embedding=space,
        truth={
            "labels": classes,
            "concept_labels": labels.to(torch.uint8),
            "points": points,
            FITTED: torch.arange(N) < N // 2,
        },
        looks={
            MAPS: Looked({"maps": torch.exp(-distance / 8)}),
            HIDDEN: Looked({"values": hidden[..., :L].clone(), "embedding": hidden}),
        },
        tables={
            "class_concepts": table.numpy(),
            "part_of_concept": PARTS.numpy(),
            DIRECTIONS: directions,
            OFFSETS: torch.zeros(L),
            SIZE: (16, 16),
        },
        about={"values": "margin", "bounded": False, "n_classes": K, "kind": "planted", "zero": "zero at the margin"},
    )
