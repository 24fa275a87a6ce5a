"""Metrics observe concept models in one pass over a loader: a backbone that models share runs once."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from captum_concepts.fingerprints import fingerprint_of
from captum_concepts.support.checks import check_shape
from captum_concepts.support.running import evaluation_mode, progress, to_model, warn_user
from quantus_concepts.metrics.host.batch import Batch
from quantus_concepts.metrics.host.model import (
    IMPORTANCES,
    ConceptModel,
    ConceptOutputs,
    backbone_features,
    concept_outputs,
    shares_features,
)
from quantus_concepts.metrics.host.observing import Keeper, Observed, Observer, Result, same
from quantus_concepts.metrics.streaming.loader import ConceptBatch, ConceptBatches


@dataclass(frozen=True)
class Watched:
    """A model, and the metrics that observe it; those that make maps only on every `stride`-th image."""

    name: str
    model: ConceptModel
    metrics: Sequence[Observer]
    threshold: float | None = None
    stride: int = 1
    #: Other images for each control.
    offset: int = 0

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of importance that its metrics read."""
        asked = {getattr(metric, "importance", "") for metric in self.metrics}
        return tuple(kind for kind in IMPORTANCES if kind in asked)


class Loaded:
    """A batch of a loader, with what its models share: the features of each backbone, and prepared truth."""

    def __init__(self, batch: ConceptBatch, number: int) -> None:
        self.images, self.before, self.truth, self.number = *batch, number
        self.prepared: dict[Hashable, Any] = {}
        # Backbones are kept as well: another one could get the id of a freed one.
        self._features: dict[Hashable, tuple[nn.Module, Tensor]] = {}
        self._bound: dict[int, tuple[np.ndarray, Tensor]] = {}

    def features(self, model: ConceptModel, *, before: bool = False) -> Tensor | None:
        """Return the features of a model's backbone; None for a model that takes none."""
        if not shares_features(model):
            return None
        module, images = model.features, self.before if before else self.images
        key = id(module), before
        if key not in self._features:
            self._features[key] = module, backbone_features(model, images)  # type: ignore[arg-type]
        return self._features[key][1]

    def bound(self, array: np.ndarray, first: int) -> Tensor:
        """Return the rows of a metric's own truth that are of this batch: one tensor, which all models share."""
        if id(array) not in self._bound:
            begin = self.number - first
            self._bound[id(array)] = array, torch.as_tensor(array[begin : begin + len(self.images)])
        return self._bound[id(array)][1]


class StreamBatch(Batch):
    """A batch of a loader for one of its models."""

    def __init__(self, watched: Watched, loaded: Loaded) -> None:
        model, images = watched.model, loaded.images
        # A model without features takes images itself, on its device and in its dtype.
        inputs = images if shares_features(model) else to_model(model.concept_predictor, images)
        super().__init__(model, inputs, None, loaded.truth)
        self.number, self.threshold, self.kinds = loaded.number, watched.threshold, watched.kinds
        self.loaded, self._shared = loaded, loaded.prepared

    @cached_property
    def features(self) -> Tensor | None:
        """The output of the backbone, if the model shares it."""
        return self.loaded.features(self.model)

    @cached_property
    def outputs(self) -> ConceptOutputs:
        """Values (n, L) and logits (n, K) of a concept model."""
        return concept_outputs(self.model, self.inputs, self.features)

    @cached_property
    def before(self) -> ConceptOutputs | None:
        """Outputs of the images before a substitution; None without such images."""
        images, features = self.loaded.before, self.loaded.features
        return None if images is None else concept_outputs(self.model, images, features(self.model, before=True))


@dataclass(frozen=True, kw_only=True)
class Facts(Observed):
    """The true and the predicted class of each image, and K and L."""

    labels: Tensor
    predicted: Tensor
    shape: tuple[int, int] = same()


@dataclass
class ModelState:
    """What metrics have observed of one model, on the CPU, by the place of the first of those that share it."""

    facts: Facts
    metrics: list[Observer]
    places: list[int]
    observed: dict[int, Any]
    _results: list[tuple[Observer, dict[str, Any], Result]] | None = field(default=None, init=False, repr=False)

    def results(self) -> list[tuple[Observer, dict[str, Any], Result]]:
        """Return each number that there is: its metric, its fields and its scores."""
        if self._results is None:
            # A metric that makes maps may have seen none of a few images of a control.
            pairs = zip(self.metrics, map(self.observed.get, self.places), strict=True)
            found = [(metric, *named) for metric, seen in pairs if seen is not None for named in metric.numbers(seen)]
            self._results = found
        return self._results

    def merge(self, other: ModelState) -> None:
        """Add the images of another state of the same model."""
        self._results = None
        self.facts = self.facts.join(other.facts)
        for place, seen in other.observed.items():
            self.observed[place] = self.observed[place].join(seen) if place in self.observed else seen


#: How what is missing is given.
GIVE = (
    "give it to the metric, to the call in `truth`, or with the batches or the data set of the loader under this name"
)
THRESHOLDS = {
    "value_threshold": "give it to the call",
    "threshold": "its values are not bounded, so give `threshold=` to the metric or `value_threshold=` to the call",
}

#: Bytes of images and features of a control that wait for more.
_WAITING = 2**19


class _Kept:
    """What the metrics of one model have observed so far."""

    def __init__(self, watched: Watched, keys: dict[int, Hashable]) -> None:
        self._watched, self._facts, self._keys = watched, Keeper(), keys
        self._families: list[tuple[list[Observer], Keeper]] = []
        self._waiting: dict[int, list[Batch]] = {}

    def add(self, batch: StreamBatch, first: int) -> None:
        watched = self._watched
        shape = (batch.logits.shape[1], batch.values.shape[1])
        if not self._families:
            self._families = self._find_families(batch)
        self._facts.add(Facts(labels=batch.true_classes.int(), predicted=batch.clusters, shape=shape))
        for metrics, keeper in self._families:
            part: Batch = batch
            metric = metrics[0]
            if bound := metric.bound_truth:
                part = batch.with_truth(
                    batch.truth | {name: batch.loaded.bound(array, first) for name, array in bound.items()}
                )
            if metric.makes_maps and watched.stride > 1:
                places = np.flatnonzero((np.arange(len(batch)) + batch.number + watched.offset) % watched.stride == 0)
                if not len(places):
                    continue
                waiting = self._waiting.setdefault(id(metric), [])
                waiting.append(part.take(places))
                # A few images at a time would cost as many operators as many.
                if sum(each.n_bytes for each in waiting) < _WAITING:
                    continue
                part = self._take_waiting(metric)
            keeper.add(metric.observe(metrics, part))

    def _take_waiting(self, metric: Observer) -> Batch:
        """Return the images that a metric which makes maps has not observed yet."""
        first, *others = self._waiting.pop(id(metric))
        return first.join(others) if others else first

    def _find_families(self, batch: Batch) -> list[tuple[list[Observer], Keeper]]:
        """Return the metrics whose truth is known, those together that observe together; raise if truth is missing."""
        families: dict[Hashable, list[Observer]] = {}
        without_maps, left_out = getattr(self._watched.model, "without_maps", ""), dict[str, None]()
        for metric in self._watched.metrics:
            if not (name := metric.missing(batch)):
                if without_maps and metric.makes_maps and metric.optional:
                    left_out[metric.name] = None
                    continue
                families.setdefault(self._keys[id(metric)], []).append(metric)
            elif not metric.optional:
                of_model = f" for model {self._watched.name!r}" if name in THRESHOLDS else ""
                raise ValueError(f"{metric.name} needs `{name}`{of_model}: {THRESHOLDS.get(name, GIVE)}.")
        if left_out:
            warn_user(f"{', '.join(left_out)}: left out, since the model has no concept maps. {without_maps}")
        return [(metrics, Keeper()) for metrics in families.values()]

    def state(self) -> ModelState:
        """Return everything on the host."""
        for metrics, keeper in self._families:
            if id(metrics[0]) in self._waiting:
                keeper.add(metrics[0].observe(metrics, self._take_waiting(metrics[0])))
        place_of = {id(metric): place for place, (metrics, _) in enumerate(self._families) for metric in metrics}
        metrics = [metric for metric in self._watched.metrics if id(metric) in place_of]
        observed = {place: kept.observed() for place, (_, kept) in enumerate(self._families) if kept.is_filled}
        return ModelState(self._facts.observed(), metrics, [place_of[id(metric)] for metric in metrics], observed)


def family_keys(metrics: Iterable[Observer]) -> dict[int, Hashable]:
    """Return what metrics have in common that observe together, by the identity of each metric."""
    contents: dict[int, str] = {}

    def key(value: Any) -> Hashable:
        if not isinstance(value, np.ndarray):
            return value
        if id(value) not in contents:
            contents[id(value)] = fingerprint_of(value)
        return contents[id(value)]

    def family_of(metric: Observer) -> Hashable:
        if metric.family is None:
            return id(metric)
        own = [key(getattr(metric, name)) for name in metric.family]
        return type(metric), *own, *((name, key(array)) for name, array in metric.bound_truth.items())

    return {id(metric): family_of(metric) for metric in metrics}


def watch(
    watched: Sequence[Watched], batches: ConceptBatches, *, start: int = 0, display_progressbar: bool = False
) -> list[ModelState]:
    """Let metrics observe every batch of every model; `start` is the number of the first image."""
    keys = family_keys({id(metric): metric for each in watched for metric in each.metrics}.values())
    kept = [_Kept(each, keys) for each in watched]
    number, n_classes = start, 0
    with ExitStack() as stack, torch.no_grad():
        for model in (each.model for each in watched):
            stack.enter_context(evaluation_mode(model, model.features, model.concept_predictor, model.head))
        for fields in progress(batches, "evaluating", total=batches.n_batches, show=display_progressbar, unit="batch"):
            loaded = Loaded(fields, number)
            for each, keeper in zip(watched, kept, strict=True):
                batch = StreamBatch(each, loaded)
                check_shape("values of the model", batch.values, ("B", "L"), (None, batches.n_concepts))
                check_shape("logits of the model", batch.logits, ("B", "K"), (None, batches.n_classes))
                n_classes = batch.logits.shape[1] if each is watched[0] else n_classes
                if each.offset and batch.logits.shape[1] != n_classes:
                    raise ValueError(
                        f"Expected argument `controls` to hold models with the K = {n_classes} outputs of the model "
                        f"but got one with {batch.logits.shape[1]}. Were random banks fitted to labels without the "
                        "last classes? Fit them to images of every class."
                    )
                if "concept_labels" in loaded.truth:
                    shape = tuple(batch.values.shape)
                    check_shape("concepts", loaded.truth["concept_labels"], ("B", "L"), shape)
                keeper.add(batch, start)
            number += len(loaded.images)
        # Inside the block: what waits is observed now.
        return [keeper.state() for keeper in kept]
