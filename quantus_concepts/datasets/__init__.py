"""Images annotated with classes, concepts and parts; objects on scenes, of which it is known what matters; ratings."""

from typing import TYPE_CHECKING

from captum_concepts.lazy import lazily

if TYPE_CHECKING:
    from quantus_concepts.datasets.base import ConceptDataset, ConceptSample
    from quantus_concepts.datasets.birds.concept_csv import ConceptCSV
    from quantus_concepts.datasets.birds.concept_folder import ConceptFolder
    from quantus_concepts.datasets.birds.cub200 import CUB200
    from quantus_concepts.datasets.birds.painted_birds import PaintedBirds
    from quantus_concepts.datasets.ratings.explanation_files import ExplanationFile, find_explanations
    from quantus_concepts.datasets.ratings.rated import RatedExplanations
    from quantus_concepts.datasets.ratings.raters import SimulatedRaters, simulated_ratings
    from quantus_concepts.datasets.ratings.released import PastaRatings
    from quantus_concepts.datasets.ratings.split import Split, leak_free_split
    from quantus_concepts.datasets.scenes.bam_folder import BAMFolder
    from quantus_concepts.datasets.scenes.bam_writer import write_bam
    from quantus_concepts.datasets.scenes.coco_objects import COCOObjects
    from quantus_concepts.datasets.scenes.composed import ComposedDataset, ComposedSample
    from quantus_concepts.datasets.scenes.image_folders import CutoutFolder, SceneFolder
    from quantus_concepts.datasets.scenes.objects_on_scenes import ObjectsOnScenes
    from quantus_concepts.datasets.scenes.painted_objects import PaintedObjects
    from quantus_concepts.datasets.scenes.painted_scenes import PaintedScenes
    from quantus_concepts.datasets.scenes.sources import Cutout, MixedScenes, ObjectSource, SceneSource
    from quantus_concepts.datasets.substitution.painted_substitutions import PaintedSubstitutions, SubstitutionSample
    from quantus_concepts.datasets.substitution.sub import SUB, SUBSample
    from quantus_concepts.datasets.substitution.sub_files import write_sub
    from quantus_concepts.datasets.transforms import apply_transform, default_transform
else:
    __getattr__, __dir__ = lazily(__name__, __file__)

__all__ = [
    "CUB200",
    "SUB",
    "BAMFolder",
    "COCOObjects",
    "ComposedDataset",
    "ComposedSample",
    "ConceptCSV",
    "ConceptDataset",
    "ConceptFolder",
    "ConceptSample",
    "Cutout",
    "CutoutFolder",
    "ExplanationFile",
    "MixedScenes",
    "ObjectSource",
    "ObjectsOnScenes",
    "PaintedBirds",
    "PaintedObjects",
    "PaintedScenes",
    "PaintedSubstitutions",
    "PastaRatings",
    "RatedExplanations",
    "SUBSample",
    "SceneFolder",
    "SceneSource",
    "SimulatedRaters",
    "Split",
    "SubstitutionSample",
    "apply_transform",
    "default_transform",
    "find_explanations",
    "leak_free_split",
    "simulated_ratings",
    "write_bam",
    "write_sub",
]
