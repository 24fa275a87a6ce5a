"""The explanations that people rate and the questions about them, as `quantus_concepts.datasets` reads them."""

from quantus_concepts.datasets.ratings.explanations import QUESTIONS as QUESTIONS
from quantus_concepts.datasets.ratings.explanations import ConceptExplanation as ConceptExplanation
from quantus_concepts.datasets.ratings.explanations import DrawingExplanation as DrawingExplanation
from quantus_concepts.datasets.ratings.explanations import MapExplanation as MapExplanation
from quantus_concepts.datasets.ratings.files import RELEASED_CONCEPTS as RELEASED_CONCEPTS
