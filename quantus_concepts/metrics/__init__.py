"""Quantus metrics, one class a module."""

from quantus_concepts.metrics.cem import CEM
from quantus_concepts.metrics.cgim import CGIM
from quantus_concepts.metrics.clm import CLM

__all__ = ["CEM", "CGIM", "CLM"]
