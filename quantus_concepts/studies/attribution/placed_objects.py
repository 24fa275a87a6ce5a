"""Objects of other sizes and at other places than in training: the red bars of the paper's Figure 5."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from quantus_concepts.datasets import ObjectsOnScenes
from quantus_concepts.datasets.scenes.pasting import Pasted


class Change(NamedTuple):
    """How test images are composed otherwise than training images: the longer side of the object, and its place."""

    scale: tuple[float, float] = (3**-0.5, 2**-0.5)
    place: str = "random"


#: Of one thing at a time. Objects are usually .58 to .71 of the scene's side, at random places.
CHANGES: Mapping[str, Change] = MappingProxyType(
    {
        "smaller": Change(scale=(0.35, 0.45)),
        "larger": Change(scale=(0.8, 0.9)),
        "centre": Change(place="centre"),
        "corner": Change(place="corner"),
    }
)


class PlacedObjects(ObjectsOnScenes):
    """`ObjectsOnScenes` with every object in the middle, or in the corner nearest to where it would be."""

    def __init__(self, *args: Any, place: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.place = place

    def pasted(self, index: int) -> Pasted | None:
        """Return the object of an image in its place; as `ObjectsOnScenes` places it where that is random."""
        found = super().pasted(index)
        if found is None or self.place == "random":
            return found
        free = [self.image_size - side for side in found.mask.shape]
        if self.place == "centre":
            row, col = (length // 2 for length in free)
        else:
            row, col = (
                length if 2 * at > length else 0 for at, length in zip((found.row, found.col), free, strict=True)
            )
        return found._replace(row=row, col=col)
