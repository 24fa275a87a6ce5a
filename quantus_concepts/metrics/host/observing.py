"""What metrics keep of batches, `Observed`, and what observes them, `Observer`: one accumulator for all."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from captum_concepts.support.checks import as_list, check_choice, check_range, check_whole, to_numpy
from captum_concepts.support.running import to_host
from captum_concepts.texts import describe
from quantus_concepts.metrics.host.alignment import ModelNames
from quantus_concepts.metrics.host.batch import Batch
from quantus_concepts.metrics.host.explanations import FAILED
from quantus_concepts.metrics.host.model import IMPORTANCES, convention_of, no_level
from quantus_concepts.metrics.host.rows import RowBuffer


def total(**options: Any) -> Any:
    """Return a field that is added up over batches; `options` are those of `field`."""
    return field(metadata={"join": _add}, **options)


def _add(values: Sequence[Any]) -> Any:
    first, *others = values
    for other in others:
        first = first + other
    return first


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

    # `reason` (n,) says what is wrong with the explanation of a sample, "" for nothing; `explained` is None if no
    # attribution was asked for, else whether one of them is not zero; `n_wrong` counts the samples whose `y_batch` is
    # not the predicted class, where it stands for the true one, and is None elsewhere.
    reason: np.ndarray | None = None
    explained: bool | None = None
    n_wrong: Any = None
    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def n_samples(self) -> int:
        """How many samples there are."""
        for each in fields(self):
            rows = getattr(self, each.name)
            if "join" not in each.metadata and each.name != "explained" and rows is not None:
                return len(rows)
        raise TypeError(f"{type(self).__name__} has no field with a row for each sample.")

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
        """Return the same on the CPU, in one transfer."""
        tensors = {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}
        tensors = dict(zip(tensors, to_host(*tensors.values()), strict=True))
        return replace(self, **tensors)


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
            if name not in self._rows:
                rows[name] = _rows(new)
                continue
            if new:
                self._join(name)
            rows[name] = self._rows[name].rows
        unknown = dict.fromkeys(self._kind.__dataclass_fields__)
        return self._kind(**unknown | rows | self._rest).on_host()


#: After how many batches rows are moved.
_JOINED = 32


@dataclass(frozen=True)
class Scored(Observed):
    """Scores (n,) of some samples, with what their record needs.

    `chance` (n,) is what no knowledge scores, NaN where that is unknown. `reason` (n,) says why a score is undefined:
    "" or reasons, a line each (`add_reason`). `clusters` (n,) are the same for samples that depend on each other. A
    subclass may have more fields with a row for each sample.
    """

    scores: Any
    chance: Any = None
    reason: Any = None
    clusters: Any = None
    explained: bool | None = None
    n_wrong: Any = total(default=None, kw_only=True)


#: The field of a row that a setting of a metric is.
FIELDS = {
    **{"importance": "explanation", "top_l": "l", "alpha": "alpha", "per": "item_kind", "baseline": "baseline"},
    "convention": "convention",
}


@dataclass(frozen=True)
class UsualMetrics:
    """The variants of CGIM, CEM and CLM in the tables of `score_concepts`, among its `metrics` or as all of them.

    Parameters
    ----------
    explanations : sequence of str
        Importance that ranks the concepts: "weight" (theta), "value" (u), "contribution" (theta times u), and "effect",
        which is left out by default for models that do not know the level of absent concepts (`CEM`, Notes).
    top_l : sequence of int
        How many concepts count. The default is used as far as the model has as many concepts; others raise. CLM leaves
        out those that not enough concepts have a part for.
    alphas : sequence of float
        Sizes of CLM's region in twelfths of the image.

    Raises
    ------
    ValueError
        If a sequence is empty, or holds a value out of its range.

    Examples
    --------
    >>> from quantus_concepts.metrics import UsualMetrics
    >>> UsualMetrics(top_l=[1], alphas=[3])
    UsualMetrics(explanations=('weight', 'value', 'contribution', 'effect'), top_l=(1,), alphas=(3.0,))
    """

    explanations: Sequence[str] = IMPORTANCES
    top_l: Sequence[int] = (1, 3, 5)
    alphas: Sequence[float] = (1.0, 3.0, 6.0)

    def __post_init__(self) -> None:
        for name in ("explanations", "top_l", "alphas"):
            if not as_list(name, getattr(self, name)):
                raise ValueError(f"Expected argument `{name}` to hold at least one value but it is empty.")
        for explanation in self.explanations:
            check_choice("explanations", explanation, IMPORTANCES)
        for alpha in self.alphas:
            check_range("alphas", alpha, 0, 12, open_low=True)
        object.__setattr__(self, "explanations", tuple(self.explanations))
        object.__setattr__(self, "top_l", tuple(check_whole("top_l", top, 1) for top in self.top_l))
        object.__setattr__(self, "alphas", tuple(map(float, self.alphas)))


@dataclass(frozen=True)
class Known:
    """What a stream knows before its first batch, from which metrics make their usual variants (`Observer.usual`)."""

    variants: UsualMetrics
    #: Ground truth that is not about samples, by its name; None if unknown.
    truth: Callable[[str], Any]
    baselines: bool


class Observer:
    """What observes batches and gives rows of a table: metrics of concept models, and accuracies.

    Metrics of one class whose settings in `family` are equal observe a batch together.
    """

    name: ClassVar[str]
    bounds: tuple[float, float] = (0.0, 1.0)
    #: Whether scores are about samples; else they are about concepts or classes.
    of_samples: bool = True
    #: Ground truth with a row for each sample, and what of it there has to be.
    sample_truth: tuple[str, ...] = ()
    needed: tuple[str, ...] = ()
    #: Settings that are equal for those that observe together; None: each observes alone.
    family: ClassVar[tuple[str, ...] | None] = None
    #: Whether it makes maps, which controls do for some of the images only.
    makes_maps: bool = False
    #: Whether it has rows in tables of means.
    in_table: bool = True
    #: Name of the baseline that stands in place of the model's importance or maps.
    baseline: str = ""
    #: In a stream: whether it is left out where its truth, or the level of effects, is unknown; its name in the table.
    optional: bool = False
    level_optional: bool = False
    title: str = ""
    #: Of a model in a stream: what importances are counted from.
    convention: str = ""

    def __repr__(self) -> str:
        return describe(self, **{name: getattr(self, name, None) for name in inspect.signature(type(self)).parameters})

    @property
    def label(self) -> str:
        """What it is called in a table."""
        return self.name

    @property
    def bound_truth(self) -> dict[str, np.ndarray]:
        """Ground truth of samples that is bound, by name."""
        return {name: value for name in self.sample_truth if (value := getattr(self, name, None)) is not None}

    def match_names(self, names: ModelNames) -> None:
        """Bring truth that has names into the order of a model's classes and concepts."""

    @classmethod
    def own_settings(cls) -> list[str]:
        """Return the names of the constructor's arguments that are no ground truth of samples."""
        parameters = inspect.signature(cls).parameters.values()
        named = [each.name for each in parameters if each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL)]
        return [name for name in named if name not in cls.sample_truth]

    @classmethod
    def usual(cls, known: Known) -> Sequence[Observer]:
        """Return the usual variants for a table: by default one, with the truth that its constructor needs."""
        parameters = inspect.signature(cls).parameters.values()
        required = [each.name for each in parameters if each.default is each.empty and each.kind != each.VAR_KEYWORD]
        truth = {name: known.truth(name) for name in required}
        return [] if any(value is None for value in truth.values()) else [cls(**truth)]

    def check_truth(self, name: str, value: Any) -> Any:
        """Return ground truth of this name as an array, or raise; called for what is bound and for what is passed."""
        return np.asarray(to_numpy(value), order="C")

    def with_truth(self, known: Known) -> Self:
        """Return the metric with the truth that a stream knows and the metric was not given."""
        return self

    def baselines(self, known: Known) -> Sequence[Observer]:
        """Return the baselines that stand beside this metric in a table."""
        return ()

    def for_model(self, name: str, model: Any, control: int | None) -> Observer | None:
        """Return what observes a model of this name, or the control of this number of it; None for nothing."""
        kind = getattr(self, "importance", "")
        if kind not in IMPORTANCES:
            return self
        convention = convention_of(model, kind)
        if kind == "effect" and not convention:
            if self.level_optional or control is not None:
                return None
            raise ValueError(no_level(model))
        return self.vary(convention=convention)

    def missing(self, batch: Batch) -> str:
        """Return the name of what a batch has to have and lacks, "" for nothing."""
        known = {*batch.truth, *self.bound_truth}
        return next((name for name in self.needed if name not in known), "")

    @classmethod
    def observe(cls, metrics: Sequence[Self], batch: Batch) -> Observed:
        """Return what is kept of a batch for several metrics of one family; change nothing."""
        raise NotImplementedError

    def finish(self, observed: Any) -> Result:
        """Return the scores of all batches, and why some are undefined."""
        why, n = observed.reason, observed.n_samples
        reasons = count_reasons(why, n) if why is not None and (why != "").any() else {}
        scores = np.asarray(observed.scores, dtype=np.float64)
        return Result(scores, reasons, chance=observed.chance, clusters=observed.clusters)

    def numbers(self, observed: Any) -> list[tuple[dict[str, Any], Result]]:
        """Return the fields of each row of a table, and its numbers."""
        return [(self.fields(), self.finish(observed))]

    def fields(self) -> dict[str, Any]:
        """Return what a row of a table is called."""
        known = {name: value for own, name in FIELDS.items() if (value := getattr(self, own, None)) is not None}
        # Means of classes, as those of CGIM, are over the correct samples unless a metric says otherwise.
        of_set = {"set": "correct"} if getattr(self, "only_correct", not self.of_samples) else {}
        return {"metric": self.title or self.label} | known | of_set

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
    #: In place of the mean of scores, if it is another number or there are no scores: "value", "n", "undefined".
    summary: dict[str, Any] | None = None
    #: The interval of the mean, where it is not that over the samples; computed where it is shown.
    interval: Callable[[], tuple[float, float]] | None = None
    #: Importances (K, L) by which models are compared, and the truth.
    by_class: tuple[Tensor, Tensor] | None = None

    def counted_reasons(self) -> dict[str, Counted]:
        """Return the reasons."""
        if callable(self.reasons):
            self.reasons = self.reasons()
        return self.reasons

    def commonest_reason(self) -> str:
        """Return the commonest reason why scores are undefined, with its count; "" without any."""
        counted = max(self.counted_reasons().items(), key=lambda item: item[1].n, default=None)
        return "" if counted is None else f"{counted[0]} ({counted[1].n} of {counted[1].total} {counted[1].unit})"

    def describe(self, method: object) -> str:
        """Write why scores are undefined, of an explanation method of this name."""
        name = "" if method is None else f" {method!r}"
        parts = []
        for prefix, start in (("", ""), (FAILED, f"the explanation method{name} failed: ")):
            counted = [
                f"{reason.removeprefix(prefix)} ({of.n} of {of.total} {of.unit})"
                for reason, of in self.counted_reasons().items()
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
