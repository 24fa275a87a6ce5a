"""Composed images in another order, or with their objects at chosen places."""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any, Self

import numpy as np
from torch import Tensor

from quantus_concepts.datasets.scenes.composed import Box, ComposedDataset
from quantus_concepts.datasets.scenes.objects_on_scenes import ObjectsOnScenes
from quantus_concepts.datasets.scenes.sources import ObjectSource, Pasted, SceneSource


class Interleaved(ComposedDataset):
    """The same images in an order in which classes take turns."""

    # An image of every pair of object and scene comes before the second one of any pair, and pairs come diagonally:
    # with ten classes of each, the first ten images show ten objects on ten scenes. Folders are sorted by class, so
    # that without this the first images would show one object.

    def __init__(self, data: ComposedDataset) -> None:
        self.data = data
        self.object_names, self.scene_names = data.object_names, data.scene_names
        self.split, self.image_size = data.split, data.image_size
        self.view, self.transform = data.view, data.transform
        self.order = _order(data.object_labels, data.scene_labels, len(data.scene_names))
        self.object_labels, self.scene_labels = data.object_labels[self.order], data.scene_labels[self.order]

    def with_view(self, view: str) -> Self:
        """Return the same images in the same order in another view, see `ComposedDataset`."""
        other = copy.copy(self)
        other.data, other.view = self.data.with_view(view), view
        return other

    def _image(self, index: int) -> np.ndarray:
        return self.data._image(self.order[index])

    def _mask_and_box(self, index: int) -> tuple[np.ndarray, Box]:
        return self.data._mask_and_box(self.order[index])

    def _parts(self, index: int) -> tuple[np.ndarray, np.ndarray, Box]:
        return self.data._parts(self.order[index])


def _order(object_labels: Tensor, scene_labels: Tensor, n_scenes: int) -> list[int]:
    counts: Counter[tuple[int, int]] = Counter()
    keys = []
    for pair in zip(object_labels.tolist(), scene_labels.tolist(), strict=True):
        keys.append((counts[pair], (pair[1] - pair[0]) % n_scenes, pair[0]))
        counts[pair] += 1
    return sorted(range(len(keys)), key=keys.__getitem__)


class PlacedObjects(ObjectsOnScenes):
    """`ObjectsOnScenes` with every object in the middle, or in the corner nearest to where it would be."""

    def __init__(self, objects: ObjectSource, scenes: SceneSource, *, place: str, **settings: Any) -> None:
        super().__init__(objects, scenes, **settings)
        self.place = place

    def pasted(self, index: int) -> Pasted | None:
        """Return the object of an image in its place; as `ObjectsOnScenes` places it where that is random."""
        pasted = super().pasted(index)
        if pasted is None or self.place == "random":
            return pasted
        free = [self.image_size - side for side in pasted.mask.shape]
        if self.place == "centre":
            row, col = (length // 2 for length in free)
        else:
            row, col = (
                length if 2 * at > length else 0 for at, length in zip((pasted.row, pasted.col), free, strict=True)
            )
        return pasted._replace(row=row, col=col)
