"""Quantus metrics, one class a module."""

from typing import TYPE_CHECKING

from captum_concepts.lazy import lazily

if TYPE_CHECKING:
    from quantus_concepts.metrics.bottleneck.concept_auc import ConceptAUC
    from quantus_concepts.metrics.bottleneck.concept_regions import ConceptRegions
    from quantus_concepts.metrics.bottleneck.locality import Locality
    from quantus_concepts.metrics.bottleneck.monosemanticity import Monosemanticity
    from quantus_concepts.metrics.concepts.cem import CEM
    from quantus_concepts.metrics.concepts.cgim import CGIM
    from quantus_concepts.metrics.concepts.clm import CLM
    from quantus_concepts.metrics.concepts.completeness import Completeness
    from quantus_concepts.metrics.concepts.interventions import InterventionAccuracy, plot_interventions
    from quantus_concepts.metrics.concepts.leakage import ConceptSetCeiling, ConceptTaskLeakage, InterconceptLeakage
    from quantus_concepts.metrics.concepts.oracle_head import OracleHead
    from quantus_concepts.metrics.concepts.sparse_heads import SparseHeadAccuracy, plot_sparse_heads
    from quantus_concepts.metrics.concepts.substitution import SubstitutionScore
    from quantus_concepts.metrics.contrast.idr import IDR
    from quantus_concepts.metrics.contrast.iir import IIR
    from quantus_concepts.metrics.contrast.mcs import MCS
    from quantus_concepts.metrics.contrast.patch import Patch
    from quantus_concepts.metrics.contrast.patch_optimisation import PatchResult, optimise_patch
    from quantus_concepts.metrics.contrast.premises import Limits, check_premise
    from quantus_concepts.metrics.contrast.regions import RegionAttributions, Subject, attribute_regions
    from quantus_concepts.metrics.contrast.scores import score_contrasts, score_relative
    from quantus_concepts.metrics.discovered.plot import plot_discovered
    from quantus_concepts.metrics.discovered.score import score_discovered
    from quantus_concepts.metrics.faithfulness import Faithfulness
    from quantus_concepts.metrics.host.model import shared_passes
    from quantus_concepts.metrics.host.predictions import ConceptPredictions
    from quantus_concepts.metrics.pasta.explanation_scores import score_explanations
    from quantus_concepts.metrics.pasta.pasta_score import PASTAScore
    from quantus_concepts.metrics.ranges import score_ranges
    from quantus_concepts.metrics.streaming.api import predict_concepts, score_concepts, score_predictions
    from quantus_concepts.metrics.streaming.curves import intervention_curve
    from quantus_concepts.metrics.streaming.substitutions import score_substitutions
    from quantus_concepts.metrics.streaming.usual import UsualMetrics
else:
    __getattr__, __dir__ = lazily(__name__, __file__)

__all__ = [
    "CEM",
    "CGIM",
    "CLM",
    "IDR",
    "IIR",
    "MCS",
    "Completeness",
    "ConceptAUC",
    "ConceptPredictions",
    "ConceptRegions",
    "ConceptSetCeiling",
    "ConceptTaskLeakage",
    "Faithfulness",
    "InterconceptLeakage",
    "InterventionAccuracy",
    "Limits",
    "Locality",
    "Monosemanticity",
    "OracleHead",
    "PASTAScore",
    "Patch",
    "PatchResult",
    "RegionAttributions",
    "SparseHeadAccuracy",
    "Subject",
    "SubstitutionScore",
    "UsualMetrics",
    "attribute_regions",
    "check_premise",
    "intervention_curve",
    "optimise_patch",
    "plot_discovered",
    "plot_interventions",
    "plot_sparse_heads",
    "predict_concepts",
    "score_concepts",
    "score_contrasts",
    "score_discovered",
    "score_explanations",
    "score_predictions",
    "score_ranges",
    "score_relative",
    "score_substitutions",
    "shared_passes",
]
