"""The papers' mathematics on tensors: no models, no files, any device."""

from quantus_concepts.functional.cem import cem
from quantus_concepts.functional.cgim import ClassMeans, cgim
from quantus_concepts.functional.clm import clm
from quantus_concepts.functional.concept_attribution import concept_attribution, random_masks
from quantus_concepts.functional.contrast import idr, iir, mcs, perturbation
from quantus_concepts.functional.faithfulness import FaithfulnessScores, faithfulness, relevance_ranks
from quantus_concepts.functional.intervals import baseline_range, interval
from quantus_concepts.functional.interventions import intervene_values, intervention_counts, intervention_ranks
from quantus_concepts.functional.normalisation import positive_percentile
from quantus_concepts.functional.part_masks import mask_centres, mask_shares, mask_threshold_shares
from quantus_concepts.functional.part_specificity import part_specificity
from quantus_concepts.functional.patch_objective import patch_objective
from quantus_concepts.functional.random_banks import RandomBank, random_bank_scores, random_banks
from quantus_concepts.functional.ranking import rank_concepts
from quantus_concepts.functional.regions import point_hits, threshold_hits
from quantus_concepts.functional.relative import Estimate, RelativeContrast, relative_contrast
from quantus_concepts.functional.substitution import (
    Movement,
    SubstitutionScores,
    group_choice,
    movement,
    recital,
    substitution,
)
from quantus_concepts.functional.upsampling import upsample

__all__ = [
    "ClassMeans",
    "Estimate",
    "FaithfulnessScores",
    "Movement",
    "RandomBank",
    "RelativeContrast",
    "SubstitutionScores",
    "baseline_range",
    "cem",
    "cgim",
    "clm",
    "concept_attribution",
    "faithfulness",
    "group_choice",
    "idr",
    "iir",
    "interval",
    "intervene_values",
    "intervention_counts",
    "intervention_ranks",
    "mask_centres",
    "mask_shares",
    "mask_threshold_shares",
    "mcs",
    "movement",
    "part_specificity",
    "patch_objective",
    "perturbation",
    "point_hits",
    "positive_percentile",
    "random_bank_scores",
    "random_banks",
    "random_masks",
    "rank_concepts",
    "recital",
    "relative_contrast",
    "relevance_ranks",
    "substitution",
    "threshold_hits",
    "upsample",
]
