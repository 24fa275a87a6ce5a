"""Quantus metrics, one class a module."""

from captum_concepts.lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
