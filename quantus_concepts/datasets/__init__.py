"""Images annotated with classes, concepts and parts; objects on scenes, of which it is known what matters; ratings."""

from captum_concepts.lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
