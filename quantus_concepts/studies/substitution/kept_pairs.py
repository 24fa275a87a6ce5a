"""Substitutions of painted birds, kept in memory."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from quantus_concepts.datasets import PaintedSubstitutions, SubstitutionSample
from quantus_concepts.painted.images import KeptImages
from quantus_concepts.painted.subject import Recognition


class KeptPairs(Dataset[SubstitutionSample]):
    """Substitutions whose images are painted once and kept as 8-bit numbers."""

    def __init__(self, data: PaintedSubstitutions) -> None:
        self.data = data
        self.samples = [
            sample._replace(image=_eight_bits(sample.image), before=_eight_bits(sample.before))
            for sample in map(data.__getitem__, range(len(data)))
        ]

    def __len__(self) -> int:
        return len(self.samples)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.data, name)

    def __getitem__(self, index: int) -> SubstitutionSample:
        """Return one sample; raises IndexError past the end."""
        sample = self.samples[index]
        return sample._replace(image=sample.image.float() / 255, before=sample.before.float() / 255)

    def recognition(self, seen: KeptImages) -> tuple[Recognition, Tensor, Tensor]:
        """Return a network that recognises all images, and their concepts and classes."""
        samples = [self[index] for index in range(len(self))]
        images = [*(sample.image for sample in samples), *(sample.before for sample in samples)]
        concepts = torch.cat([self.data.concept_labels, self.data.concept_labels_before, seen.concept_labels])
        return (
            Recognition([*images, *(seen.images.float() / 255)]),
            concepts,
            torch.cat([self.data.labels, self.data.labels, seen.labels]),
        )


def _eight_bits(image: Tensor) -> Tensor:
    return (image * 255).round().to(torch.uint8)
