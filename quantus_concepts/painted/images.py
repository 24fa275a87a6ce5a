"""Images kept in memory, painted birds, and batches of them."""

from __future__ import annotations

import copy
import itertools
import warnings
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

from captum_concepts.support.running import progress
from quantus_concepts.datasets import PaintedBirds
from quantus_concepts.datasets.base import ConceptDataset, ConceptSample

#: Birds painted at a time; more than there are classes.
PAINTED_AT_ONCE = 120


class KeptImages(ConceptDataset):
    """A data set whose images are read once and kept as 8-bit numbers, a quarter of the room of floats."""

    def __init__(self, dataset: ConceptDataset, rows: range | None = None) -> None:
        rows = range(len(dataset)) if rows is None else rows
        first = dataset[rows[0]]
        self.images = torch.empty(len(rows), *first.image.shape, dtype=torch.uint8)
        self.points = torch.empty(len(rows), *first.points.shape)
        for place, index in enumerate(rows):
            sample = dataset[index]
            self.images[place] = (sample.image * 255).round().to(torch.uint8)
            self.points[place] = sample.points
        self.class_names = dataset.class_names
        self.concept_names = dataset.concept_names
        self.part_names = dataset.part_names
        self.part_of_concept = dataset.part_of_concept
        self.class_concepts = dataset.class_concepts
        self.labels = dataset.labels[rows.start : rows.stop : rows.step]
        self.concept_labels = dataset.concept_labels[rows.start : rows.stop : rows.step]

    def select(self, concepts: str | Sequence[str | int]) -> KeptImages:
        """Return the same images, still kept, with some of the concepts."""
        chosen = super().select(concepts)
        images = copy.copy(self)
        for name in ("concept_names", "part_of_concept", "class_concepts", "concept_labels"):
            setattr(images, name, getattr(chosen, name))
        return images

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Return the images of several data sets as one; the truth of a class is that of all its images."""
        images = copy.copy(parts[0])
        for name in ("images", "points", "labels", "concept_labels"):
            setattr(images, name, torch.cat([getattr(part, name) for part in parts]))
        members = functional.one_hot(images.labels, len(images.class_names)).float()
        images.class_concepts = (members.T @ images.concept_labels) / members.sum(0)[:, None]
        return images

    def __getstate__(self) -> dict[str, Any]:
        """Return arrays for tensors, which processes would pass through shared memory, of which there may be little."""
        return {name: value.numpy() if isinstance(value, Tensor) else value for name, value in vars(self).items()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Make tensors of arrays."""
        with warnings.catch_warnings():
            # Those of the store of Ray all workers share, and nobody writes to.
            warnings.filterwarnings("ignore", "The given NumPy array is not writable")
            vars(self).update(
                {
                    name: torch.from_numpy(value) if isinstance(value, np.ndarray) else value
                    for name, value in state.items()
                }
            )

    def __getitem__(self, index: int) -> ConceptSample:
        """Return one sample; raises IndexError past the end."""
        image = self.images[index].float() / 255
        return ConceptSample(image, int(self.labels[index]), self.concept_labels[index], self.points[index])


def painted_birds(*splits: tuple[dict[str, Any], int, int], display_progressbar: bool = False) -> list[KeptImages]:
    """Paint birds of each split: settings of `PaintedBirds`, number of the first bird, and how many."""
    cut = [
        [settings | {"first": low, "n_images": high - low, "keep": True} for low, high in itertools.pairwise(ends)]
        for settings, first, count in splits
        for ends in [np.linspace(first, first + count, max(count // PAINTED_AT_ONCE, 1) + 1).astype(int).tolist()]
    ]
    total = sum(len(settings_of_split) for settings_of_split in cut)
    parts = iter(progress(itertools.chain(*cut), "painting", total=total, show=display_progressbar))
    return [
        KeptImages.joined([KeptImages(PaintedBirds(**next(parts))) for _ in settings_of_split])
        for settings_of_split in cut
    ]


def collate(samples: Sequence[ConceptSample]) -> ConceptSample:
    """Stack samples."""
    sizes = sorted({tuple(sample.image.shape) for sample in samples})
    if len(sizes) > 1:
        raise ValueError(
            f"Expected all images to have one shape (C, H, W) but got {sizes[0]} and {sizes[-1]}. "
            "Give the data set an image size or a transform that makes them equal (--image-size)."
        )
    return ConceptSample(
        torch.stack([sample.image for sample in samples]),
        torch.tensor([int(sample.label) for sample in samples]),  # type: ignore[arg-type]
        torch.stack([sample.concepts for sample in samples]),
        torch.stack([sample.points for sample in samples]),
    )


def sample_loader(dataset: Dataset[ConceptSample], batch_size: int, n_workers: int = 0) -> DataLoader[ConceptSample]:
    """Return a loader over a data set in its own order."""
    if len(dataset) == 0:  # type: ignore[arg-type]
        raise ValueError("Expected a data set with at least one image but it is empty.")
    # A loader without a generator of its own draws from the global one whenever it is iterated.
    return DataLoader(dataset, batch_size, collate_fn=collate, num_workers=n_workers, generator=torch.Generator())


def batch_labels(batch: ConceptSample) -> Tensor:
    """Return the labels (B,) of a batch; in a batch the field is a tensor."""
    return torch.as_tensor(batch.label)
