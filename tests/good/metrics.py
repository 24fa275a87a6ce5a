"""Good arguments of `quantus_concepts.metrics`, where a constraint alone does not make one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from quantus_concepts import metrics as package
from refused.metric_classes import CHANGED, CLASSES, LABELS, OTHER, PARTS, POINTS, SCORER, TRUTH, PoolingEncoder

PACKAGE = package
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
}
NOT_RUN: set[str] = set()
