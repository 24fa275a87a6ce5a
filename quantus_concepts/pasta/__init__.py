"""What predicts how people would rate an explanation: encoder, embedding, scorer, and what a score is used for."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quantus_concepts.datasets.ratings.explanations import ConceptExplanation, DrawingExplanation, MapExplanation
    from quantus_concepts.datasets.ratings.questions import QUESTIONS
    from quantus_concepts.datasets.ratings.vocabularies import RELEASED_CONCEPTS
    from quantus_concepts.metrics.explainer_values import Explainer, metric_values
    from quantus_concepts.pasta.blip import blip_encoder
    from quantus_concepts.pasta.cache import EmbeddingCache
    from quantus_concepts.pasta.correlations import RatingCorrelation, rating_correlations, sparseness
    from quantus_concepts.pasta.embedded_encoder import EmbeddedEncoder
    from quantus_concepts.pasta.embedder import Embedder
    from quantus_concepts.pasta.labels import RELEASED_LABELS
    from quantus_concepts.pasta.mixture import Mixture, best_explainer, plot_mixture
    from quantus_concepts.pasta.object_encoder import ObjectEncoder
    from quantus_concepts.pasta.open_clip_encoder import OpenClipEncoder
    from quantus_concepts.pasta.perturbations import PERTURBATIONS, Perturbation, perturb
    from quantus_concepts.pasta.regressors import Regressor, fit_regressor
    from quantus_concepts.pasta.robustness import RobustnessPairs, robustness_pairs
    from quantus_concepts.pasta.scorer import Scorer
    from quantus_concepts.pasta.scorer_files import load_scorer, save_scorer
    from quantus_concepts.pasta.steering import score_masks
    from quantus_concepts.pasta.training import Training, TrainingSettings, train_scorer

# A module is imported when a name of it is first asked for (PEP 562).
_NAMES = {
    "datasets.ratings.explanations": ("ConceptExplanation", "DrawingExplanation", "MapExplanation"),
    "datasets.ratings.questions": ("QUESTIONS",),
    "datasets.ratings.vocabularies": ("RELEASED_CONCEPTS",),
    "metrics.explainer_values": ("Explainer", "metric_values"),
    "pasta.blip": ("blip_encoder",),
    "pasta.cache": ("EmbeddingCache",),
    "pasta.correlations": ("RatingCorrelation", "rating_correlations", "sparseness"),
    "pasta.embedded_encoder": ("EmbeddedEncoder",),
    "pasta.embedder": ("Embedder",),
    "pasta.labels": ("RELEASED_LABELS",),
    "pasta.mixture": ("Mixture", "best_explainer", "plot_mixture"),
    "pasta.object_encoder": ("ObjectEncoder",),
    "pasta.open_clip_encoder": ("OpenClipEncoder",),
    "pasta.perturbations": ("PERTURBATIONS", "Perturbation", "perturb"),
    "pasta.regressors": ("Regressor", "fit_regressor"),
    "pasta.robustness": ("RobustnessPairs", "robustness_pairs"),
    "pasta.scorer": ("Scorer",),
    "pasta.scorer_files": ("load_scorer", "save_scorer"),
    "pasta.steering": ("score_masks",),
    "pasta.training": ("Training", "TrainingSettings", "train_scorer"),
}
_MODULE_OF = {name: f"quantus_concepts.{module}" for module, names in _NAMES.items() for name in names}

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
    "Explainer",
    "MapExplanation",
    "Mixture",
    "ObjectEncoder",
    "OpenClipEncoder",
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
    "metric_values",
    "perturb",
    "plot_mixture",
    "rating_correlations",
    "robustness_pairs",
    "save_scorer",
    "score_masks",
    "sparseness",
    "train_scorer",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_MODULE_OF[name]), name)
    return value


def __dir__() -> list[str]:
    return __all__
