"""Results of the attribution benchmark: one record a number, with its interval."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from captum_concepts.checks import check_choice, to_numpy
from quantus_concepts.functional.intervals import interval, relation
from quantus_concepts.studies.records import find, select

METRICS = ("MCS", "MCS baseline", "IDR", "IIR", "perturbation", "relative MCS", "correlation", "robustness")

RANDOM = "random"
SOBEL = "Sobel edges"
#: Methods that know nothing of the model.
CONTROLS = (RANDOM, SOBEL)
#: The global method: its "MCS" is a difference of TCAV scores, one number for all images.
TCAV = "TCAV"

#: Smallest and largest value of a score.
BOUNDS = {"IDR": (0.0, 1.0), "IIR": (0.0, 1.0), "perturbation": (0.0, math.inf)}


@dataclass(frozen=True)
class Record:
    """One number of the benchmark."""

    method: str
    metric: str
    k: float | None = None
    value: float = math.nan
    low: float = math.nan
    high: float = math.nan
    n: int = 0
    undefined: int = 0
    reference: float = math.nan
    unconverged: int = 0
    seed: int | None = None
    variant: str = ""

    @property
    def defined(self) -> bool:
        """Whether there is a number."""
        return not math.isnan(self.value)

    @property
    def ends(self) -> tuple[float, float]:
        """Low and high end of the interval."""
        return self.low, self.high


def mean_record(scores: Any, *, method: str, metric: str, **fields: Any) -> Record:
    """Sum up scores of images in one record: mean of the defined ones, their number, 95 % interval."""
    check_choice("metric", metric, METRICS)
    values = np.asarray(to_numpy(scores), dtype=np.float64).ravel()
    defined = values[~np.isnan(values)]
    if metric in ("IDR", "IIR") and not np.isin(defined, (0.0, 1.0)).all():
        raise ValueError(f"Expected argument `scores` to hold 0, 1 and NaN for {metric} but got other values.")
    low, high = interval(defined, BOUNDS.get(metric, (-1.0, 1.0)))
    return Record(
        method=method,
        metric=metric,
        value=float(defined.mean()) if defined.size else math.nan,
        low=low,
        high=high,
        n=int(defined.size),
        undefined=int(values.size - defined.size),
        **fields,
    )


def methods_of(records: Iterable[Record]) -> list[str]:
    """Return the methods that occur, in the order of every table and figure."""
    found = dict.fromkeys(record.method for record in records)
    return [name for name in found if name not in CONTROLS] + [name for name in found if name in CONTROLS]


def commonalities(records: Iterable[Record]) -> list[float]:
    """Return the commonalities k of the relative MCS, ascending."""
    return sorted({record.k for record in records if record.metric == "relative MCS" and record.k is not None})


def against(record: Record, reference: Record | float) -> str:
    """Say whether a number lies above, at or below a reference, by its 95 % interval."""
    return relation(record.ends, reference.ends if isinstance(reference, Record) else (reference, reference))


def against_reference(records: Iterable[Record], record: Record) -> str:
    """Say whether a number lies above, at or below what it is to be held against."""
    if record.metric == "MCS":
        mask = find(records, metric="MCS baseline", method=record.method)
        if mask is not None and not math.isnan(mask.low):
            return against(record, mask)
    return against(record, record.reference)


def leaders(records: Iterable[Record], metric: str, *, lowest: bool = False) -> list[Record]:
    """Return the best of the methods and all that cannot be told apart from it."""
    sign = 1 if lowest else -1
    found = sorted(
        (record for record in select(records, metric=metric) if record.defined and _competes(record)),
        key=lambda record: sign * record.value,
    )
    return [record for record in found if record is found[0] or against(record, found[0]) == "at"]


def _competes(record: Record) -> bool:
    return record.method not in CONTROLS and (record.method != TCAV or record.metric == "correlation")
