"""Tests of a metric of your own: the contract that every metric keeps, and planted damage that it should notice."""

from captum_concepts.lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
