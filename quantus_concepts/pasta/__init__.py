"""What predicts how people would rate an explanation: encoder, embedding, scorer, and what a score is used for."""

from typing import TYPE_CHECKING

from captum_concepts.lazy import lazily

if TYPE_CHECKING:
    from quantus_concepts.datasets.ratings.explanations import (
        QUESTIONS,
        ConceptExplanation,
        DrawingExplanation,
        MapExplanation,
    )
    from quantus_concepts.datasets.ratings.files import RELEASED_CONCEPTS
    from quantus_concepts.pasta.applications.correlations import RatingCorrelation, rating_correlations, sparseness
    from quantus_concepts.pasta.applications.mixture import Mixture, best_explainer, plot_mixture
    from quantus_concepts.pasta.applications.perturbations import PERTURBATIONS, Perturbation, perturb
    from quantus_concepts.pasta.applications.robustness import RobustnessPairs, robustness_pairs
    from quantus_concepts.pasta.applications.steering import score_masks
    from quantus_concepts.pasta.cache import EmbeddingCache
    from quantus_concepts.pasta.embedder import Embedder
    from quantus_concepts.pasta.encoders.embedded_encoder import EmbeddedEncoder
    from quantus_concepts.pasta.encoders.encoder import Encoder, PartsEncoder
    from quantus_concepts.pasta.encoders.object_encoder import blip_encoder
    from quantus_concepts.pasta.encoders.open_clip_encoder import OpenClipEncoder
    from quantus_concepts.pasta.labels import RELEASED_LABELS
    from quantus_concepts.pasta.regressors import Regressor, fit_regressor
    from quantus_concepts.pasta.scorer import Scorer
    from quantus_concepts.pasta.scorer_files import load_scorer, save_scorer
    from quantus_concepts.pasta.training import Training, TrainingSettings, train_scorer
else:
    __getattr__, __dir__ = lazily(__name__, __file__)

__all__ = [
    "PERTURBATIONS",
    "QUESTIONS",
    "RELEASED_CONCEPTS",
    "RELEASED_LABELS",
    "ConceptExplanation",
    "DrawingExplanation",
    "EmbeddedEncoder",
    "Embedder",
    "EmbeddingCache",
    "Encoder",
    "MapExplanation",
    "Mixture",
    "OpenClipEncoder",
    "PartsEncoder",
    "Perturbation",
    "RatingCorrelation",
    "Regressor",
    "RobustnessPairs",
    "Scorer",
    "Training",
    "TrainingSettings",
    "best_explainer",
    "blip_encoder",
    "fit_regressor",
    "load_scorer",
    "perturb",
    "plot_mixture",
    "rating_correlations",
    "robustness_pairs",
    "save_scorer",
    "score_masks",
    "sparseness",
    "train_scorer",
]
