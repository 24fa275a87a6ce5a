"""A metric with data of which its score is known, and the data that a case gets by default."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

import numpy as np
import torch
from captum.attr import InputXGradient
from torch import nn

from captum_concepts import ConceptBank, PostHocCBM, explain_func
from quantus_concepts.metrics import predict_concepts
from quantus_concepts.metrics.host.metric import QuantusMetric
from quantus_concepts.metrics.host.predictions import ConceptPredictions

NAMES = ["round", "red", "striped", "long", "soft"]
#: The data that a case gets by default: images, their side, concepts, classes, parts.
N, SIZE, N_CONCEPTS, N_CLASSES, N_PARTS = 30, 12, len(NAMES), 4, 3
Keywords = dict[str, Any]
#: Rows that `score_rows` takes, or the keywords of a call.
Data = ConceptPredictions | Mapping[str, Any]


@dataclass(frozen=True)
class MetricCase:
    """A metric, and data of which its score is known.

    Parameters
    ----------
    metric : QuantusMetric
        It is copied for each law. Truth of samples is not bound to it but in the data, under its name.
    optimum : ConceptPredictions or dict, optional
        Rows whose scores all have to be `best`, or the keywords of a call (`model`, `x_batch`, ...), whose truth is in
        `custom_batch`.
    chance : callable, optional
        ``chance(seed)`` returns such rows or keywords, of a model or a method that knows nothing.
    best : float
        The score of the optimum: 0 for leakage.
    at_chance : float, optional
        The score that is expected by chance; by default what the metric's scores say of chance.
    tolerance : float
        How far the mean score of the optimum may be from `best`.
    call : dict, optional
        Keywords of a call for all other laws. By default a small concept model of 30 images of 12 pixels with 5
        concepts, 4 classes and 3 parts, all of whose truth the metric gets that it names: "concept_labels", "labels",
        "points", "added", "removed". More truth, or None in place of it, is given in "custom_batch" alone; a call with
        "x_batch" has a "model", "y_batch" and truth of its own.
    excused : dict, optional
        By the name of a law, why the metric does not have to keep it. The law has to fail, then.

    Examples
    --------
    >>> import torch
    >>> from quantus_concepts import CEM, ConceptPredictions
    >>> from quantus_concepts.testing import MetricCase
    >>> labels = torch.eye(3)[[0, 1, 2, 0]]
    >>> shown = ConceptPredictions(
    ...     classes=torch.zeros(4, dtype=int), given=labels, truth={"concept_labels": labels}
    ... )
    >>> MetricCase(CEM(), optimum=shown).metric.score_rows(shown).of_call.tolist()
    [1.0, 1.0, 1.0, 1.0]
    """

    metric: QuantusMetric
    optimum: Data | None = None
    chance: Callable[[int], Data] | None = None
    best: float = 1.0
    at_chance: float | None = None
    tolerance: float = 1e-6
    call: Mapping[str, Any] = field(default_factory=dict)
    excused: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the metric's class."""
        return type(self.metric).__name__

    @cached_property
    def keywords(self) -> Keywords:
        """The keywords of a call, with what the metric takes of the truth."""
        drawn = drawn_call()
        if "x_batch" in self.call:
            drawn = {"explain_func": drawn["explain_func"], "custom_batch": {}}
        truth = {**drawn["custom_batch"], **self.call.get("custom_batch", {})}
        truth = {name: truth[name] for name in self.metric.sample_truth if truth.get(name) is not None}
        return {**drawn, **self.call, "custom_batch": truth}

    @cached_property
    def scores(self) -> np.ndarray:
        """The scores of a call."""
        return self.scores_of(self.keywords)

    def new(self) -> Any:
        """Return a copy of the metric without results."""
        return copy.deepcopy(self.metric)

    def scores_of(self, data: Data, **changes: Any) -> np.ndarray:
        """Return the scores of rows, or of a call."""
        if isinstance(data, ConceptPredictions):
            return np.array(self.new().score_rows(data).of_call, dtype=float)
        return np.array(self.new()(**{**data, **changes}), dtype=float)

    def updated(self, *parts: Keywords) -> Any:
        """Return the metric after updates with the keywords of several calls."""
        metric = self.new()
        for part in parts:
            metric.update(
                **{name: value for name, value in part.items() if name != "custom_batch"}, **part["custom_batch"]
            )
        return metric

    @cached_property
    def batches(self) -> list[dict[str, Any]]:
        """The images and their truth, as a loader gives them."""
        n = len(self.keywords["x_batch"])
        # Without labels the metric takes the classes explained for them, as its call does.
        truth = {"labels": self.keywords["y_batch"], **self.keywords["custom_batch"]}
        images = {"images": self.keywords["x_batch"], **truth}
        return [{name: torch.as_tensor(value[i : i + 8]) for name, value in images.items()} for i in range(0, n, 8)]

    @cached_property
    def rows(self) -> ConceptPredictions:
        """What the model predicts for the images."""
        rows: ConceptPredictions = predict_concepts(
            self.keywords["model"], self.batches, [self.new()], baselines=False, random_banks=False
        )
        return rows


@cache
def drawn_call() -> Keywords:
    """Return the keywords of a call: a small concept model, drawn images, and all truth that metrics here know."""
    rng, random = np.random.default_rng(0), torch.Generator().manual_seed(0)
    images = rng.random((N, 3, SIZE, SIZE), dtype=np.float32)
    with torch.random.fork_rng([]):
        # `torch.manual_seed` would seed the generators of other devices too, which are not kept here.
        torch.default_generator.manual_seed(0)
        features = nn.Sequential(nn.Conv2d(3, 6, 3, stride=3), nn.BatchNorm2d(6), nn.ReLU())
        head = nn.Linear(N_CONCEPTS, N_CLASSES)
    bank = ConceptBank(torch.randn(N_CONCEPTS, 6, generator=random), names=NAMES)
    model = PostHocCBM(features, bank, head).eval()
    with torch.no_grad():
        values = model.concept_predictor(torch.as_tensor(images))
        model.absent_values = values.mean(0)
        # So that all classes are predicted.
        head.bias.sub_(model.head(values).mean(0))
        classes = model.head(values).argmax(1).numpy()
    points = rng.uniform(0, SIZE - 1, (N, N_PARTS, 2))
    labels = rng.integers(0, 2, (N, N_CONCEPTS))
    # The first image shows nothing.
    points[0], labels[0] = np.nan, 0
    added = rng.integers(0, N_CONCEPTS, N)
    truth = {
        **{"concept_labels": labels, "points": points, "labels": rng.integers(0, N_CLASSES, N)},
        **{"added": added, "removed": (added + 1) % N_CONCEPTS},
    }
    masks = np.zeros((N, 1, SIZE, SIZE))
    masks[:, :, 3:9, 3:9] = 1
    explained = {"s_batch": masks, "explain_func": explain_func(InputXGradient)}
    return {"model": model, "x_batch": images, "y_batch": classes, "custom_batch": truth} | explained


def take(keywords: Keywords, places: Any) -> Keywords:
    """Return the keywords of a call with some of the samples."""
    truth = {name: value[places] for name, value in keywords["custom_batch"].items()}
    arrays = {
        name: value[places] for name, value in keywords.items() if name.endswith("_batch") and name != "custom_batch"
    }
    return {**keywords, **arrays, "custom_batch": truth}


def halves(keywords: Keywords) -> tuple[Keywords, Keywords]:
    """Return the keywords of two calls with the samples of one."""
    middle = len(keywords["x_batch"]) // 2
    return take(keywords, slice(None, middle)), take(keywords, slice(middle, None))
