"""What metrics see of some samples, a `Batch`, and what they keep of them, `Observed`: one accumulator for all."""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from captum_concepts.models.interventions import Levels
from captum_concepts.support.running import predict_logits
from quantus_concepts.functional.concepts.ranking import rank_concepts
from quantus_concepts.metrics.host.alignment import ModelNames
from quantus_concepts.metrics.host.checks import Truth, checked_classes
from quantus_concepts.metrics.host.explanations import FAILED, Explain
from quantus_concepts.metrics.host.model import (
    concept_importances,
    concept_maps,
    concept_outputs,
    is_concept_model,
    shared_features,
    shared_outputs,
)
from quantus_concepts.metrics.host.rows import RowBuffer


def total() -> Any:
    """Return a field that is added up over batches."""
    return field(metadata={"join": sum})


def same() -> Any:
    """Return a field that all batches have the same of; None where they differ."""
    return field(metadata={"join": _same})


def _same(values: Sequence[Any]) -> Any:
    first, *others = values
    return first if all(_equal(first, other) for other in others) else None


def _equal(first: Any, other: Any) -> bool:
    if isinstance(first, Tensor):
        # Mostly the same memory, as of a model's weights.
        return first.data_ptr() == other.data_ptr() or torch.equal(first, other.to(first))
    return bool(first == other)


def _rows(values: Sequence[Any]) -> Any:
    return torch.cat([*values]) if isinstance(values[0], Tensor) else np.concatenate(values)


class Observed:
    """Base of what is kept of some samples: a dataclass whose fields have a row for each, or are `total` or `same`."""

    # `why` (n,) says what is wrong with the explanation of a sample, "" for nothing; `explained` is None if no
    # attribution was asked for, else whether one of them is not zero.
    why: np.ndarray | None = None
    explained: bool | None = None
    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def n_samples(self) -> int:
        """How many samples there are."""
        names = (each.name for each in fields(self) if "join" not in each.metadata and each.name != "explained")
        kept = (getattr(self, name) for name in names)
        return next(len(rows) for rows in kept if rows is not None)

    def join(self, *others: Self) -> Self:
        """Return what is kept of these samples and, after them, of others."""
        joined: dict[str, Any] = {}
        for each in fields(self):
            values = [getattr(part, each.name) for part in (self, *others)]
            known = [value for value in values if value is not None]
            if each.name == "explained":
                joined[each.name] = any(known) if known else None
            elif "join" in each.metadata:
                joined[each.name] = each.metadata["join"](known) if known else None
            else:
                joined[each.name] = _rows(known) if len(known) == len(values) else None
        return type(self)(**joined)

    def kept(self) -> Self:
        """Return the same with a copy of what belongs to a model, which may be trained further."""
        own = {each.name: getattr(self, each.name) for each in fields(self) if each.metadata.get("join") is _same}
        return replace(self, **{name: value.clone() for name, value in own.items() if isinstance(value, Tensor)})

    def on_host(self) -> Self:
        """Return the same on the CPU."""
        tensors = {name: value.cpu() for name, value in vars(self).items() if isinstance(value, Tensor)}
        return replace(self, **tensors)  # type: ignore[type-var]


class Keeper:
    """Joins what batches give in blocks of memory that double (`RowBuffer`)."""

    def __init__(self) -> None:
        self._kind: Any = None
        self._new: dict[str, list[Any]] = {}
        self._rows: dict[str, RowBuffer] = {}
        self._rest: dict[str, Any] = {}

    @property
    def is_filled(self) -> bool:
        """Whether a batch was added."""
        return self._kind is not None

    def add(self, observed: Observed) -> None:
        """Add what is kept of a batch."""
        self._kind = type(observed)
        for name, each in observed.__dataclass_fields__.items():
            value, rest = getattr(observed, name), self._rest.get(name)
            if value is None:
                continue
            if name == "explained":
                self._rest[name] = bool(rest or value)
            elif "join" in each.metadata:
                self._rest[name] = value if rest is None else each.metadata["join"]((rest, value))
            else:
                new = self._new.setdefault(name, [])
                new.append(value)
                if len(new) == _JOINED and isinstance(value, Tensor):
                    self._join(name)

    def _join(self, name: str) -> None:
        """Move the rows of the last batches into one block: many small ones would leave memory in pieces."""
        self._rows.setdefault(name, RowBuffer()).add(torch.cat(self._new[name]))
        self._new[name] = []

    def observed(self) -> Any:
        """Return all of it on the CPU."""
        rows: dict[str, Any] = {}
        for name, new in self._new.items():
            if new and isinstance(new[0], np.ndarray):
                rows[name] = np.concatenate(new)
                continue
            if new:
                self._join(name)
            rows[name] = self._rows[name].rows.cpu()
        unknown = dict.fromkeys(self._kind.__dataclass_fields__)
        return self._kind(**unknown | rows | self._rest).on_host()


#: After how many batches rows are moved.
_JOINED = 32


@dataclass(frozen=True)
class Scored(Observed):
    """Scores (n,) of some samples, with what their record needs.

    `chance` (n,) is what no knowledge scores, NaN where that is unknown. `why` (n,) says why a score is undefined:
    "" or reasons, a line each (`add_reason`). `clusters` (n,) are the same for samples that depend on each other. A
    subclass may have more fields with a row for each sample.
    """

    scores: Any
    chance: Any = None
    why: Any = None
    clusters: Any = None
    explained: bool | None = None


class Importance(NamedTuple):
    """Importances (E, n, L) of several kinds; of given explanations what is wrong with them."""

    values: Tensor
    why: np.ndarray | None = None
    explained: bool | None = None


class _Every(NamedTuple):
    kinds: tuple[str, ...]
    values: Tensor


class Batch:
    """Some samples for one model; what metrics ask for is computed once.

    `classes` (n,) are those explained, the predicted ones if None. `explain` gives explanations where the model has no
    importances of its own, in a call of Quantus.
    """

    def __init__(
        self,
        model: Any,
        inputs: Any,
        classes: np.ndarray | None,
        truth: Truth,
        explain: Explain | None = None,
        *,
        features: Tensor | None = None,
        before: Any = None,
        number: int = 0,
        threshold: float | None = None,
        levels: Levels | None = None,
        kinds: Sequence[str] = (),
        shared: dict[Hashable, Any] | None = None,
    ) -> None:
        self.model, self.inputs, self.given, self.truth, self.explain = model, inputs, classes, truth, explain
        self.number, self.threshold, self.levels = number, threshold, levels
        #: What is the same for all models of a batch.
        self._shared = {} if shared is None else shared
        #: The kinds of importance that all metrics together ask for.
        self._kinds = tuple(kinds)
        self._features, self._before = features, before
        self._once: dict[Hashable, Any] = {}
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

    def of_truth(self, key: Hashable, name: str, make: Callable[[Tensor], Any]) -> Any:
        """Return what `make` returns for ground truth on the device of the values, once for all models of a batch."""
        device = self.values.device
        known = self._shared.get((key, device))
        # The truth is held: another one could get its identity.
        if known is None or known[0] is not self.truth[name]:
            known = self._shared[key, device] = self.truth[name], make(self.of(name, device))
        return known[1]

    @cached_property
    def features(self) -> Tensor | None:
        """What the backbone gives, if the model shares it."""
        known = self._features is not None or isinstance(self.inputs, Tensor)
        return self._features if known else shared_features(self.model, self.inputs)

    @cached_property
    def outputs(self) -> Any:
        """Values (n, L) and logits (n, K) of a concept model."""
        if isinstance(self.inputs, Tensor):
            return concept_outputs(self.model, self.inputs, self.features)
        # Features that are there already: a block may have no room to share them.
        return shared_outputs(self.model, self.inputs, vars(self).get("features"))

    @property
    def has_before(self) -> bool:
        """Whether there are images without a substitution."""
        return self._before is not None

    @cached_property
    def before(self) -> Any:
        """The outputs of the images before their substitution; None where there are none."""
        return None if self._before is None else concept_outputs(self.model, *self._before)

    @cached_property
    def values(self) -> Tensor:
        """Concept values (n, L)."""
        return self.outputs.values if self.has_concepts else torch.as_tensor(self.inputs)

    @cached_property
    def logits(self) -> Tensor:
        """Class logits (n, K)."""
        if self.has_concepts:
            return self.outputs.logits
        return predict_logits(self.model, self.inputs, **(self.explain.predict_kwargs if self.explain else {}))

    @cached_property
    def predicted(self) -> Tensor:
        """The predicted classes (n,)."""
        return self.logits.argmax(1)

    @cached_property
    def classes(self) -> Tensor:
        """The explained classes (n,)."""
        return self.predicted if self.given is None else checked_classes(self.given, self.logits)

    def of(self, name: str, device: torch.device | None = None) -> Tensor:
        """Return ground truth of a name on a device, by default that of the values."""
        return torch.as_tensor(self.truth[name], device=self.values.device if device is None else device)

    @cached_property
    def labels(self) -> Tensor:
        """The true classes (n,); without them those explained."""
        if "labels" in self.truth:
            return self.of("labels", self.predicted.device)
        return self.classes if self.has_concepts else torch.as_tensor(self.given, device=self.predicted.device)

    def importance(self, kinds: Sequence[str], n_concepts: int, truth: str) -> Importance:
        """Return the importances of the model's own kinds, or the explanations of a call in their place."""
        if not self.has_concepts:
            given = self.explain.of_concepts(n_concepts, truth)  # type: ignore[union-attr]
            return Importance(
                torch.as_tensor(given.values)[None].expand(len(kinds), -1, -1), given.why, given.explained
            )

        every = self._every(tuple(kinds))
        return Importance(
            every.values if every.kinds == tuple(kinds) else every.values[[*map(every.kinds.index, kinds)]]
        )

    def _every(self, kinds: tuple[str, ...]) -> Any:
        """Return all kinds of importance (E, n, L) that are asked for, with their norms and orders."""
        if not {*kinds} <= {*self._kinds}:
            self._kinds = tuple(dict.fromkeys((*self._kinds, *kinds)))

        def make() -> Any:
            found = concept_importances(self.model, self.values, self.classes, self._kinds)
            return _Every(self._kinds, torch.stack([*found.values()]))

        return self.once(("importance", self._kinds), make)

    def order(self, kinds: Sequence[str], importance: Tensor) -> Tensor:
        """Return the concepts by these importances (E, n, L), the most important first."""
        if not self.has_concepts:
            return rank_concepts(importance, importance.shape[2])
        every = self._every(tuple(kinds))
        order = self.once(("order", every.kinds), lambda: rank_concepts(every.values, importance.shape[2]))
        return order if every.kinds == tuple(kinds) else order[[*map(every.kinds.index, kinds)]]

    def norms(self, kinds: Sequence[str], importance: Tensor) -> Tensor:
        """Return the largest absolute importance (E, n); NaN if one is."""
        if not self.has_concepts:
            return torch.linalg.vector_norm(importance, torch.inf, 2)
        every = self._every(tuple(kinds))
        norms = self.once(("norms", every.kinds), lambda: torch.linalg.vector_norm(every.values, torch.inf, 2))
        return norms if every.kinds == tuple(kinds) else norms[[*map(every.kinds.index, kinds)]]

    def maps(self, concepts: Tensor) -> Tensor:
        """Return the maps (n, k, h, w) of concepts (n, k)."""
        return concept_maps(self.model, self.features, self.inputs, concepts)

    def with_truth(self, truth: Truth) -> Batch:
        """Return this batch with other ground truth; what it has computed is shared."""
        other = copy.copy(self)
        other.truth = truth
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
        for name in ("values", "logits", "predicted", "classes", "labels"):
            part.__dict__.pop(name, None)
        return part


#: The field of a row, or of its set, that a setting of a metric is.
FIELDS = {"importance": "explanation", "top_l": "l", "alpha": "alpha", "per": "item_kind", "baseline": "baseline"}


@dataclass(frozen=True)
class Known:
    """What is known of all samples before a stream, for the usual variants of metrics (`Observer.usual`)."""

    explanations: tuple[str, ...] = ("weight", "value", "contribution")
    top_l: tuple[int, ...] = (1, 3, 5)
    alphas: tuple[float, ...] = (1.0, 3.0, 6.0)
    class_concepts: np.ndarray | None = None
    part_of_concept: np.ndarray | None = None
    baselines: bool = False


class Observer:
    """What observes batches, and gives rows of a table: every metric of concept models, and smaller things.

    Several of one class and `family` observe a batch together.
    """

    name: ClassVar[str]
    bounds: tuple[float, float] = (0.0, 1.0)
    chance: float | None = None
    of_samples: bool = True
    sample_truth: tuple[str, ...] = ()
    needed: tuple[str, ...] = ()
    #: Ground truth without which there is nothing to observe in a stream.
    observed_truth: tuple[str, ...] | None = None
    #: Whether it needs a value from which on a concept of the model is present.
    needs_threshold: bool = False
    #: Whether it compares images with those before a substitution.
    needs_before: bool = False
    #: Names of the attributes that hold settings.
    settings: tuple[str, ...] = ()
    #: Whether it makes maps, which controls do for some of the images only.
    makes_maps: bool = False
    #: Whether it has rows of tables of means, and of tables of images.
    in_table: bool = True
    in_images: bool = True
    baseline: str = ""
    #: Which images the mean is over.
    only_correct: bool = False

    @property
    def label(self) -> str:
        """What it is called in a table."""
        return self.name

    @property
    def bound_truth(self) -> dict[str, np.ndarray]:
        """Ground truth of samples that is bound, by name."""
        bound = {name: getattr(self, name, None) for name in self.sample_truth}
        return {name: value for name, value in bound.items() if value is not None}

    def match_names(self, names: ModelNames) -> None:
        """Bring truth that has names into the order of a model's classes and concepts."""

    def family(self) -> Hashable:
        """Return what those that observe a batch together have in common."""
        return id(self)

    @classmethod
    def usual(cls, known: Any) -> Sequence[Observer]:
        """Return the usual variants for a table, by what is known of all samples (`Known`)."""
        return ()

    @classmethod
    def observe(cls, metrics: Sequence[Self], batch: Batch) -> Observed:
        """Return what is kept of a batch for several metrics of one family; change nothing."""
        raise NotImplementedError

    def finish(self, observed: Any) -> Result:
        """Return the scores of all batches, and why some are undefined."""
        why, n = observed.why, observed.n_samples
        reasons = count_reasons(why, n) if why is not None and (why != "").any() else {}
        scores = np.asarray(observed.scores, dtype=np.float64)
        chance = observed.chance if self.chance is None else self.chance
        return Result(scores, reasons, chance=chance, clusters=observed.clusters)

    def numbers(self, observed: Any) -> list[tuple[dict[str, Any], Result]]:
        """Return the fields of each row of a table, and its numbers."""
        return [(self.fields(), self.finish(observed))]

    def fields(self) -> dict[str, Any]:
        """Return what a row of a table is called."""
        named = {name: getattr(self, setting, None) for setting, name in FIELDS.items()}
        of_set = {"set": "correct"} if self.only_correct or not self.of_samples else {}
        return {"metric": self.label} | {name: value for name, value in named.items() if value is not None} | of_set

    def vary(self, **settings: Any) -> Self:
        """Return a copy with other settings."""
        varied = copy.copy(self)
        vars(varied).update(settings)
        return varied


class Counted(NamedTuple):
    """How many of `total` samples, concepts or classes have a reason."""

    n: int
    total: int
    unit: str = "samples"


@dataclass
class Result:
    """The scores that a metric returns, and why some are undefined."""

    scores: np.ndarray
    #: Counted where they are asked for.
    reasons: dict[str, Counted] | Callable[[], dict[str, Counted]]
    outcome: str = "scores are NaN"
    #: Of each sample, or of all.
    chance: Any = None
    clusters: Any = None
    #: In place of the mean of scores, where there are none of samples: "value", "n", "undefined".
    summary: dict[str, Any] | None = None
    #: Importances (K, L) by which models are compared, and the truth.
    by_class: tuple[Tensor, Tensor] | None = None

    def told(self) -> dict[str, Counted]:
        """Return the reasons."""
        if callable(self.reasons):
            self.reasons = self.reasons()
        return self.reasons

    def describe(self, method: object) -> str:
        """Write why scores are undefined, of an explanation method of this name."""
        name = "" if method is None else f" {method!r}"
        parts = []
        for prefix, start in (("", ""), (FAILED, f"the explanation method{name} failed: ")):
            counted = [
                f"{reason.removeprefix(prefix)} ({of.n} of {of.total} {of.unit})"
                for reason, of in self.told().items()
                if reason.startswith(FAILED) == bool(prefix)
            ]
            if counted:
                parts.append(start + "; ".join(counted))
        return f"{self.outcome} where {'; and where '.join(parts)}."


def count_reasons(why: np.ndarray, n: int) -> dict[str, Counted]:
    """Return how many of n samples have which reason, those of a failed explanation last."""
    counts: dict[str, Counted] = {}
    for reason in "\n".join(why[why != ""]).splitlines():
        counts[reason] = Counted(1 + (counts[reason].n if reason in counts else 0), n)
    return dict(sorted(counts.items(), key=is_failure)) if len(counts) > 1 else counts


def counted(masks: Mapping[str, Any], n: int, why: np.ndarray | None = None) -> dict[str, Counted]:
    """Return how many of n samples have which reason, by their masks (n,), and last those of explanations."""
    counts = {reason: Counted(int(mask.sum()), n) for reason, mask in masks.items()}
    return {reason: of for reason, of in counts.items() if of.n} | ({} if why is None else count_reasons(why, n))


def is_failure(reason: tuple[str, Counted]) -> bool:
    """Return whether a counted reason is that of a failed explanation."""
    return reason[0].startswith(FAILED)
