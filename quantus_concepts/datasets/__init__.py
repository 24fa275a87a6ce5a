"""Images annotated with classes, concepts and parts; and objects on scenes, of which it is known what matters."""

from quantus_concepts.datasets.bam_folder import BAMFolder
from quantus_concepts.datasets.bam_writer import write_bam
from quantus_concepts.datasets.base import ConceptDataset, ConceptSample
from quantus_concepts.datasets.coco_objects import COCOObjects
from quantus_concepts.datasets.composed import ComposedDataset, ComposedSample
from quantus_concepts.datasets.concept_folder import ConceptFolder
from quantus_concepts.datasets.cub200 import CUB200
from quantus_concepts.datasets.image_folders import CutoutFolder, SceneFolder
from quantus_concepts.datasets.mixed_scenes import MixedScenes
from quantus_concepts.datasets.objects_on_scenes import ObjectsOnScenes
from quantus_concepts.datasets.painted_birds import PaintedBirds
from quantus_concepts.datasets.painted_objects import PaintedObjects
from quantus_concepts.datasets.painted_scenes import PaintedScenes
from quantus_concepts.datasets.pasta_ratings import PastaRatings
from quantus_concepts.datasets.rated_explanations import RatedExplanations
from quantus_concepts.datasets.rating_split import Split, leak_free_split
from quantus_concepts.datasets.simulated_raters import SimulatedRaters, SimulatedRatings, simulated_ratings
from quantus_concepts.datasets.sources import Cutout, ObjectSource, SceneSource
from quantus_concepts.datasets.transforms import apply_transform, default_transform

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
