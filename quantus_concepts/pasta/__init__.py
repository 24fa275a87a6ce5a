"""What predicts how people would rate an explanation: encoder, embedding, scorer, and what a score is used for."""

from typing import TYPE_CHECKING

from captum_concepts.lazy import lazily
from quantus_concepts.datasets.ratings.explanations import ConceptExplanation, DrawingExplanation, MapExplanation
from quantus_concepts.datasets.ratings.questions import QUESTIONS
from quantus_concepts.datasets.ratings.vocabularies import RELEASED_CONCEPTS

_PLACES = {
    "PERTURBATIONS": "perturbations",
    "RELEASED_LABELS": "labels",
    "EmbeddedEncoder": "embedded_encoder",
    "Embedder": "embedder",
    "EmbeddingCache": "cache",
    "Mixture": "mixture",
    "ObjectEncoder": "object_encoder",
    "OpenClipEncoder": "open_clip_encoder",
    "Perturbation": "perturbations",
    "RatingCorrelation": "correlations",
    "Regressor": "regressors",
    "RobustnessPairs": "robustness",
    "Scorer": "scorer",
    "Training": "training",
    "TrainingSettings": "training",
    "best_explainer": "mixture",
    "blip_encoder": "blip",
    "fit_regressor": "regressors",
    "load_scorer": "scorer_files",
    "perturb": "perturbations",
    "plot_mixture": "mixture",
    "rating_correlations": "correlations",
    "robustness_pairs": "robustness",
    "save_scorer": "scorer_files",
    "score_masks": "steering",
    "sparseness": "correlations",
    "train_scorer": "training",
}
__all__ = [
    "QUESTIONS",
    "RELEASED_CONCEPTS",
    "ConceptExplanation",
    "DrawingExplanation",
    "MapExplanation",
    *_PLACES,
]

if TYPE_CHECKING:
    from quantus_concepts.pasta.blip import blip_encoder as blip_encoder
    from quantus_concepts.pasta.cache import EmbeddingCache as EmbeddingCache
    from quantus_concepts.pasta.correlations import RatingCorrelation as RatingCorrelation
    from quantus_concepts.pasta.correlations import rating_correlations as rating_correlations
    from quantus_concepts.pasta.correlations import sparseness as sparseness
    from quantus_concepts.pasta.embedded_encoder import EmbeddedEncoder as EmbeddedEncoder
    from quantus_concepts.pasta.embedder import Embedder as Embedder
    from quantus_concepts.pasta.labels import RELEASED_LABELS as RELEASED_LABELS
    from quantus_concepts.pasta.mixture import Mixture as Mixture
    from quantus_concepts.pasta.mixture import best_explainer as best_explainer
    from quantus_concepts.pasta.mixture import plot_mixture as plot_mixture
    from quantus_concepts.pasta.object_encoder import ObjectEncoder as ObjectEncoder
    from quantus_concepts.pasta.open_clip_encoder import OpenClipEncoder as OpenClipEncoder
    from quantus_concepts.pasta.perturbations import PERTURBATIONS as PERTURBATIONS
    from quantus_concepts.pasta.perturbations import Perturbation as Perturbation
    from quantus_concepts.pasta.perturbations import perturb as perturb
    from quantus_concepts.pasta.regressors import Regressor as Regressor
    from quantus_concepts.pasta.regressors import fit_regressor as fit_regressor
    from quantus_concepts.pasta.robustness import RobustnessPairs as RobustnessPairs
    from quantus_concepts.pasta.robustness import robustness_pairs as robustness_pairs
    from quantus_concepts.pasta.scorer import Scorer as Scorer
    from quantus_concepts.pasta.scorer_files import load_scorer as load_scorer
    from quantus_concepts.pasta.scorer_files import save_scorer as save_scorer
    from quantus_concepts.pasta.steering import score_masks as score_masks
    from quantus_concepts.pasta.training import Training as Training
    from quantus_concepts.pasta.training import TrainingSettings as TrainingSettings
    from quantus_concepts.pasta.training import train_scorer as train_scorer
else:
    __getattr__, __dir__ = lazily(__name__, _PLACES)
