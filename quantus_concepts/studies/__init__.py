"""The commands: train, evaluate, draw and report; and the painted subject that they, and others, try metrics on."""

from typing import TYPE_CHECKING

from captum_concepts._support.lazy import lazily

if TYPE_CHECKING:
    from quantus_concepts.studies._models.subjects import PaintedSubject, painted_subject
else:
    __getattr__, __dir__ = lazily(__name__, __file__)

__all__ = ["PaintedSubject", "painted_subject"]
