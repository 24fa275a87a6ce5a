"""What predicts how people would rate an explanation: encoder, embedding, scorer, and what a score is used for."""

from captum_concepts.lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
