"""Some samples for one model: inputs, truth, and outputs of the model that are computed when a metric asks for them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from captum_concepts.support.checks import to_numpy
from captum_concepts.support.running import onto_device, predict_logits
from quantus_concepts.functional.concepts.ranking import rank_concepts
from quantus_concepts.metrics.host.checks import Truth, check_classes, check_outputs, checked_classes
from quantus_concepts.metrics.host.explanations import Explanations
from quantus_concepts.metrics.host.model import (
    concept_importances,
    concept_maps,
    is_concept_model,
    shared_features,
    shared_outputs,
)

#: What is computed of the values and logits of samples.
OF_SAMPLES = ("values", "logits", "predicted", "classes", "labels", "correct", "clusters")


class Importance:
    """Importances (E, n, L) of several kinds; for explanations of a call also why some are undefined (n,)."""

    def __init__(self, values: Tensor, reason: np.ndarray | None = None, explained: bool | None = None) -> None:
        self.values, self.reason, self.explained = values, reason, explained

    @cached_property
    def order(self) -> Tensor:
        """The concepts (E, n, L), the most important first."""
        return rank_concepts(self.values, self.values.shape[2])

    @cached_property
    def norms(self) -> Tensor:
        """The largest absolute importance (E, n); NaN if one is."""
        return torch.linalg.vector_norm(self.values, torch.inf, 2)

    def select(self, places: list[int]) -> Importance:
        """Return some of the kinds."""
        follow = places == [*range(places[0], places[0] + len(places))]
        rows = slice(places[0], places[-1] + 1) if follow else places
        part = Importance(self.values[rows], self.reason, self.explained)
        part.order, part.norms = self.order[rows], self.norms[rows]
        return part


class Batch:
    """Some samples for one model; a metric reads from it what it needs, and each thing is computed once.

    `classes` (n,) are those explained, the predicted ones if None. `explain` gives explanations where the model has no
    importances of its own, in a call of Quantus.
    """

    #: Number of the first sample in a stream, and the value at or above which a concept is present, None if unknown.
    number: int = 0
    threshold: float | None = None
    #: Outputs of the images before a substitution; None without such images.
    before: Any = None
    #: The kinds of importance that all metrics of a stream read; they are computed together.
    kinds: tuple[str, ...] = ()

    def __init__(
        self, model: Any, inputs: Any, classes: np.ndarray | None, truth: Truth, explain: Explanations | None = None
    ) -> None:
        self.model, self.inputs, self.given, self.truth, self.explain = model, inputs, classes, truth, explain
        self._once: dict[Hashable, Any] = {}
        #: What all models of a batch share.
        self._shared: dict[Hashable, Any] = {}
        #: Whether the model is a concept model; else it is a head, if there is one, and the inputs are values (n, L).
        self.has_concepts = inputs.ndim in (2, 4) and is_concept_model(model)

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the images."""
        return int(self.inputs.shape[-2]), int(self.inputs.shape[-1])

    def once(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """Return what `make` returns, made once for each key."""
        if key not in self._once:
            self._once[key] = make()
        return self._once[key]

    def prepared_truth(self, key: Hashable, name: str, device: Any, prepare: Callable[[Tensor, Any], Any]) -> Any:
        """Return what `prepare` makes of ground truth for a device, once for all models of a batch."""
        truth = self.truth[name]
        # Two metrics may bind different truth under one name.
        place = key, id(truth), device
        if place not in self._shared:
            # The truth is kept as well: another array could get the identity of a freed one.
            self._shared[place] = truth, prepare(torch.as_tensor(truth), device)
        return self._shared[place][1]

    @cached_property
    def features(self) -> Tensor | None:
        """The output of the backbone, if the model shares it."""
        return shared_features(self.model, self.inputs)

    @cached_property
    def outputs(self) -> Any:
        """Values (n, L) and logits (n, K) of a concept model."""
        # Features that are there already: a block may have no room to share them.
        return shared_outputs(self.model, self.inputs, vars(self).get("features"))

    @cached_property
    def values(self) -> Tensor:
        """Concept values (n, L)."""
        return self.outputs.values if self.has_concepts else torch.as_tensor(self.inputs)

    @cached_property
    def logits(self) -> Tensor:
        """Class logits (n, K)."""
        if self.has_concepts:
            return check_outputs(self.outputs.logits, len(self))
        keywords = self.explain.predict_kwargs if self.explain else {}
        return check_outputs(predict_logits(self.model, self.inputs, **keywords), len(self))

    @cached_property
    def predicted(self) -> Tensor:
        """The predicted classes (n,)."""
        return self.logits.argmax(1)

    @cached_property
    def classes(self) -> Tensor:
        """The explained classes (n,)."""
        return self.predicted if self.given is None else checked_classes(self.given, self.logits)

    def tensor(self, name: str, device: torch.device | None = None) -> Tensor:
        """Return ground truth of a name on a device, by default that of the values."""
        return onto_device(torch.as_tensor(self.truth[name]), self.values.device if device is None else device)

    @cached_property
    def labels(self) -> Tensor:
        """The true classes (n,); without them those explained."""
        return onto_device(self.true_classes, self.predicted.device)

    @cached_property
    def correct(self) -> Tensor:
        """Whether the predicted class is the true one (n,)."""
        return self.predicted == self.labels.to(self.predicted.device)

    @property
    def n_wrong(self) -> Tensor | None:
        """How many samples are misclassified; None in a stream, whose labels are known."""
        return None if self.given is None else (~self.correct).sum()

    @property
    def true_classes(self) -> Tensor:
        """The true classes (n,), where they are there already: mostly on the host. Without them those explained."""
        self.check_classes()
        known = self.truth.get("labels", self.given)
        return self.classes if known is None else torch.as_tensor(known)

    def check_classes(self) -> None:
        """Raise where explained or true classes are no outputs of the model."""
        for name, classes in (("y_batch", self.given), ("labels", self.truth.get("labels"))):
            if classes is not None:
                check_classes(name, to_numpy(classes), self.logits.shape[1], self.number)

    @cached_property
    def clusters(self) -> Tensor:
        """The explained classes (n,): samples of one class are not independent of each other."""
        return torch.as_tensor(self.given) if self.given is not None else self.classes.int()

    def importance(self, kinds: Sequence[str], n_concepts: int, truth: str) -> Importance:
        """Return the model's own importances of these kinds, or the explanations of a call in their place.

        There are `n_concepts` by the ground truth of the name `truth`.
        """
        wanted = tuple(kinds)
        if not self.has_concepts:
            if self.model is not None:
                self.check_classes()
            given = self.explain.of_concepts(n_concepts, truth)  # type: ignore[union-attr]
            values = torch.as_tensor(given.values)[None].expand(len(wanted), -1, -1)
            return Importance(values, given.reason, given.explained)
        if not {*wanted} <= {*self.kinds}:
            self.kinds = tuple(dict.fromkeys((*self.kinds, *wanted)))

        def compute() -> Importance:
            found = concept_importances(self.model, self.values, self.classes, self.kinds)
            each = [found[kind] for kind in self.kinds]
            return Importance(torch.stack(each) if len(each) > 1 else each[0][None])

        every: Importance = self.once(("importance", self.kinds), compute)
        if wanted == self.kinds:
            return every
        return self.once(("importance", wanted), lambda: every.select([*map(self.kinds.index, wanted)]))

    def maps(self, concepts: Tensor) -> Tensor:
        """Return the maps (n, k, h, w) of concepts (n, k)."""
        return concept_maps(self.model, self.features, self.inputs, concepts)

    def with_truth(self, truth: Truth) -> Batch:
        """Return this batch with other ground truth; what it has computed is shared."""
        other = copy.copy(self)
        other.truth = truth
        for name in ("labels", "correct"):
            other.__dict__.pop(name, None)
        return other

    def take(self, rows: np.ndarray) -> Batch:
        """Return some of the samples."""
        part = copy.copy(self)
        part._once, part._shared = {}, {}
        part.truth = {name: value[torch.as_tensor(rows)] for name, value in self.truth.items()}
        part.inputs = self.inputs[torch.as_tensor(rows, device=self.inputs.device)]
        there = torch.as_tensor(rows, device=self.values.device)
        part.outputs = self.outputs._replace(
            features=None if self.features is None else self.features[there],
            values=self.values[there],
            logits=self.logits[there],
        )
        part.features = part.outputs.features
        for name in OF_SAMPLES:
            part.__dict__.pop(name, None)
        return part

    def join(self, others: Sequence[Batch]) -> Batch:
        """Return some samples (`take`) and, after them, others of the same model."""
        parts, joined = (self, *others), copy.copy(self)
        joined._once, joined._shared = {}, {}
        joined.inputs = torch.cat([part.inputs for part in parts])
        joined.truth = {name: torch.cat([part.truth[name] for part in parts]) for name in self.truth}
        fields = zip(*(part.outputs for part in parts), strict=True)
        joined.outputs = type(self.outputs)(*(None if rows[0] is None else torch.cat(rows) for rows in fields))
        joined.features = joined.outputs.features
        for name in OF_SAMPLES:
            joined.__dict__.pop(name, None)
        return joined

    @property
    def n_bytes(self) -> int:
        """How many bytes its inputs and features take."""
        return sum(each.nbytes for each in (self.inputs, self.features) if isinstance(each, Tensor))
