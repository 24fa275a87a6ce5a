"""Good arguments of `quantus_concepts.pasta`, where a constraint alone does not make one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from quantus_concepts import pasta as package
from quantus_concepts.pasta import Scorer, TrainingSettings, best_explainer

PACKAGE = package
DIM = 4
IMAGES = torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
SCORER = Scorer(DIM, ("Q1", "Q5"), ["cat", "dog"], (3, 2))
MIXTURE = best_explainer({"a": [1.0, 2.0], "b": [2.0, 1.0]})
LEARNED = {"embeddings": torch.rand(6, DIM), "targets": np.ones((6, 1)), "questions": ["Q1"], "train": [0, 1, 2]}


class Flat(nn.Module):
    """A model of two classes."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images.flatten(1)[:, :2]


def explain(model: Any, inputs: Any, targets: Any) -> Any:
    return inputs[:, 0]


OBJECTS: Mapping[str, Callable[[], Any]] = {
    "Mixture": lambda: MIXTURE,
    "Perturbation": lambda: package.PERTURBATIONS["brightness jitter"],
}
GOOD: Mapping[str, Mapping[str, Any]] = {
    "Embedder": {"encoder": "embedded", "size": 16},
    "Embedder.from_settings": {"encoder": "embedded", "settings": {}},
    "EmbeddedEncoder": {"width": 8},
    "Mixture.chosen": {"maps": {"a": np.ones(2), "b": np.ones(2)}},
    "Mixture.compare": {"values": {"a": np.ones(2), "b": np.ones(2)}},
    "OpenClipEncoder": {"model_name": "ViT-B-32", "pretrained": None},
    "Perturbation": {"name": "mine", "function": explain, "meaning": "none"},
    "Perturbation.__call__": {"images": IMAGES, "magnitude": 1.0},
    "best_explainer": {"scores": {"a": [1.0], "b": [2.0]}},
    "fit_regressor": {"kind": "ridge", **LEARNED},
    "load_scorer": {"source": "scorer.safetensors"},
    "perturb": {"images": IMAGES, "name": "brightness", "magnitude": 1.0},
    "plot_mixture": {"mixture": MIXTURE},
    "rating_correlations": {"values": {"a": np.arange(4)}, "ratings": np.ones((4, 6))},
    "robustness_pairs": {
        **{"model": Flat(), "images": IMAGES, "labels": None, "explain_func": explain, "question": "Q5"}
    },
    "save_scorer": {"scorer": SCORER, "path": "scorer.safetensors"},
    "Scorer": {"dim": DIM},
    "Scorer.join": {"scorers": [SCORER]},
    "sparseness": {"explanations": [np.eye(3)]},
    "train_scorer": {**LEARNED, "settings": TrainingSettings(epochs=1)},
}
#: It needs a file.
NOT_RUN = {"load_scorer"}
