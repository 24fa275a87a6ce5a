"""Painted birds before and after a substitution, kept in memory."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.data import Dataset

from quantus_concepts.datasets import PaintedSubstitutions, SubstitutionSample
from quantus_concepts.studies.concepts.oracle import Recognition
from quantus_concepts.studies.loading import KeptImages


class KeptPairs(Dataset[SubstitutionSample]):
    """Substitutions whose images are painted once and kept as 8-bit numbers."""

    added: Tensor
    removed: Tensor
    pairs: Tensor
    labels: Tensor
    concept_labels: Tensor
    concept_labels_before: Tensor
    class_concepts: Tensor
    class_names: list[str]
    concept_names: list[str]

    def __init__(self, data: PaintedSubstitutions) -> None:
        samples = [data[index] for index in range(len(data))]
        self.after, self.before = (
            (torch.stack(images) * 255).round().to(torch.uint8)
            for images in ([each.image for each in samples], [each.before for each in samples])
        )
        self.points = torch.stack([each.points for each in samples])
        for name in KeptPairs.__annotations__:
            setattr(self, name, getattr(data, name))

    def __len__(self) -> int:
        return len(self.added)

    def __getitem__(self, index: int) -> SubstitutionSample:
        """Return one sample; raises IndexError past the end."""
        after, before = (images[index].float() / 255 for images in (self.after, self.before))
        label = int(self.labels[index])
        return SubstitutionSample(after, label, self.concept_labels[index], self.points[index], before)

    def described(self) -> dict[str, str]:
        """Return what a report lists."""
        found = {"substitutions": str(len(self)), "pairs of class and attribute": str(len(self.pairs.unique()))}
        return found | {"attributes put in": str(len(self.added.unique()))}

    def known(self, seen: KeptImages) -> tuple[Recognition, Tensor, Tensor]:
        """Return what knows every image, after, before, and without a substitution; with their concepts and classes."""
        images = torch.cat([self.after, self.before, seen.images]).float() / 255
        concepts = torch.cat([self.concept_labels, self.concept_labels_before, seen.concept_labels])
        return Recognition(list(images)), concepts, torch.cat([self.labels, self.labels, seen.labels])
