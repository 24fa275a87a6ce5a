"""Images annotated with classes, concepts and parts, behind one interface."""

from quantus_concepts.datasets.base import ConceptDataset, ConceptSample
from quantus_concepts.datasets.concept_folder import ConceptFolder
from quantus_concepts.datasets.cub200 import CUB200
from quantus_concepts.datasets.painted_birds import PaintedBirds
from quantus_concepts.datasets.transforms import apply_transform, default_transform

__all__ = [
    "CUB200",
    "ConceptDataset",
    "ConceptFolder",
    "ConceptSample",
    "PaintedBirds",
    "apply_transform",
    "default_transform",
]
