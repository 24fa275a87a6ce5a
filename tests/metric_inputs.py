"""A small concept model with images and their ground truth, and every metric bound to it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from captum_concepts.models.interventions import Levels
from quantus_concepts import AVAILABLE_METRICS
from quantus_concepts.pasta.scorer import Scorer
from tiny_encoders import PoolingEncoder
from tiny_models import N_CLASSES, N_CONCEPTS, SharingConceptModel, TinyConceptModel

EXPORTED = [*AVAILABLE_METRICS["Concepts"].values()]


def region(n: int, size: int) -> np.ndarray:
    masks = np.zeros((n, 1, size, size))
    masks[:, :, 3:9, 3:9] = 1
    return masks


def predicted(model: nn.Module, images: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        return model(torch.as_tensor(images)).argmax(1).numpy()


#: Metrics to which images of one class say nothing.
OF_SEVERAL_CLASSES = ("Completeness", "ConceptTaskLeakage")
#: Settings of one metric, in addition to the arguments that it has by their names.
SETTINGS: dict[str, dict[str, Any]] = {
    "CEM": {"top_l": 2},
    "CLM": {"alpha": 3, "top_l": 2},
    "Faithfulness": {"perturbation": "gaussian", "thresholds": (10, 30)},
    "ConceptTaskLeakage": {"n_bins": 2},
    "IIR": {"tolerance": 10},
    "InterventionAccuracy": {"levels": Levels(torch.full((N_CONCEPTS,), -1.0), torch.ones(N_CONCEPTS))},
    "OracleHead": {"threshold": 0},
    "PASTAScore": {"denormalise": torch.sigmoid},
    # A path of three penalties, not of 25.
    "SparseHeadAccuracy": {"sizes": (1, 2), "n_steps": 3, "n_iterations": 50},
    "SubstitutionScore": {"threshold": 0},
}


def metric_arguments(images: np.ndarray, rng: np.random.Generator) -> dict[str, Any]:
    """Return the ground truth of images and what else metrics need, by the names in their constructors."""
    n, _, _, size = images.shape
    contrast_model = TinyConceptModel(seed=1)
    changed = np.where(region(n, size) == 1, 0.8 * images, images).astype(np.float32)
    return {
        "concept_labels": rng.integers(0, 2, (n, N_CONCEPTS)),
        "class_concepts": rng.uniform(size=(N_CLASSES, N_CONCEPTS)),
        "points": rng.uniform(0, size, (n, 3, 2)),
        "part_of_concept": np.array([0, 1, -1, 2, 0]),
        # Any concept of the five may have been put in.
        "added": rng.integers(0, N_CLASSES, n),
        "contrast_model": contrast_model,
        "contrast_labels": predicted(contrast_model, images),
        "counterpart": changed,
        "patched": changed,
        "scorer": Scorer(PoolingEncoder.dim, labels=None, hidden=(8,)),
        "encoder": PoolingEncoder(),
        "embeddings": np.random.default_rng(1).normal(size=(n, 7)),
        "regions": np.random.default_rng(2).random((n, 3, size, size)) < 0.2,
        "network_classes": predicted(TinyConceptModel(), images),
    }


def named_arguments(metric: type, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of the arguments that the constructor of a metric names, and its settings."""
    named = {name: arguments[name] for name in inspect.signature(metric).parameters if name in arguments}
    return named | SETTINGS.get(metric.__name__, {})


def metric_makers(arguments: Mapping[str, Any], metrics: Iterable[type] = EXPORTED) -> dict[str, Callable[..., Any]]:
    """Return the constructor of each metric of the package, or of these, with its arguments, by its name."""
    return {metric.__name__: partial(metric, **named_arguments(metric, arguments)) for metric in metrics}


N, SIZE = 6, 12
RNG = np.random.default_rng(0)
MODEL, OTHER = SharingConceptModel(), SharingConceptModel(seed=1)
IMAGES = RNG.random((N, 3, SIZE, SIZE), dtype=np.float32)
CLASSES = np.arange(N) % N_CLASSES
SCORER = Scorer(PoolingEncoder.dim, ("Q1",), ("cat", "dog", "car"), hidden=(4, 4))
ARGUMENTS = {
    **metric_arguments(IMAGES, RNG),
    "contrast_model": OTHER,
    "contrast_labels": CLASSES,
    "scorer": SCORER,
    "class_names": ["cat", "dog", "car", "cat"],
}
LABELS, TRUTH, POINTS = (ARGUMENTS[name] for name in ("concept_labels", "class_concepts", "points"))
PARTS, CHANGED = ARGUMENTS["part_of_concept"], ARGUMENTS["counterpart"]
MASKS = region(N, SIZE)
METRICS = {name: make() for name, make in metric_makers(ARGUMENTS).items()}
LOADER = [(torch.from_numpy(IMAGES), torch.from_numpy(CLASSES), torch.from_numpy(LABELS), torch.from_numpy(POINTS))]
