"""The two kinds of explanation a person, or a scorer, can rate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

MODALITIES = ("map", "concepts")


@dataclass(frozen=True)
class MapExplanation:
    """An image and the relevance of its pixels.

    Attributes
    ----------
    image : Tensor
        (3, H, W), float in [0, 1].
    map : Tensor
        (h, w), float, of any range and any size; resized to the image where they differ.
    """

    image: Tensor
    map: Tensor

    modality = "map"


@dataclass(frozen=True)
class ConceptExplanation:
    """Concepts and how much each of them matters.

    Attributes
    ----------
    values : mapping of str to float
        Importance of each concept, of any sign.
    ascending : bool
        Whether small values mean important, as for counterfactual explanations.
    """

    values: Mapping[str, float]
    ascending: bool = False

    modality = "concepts"


Explanation = MapExplanation | ConceptExplanation
