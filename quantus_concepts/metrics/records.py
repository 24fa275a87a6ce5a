"""What one call of a metric remembers, how it gets its explanations, and how it sums scores up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np


def nanmean(scores: Any) -> float:
    """Mean of the defined scores; NaN, without numpy's warning, where none is defined."""
    values = np.asarray(scores, dtype=float)
    return float(np.nanmean(values)) if np.isfinite(values).any() else float("nan")


@dataclass(frozen=True)
class Record:
    """What a finished call of a metric knows beside its scores."""

    scores: tuple[float, ...]
    values: np.ndarray
    chance: float
    reasons: dict[str, int]
    clusters: np.ndarray | None
    bounds: tuple[float, float]
    of_samples: bool


@dataclass
class Call:
    """What one call of a metric needs to remember until it returns."""

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
    #: `x_batch` as the caller passed it, and the shape of a sample once channels are first.
    inputs: Any = None
    batch_size: int = 64
    #: What models, by their identity, gave for the first batch.
    first: dict[int, Any] = field(default_factory=dict)
    layout: tuple[int, ...] = ()
    checked: bool = False
    refused: bool = False
    model_predict_kwargs: dict[str, Any] = field(default_factory=dict)
    chance: float = float("nan")
    chances: list[float] = field(default_factory=list)
    clusters: np.ndarray | None = None
    values: np.ndarray = field(default_factory=lambda: np.empty(0))

    def record(self, scores: Any, bounds: tuple[float, float], of_samples: bool) -> Record:
        """Return what is remembered of this call when it has returned `scores`."""
        reasons = {**self.gaps, **{f"the explanation method failed: {why}": n for why, n in self.failures.items()}}
        returned = tuple(float(score) for score in np.atleast_1d(np.asarray(scores, dtype=float)))
        return Record(returned, self.values, self.chance, reasons, self.clusters, bounds, of_samples)

    def describe(self, method: str | None) -> str:
        """Write why scores of the call are undefined, of an explanation method of this name."""

        def counted(reasons: dict[str, int]) -> str:
            units = ((why, n, *self.units.get(why, (self.n_samples, "samples"))) for why, n in reasons.items())
            return "; ".join(f"{why} ({n} of {total} {unit})" for why, n, total, unit in units)

        parts = [counted(self.gaps)] if self.gaps else []
        if self.failures:
            name = "" if method is None else f" {method!r}"
            parts.append(f"the explanation method{name} failed: {counted(self.failures)}")
        return f"{self.outcome} where {'; and where '.join(parts)}."


class Explanations(Sequence[Any]):
    """Attributions of a data set that are computed when a batch of them is asked for."""

    # Quantus slices whatever is a `Sequence`.

    def __init__(self, length: int, explain: Callable[[slice], np.ndarray]) -> None:
        self.length, self.explain = length, explain

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self.explain(index)
        return self.explain(slice(index, index + 1))[0]
