"""Good arguments of `quantus_concepts.metrics`, where a constraint alone does not make one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from metric_inputs import (
    ARGUMENTS,
    CLASSES,
    IMAGES,
    LABELS,
    LOADER,
    LOADER_OF_UNIT_IMAGES,
    MASKS,
    OTHER,
    PARTS,
    POINTS,
    SCORER,
    TRUTH,
    named_arguments,
)
from quantus_concepts import AVAILABLE_METRICS
from quantus_concepts import metrics as package
from quantus_concepts.datasets import simulated_ratings
from quantus_concepts.metrics import Subject
from tiny_encoders import PoolingEncoder

PACKAGE = package
SUBJECT = Subject(OTHER, IMAGES, CLASSES)
CHECK = {"model": OTHER, "with_feature": IMAGES, "without_feature": IMAGES, "only_feature": IMAGES, "labels": CLASSES}
SUBSTITUTED = {"added": CLASSES, "removed": CLASSES, "labels": CLASSES}
RATINGS = simulated_ratings(2, 1, 32, n_classes=2, n_concepts=26)


def explain(model: Any, inputs: Any, targets: Any, **kwargs: Any) -> np.ndarray:
    return np.ones_like(inputs)


OBJECTS: Mapping[str, Callable[[], Any]] = {"Subject": lambda: SUBJECT}
#: Arguments that metrics can do without.
OPTIONAL = {"labels": CLASSES, "masks": MASKS, "removed": CLASSES, "pairs": CLASSES}
GOOD: Mapping[str, Mapping[str, Any]] = {
    **{
        metric.__name__: named_arguments(metric, {**ARGUMENTS, **OPTIONAL})
        for metric in AVAILABLE_METRICS["Concepts"].values()
    },
    "PASTAScore": {"scorer": SCORER, "encoder": PoolingEncoder()},
    "Patch": {"init": IMAGES[0]},
    "Subject": {"model": OTHER, "images": IMAGES, "labels": CLASSES},
    "attribute_regions": {"methods": {"a": explain}, "subjects": [SUBJECT], "masks": MASKS},
    "check_premise": CHECK,
    "intervention_curve": {"model": OTHER, "loader": LOADER, "concept_labels": LABELS, "labels": CLASSES},
    "optimise_patch": {"model": OTHER, "images": IMAGES, "masks": MASKS, "init": IMAGES[0], "steps": 1},
    "score_concepts": {
        **{"model": OTHER, "loader": LOADER, "class_concepts": TRUTH, "part_of_concept": PARTS, "points": POINTS},
        **{"top_l": (1,), "concept_labels": LABELS, "value_threshold": 0.5, **SUBSTITUTED},
    },
    "score_contrasts": {"methods": {"a": explain}, "masks": MASKS, "mcs": (SUBJECT, SUBJECT)},
    "score_explanations": {"scorer": SCORER, "loader": [], "encoder": PoolingEncoder()},
    "score_relative": {
        **{"methods": {"a": explain}, "models": {0.5: OTHER, 1.0: OTHER}, "images": IMAGES, "without": IMAGES},
        **{"masks": MASKS, "labels": CLASSES},
    },
    "score_substitutions": {"model": OTHER, "loader": LOADER, **SUBSTITUTED, "pairs": CLASSES},
    "score_vision_language": {
        **{"encoder": PoolingEncoder(), "loader": LOADER_OF_UNIT_IMAGES, **SUBSTITUTED, "pairs": CLASSES},
        "concept_names": [f"wing::{j}" for j in range(LABELS.shape[1])],
    },
    "shared_passes": {"memory": 1.0},
}
#: They need explanations of the scorer's labels, and a scorer.
NOT_RUN = {"score_explanations"}
