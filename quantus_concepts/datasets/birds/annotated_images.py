"""Image files with classes, concepts and parts, read on access."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from captum_concepts.support.checks import check_index
from captum_concepts.support.images import image_size as size_of_image
from captum_concepts.support.images import load_image
from quantus_concepts.datasets.base import ConceptDataset, ConceptSample
from quantus_concepts.datasets.transforms import Transform, apply_transform, default_transform


class AnnotatedImages(ConceptDataset):
    """Image files of which classes, concepts and points are in memory; the points are moved with the images."""

    image_paths: list[Path]
    points: Tensor

    def __init__(self, transform: Transform | None, image_size: int | Sequence[int] | None) -> None:
        self.transform, self.image_size = transform, image_size
        self._scale = None if image_size is None else default_transform(image_size)

    def __getitem__(self, index: int) -> ConceptSample:
        """Return one sample; raises IndexError past the end, ValueError for an image that cannot be read."""
        index = check_index(index, len(self), "images")
        image, points = apply_transform(self._load(index), self.points[index], self._scale)
        image, points = apply_transform(image, points, self.transform)
        return ConceptSample(image, int(self.labels[index]), self.concept_labels[index], points)

    def _load(self, index: int) -> Tensor:
        """Return an image as it is before the transforms."""
        return load_image(self.image_paths[index])

    def _size(self, index: int) -> tuple[int, int]:
        """Return height and width of an image before the transforms, from the header of its file."""
        return size_of_image(self.image_paths[index])

    def _check_sizes(self) -> None:
        """Raise unless all images have one size, where nothing makes them equal."""
        if self.transform is not None or self.image_size is not None:
            return
        first = self._size(0)
        for index, path in enumerate(self.image_paths):
            if (size := self._size(index)) != first:
                raise ValueError(
                    f"Expected images of one size but {self.image_paths[0]} has (H, W) = {first} and {path} has "
                    f"{size}. Give `image_size`, or a `transform` that makes them equal."
                )
