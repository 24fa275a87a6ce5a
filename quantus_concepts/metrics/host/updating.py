"""Metrics that take one batch after another: `update`, `compute`, `reset` and `merge_state`, as in torchmetrics."""

from __future__ import annotations

import copy
import itertools
from collections import Counter
from dataclasses import replace
from typing import Any, Unpack

import numpy as np

from captum_concepts._support.running import predict_logits
from quantus_concepts.metrics.host.arguments import QuantusArguments
from quantus_concepts.metrics.host.base import ConceptMetric
from quantus_concepts.metrics.host.call import Call
from quantus_concepts.metrics.host.model import ConceptPasses
from quantus_concepts.metrics.host.protocols import is_concept_model


class UpdatedMetric(ConceptMetric):
    """Base of the metrics that can also be computed batch by batch."""

    def __init__(self, **quantus: Unpack[QuantusArguments]) -> None:
        """Start without a batch."""
        super().__init__(**quantus)
        self._updates: list[Call] = []
        self._updating = False

    def update(self, model: Any, x_batch: Any, y_batch: Any = None, a_batch: Any = None, **truth: Any) -> None:
        """Add a batch; `compute` then gives what one call with all batches would give.

        Parameters
        ----------
        model : nn.Module or None
            As in a call of the metric.
        x_batch : array_like
            (n, ...), the samples of this batch.
        y_batch : array_like, optional
            (n,), their classes; the predicted ones by default, for which the model runs once more.
        a_batch : array_like, optional
            (n, ...), attributions, where explanations are evaluated and not a concept model on images.
        **truth : array_like
            What people say of this batch, a row for each sample, under the names of the constructor's arguments.

        Raises
        ------
        TypeError
            If `truth` has a name that the metric does not know.
        ValueError
            As a call of the metric does.
        """
        if unknown := [name for name in truth if name not in self.sample_truth]:
            raise TypeError(
                f"{self.name}.update has no argument `{unknown[0]}`. Give the truth of a batch as "
                f"{', '.join(f'`{name}`' for name in self.sample_truth)}."
            )
        with self._turn:
            if y_batch is None:
                y_batch = _predicted_classes(model, x_batch)
            self._updating = True
            try:
                self(model, x_batch, y_batch, a_batch, custom_batch=truth)
            finally:
                self._updating = False

    def compute(self) -> list[float]:
        """Return the scores of all batches since `reset`, as a call of the metric does, and add their record.

        Returns
        -------
        list of float
            A score for each sample in the order of the batches; of CGIM for each concept or class.

        Raises
        ------
        ValueError
            If there was no batch.
        """
        with self._turn:
            if not self._updates:
                raise ValueError(f"{self.name}.compute needs at least one batch. Call `update` first.")
            self._call = _joined(self._updates)
            try:
                scores = self._finished(self._scores_of_updates(self._updates))
                self.records.append(self.call.record(scores, self.bounds, self.of_samples))
                return scores
            finally:
                self._call = None

    def reset(self) -> None:
        """Forget all batches."""
        with self._turn:
            self._updates.clear()

    def merge_state(self, other: Any) -> None:
        """Add the batches of another metric of the same class and settings, of another process for instance.

        Metrics can be pickled: gather them, and merge them in the order in which the scores should come.

        Parameters
        ----------
        other : ConceptMetric
            It is left as it is.

        Raises
        ------
        TypeError
            If it is of another class.
        ValueError
            If it has other settings.
        """
        if type(other) is not type(self):
            raise TypeError(f"Expected argument `other` to be a {type(self).__name__} but got {type(other).__name__}.")
        if differing := [name for name, value in self._settings().items() if not _same(value, other._settings()[name])]:
            raise ValueError(
                f"Expected argument `other` to have the settings of this {self.name} but `{differing[0]}` differs."
            )
        with self._turn:
            self._updates += copy.deepcopy(other._updates)

    def _settings(self) -> dict[str, Any]:
        """Return what scores depend on beside the batches."""
        return {name: value for name, value in vars(self).items() if name in self.settings}

    def _remember(self, scores: Any) -> None:
        if self._updating:
            # Without what would keep the batch itself in memory.
            self._updates.append(replace(self.call, truth={}, inputs=None, attributions=None, first={}))
        else:
            super()._remember(scores)

    def _finished(self, scores: np.ndarray) -> list[float]:
        if not self._updating:
            return super()._finished(scores)
        self.call.values = scores
        return scores.tolist()

    def _scores_of_updates(self, calls: list[Call]) -> np.ndarray:
        """Return the scores of all batches."""
        return np.concatenate([call.values for call in calls])


def _joined(calls: list[Call]) -> Call:
    """Return one call in place of one a batch."""
    failures, gaps = Counter[str](), Counter[str]()
    units: dict[str, tuple[int, str]] = {}
    for call in calls:
        failures.update(call.failures)
        gaps.update(call.gaps)
        for reason, (total, unit) in call.units.items():
            units[reason] = units.get(reason, (0, unit))[0] + total, unit
    clusters = [call.clusters for call in calls if call.clusters is not None]
    return Call(
        {},
        on_images=any(call.on_images for call in calls),
        failures=dict(failures),
        gaps=dict(gaps),
        units=units,
        explained_something=any(call.explained_something for call in calls),
        n_samples=sum(call.n_samples for call in calls),
        chance=calls[0].chance,
        chances=[*itertools.chain.from_iterable(call.chances for call in calls)],
        clusters=np.concatenate(clusters) if len(clusters) == len(calls) else None,
    )


def _predicted_classes(model: Any, x_batch: Any) -> np.ndarray:
    if model is None:
        raise ValueError("Expected argument `y_batch` to hold classes, since there is no `model` to predict them.")
    if is_concept_model(model):
        logits = ConceptPasses(model, x_batch, lambda _, make: make()).outputs()[1]
    else:
        logits = predict_logits(model, x_batch)
    predicted: np.ndarray = logits.argmax(1).cpu().numpy()
    return predicted


def _same(first: Any, second: Any) -> bool:
    if isinstance(first, np.ndarray) and isinstance(second, np.ndarray):
        return np.array_equal(first, second, equal_nan=first.dtype.kind == "f")
    return bool(first == second)
