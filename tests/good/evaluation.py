"""Good arguments of what the package itself exports, beside metrics and functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd

import quantus_concepts
from metric_inputs import CLASSES, IMAGES, LABELS, MASKS, MODEL, PARTS, POINTS
from quantus_concepts import CEM, compare, explore, functional, metrics, summarise

OWN = sorted({*quantus_concepts.__all__} - {*metrics.__all__, *functional.__all__})
PACKAGE: Any = SimpleNamespace(__all__=OWN, **{name: getattr(quantus_concepts, name) for name in OWN})


def explain(model: Any, inputs: Any, targets: Any, **kwargs: Any) -> np.ndarray:
    return inputs * targets[:, None, None, None]


SCORES = {"a": {"m": [1.0, 0.5]}, "b": {"m": [0.0, 0.5]}}
SUMMARY = summarise(SCORES, {"m": None})
OF_IMAGES = pd.DataFrame({"model": [*"aaabbb"], "metric": "m", "image": [0, 1, 2] * 2, "value": [1, 0, 1, 0.5, 0, 0]})
OBJECTS: Mapping[str, Callable[[], Any]] = {"Explorer": lambda: explore(MODEL, IMAGES)}
GOOD: Mapping[str, Mapping[str, Any]] = {
    "compare": {"a": OF_IMAGES, "by": "model", "clusters": None},
    "plot_comparison": {"result": compare(OF_IMAGES, clusters=None)},
    "Explorer.save": {"path": "page.html"},
    "evaluate": {
        **{"metrics": {"CEM": CEM(LABELS)}, "xai_methods": {"a": explain}, "model": MODEL, "x_batch": IMAGES},
        **{"y_batch": CLASSES, "s_batch": MASKS, "agg_func": np.mean, "call_kwargs": {"": {}}},
    },
    "explore": {
        **{"model": MODEL, "images": IMAGES, "labels": CLASSES, "concept_labels": LABELS, "points": POINTS},
        "part_of_concept": PARTS,
    },
    "plot_summary": {"summary": SUMMARY, "metrics": {"m": None}},
    "read_scores": {"path": "scores.csv"},
    "summarise": {"results": SCORES, "metrics": {"m": None}},
    "summary_metrics": {"table": SUMMARY},
    "to_markdown": {"table": SUMMARY},
}
#: It needs a file.
NOT_RUN = {"read_scores"}
