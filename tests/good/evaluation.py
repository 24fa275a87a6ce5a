"""Good arguments of what the package itself exports, beside metrics and functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

import quantus_concepts
from metric_inputs import CLASSES, IMAGES, LABELS, MASKS, MODEL, PARTS, POINTS
from quantus_concepts import CEM, explore, functional, metrics

OWN = sorted({*quantus_concepts.__all__} - {*metrics.__all__, *functional.__all__})
PACKAGE: Any = SimpleNamespace(__all__=OWN, **{name: getattr(quantus_concepts, name) for name in OWN})


def explain(model: Any, inputs: Any, targets: Any, **kwargs: Any) -> np.ndarray:
    return inputs * targets[:, None, None, None]


OBJECTS: Mapping[str, Callable[[], Any]] = {"Explorer": lambda: explore(MODEL, IMAGES)}
GOOD: Mapping[str, Mapping[str, Any]] = {
    "Explorer.save": {"path": "page.html"},
    "evaluate": {
        **{"metrics": {"CEM": CEM(LABELS)}, "xai_methods": {"a": explain}, "model": MODEL, "x_batch": IMAGES},
        **{"y_batch": CLASSES, "s_batch": MASKS, "agg_func": np.mean, "call_kwargs": {"": {}}},
    },
    "explore": {
        **{"model": MODEL, "images": IMAGES, "labels": CLASSES, "concept_labels": LABELS, "points": POINTS},
        "part_of_concept": PARTS,
    },
}
#: Functions that cannot run here.
NOT_RUN: set[str] = set()
