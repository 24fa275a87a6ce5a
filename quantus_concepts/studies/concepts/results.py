"""Results of a benchmark: one record a number, with its interval and what chance would give."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from captum_concepts.checks import check_choice, to_numpy
from quantus_concepts.functional.intervals import interval, relation, t_interval
from quantus_concepts.metrics.location_baselines import GAUSSIAN as GAUSSIAN
from quantus_concepts.metrics.location_baselines import OTHER_IMAGE as OTHER_IMAGE

POST_HOC = "post-hoc CBM"
TRADITIONAL = "traditional CBM"
ORACLE = "oracle"
RANDOM = "random directions"
PLAIN = "plain backbone"

#: Concept models in the order of every table and figure.
MODELS = (POST_HOC, TRADITIONAL, ORACLE, RANDOM)
#: The two honest baselines of the concept location metric.
BASELINES = (OTHER_IMAGE, GAUSSIAN)
#: Rankings of the concepts, and the sign the paper writes for each.
EXPLANATIONS = {"weight": "θ", "value": "u", "contribution": "θ·u"}
METRICS = ("CEM", "CLM", "CGIM", "accuracy", "concept accuracy", "negative first", "CAV accuracy")
SETS = ("all", "correct")


@dataclass(frozen=True)
class Record:
    """One number of a benchmark."""

    model: str
    metric: str
    explanation: str = ""
    set: str = "all"
    l: int | None = None  # noqa: E741 (the paper's letter)
    alpha: float | None = None
    item_kind: str = ""
    item: str = ""
    value: float = math.nan
    n: int = 0
    undefined: int = 0
    chance: float = math.nan
    low: float = math.nan
    high: float = math.nan
    seed: int | None = None

    @property
    def key(self) -> tuple[Any, ...]:
        """What the number is of, whatever the seed."""
        return (
            self.model,
            self.metric,
            self.explanation,
            self.set,
            self.l,
            self.alpha,
            self.item_kind,
            self.item,
        )


def baseline_name(baseline: str, model: str = POST_HOC) -> str:
    """Name the CLM baseline of a model's maps and ranking."""
    check_choice("baseline", baseline, BASELINES)
    return baseline if model == POST_HOC else f"{baseline}, {model}"


def setting_name(regularisation: float, samples: int) -> str:
    """Name a setting of the concept bank, as `Record.item` holds it for Table 3."""
    return f"C={regularisation:g}, n={samples}"


def parse_setting(name: str) -> tuple[float, int]:
    """Read C and n back from `setting_name`."""
    try:
        first, second = (part.split("=")[1] for part in name.split(", "))
        return float(first), int(second)
    except (ValueError, IndexError):
        raise ValueError(f"Expected a setting of the form 'C=0.1, n=100' but got {name!r}.") from None


def _bounds(metric: str) -> tuple[float, float]:
    return (-1.0, 1.0) if metric == "CGIM" else (0.0, 1.0)


def mean_record(scores: Any, *, model: str, metric: str, clusters: Any = None, **fields: Any) -> Record:
    """Sum up scores of samples in one record: mean of the defined ones, their number, 95 % interval."""
    check_choice("metric", metric, METRICS)
    check_choice("explanation", fields.get("explanation", ""), ["", *EXPLANATIONS])
    check_choice("set", fields.get("set", "all"), SETS)
    values = np.asarray(to_numpy(scores), dtype=np.float64).ravel()
    defined = values[~np.isnan(values)]
    low, high = interval(values, _bounds(metric), clusters)
    return Record(
        model=model,
        metric=metric,
        value=float(defined.mean()) if defined.size else math.nan,
        n=int(defined.size),
        undefined=int(values.size - defined.size),
        low=low,
        high=high,
        **fields,
    )


def item_records(
    scores: Any, names: Sequence[str], *, model: str, item_kind: str, metric: str = "CGIM", **fields: Any
) -> list[Record]:
    """Return one record per concept or class, and first the one of their mean."""
    check_choice("item_kind", item_kind, ("concept", "class"))
    values = np.asarray(to_numpy(scores), dtype=np.float64)
    if values.shape != (len(names),):
        raise ValueError(f"Expected argument `scores` to have shape ({len(names)},) but got {values.shape}.")
    records = [mean_record(values, model=model, metric=metric, item_kind=item_kind, **fields)]
    for name, value in zip(names, values, strict=True):
        missing = int(np.isnan(value))
        records.append(
            Record(
                model=model,
                metric=metric,
                item_kind=item_kind,
                item=name,
                value=float(value),
                n=1 - missing,
                undefined=missing,
                **fields,
            )
        )
    return records


def over_seeds(records: Iterable[Record]) -> list[Record]:
    """Average records over seeds."""
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for record in records:
        groups.setdefault(record.key, []).append(record)
    return [_join(group) for group in groups.values()]


def _join(group: list[Record]) -> Record:
    joined = [record for record in group if record.seed is None]
    if joined:
        return joined[0]
    if len(group) == 1:
        return dataclasses.replace(group[0], seed=None)
    values = np.array([record.value for record in group])
    values = values[~np.isnan(values)]
    low, high = t_interval(values, _bounds(group[0].metric))
    if group[0].model == RANDOM:
        low, high = (mean_of([getattr(record, end) for record in group]) for end in ("low", "high"))
    return dataclasses.replace(
        group[0],
        value=mean_of(values),
        n=sum(record.n for record in group),
        undefined=sum(record.undefined for record in group),
        chance=mean_of([record.chance for record in group]),
        low=low,
        high=high,
        seed=None,
    )


def mean_of(values: Sequence[float] | np.ndarray) -> float:
    """Return the mean of what is not NaN, NaN where nothing is."""
    defined = np.asarray(values, dtype=np.float64)
    defined = defined[~np.isnan(defined)]
    return float(defined.mean()) if defined.size else math.nan


def seeds_of(records: Iterable[Record]) -> list[int]:
    """Return the seeds that occur, ascending."""
    return sorted({record.seed for record in records if record.seed is not None})


def models_of(records: Iterable[Record]) -> list[str]:
    """Return the concept models that occur in CEM, CLM or CGIM, baselines left out."""
    found = dict.fromkeys(record.model for record in records if record.metric in ("CEM", "CLM", "CGIM"))
    return ordered(model for model in found if not model.startswith(BASELINES))


def ordered(models: Iterable[str]) -> list[str]:
    """Bring names of models into the order of `MODELS`, others after them; duplicates are dropped."""
    found = dict.fromkeys(models)
    return [model for model in MODELS if model in found] + [model for model in found if model not in MODELS]


def against(record: Record, reference: Record | float) -> str:
    """Say whether a number lies above, at or below another, by its 95 % interval."""
    # For chance and the random control it is `controls.against_control` that tells.
    other = (reference.low, reference.high) if isinstance(reference, Record) else (reference, reference)
    return relation((record.low, record.high), other)
