"""Good arguments of `quantus_concepts.metrics`, where a constraint alone does not make one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from quantus_concepts import metrics as package
from quantus_concepts.datasets import simulated_ratings
from quantus_concepts.metrics import Subject
from refused.metric_classes import (
    CHANGED,
    CLASSES,
    IMAGES,
    LABELS,
    MASKS,
    OTHER,
    PARTS,
    POINTS,
    SCORER,
    TRUTH,
    PoolingEncoder,
)

PACKAGE = package
SUBJECT = Subject(OTHER, IMAGES, CLASSES)
CHECK = {"model": OTHER, "with_feature": IMAGES, "without_feature": IMAGES, "only_feature": IMAGES, "labels": CLASSES}
RATINGS = simulated_ratings(2, 1, 32, n_classes=2, n_concepts=26)


def explain(model: Any, inputs: Any, targets: Any, **kwargs: Any) -> np.ndarray:
    return np.ones_like(inputs)


OBJECTS: Mapping[str, Callable[[], Any]] = {}
GOOD: Mapping[str, Mapping[str, Any]] = {
    "CEM": {"concept_labels": LABELS},
    "CGIM": {"class_concepts": TRUTH},
    "CLM": {"points": POINTS, "part_of_concept": PARTS},
    "Faithfulness": {"perturbation": "uniform"},
    "IDR": {"counterpart": CHANGED},
    "IIR": {"patched": CHANGED},
    "MCS": {"contrast_model": OTHER, "contrast_labels": CLASSES},
    "PASTAScore": {"scorer": SCORER, "encoder": PoolingEncoder()},
    "SubstitutionScore": {"added": CLASSES, "removed": CLASSES},
    "check_premise": CHECK,
    "metric_values": {"ratings": RATINGS},
    "score_contrasts": {"methods": {"a": explain}, "masks": MASKS, "mcs": (SUBJECT, SUBJECT)},
    "score_explanations": {"scorer": SCORER, "loader": [], "encoder": PoolingEncoder()},
    "score_relative": {
        **{"methods": {"a": explain}, "models": {0.5: OTHER, 1.0: OTHER}, "images": IMAGES, "without": IMAGES},
        **{"masks": MASKS, "labels": CLASSES},
    },
}
#: It needs explanations of its scorer's labels.
NOT_RUN = {"score_explanations"}
