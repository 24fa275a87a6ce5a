"""Metrics observe concept models in one pass over a loader: a backbone that models share runs once."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from tqdm.auto import tqdm

from captum_concepts.models.interventions import Levels
from captum_concepts.support.checks import check_shape
from captum_concepts.support.running import evaluation_mode, to_model
from quantus_concepts.metrics.host.alignment import NO_ORDER, Order
from quantus_concepts.metrics.host.model import IMPORTANCES, ConceptModel, backbone_features, shares_features
from quantus_concepts.metrics.host.observing import Batch, Keeper, Observed, Observer, Result, same
from quantus_concepts.metrics.streaming.loader import ConceptBatches, EarlierPoints


@dataclass(frozen=True)
class Watched:
    """A model, and the metrics that observe it; those that make maps only on every `stride`-th image."""

    model: ConceptModel
    metrics: Sequence[Observer]
    threshold: float | None = None
    levels: Levels | None = None
    stride: int = 1
    #: Other images for each control.
    offset: int = 0
    #: Whether metrics without their truth raise; else they are left out.
    insists: bool = False


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

    def results(self) -> list[tuple[Observer, dict[str, Any], Result]]:
        """Return each number that there is: its metric, its fields and its scores."""
        # A metric that makes maps may have seen none of a few images of a control.
        pairs = zip(self.metrics, map(self.observed.get, self.places), strict=True)
        return [(metric, *named) for metric, seen in pairs if seen is not None for named in metric.numbers(seen)]

    def merge(self, other: ModelState) -> None:
        """Add the images of another state of the same model."""
        self.facts = self.facts.join(other.facts)
        for place, seen in other.observed.items():
            self.observed[place] = self.observed[place].join(seen) if place in self.observed else seen


class _Kept:
    """What the metrics of one model have observed so far."""

    def __init__(self, watched: Watched) -> None:
        self._watched, self._facts = watched, Keeper()
        self._families: dict[Hashable, list[Observer]] = {}
        self._keepers: dict[Hashable, Keeper] = {}

    def add(self, batch: Batch, first: int) -> None:
        watched = self._watched
        shape = (batch.logits.shape[1], batch.values.shape[1])
        self._facts.add(Facts(labels=batch.labels.int(), predicted=batch.predicted.int(), shape=shape))
        if not self._keepers:
            for metric in watched.metrics:
                if _is_known(metric, batch, watched.insists):
                    self._families.setdefault((type(metric), metric.family()), []).append(metric)
            self._keepers = {family: Keeper() for family in self._families}
        for family, metrics in self._families.items():
            part = batch
            if metrics[0].bound_truth:
                rows = slice(batch.number - first, batch.number - first + len(batch))
                bound = {name: torch.as_tensor(array[rows]) for name, array in metrics[0].bound_truth.items()}
                part = batch.with_truth(batch.truth | bound)
            if metrics[0].makes_maps and watched.stride > 1:
                places = np.flatnonzero((np.arange(len(batch)) + batch.number + watched.offset) % watched.stride == 0)
                if not len(places):
                    continue
                part = part.take(places)
            self._keepers[family].add(metrics[0].observe(metrics, part))

    def state(self) -> ModelState:
        """Return everything on the host."""
        place_of = {id(metric): place for place, own in enumerate(self._families.values()) for metric in own}
        metrics = [metric for metric in self._watched.metrics if id(metric) in place_of]
        observed = {place: kept.observed() for place, kept in enumerate(self._keepers.values()) if kept.is_filled}
        return ModelState(self._facts.observed(), metrics, [place_of[id(metric)] for metric in metrics], observed)


def _is_known(metric: Observer, batch: Batch, insists: bool) -> bool:
    """Return whether there is what a metric needs, or raise if it has to be there."""
    needed = metric.needed if metric.observed_truth is None else metric.observed_truth
    lacking = [name for name in needed if name not in batch.truth and name not in metric.bound_truth]
    if lacking and insists:
        raise ValueError(
            f"{metric.name} needs `{lacking[0]}`: give it to the metric, to the call, or with the batches or the data "
            "set of the loader under this name."
        )
    has_all = batch.has_before or not metric.needs_before
    return not lacking and has_all and (batch.threshold is not None or not metric.needs_threshold)


def watch(
    watched: Sequence[Watched],
    loader: Iterable[object],
    bound: Mapping[str, np.ndarray | None],
    elsewhere: EarlierPoints | None = None,
    *,
    n_classes: int | None = None,
    n_concepts: int | None = None,
    last_part: int = -1,
    required: Mapping[str, str] | None = None,
    start: int = 0,
    order: Order = NO_ORDER,
    display_progressbar: bool = False,
) -> list[ModelState]:
    """Let metrics observe every batch of every model; `start` is the number of the first image."""
    wanted = {name for each in watched for metric in each.metrics for name in metric.sample_truth}
    batches = ConceptBatches(
        loader,
        dict(bound),
        n_classes=n_classes,
        n_concepts=n_concepts,
        last_part=last_part,
        elsewhere=elsewhere,
        required=required,
        wanted=sorted(wanted),
        order=order,
    )
    kept = [_Kept(each) for each in watched]
    compares = any(metric.needs_before for each in watched for metric in each.metrics)
    # Importances are computed together.
    asked = {id(each): {getattr(metric, "importance", "") for metric in each.metrics} for each in watched}
    kinds = {name: [kind for kind in IMPORTANCES if kind in of_model] for name, of_model in asked.items()}
    number = start
    with ExitStack() as stack, torch.no_grad():
        for model in (each.model for each in watched):
            stack.enter_context(evaluation_mode(model, model.features, model.concept_predictor, model.head))
        # None: only in a terminal or a notebook.
        for loaded in tqdm(batches, "evaluating", unit="batch", disable=None if display_progressbar else True):
            features = _Features(loaded.images)
            before = _Features(loaded.before if compares else None)
            shared: dict[Hashable, Any] = {}
            for each, keeper in zip(watched, kept, strict=True):
                earlier = None if before.images is None else (before.images, before.of(each.model))
                batch = Batch(
                    *(each.model, _images(each.model, loaded.images), None, loaded.truth),
                    features=features.of(each.model),
                    before=earlier,
                    number=number,
                    threshold=each.threshold,
                    levels=each.levels,
                    kinds=kinds[id(each)],
                    shared=shared,
                )
                check_shape("values of the model", batch.values, ("B", "L"), (None, n_concepts))
                check_shape("logits of the model", batch.logits, ("B", "K"), (None, n_classes))
                if "concept_labels" in loaded.truth:
                    shape = tuple(batch.values.shape)
                    check_shape("concepts", loaded.truth["concept_labels"], ("B", "L"), shape)
                keeper.add(batch, start)
            number += len(loaded.images)
    return [keeper.state() for keeper in kept]


def _images(model: Any, images: Tensor) -> Tensor:
    """Return images on the device and in the dtype of a model without features, which would take them itself."""
    return images if shares_features(model) else to_model(model.concept_predictor, images)


class _Features:
    """The features of one batch, computed once by each backbone."""

    def __init__(self, images: Tensor | None) -> None:
        self.images = images
        # Backbones are kept as well: another one could get the id of a freed one.
        self._features: dict[int, tuple[nn.Module, Tensor]] = {}

    def of(self, model: ConceptModel) -> Tensor | None:
        """Return the features of a model's backbone; None without images, and for a model that takes none."""
        if self.images is None or not shares_features(model):
            return None
        module = model.features
        if id(module) not in self._features:
            self._features[id(module)] = module, backbone_features(model, self.images)
        return self._features[id(module)][1]
