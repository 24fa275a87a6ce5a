"""Rows of the table of `score_discovered`: what they name, and what they are computed from."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from quantus_concepts.functional.arguments import Numbers
from quantus_concepts.functional.discovered.explained_variance import unit_rows
from quantus_concepts.functional.statistics.intervals import distribution, interval

#: Values of the column ``metric``.
HALVES, SEEDS = "stability over halves", "stability over seeds"
EXPLAINED, KEPT = "explained variance", "predictions kept"
SURROGATE_MAE, SURROGATE_EMD = "surrogate error of the logits", "surrogate error of the probabilities"
AFTER_DELETION = "predictions kept after deletion"
ALIKE = "monosemanticity"
EVERYTHING, SHARE = "logit drop without everything", "share of the logit drop"
#: Values of the column ``baseline``.
RANDOM_DIRECTIONS, RANDOM_ACTIVATIONS = "random directions", "random activations"
SAME_VARIANCE = "random directions of the same variance"
RANDOM_ORDER, COMPONENTS = "random order", "principal components"
#: Value of the column ``item``, of a baseline: the highest score of a concept in each random bank.
BEST = "best concept"
DISCOVERED_COLUMNS = (
    "metric",
    "baseline",
    "l",
    "item",
    "value",
    "low",
    "high",
    "n",
    "undefined",
    "chance",
    "reason",
    "verdict",
)
UNBOUNDED = (-math.inf, math.inf)
_STEPS = 50


class Data(NamedTuple):
    """What is scored, and the seeds of all draws."""

    places: Tensor
    owners: Tensor
    embeddings: Tensor
    names: list[str]
    seed: int
    #: Whether embeddings are means of places, which are then the activations that concepts explain.
    of_places: bool

    @property
    def activations(self) -> Tensor:
        """What the concepts explain."""
        return self.places if self.of_places else self.embeddings

    def generator(self, *numbers: int) -> torch.Generator:
        """Return the generator of one draw."""
        state = np.random.SeedSequence([self.seed, *numbers]).generate_state(1, np.uint64)[0]
        return torch.Generator().manual_seed(int(state) >> 1)


def draw_rows(rows: Tensor, n: int, generator: torch.Generator) -> Tensor:
    """Draw n rows, without repetition where there are enough."""
    if len(rows) >= n:
        return rows[torch.randperm(len(rows), generator=generator)[:n]]
    return rows[torch.randint(len(rows), (n,), generator=generator)]


def principal_components(rows: Tensor, n: int) -> Tensor:
    """Return the first n principal components."""
    centred = rows - rows.mean(0)
    return torch.linalg.eigh(centred.T @ centred).eigenvectors.T.flip(0)[:n]


class SameVariance:
    """Random directions along which embeddings vary as much as along given ones."""

    def __init__(self, centred: Tensor, directions: Tensor) -> None:
        variances, self.axes = torch.linalg.eigh(centred.T @ centred / len(centred))
        self.variances = variances.clamp(min=0)
        self.wanted = ((unit_rows(directions) @ self.axes).square() * self.variances).sum(1)

    def draw(self, generator: torch.Generator) -> Tensor:
        """Return directions (L, d) of length 1."""
        # A Gaussian direction, its principal axes weighted by a power of their variance: the variance along it rises
        # with the power, so that bisection finds the wanted one.
        noise = torch.randn(len(self.wanted), len(self.axes), generator=generator)
        logs = (self.variances / self.variances.max().clamp(min=1e-30)).clamp(min=1e-12).log()
        low, high = torch.full_like(self.wanted, -8), torch.full_like(self.wanted, 8)
        for _ in range(_STEPS):
            power = (low + high) / 2
            exponents = power[:, None] * logs
            weighted = unit_rows(noise * (exponents - exponents.amax(1, keepdim=True)).exp())
            below = (weighted.square() * self.variances).sum(1) < self.wanted
            low, high = torch.where(below, power, low), torch.where(below, high, power)
        return weighted @ self.axes.T


def make_row(
    metric: str,
    scores: Numbers,
    baseline: str = "",
    ends: tuple[float, float] | None = None,
    *,
    l: int | None = None,  # noqa: E741 (the papers' letter)
    item: str = "",
    chance: float = math.nan,
    reason: str = "",
) -> dict[str, object]:
    """Return a row: the mean of scores, with their range where they are draws of a baseline."""
    values = np.asarray(scores, dtype=np.float64).ravel()
    n = int((~np.isnan(values)).sum())
    mean, low, high = distribution(values)
    if ends is not None:
        low, high = ends
    numbers = (math.nan if l is None else l, item, mean, low, high, n, values.size - n, chance, "" if n else reason)
    return dict(zip(DISCOVERED_COLUMNS, (metric, baseline, *numbers, ""), strict=True))


def ratio_interval(parts: Tensor, totals: Tensor, clusters: Tensor | None) -> tuple[float, float]:
    """Return the interval of the sum of parts (n,) by that of totals (n,), by linearisation."""
    ratio = parts.sum() / totals.sum()
    return interval(ratio + (parts - ratio * totals) / totals.mean(), UNBOUNDED, clusters)
