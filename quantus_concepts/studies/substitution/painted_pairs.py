"""Painted birds before and after a substitution, kept in memory."""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor
from torch.utils.data import Dataset

from quantus_concepts.datasets import PaintedSubstitutions, SubstitutionSample
from quantus_concepts.datasets.base import ConceptDataset, ConceptSample
from quantus_concepts.studies.loading import KeptImages


class KeptPairs(Dataset[SubstitutionSample]):
    """Substitutions whose images are painted once and kept as 8-bit numbers."""

    def __init__(self, data: PaintedSubstitutions) -> None:
        samples = [data[index] for index in range(len(data))]
        self.after, self.before = (
            (torch.stack(images) * 255).round().to(torch.uint8)
            for images in ([each.image for each in samples], [each.before for each in samples])
        )
        self.points = torch.stack([each.points for each in samples])
        for name in ("added", "removed", "pairs", "labels", "concept_labels", "concept_labels_before"):
            setattr(self, name, getattr(data, name))
        self.class_concepts, self.part_of_concept = data.class_concepts, data.part_of_concept
        self.class_names, self.concept_names = data.class_names, data.concept_names

    added: Tensor
    removed: Tensor
    pairs: Tensor
    labels: Tensor
    concept_labels: Tensor
    concept_labels_before: Tensor

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

    def known(self, seen: KeptImages) -> KnownImages:
        """Return every image with its truth: after, before, and those seen without a substitution."""
        samples = []
        for index in range(len(self)):
            after = self[index]
            truth = (after.label, self.concept_labels_before[index], after.points)
            samples += [ConceptSample(*after[:4]), ConceptSample(after.before, *truth)]
        return KnownImages([*samples, *(seen[index] for index in range(len(seen)))], self.part_of_concept)


class KnownImages(ConceptDataset):
    """Samples in a list."""

    def __init__(self, samples: list[ConceptSample], part_of_concept: Tensor) -> None:
        self.samples = samples
        self.part_of_concept = part_of_concept
        self.labels = torch.tensor([sample.label for sample in samples])

    def __getitem__(self, index: int) -> ConceptSample:
        """Return one sample."""
        return self.samples[index]

    def recited(self, class_concepts: Tensor) -> Self:
        """Return the same images with the concepts (K, L) of their classes in place of their own."""
        samples = [sample._replace(concepts=class_concepts[sample.label]) for sample in self.samples]
        return type(self)(samples, self.part_of_concept)
