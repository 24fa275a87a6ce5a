"""Quantus metrics, one class a module."""

from typing import TYPE_CHECKING

from captum_concepts.lazy import lazily

if TYPE_CHECKING:
    from quantus_concepts.metrics.cem import CEM
    from quantus_concepts.metrics.cgim import CGIM
    from quantus_concepts.metrics.clm import CLM
    from quantus_concepts.metrics.concept_ranges import ConceptRanges
    from quantus_concepts.metrics.concept_scores import score_concepts
    from quantus_concepts.metrics.contrast_scores import score_contrasts
    from quantus_concepts.metrics.explainer_values import Explainer, metric_values
    from quantus_concepts.metrics.explanation_scores import score_explanations
    from quantus_concepts.metrics.faithfulness import Faithfulness
    from quantus_concepts.metrics.idr import IDR
    from quantus_concepts.metrics.iir import IIR
    from quantus_concepts.metrics.intervention_curves import intervention_curve, plot_interventions
    from quantus_concepts.metrics.mcs import MCS
    from quantus_concepts.metrics.pasta_score import PASTAScore
    from quantus_concepts.metrics.patch import Patch
    from quantus_concepts.metrics.patch_optimisation import PatchResult, optimise_patch
    from quantus_concepts.metrics.premises import Limits, Premise, PremiseCheck, check_premise
    from quantus_concepts.metrics.region_attributions import RegionAttributions, attribute_regions
    from quantus_concepts.metrics.relative_scores import score_relative
    from quantus_concepts.metrics.shards import score_shards
    from quantus_concepts.metrics.sharing import shared_passes
    from quantus_concepts.metrics.subjects import Subject
    from quantus_concepts.metrics.substitution_score import SubstitutionScore
    from quantus_concepts.metrics.substitution_scores import score_substitutions
    from quantus_concepts.metrics.vision_language import score_vision_language
else:
    from quantus_concepts.metrics.host import explaining

    __getattr__, __dir__ = lazily(__name__, __file__)
    __getattr__ = explaining(__getattr__)

__all__ = [
    "CEM",
    "CGIM",
    "CLM",
    "IDR",
    "IIR",
    "MCS",
    "ConceptRanges",
    "Explainer",
    "Faithfulness",
    "Limits",
    "PASTAScore",
    "Patch",
    "PatchResult",
    "Premise",
    "PremiseCheck",
    "RegionAttributions",
    "Subject",
    "SubstitutionScore",
    "attribute_regions",
    "check_premise",
    "intervention_curve",
    "metric_values",
    "optimise_patch",
    "plot_interventions",
    "score_concepts",
    "score_contrasts",
    "score_explanations",
    "score_relative",
    "score_shards",
    "score_substitutions",
    "score_vision_language",
    "shared_passes",
]
