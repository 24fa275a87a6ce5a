"""Names of the models, baselines, rankings and settings, as results.csv and the report have them."""

from __future__ import annotations

from quantus_concepts.metrics.streaming.names import GAUSSIAN, OTHER_IMAGE

POST_HOC = "post-hoc CBM"
TRADITIONAL = "traditional CBM"
ORACLE = "oracle"
RANDOM = "random directions"
PLAIN = "plain backbone"

#: Concept models in the order of every table and figure.
MODELS = (POST_HOC, TRADITIONAL, ORACLE, RANDOM)
#: The two honest baselines of the concept location metric.
BASELINES = (OTHER_IMAGE, GAUSSIAN)
#: Rankings of the concepts, the sign the paper writes for each, and their names.
SIGNS = {"weight": "θ", "value": "u", "contribution": "θ·u"}
RANKINGS = {"weight": "weight θ", "value": "concept value u", "contribution": "contribution θ·u"}
SETS = {"all": "all images", "correct": "correctly classified"}


def baseline_name(baseline: str, model: str = POST_HOC) -> str:
    """Name the CLM baseline of a model's maps and ranking."""
    return baseline if model == POST_HOC else f"{baseline}, {model}"


def setting_name(regularisation: float, samples: int) -> str:
    """Name a setting of the concept bank."""
    return f"C={regularisation:g}, n={samples}"
