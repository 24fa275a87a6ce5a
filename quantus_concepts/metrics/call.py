"""What one call of a metric remembers, how it gets its explanations, and how it sums scores up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np


def nanmean(scores: Any) -> float:
    """Mean of the defined scores; NaN, without numpy's warning, where none is defined.

    Parameters
    ----------
    scores : array_like
        Scores, NaN where undefined.

    Returns
    -------
    float
        `numpy.nanmean` of `scores`.
    """
    values = np.asarray(scores, dtype=float)
    return float(np.nanmean(values)) if np.isfinite(values).any() else float("nan")


@dataclass(frozen=True)
class Record:
    """What a finished call of a metric knows beside its scores.

    Attributes
    ----------
    scores : tuple of float
        What the call returned, the aggregate where it was asked for.
    values : np.ndarray
        The scores before they were aggregated, NaN where undefined.
    chance : float
        Mean score of an explanation that knows nothing, NaN where there is no such number.
    reasons : dict
        Why scores are undefined, and of how many samples.
    clusters : np.ndarray or None
        For each score, which others it is not independent of; None where all are.
    bounds : tuple of float
        Smallest and largest score possible.
    of_samples : bool
        Whether there is a score for each sample.
    """

    scores: tuple[float, ...]
    values: np.ndarray
    chance: float
    reasons: dict[str, int]
    clusters: np.ndarray | None
    bounds: tuple[float, float]
    of_samples: bool


@dataclass
class Call:
    """What one call of a metric needs to remember until it returns.

    Attributes
    ----------
    truth : dict
        Ground truth of this call, an array with one row for each sample by name.
    on_images : bool
        Whether the metric computes everything from images itself.
    attributions : np.ndarray or None
        Explanations that were given.
    failures : dict
        Why explanations could not be scored, and of how many samples.
    gaps : dict
        Why samples could not be scored whatever the explanation, and how many.
    units : dict
        For each of these reasons what was counted and of how many, where it was not samples.
    outcome : str
        What follows of the reasons, in front of them in the warning.
    explained_something : bool
        Whether any attribution so far was not zero.
    side : str
        Which explanations are being asked for, in front of a reason; empty for those the call is about.
    n_samples : int
        How many samples the call is about.
    checked : bool
        Whether two samples have been explained again, for the metrics that explain again.
    refused : bool
        Whether they did not agree, so that nothing is scored.
    model_predict_kwargs : dict
        Keyword arguments of the model's forward pass.
    chance : float
        Mean score of an explanation that knows nothing; NaN where there is no such number.
    chances : list of float
        Chance of each sample, in order, of which `chance` is the mean, for the metrics where it differs.
    clusters : np.ndarray or None
        (N,): samples of one name are not independent of each other; None where all are.
    values : np.ndarray
        The scores before they are aggregated.
    """

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
    """Attributions of a data set that are computed when a batch of them is asked for.

    Quantus slices whatever is a `Sequence`.
    """

    def __init__(self, length: int, explain: Callable[[slice], np.ndarray]) -> None:
        self.length, self.explain = length, explain

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self.explain(index)
        return self.explain(slice(index, index + 1))[0]
