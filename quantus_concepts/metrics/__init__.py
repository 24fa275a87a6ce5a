"""Quantus metrics, one class a module."""

from quantus_concepts.metrics.cem import CEM
from quantus_concepts.metrics.cgim import CGIM
from quantus_concepts.metrics.clm import CLM
from quantus_concepts.metrics.faithfulness import Faithfulness
from quantus_concepts.metrics.idr import IDR
from quantus_concepts.metrics.iir import IIR
from quantus_concepts.metrics.mcs import MCS
from quantus_concepts.metrics.pasta_score import PASTAScore
from quantus_concepts.metrics.patch import Patch
from quantus_concepts.metrics.patch_optimisation import PatchResult, optimise_patch
from quantus_concepts.metrics.score_concepts import score_concepts

__all__ = [
    "CEM",
    "CGIM",
    "CLM",
    "IDR",
    "IIR",
    "MCS",
    "Faithfulness",
    "PASTAScore",
    "Patch",
    "PatchResult",
    "optimise_patch",
    "score_concepts",
]
