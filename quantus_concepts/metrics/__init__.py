"""Quantus metrics, one class a module."""

from quantus_concepts.metrics.cem import CEM
from quantus_concepts.metrics.cgim import CGIM
from quantus_concepts.metrics.clm import CLM
from quantus_concepts.metrics.explainer_values import Explainer, metric_values
from quantus_concepts.metrics.faithfulness import Faithfulness
from quantus_concepts.metrics.idr import IDR
from quantus_concepts.metrics.iir import IIR
from quantus_concepts.metrics.mcs import MCS
from quantus_concepts.metrics.pasta_score import PASTAScore
from quantus_concepts.metrics.patch import Patch
from quantus_concepts.metrics.patch_optimisation import PatchResult, optimise_patch

__all__ = [
    "CEM",
    "CGIM",
    "CLM",
    "IDR",
    "IIR",
    "MCS",
    "Explainer",
    "Faithfulness",
    "PASTAScore",
    "Patch",
    "PatchResult",
    "metric_values",
    "optimise_patch",
]
