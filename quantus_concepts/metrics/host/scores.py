"""Scores of all variants of a metric, why some are undefined, and the rows of a table that they become."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from captum_concepts.support.checks import to_numpy
from quantus_concepts.functional.arguments import Numbers
from quantus_concepts.functional.statistics.intervals import interval
from quantus_concepts.metrics.host.explanations import FAILED

Row = dict[str, Any]


class Counted(NamedTuple):
    """How many of `total` samples, concepts or classes have a reason."""

    n: int
    total: int
    unit: str = "samples"


Counts = dict[str, Counted]


def no_counts(variant: int) -> Counts:
    """Return no reason."""
    return {}


@dataclass(frozen=True)
class MetricScores:
    """Scores (N, V) of samples, concepts or classes: a column for each variant of a metric."""

    #: What a table calls each variant.
    fields: Sequence[Row]
    values: np.ndarray
    #: What no knowledge scores: one number, or (N, 1), (1, V) or (N, V), of which the defined scores count.
    chance: np.ndarray | float = math.nan
    #: (N,), the same for samples that depend on each other; None if none do.
    clusters: np.ndarray | None = None
    bounds: tuple[float, float] = (0.0, 1.0)
    #: Why scores of a variant are undefined.
    reasons: Callable[[int], Counts] = no_counts
    #: Whether the mean is one of samples, which have an interval and rows of their own.
    intervals: bool = True
    outcome: str = "scores are NaN"
    #: Numbers (V,) of all samples together that are no mean of scores, and of how many samples, if not of the scores.
    totals: Sequence[float] | None = None
    total_of: int | None = None
    #: The columns whose mean a call of Quantus gives.
    path: Sequence[int] = (0,)
    in_table: bool = True
    #: Whether a row of a mean over concepts or classes is followed by theirs.
    lists_items: bool = True
    #: Why a number is what it is, in a table, where it is no count.
    note: str = ""
    #: The interval of a mean over concepts or classes, of each variant.
    mean_interval: Callable[[int], tuple[float, float]] | None = None
    #: Class importances (K, L) by which models are compared, for each variant, and the truth.
    by_class: tuple[Sequence[Tensor], Tensor] | None = None
    #: The numbers (N,) of the samples, in their order, where not all have a score.
    places: np.ndarray | None = None

    def of_models(self, count: int, n_rows: int) -> list[MetricScores]:
        """Return the scores of each of several models, which stand one after another; of samples n_rows of each."""
        starts = np.arange(count + 1) * (len(self.values) // count)
        if self.places is not None:
            starts = np.searchsorted(self.places, np.arange(count + 1) * n_rows)
        by_row = np.ndim(self.chance) == 2 and len(self.chance) == len(self.values)  # type: ignore[arg-type]
        parts = [slice(*ends) for ends in itertools.pairwise(starts.tolist())]
        chances = [self.chance[part] if by_row else self.chance for part in parts]  # type: ignore[index]
        return [
            replace(self, values=self.values[part], chance=chance, clusters=None, places=None)
            for part, chance in zip(parts, chances, strict=True)
        ]

    def take(self, places: Sequence[int]) -> MetricScores:
        """Return some of the variants."""
        chance = (
            self.chance if np.ndim(self.chance) == 0 else np.broadcast_to(self.chance, self.values.shape)[:, places]
        )
        interval = self.mean_interval
        by_class = self.by_class and ([self.by_class[0][place] for place in places], self.by_class[1])
        return replace(
            self,
            fields=[self.fields[place] for place in places],
            values=self.values[:, places],
            chance=chance,
            totals=None if self.totals is None else [self.totals[place] for place in places],
            reasons=lambda variant: self.reasons(places[variant]),
            mean_interval=interval and (lambda variant: interval(places[variant])),
            path=(0,),
            by_class=by_class,
        )

    @property
    def of_call(self) -> np.ndarray:
        """The scores (N,) that a call of Quantus gives."""
        return self.values[:, self.path[0]] if len(self.path) == 1 else self.values[:, [*self.path]].mean(1)

    @property
    def mean_chance(self) -> float:
        """Mean chance of the scores that a call of Quantus gives."""
        return float(self.means[1][self.path[0]])

    @cached_property
    def means(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Numbers (V,): means of the defined scores, or those of all samples; chance; and of how many scores."""
        defined = ~np.isnan(self.values)
        n = defined.sum(0)
        # By columns: a sum along the memory is exact to the last digits for any number of samples.
        columns = np.ascontiguousarray(np.where(defined, self.values, 0.0).T)
        chance = np.full(len(n), float(self.chance)) if np.ndim(self.chance) == 0 else None
        with np.errstate(invalid="ignore", divide="ignore"):
            values = columns.sum(1) / n
            if chance is None:
                of_scores = np.broadcast_to(self.chance, self.values.shape)
                known = defined & ~np.isnan(of_scores)
                chance = np.ascontiguousarray(np.where(known, of_scores, 0.0).T).sum(1) / known.sum(0)
        if self.totals is not None:
            values = np.asarray(self.totals, dtype=float)
        return values, chance, n if self.total_of is None else np.full_like(n, self.total_of)

    def rows(self, items: Mapping[str, Sequence[str]]) -> list[Row]:
        """Return a row for each variant, and after it those of its concepts or classes, of these names."""
        rows = []
        for place, (fields, value, chance, n) in enumerate(zip(self.fields, *self.means, strict=True)):
            column, kind = self.values[:, place], fields.get("item_kind", "")
            has_ends = self.intervals and not kind
            low, high = interval(column, self.bounds, self.clusters) if has_ends else (math.nan, math.nan)
            if kind and self.mean_interval is not None:
                low, high = self.mean_interval(place)
            undefined = (len(column) if self.total_of is None else self.total_of) - int(n)
            reason = self.note or (commonest(self.reasons(place)) if undefined else "")
            numbers = {"value": float(value), "low": low, "high": high, "n": int(n), "undefined": undefined}
            rows.append(fields | numbers | {"chance": float(chance), "reason": reason})
            # The items of a baseline say nothing.
            listed = kind and self.lists_items and not fields.get("baseline")
            for score, item in zip(column, items[kind], strict=True) if listed else ():
                missing = int(np.isnan(score))
                rows.append(fields | {"item": item, "value": float(score), "n": 1 - missing, "undefined": missing})
        return rows


def commonest(counts: Counts) -> str:
    """Return the commonest reason with its count; "" without any."""
    reason, of = max(counts.items(), key=lambda item: item[1].n, default=("", None))
    return "" if of is None else f"{reason} ({of.n} of {of.total} {of.unit})"


def count_reasons(why: np.ndarray, n: int) -> Counts:
    """Return how many of n samples have which reason (a line each), those of a failed explanation last."""
    counts: Counts = {}
    for reason in "\n".join(why[why != ""]).splitlines():
        counts[reason] = Counted(1 + (counts[reason].n if reason in counts else 0), n)
    return dict(sorted(counts.items(), key=is_failure)) if len(counts) > 1 else counts


def counted(masks: Mapping[str, Any], n: int, why: np.ndarray | None = None) -> Counts:
    """Return how many of n samples have which reason, by their masks (n,), and last those of explanations."""
    counts = {reason: Counted(int(mask.sum()), n) for reason, mask in masks.items()}
    return {reason: of for reason, of in counts.items() if of.n} | ({} if why is None else count_reasons(why, n))


def is_failure(reason: tuple[str, Counted]) -> bool:
    """Return whether a counted reason is that of a failed explanation."""
    return reason[0].startswith(FAILED)


def describe_reasons(counts: Counts, outcome: str, method: object) -> str:
    """Write why scores are undefined, of an explanation method of this name."""
    name = "" if method is None else f" {method!r}"
    parts = []
    for prefix, start in (("", ""), (FAILED, f"the explanation method{name} failed: ")):
        each = [
            f"{reason.removeprefix(prefix)} ({of.n} of {of.total} {of.unit})"
            for reason, of in counts.items()
            if reason.startswith(FAILED) == bool(prefix)
        ]
        if each:
            parts.append(start + "; ".join(each))
    return f"{outcome} where {'; and where '.join(parts)}."


def nanmean(scores: Numbers) -> float:
    """Mean of the defined scores; NaN, without numpy's warning, where none is defined."""
    values = np.asarray(scores, dtype=float)
    return float(np.nanmean(values)) if np.isfinite(values).any() else float("nan")


def score_row(
    scores: Numbers,
    bounds: tuple[float, float],
    clusters: Numbers | None,
    *,
    intervals: bool = True,
    **fields: object,
) -> Row:
    """Return fields with the mean of the defined scores, its 95 % interval, and the counts of defined and undefined.

    `clusters` (N,) tells which scores depend on each other; None if all are independent.
    """
    values = np.asarray(to_numpy(scores), dtype=np.float64).ravel()
    defined = values[~np.isnan(values)]
    low, high = interval(values, bounds, clusters) if intervals else (math.nan, math.nan)
    return fields | {
        "value": float(defined.mean()) if defined.size else math.nan,
        "low": low,
        "high": high,
        "n": int(defined.size),
        "undefined": int(values.size - defined.size),
    }
