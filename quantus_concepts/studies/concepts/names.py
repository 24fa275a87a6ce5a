"""Names of the models, baselines, rankings and settings, as results.csv and the report have them."""

from __future__ import annotations

from quantus_concepts.metrics.streaming.names import FEATURE_NORM, GAUSSIAN, OTHER_IMAGE, OTHER_PARTS
from quantus_concepts.studies._models.subjects import ORACLE, POST_HOC, RANDOM, TRADITIONAL

PLAIN = "plain backbone"

#: Concept models in the order of every table and figure.
MODELS = (POST_HOC, TRADITIONAL, ORACLE, RANDOM)
#: The baselines of the concept location metric.
BASELINES = (OTHER_PARTS, OTHER_IMAGE, FEATURE_NORM, GAUSSIAN)
#: Rankings of the concepts, with the letters that the paper writes for them.
RANKINGS = {"weight": "weight θ", "value": "value u", "contribution": "contribution θ·u"}
SETS = {"all": "all images", "correct": "correctly classified"}
#: C and number of images of the concept bank, of the paper's Table 3.
SETTINGS = [(strength, count) for count in (50, 100) for strength in (0.001, 0.01, 0.1, 1.0, 10.0)]


def baseline_name(baseline: str, model: str = POST_HOC) -> str:
    """Name the CLM baseline of a model's maps and ranking."""
    return baseline if model == POST_HOC else f"{baseline}, {model}"


def setting_name(regularisation: float, samples: int) -> str:
    """Name a setting of the concept bank."""
    return f"C={regularisation:g}, n={samples}"
