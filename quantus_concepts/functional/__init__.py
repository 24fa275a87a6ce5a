"""The papers' mathematics on tensors: no models, no files, any device."""

from quantus_concepts.functional.cem import cem
from quantus_concepts.functional.cgim import ClassMeans, cgim
from quantus_concepts.functional.clm import clm
from quantus_concepts.functional.ranking import rank_concepts
from quantus_concepts.functional.regions import mask_hits, mask_threshold_hits, point_hits, threshold_hits
from quantus_concepts.functional.upsampling import upsample

__all__ = [
    "ClassMeans",
    "cem",
    "cgim",
    "clm",
    "mask_hits",
    "mask_threshold_hits",
    "point_hits",
    "rank_concepts",
    "threshold_hits",
    "upsample",
]
