"""The arguments that metrics take from Quantus; one call of a metric with its record, attributions and progress."""

from __future__ import annotations

import itertools
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from torch import Tensor

from captum_concepts._support.checks import to_numpy
from captum_concepts._support.progress import progress
from quantus_concepts.metrics.host.metric import nanmean
from quantus_concepts.metrics.host.record import DEFAULTS, OF_REGIONS, QuantusArguments, Record

__all__ = ["DEFAULTS", "OF_REGIONS", "QuantusArguments", "Record", "nanmean"]


@dataclass
class Call:
    """The state of one call of a metric, until it returns."""

    truth: dict[str, np.ndarray]
    on_images: bool = False
    attributions: np.ndarray | None = None
    failures: dict[str, int] = field(default_factory=dict)
    gaps: dict[str, int] = field(default_factory=dict)
    units: dict[str, tuple[int, str]] = field(default_factory=dict)
    outcome: str = "scores are NaN"
    explained_something: bool = False
    side: str = ""
    n_samples: int = 0
    #: Whether this is one batch of several, whose results are kept until `compute`.
    is_update: bool = False
    #: `x_batch` as the caller passed it, and the shape of a sample once channels are first.
    inputs: Any = None
    batch_size: int = 64
    #: Logits of the first batch, by the identity of the model.
    first: dict[int, Any] = field(default_factory=dict)
    layout: tuple[int, ...] = ()
    checked: bool = False
    refused: bool = False
    model_predict_kwargs: dict[str, Any] = field(default_factory=dict)
    chance: float = float("nan")
    chances: list[float] = field(default_factory=list)
    clusters: np.ndarray | None = None
    values: np.ndarray = field(default_factory=partial(np.empty, 0))
    #: Intermediate results of a metric whose scores are not of samples.
    state: Any = None

    def record(self, scores: Any, bounds: tuple[float, float], of_samples: bool) -> Record:
        """Return what is remembered of this call when it has returned `scores`."""
        reasons = dict(self.gaps)
        for why, count in self.failures.items():
            reasons[f"the explanation method failed: {why}"] = count
        returned = tuple(np.atleast_1d(np.asarray(scores, dtype=float)).tolist())
        explained = not self.on_images
        return Record(returned, self.values, self.chance, reasons, self.clusters, bounds, of_samples, explained)

    def describe(self, method: str | None) -> str:
        """Write why scores of the call are undefined, of an explanation method of this name."""
        name = "" if method is None else f" {method!r}"
        parts = []
        for start, reasons in (("", self.gaps), (f"the explanation method{name} failed: ", self.failures)):
            counted = []
            for why, count in reasons.items():
                total, unit = self.units.get(why, (self.n_samples, "samples"))
                counted.append(f"{why} ({count} of {total} {unit})")
            if counted:
                parts.append(start + "; ".join(counted))
        return f"{self.outcome} where {'; and where '.join(parts)}."


def join_calls(calls: list[Call]) -> Call:
    """Return one call in place of the calls of the batches."""
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


class Explanations(Sequence[Any]):
    """Attributions of a data set that are computed batch by batch on access."""

    # Quantus slices whatever is a `Sequence`.

    def __init__(self, length: int, explain: Callable[[slice], np.ndarray]) -> None:
        self.length, self.explain = length, explain

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self.explain(index)
        return self.explain(slice(index, index + 1))[0]


def no_attributions(n_samples: int) -> np.ndarray:
    """Return explanations that are not there, (n_samples, 0): without a single value for a sample."""
    return np.empty((n_samples, 0))


def as_attributions(value: Any, n_samples: int) -> tuple[np.ndarray, str]:
    """Return attributions in float32 or float64, a row for each sample, and ""."""
    # Unusable attributions give `no_attributions` and the reason.
    try:
        if isinstance(value, list | tuple):
            value = [to_numpy(row) if isinstance(row, Tensor) else row for row in value]
        if isinstance(value, np.ma.MaskedArray):
            value = np.ma.filled(value.astype(float), np.nan)
        array = value if isinstance(value, np.ndarray) else to_numpy(value)
    except Exception as error:
        return no_attributions(n_samples), f"gave no array but {type(value).__name__} ({type(error).__name__}: {error})"
    if array.ndim == 0 or len(array) != n_samples:
        return no_attributions(n_samples), f"gave an array of shape {array.shape} for {n_samples} samples"
    if array.dtype.kind not in "fiub":
        return no_attributions(n_samples), f"gave attributions that are not numeric but {array.dtype}"
    if not array.size:
        return no_attributions(n_samples), f"gave an array of shape {array.shape}, without a value"
    # Torch takes neither half precision of every kind, nor 80 bits, nor the other order of bytes.
    short = array.dtype.kind == "f" and array.dtype.itemsize <= 4
    return array.astype(np.float32 if short else np.float64, copy=False), ""


def normalise_each(a_batch: np.ndarray, normalise_func: Callable[..., np.ndarray]) -> np.ndarray:
    """Return each sample's attributions normalised by themselves; NaN where they were not finite."""
    finite = np.isfinite(a_batch.reshape(len(a_batch), -1)).all(1)
    with np.errstate(invalid="ignore", divide="ignore"):
        result = np.concatenate([normalise_func(row[None]) for row in a_batch])
    # Some normalisations make zeros of NaN.
    return result if finite.all() else np.where(finite.reshape(-1, *[1] * (result.ndim - 1)), result, np.nan)


#: Seconds after which progress shows by itself.
LONG = 2.0
#: Seconds from which on a warning says how long the work takes where no bar can be seen.
VERY_LONG = 60.0
#: Updates that are timed for it; the one before them is not, since it warms up.
TIMED = 3

clock = time.monotonic


class DurationWarning(UserWarning):
    """Says how long a call will take where no bar can be seen; nothing about its result."""


class WholeProgress:
    """One bar over all of a call's work; where it cannot be seen, one warning says how long the work will take."""

    # A warning: a log line is hidden unless logging is set up, and prints cannot be silenced. It comes only where the
    # bar is off or the stream is no terminal, once, and only for more than a minute.

    def __init__(self, description: str, total: int, unit: str, show: bool | None, *, tell: str = "") -> None:
        delay = 0 if show else LONG
        self.bar = progress(description=description, total=total, unit=unit, show=show is not False, delay=delay)
        self.total, self.tell = total, tell
        self.done = self.updates = 0
        self.first = 0, 0.0

    def update(self, count: int) -> None:
        """Count what is done."""
        self.bar.update(count)
        if not self.tell or self.updates > TIMED:
            return
        self.updates += 1
        self.done += count
        if self.updates == 1:
            self.first = self.done, clock()
        elif self.updates == TIMED + 1:
            seconds = (clock() - self.first[1]) / max(self.done - self.first[0], 1) * (self.total - self.done)
            if seconds > VERY_LONG and self.bar.disable:
                warnings.warn(self.tell.format(duration=duration_text(seconds)), DurationWarning, stacklevel=2)

    def close(self) -> None:
        """Take the bar away."""
        self.bar.close()

    def __enter__(self) -> WholeProgress:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def duration_text(seconds: float) -> str:
    """Write a duration for people."""
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{seconds / 3600:.1f} h"
