"""Images annotated with classes, concepts and parts; objects on scenes, of which it is known what matters; ratings."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quantus_concepts.datasets.base import ConceptDataset, ConceptSample
    from quantus_concepts.datasets.birds.concept_folder import ConceptFolder
    from quantus_concepts.datasets.birds.cub200 import CUB200
    from quantus_concepts.datasets.birds.painted_birds import PaintedBirds
    from quantus_concepts.datasets.ratings.rated import RatedExplanations
    from quantus_concepts.datasets.ratings.raters import SimulatedRaters, SimulatedRatings, simulated_ratings
    from quantus_concepts.datasets.ratings.released import PastaRatings
    from quantus_concepts.datasets.ratings.split import Split, leak_free_split
    from quantus_concepts.datasets.scenes.bam_folder import BAMFolder
    from quantus_concepts.datasets.scenes.bam_writer import write_bam
    from quantus_concepts.datasets.scenes.coco_objects import COCOObjects
    from quantus_concepts.datasets.scenes.composed import ComposedDataset, ComposedSample
    from quantus_concepts.datasets.scenes.image_folders import CutoutFolder, SceneFolder
    from quantus_concepts.datasets.scenes.mixed_scenes import MixedScenes
    from quantus_concepts.datasets.scenes.objects_on_scenes import ObjectsOnScenes
    from quantus_concepts.datasets.scenes.painted_objects import PaintedObjects
    from quantus_concepts.datasets.scenes.painted_scenes import PaintedScenes
    from quantus_concepts.datasets.scenes.sources import Cutout, ObjectSource, SceneSource
    from quantus_concepts.datasets.transforms import apply_transform, default_transform

# One data set does not load the others: its module is imported when the name is first asked for (PEP 562).
_MODULE_OF = {
    "CUB200": "birds.cub200",
    "BAMFolder": "scenes.bam_folder",
    "COCOObjects": "scenes.coco_objects",
    "ComposedDataset": "scenes.composed",
    "ComposedSample": "scenes.composed",
    "ConceptDataset": "base",
    "ConceptFolder": "birds.concept_folder",
    "ConceptSample": "base",
    "Cutout": "scenes.sources",
    "CutoutFolder": "scenes.image_folders",
    "MixedScenes": "scenes.mixed_scenes",
    "ObjectSource": "scenes.sources",
    "ObjectsOnScenes": "scenes.objects_on_scenes",
    "PaintedBirds": "birds.painted_birds",
    "PaintedObjects": "scenes.painted_objects",
    "PaintedScenes": "scenes.painted_scenes",
    "PastaRatings": "ratings.released",
    "RatedExplanations": "ratings.rated",
    "SceneFolder": "scenes.image_folders",
    "SceneSource": "scenes.sources",
    "SimulatedRaters": "ratings.raters",
    "SimulatedRatings": "ratings.raters",
    "Split": "ratings.split",
    "apply_transform": "transforms",
    "default_transform": "transforms",
    "leak_free_split": "ratings.split",
    "simulated_ratings": "ratings.raters",
    "write_bam": "scenes.bam_writer",
}

__all__ = [
    "CUB200",
    "BAMFolder",
    "COCOObjects",
    "ComposedDataset",
    "ComposedSample",
    "ConceptDataset",
    "ConceptFolder",
    "ConceptSample",
    "Cutout",
    "CutoutFolder",
    "MixedScenes",
    "ObjectSource",
    "ObjectsOnScenes",
    "PaintedBirds",
    "PaintedObjects",
    "PaintedScenes",
    "PastaRatings",
    "RatedExplanations",
    "SceneFolder",
    "SceneSource",
    "SimulatedRaters",
    "SimulatedRatings",
    "Split",
    "apply_transform",
    "default_transform",
    "leak_free_split",
    "simulated_ratings",
    "write_bam",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    return value


def __dir__() -> list[str]:
    return __all__
