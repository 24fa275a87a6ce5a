"""The kinds of explanation a person, or a scorer, can rate."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from captum_concepts._support.shown import one_line

MODALITIES = ("map", "drawing", "concepts")


@dataclass(frozen=True)
class MapExplanation:
    """An image and the relevance of its pixels.

    Attributes
    ----------
    image : Tensor
        (3, H, W), float in [0, 1].
    map : Tensor
        (h, w), float, of any range and any size; resized to the image where they differ.
    normalise : str, optional
        How this map comes to [0, 1], as in `unit_maps`; None leaves it to the `Embedder`.
    """

    image: Tensor
    map: Tensor
    normalise: str | None = None

    def __repr__(self) -> str:
        return one_line(self)

    modality = "map"


@dataclass(frozen=True)
class DrawingExplanation:
    """An explanation as the picture that people saw, which goes to the encoder as it is.

    Attributes
    ----------
    picture : Tensor
        (3, H, W), float in [0, 1], of any size.
    """

    picture: Tensor

    def __repr__(self) -> str:
        return one_line(self)

    modality = "drawing"


@dataclass(frozen=True)
class ConceptExplanation:
    """Concepts and how much each of them matters.

    Attributes
    ----------
    values : mapping of str to float
        Importance of each concept, of any sign.
    ascending : bool
        Whether small values mean important, as for counterfactual explanations.
    written : mapping of str to float, optional
        The entries of the file they were read from, as they stand there; for the sentence of the release.
    vocabulary : sequence of str
        All concepts of the data set, for the sentence of the release; empty where they are not known.
    """

    values: Mapping[str, float]
    ascending: bool = False
    written: Mapping[str, float] | None = None
    vocabulary: Sequence[str] = ()

    def __repr__(self) -> str:
        return one_line(self)

    modality = "concepts"


Explanation = MapExplanation | DrawingExplanation | ConceptExplanation


class LazyExplanations(Sequence[Explanation]):
    """Explanations that are read, or drawn, on each access; a slice reads none."""

    def __init__(self, read: Callable[[Any], Explanation], keys: Sequence[Any]) -> None:
        self._read = read
        self._keys = keys

    def __len__(self) -> int:
        return len(self._keys)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return LazyExplanations(self._read, self._keys[index])
        return self._read(self._keys[index])
