"""The papers' mathematics on tensors: no models, no files, any device."""

from captum_concepts.tcav.p_values import adjust_p_values as adjust_p_values
from quantus_concepts.functional.attribution.concept_attribution import concept_attribution, random_masks
from quantus_concepts.functional.attribution.contrast import idr, iir, mcs, perturbation
from quantus_concepts.functional.attribution.faithfulness import FaithfulnessScores, faithfulness, relevance_ranks
from quantus_concepts.functional.attribution.normalisation import positive_percentile
from quantus_concepts.functional.attribution.part_masks import (
    RegionScores,
    mask_centres,
    mask_shares,
    mask_threshold_shares,
    region_scores,
)
from quantus_concepts.functional.attribution.patch_objective import patch_objective
from quantus_concepts.functional.attribution.regions import point_hits, threshold_hits
from quantus_concepts.functional.attribution.relative import Estimate, RelativeContrast, relative_contrast
from quantus_concepts.functional.attribution.upsampling import upsample
from quantus_concepts.functional.bottleneck.completeness import completeness
from quantus_concepts.functional.bottleneck.concept_quality import concept_quality
from quantus_concepts.functional.bottleneck.leakage import (
    Leakage,
    concept_set_ceiling,
    concept_task_leakage,
    interconcept_leakage,
)
from quantus_concepts.functional.bottleneck.locality import hide_part, locality
from quantus_concepts.functional.bottleneck.sparse_heads import SparseHeads, sparse_head_path
from quantus_concepts.functional.bottleneck.swap import Swap, concept_swap
from quantus_concepts.functional.bottleneck.wrong_labels import ceiling_noise_equivalent, noise_equivalent
from quantus_concepts.functional.concepts.cem import cem
from quantus_concepts.functional.concepts.cem_gain import cem_gain, class_recital, commonest_concept
from quantus_concepts.functional.concepts.cgim import cgim, cgim_reasons
from quantus_concepts.functional.concepts.clm import clm
from quantus_concepts.functional.concepts.concept_auc import concept_auc
from quantus_concepts.functional.concepts.entanglement import entanglement
from quantus_concepts.functional.concepts.interventions import (
    intervene_values,
    intervention_counts,
    intervention_ranks,
    simulate_answers,
)
from quantus_concepts.functional.concepts.oracle_head import oracle_head
from quantus_concepts.functional.concepts.part_specificity import part_specificity
from quantus_concepts.functional.concepts.random_banks import RandomBank, random_banks
from quantus_concepts.functional.concepts.ranking import is_ranked, rank_concepts
from quantus_concepts.functional.concepts.substitution import (
    Movement,
    SubstitutionScores,
    group_choice,
    movement,
    recital,
    substitution,
)
from quantus_concepts.functional.discovered.bank_stability import bank_stability
from quantus_concepts.functional.discovered.concept_deletion import delete_concepts
from quantus_concepts.functional.discovered.explained_variance import explained_variance
from quantus_concepts.functional.discovered.monosemanticity import monosemanticity
from quantus_concepts.functional.discovered.surrogate_fidelity import SurrogateFidelity, surrogate_fidelity
from quantus_concepts.functional.statistics.differences import (
    Difference,
    cgim_difference,
    paired_difference,
)
from quantus_concepts.functional.statistics.discoveries import Discoveries, find_discoveries
from quantus_concepts.functional.statistics.intervals import baseline_range, interval
from quantus_concepts.functional.statistics.jackknife import (
    cgim_interval,
    concept_auc_interval,
    concept_quality_interval,
)
from quantus_concepts.functional.statistics.seeds import seeds_interval

__all__ = [
    "Difference",
    "Discoveries",
    "Estimate",
    "FaithfulnessScores",
    "Leakage",
    "Movement",
    "RandomBank",
    "RegionScores",
    "RelativeContrast",
    "SparseHeads",
    "SubstitutionScores",
    "SurrogateFidelity",
    "Swap",
    "adjust_p_values",
    "bank_stability",
    "baseline_range",
    "ceiling_noise_equivalent",
    "cem",
    "cem_gain",
    "cgim",
    "cgim_difference",
    "cgim_interval",
    "cgim_reasons",
    "class_recital",
    "clm",
    "commonest_concept",
    "completeness",
    "concept_attribution",
    "concept_auc",
    "concept_auc_interval",
    "concept_quality",
    "concept_quality_interval",
    "concept_set_ceiling",
    "concept_swap",
    "concept_task_leakage",
    "delete_concepts",
    "entanglement",
    "explained_variance",
    "faithfulness",
    "find_discoveries",
    "group_choice",
    "hide_part",
    "idr",
    "iir",
    "interconcept_leakage",
    "interval",
    "intervene_values",
    "intervention_counts",
    "intervention_ranks",
    "is_ranked",
    "locality",
    "mask_centres",
    "mask_shares",
    "mask_threshold_shares",
    "mcs",
    "monosemanticity",
    "movement",
    "noise_equivalent",
    "oracle_head",
    "paired_difference",
    "part_specificity",
    "patch_objective",
    "perturbation",
    "point_hits",
    "positive_percentile",
    "random_banks",
    "random_masks",
    "rank_concepts",
    "recital",
    "region_scores",
    "relative_contrast",
    "relevance_ranks",
    "seeds_interval",
    "simulate_answers",
    "sparse_head_path",
    "substitution",
    "surrogate_fidelity",
    "threshold_hits",
    "upsample",
]
