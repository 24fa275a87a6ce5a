"""Agreement of predicted ratings with people's, of people with each other, and its ceiling."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy import stats
from torch import Tensor

from captum_concepts.support.checks import check_shape, check_whole, to_numpy
from captum_concepts.support.running import widest_float
from quantus_concepts.functional.arguments import Numbers
from quantus_concepts.functional.statistics.intervals import t_interval
from quantus_concepts.functional.statistics.votes import MAX_VOTE, MIN_VOTE, check_scale, check_votes, join_votes

#: Fewer pairs always lie on a line.
LEAST_PAIRS = 3
#: Fewer correlations have no interval.
LEAST_SPLITS = 3
#: Fisher's z of larger ones is infinite, or as good as that.
_LARGEST = 1 - 1e-6
#: Spread of equal numbers, relative to their size.
_ROUNDING = 1e-12
N_VOTES = MAX_VOTE - MIN_VOTE + 1


def correlation(
    first: np.ndarray, second: np.ndarray, how: Callable[..., Any] = stats.spearmanr
) -> tuple[float, float]:
    """Return a correlation over the finite pairs and its p-value; NaN below 3 pairs or without variance."""
    complete = np.isfinite(first) & np.isfinite(second)
    first, second = first[complete], second[complete]
    if len(first) < LEAST_PAIRS or not (np.ptp(first) and np.ptp(second)):
        return math.nan, math.nan
    found = how(first, second)
    return float(found.statistic), float(found.pvalue)


def spearman(first: np.ndarray, second: np.ndarray) -> float:
    """Return Spearman's rank correlation, as `correlation` does."""
    return correlation(first, second)[0]


@dataclass(frozen=True)
class Figures:
    """Agreement of scores with votes."""

    mse: float
    qwk: float
    spearman: float
    spearman_rounded: float
    n: int
    missing: int = 0


def figures(scores: Numbers, targets: Numbers) -> Figures:
    """Compare scores with votes; rounded as the release does, halves up, both scores and votes."""
    predicted, votes = (np.asarray(to_numpy(value), dtype=np.float64) for value in (scores, targets))
    check_shape("scores", predicted, ("N",), (None,))
    check_shape("targets", votes, ("N",), (len(predicted),))
    check_scale("scores", predicted)
    check_scale("targets", votes)
    defined = ~(np.isnan(predicted) | np.isnan(votes))
    predicted, votes = predicted[defined], votes[defined]
    rounded, rounded_votes = (np.floor(values + 0.5) for values in (predicted, votes))
    return Figures(
        mse=float(np.mean((predicted - votes) ** 2)) if len(votes) else math.nan,
        qwk=float(quadratic_kappa(torch.from_numpy(rounded)[None], torch.from_numpy(rounded_votes)[None])),
        spearman=spearman(predicted, votes),
        spearman_rounded=spearman(rounded, rounded_votes),
        n=len(votes),
        missing=int((~defined).sum()),
    )


def human_figures(votes: Numbers, how: str = "mode") -> Figures | None:
    """Compare single annotators with the joined vote: the row "Human" of Kazmierczak et al., PASTA, Table 1."""
    # The expectation over annotators: each column of votes against the joined vote of all columns, averaged with
    # the number of its votes as weight. The annotator's own vote is part of the joined one, as in the paper, so
    # that this is no bound of what a predictor can reach (see `ceiling`). Items with a single vote would agree with
    # themselves and are left out.
    values = check_votes("votes", votes)
    check_shape("votes", values, ("N", "A"), (None, None))
    joined = join_votes(values, how)
    several = (~np.isnan(values)).sum(1) > 1
    if not several.any():
        return None
    by_question = [figures(column, joined[several]) for column in values[several].T]
    names = ("mse", "qwk", "spearman", "spearman_rounded")
    counts = [figure.n for figure in by_question]
    means = {name: _weigh([getattr(figure, name) for figure in by_question], counts) for name in names}
    return Figures(**means, n=int(several.sum()), missing=sum(figure.missing for figure in by_question))


@dataclass(frozen=True)
class Ceiling:
    """The agreement that the raters' own noise allows."""

    spearman: float
    qwk: float
    reliability: float
    n: int


def ceiling(votes: Numbers, how: str = "mode", *, n_splits: int = 50, seed: int = 0) -> Ceiling | None:
    """Estimate how well anyone could predict the joined vote, from how the annotators agree."""
    # For each split the votes of every item are dealt at random into two halves of equal size. The correlation r of
    # the halves' means becomes that of all votes by Spearman and Brown, rho = k r / (1 + (k - 1) r), where all are
    # k times as many as a half; the expected vote correlates with the mean of all by sqrt(rho). Mode and median are
    # noisier than the mean: by how much is the ratio of two correlations with one vote held out, of the other votes
    # joined and of their mean. Kappa follows from the correlation c of the expected with the joined vote, and from
    # their variances and means: 2 c s t / (s^2 + t^2 + (difference of means)^2). The variance s^2 of the expected
    # vote is rho times that of the mean vote, and 1/12 more since it is rounded; t^2 is that of the rounded joined
    # vote. An estimate, not a bound: for simulated raters within about 0.05 of the truth, kappa within 0.08, and
    # too high where all annotators share an error. Where the expected vote is known, ``figures(expected, joined)``
    # is the ceiling itself.
    values = check_votes("votes", votes)
    check_shape("votes", values, ("N", "A"), (None, None))
    check_whole("n_splits", n_splits, 1)
    joined = join_votes(values, how)
    several = (~np.isnan(values)).sum(1) > 1
    values, joined = values[several], joined[several]
    if not len(values):
        return None
    n_votes = (~np.isnan(values)).sum(1)
    generator = np.random.default_rng(seed)
    splits = [_split(values, n_votes, how, generator) for _ in range(n_splits)]
    # For each split: halves, held-out against joined, held-out against mean.
    by_rank, by_value = (
        np.array([[spearman(*pair) for pair in split] for split in splits]),
        np.array([[correlation(*pair, stats.pearsonr)[0] for pair in split] for split in splits]),
    )
    factor = float(np.mean(n_votes / (n_votes // 2)))
    rank, rank_reliability = _noise_free(by_rank, factor)
    value, reliability = _noise_free(by_value, factor)
    means = join_votes(values, "mean")
    spread = reliability * means.var() + 1 / 12
    scatter = spread + np.floor(joined + 0.5).var() + (means.mean() - joined.mean()) ** 2
    qwk = 2 * value * math.sqrt(reliability * means.var() * joined.var()) / scatter
    return Ceiling(rank, float(qwk), rank_reliability, len(values))


def _split(
    values: np.ndarray, n_votes: np.ndarray, how: str, generator: np.random.Generator
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return what is to be compared: two halves, and one vote with the others, joined and as a mean."""
    # Votes in random order, the missing ones last.
    keys = np.where(np.isnan(values), np.inf, generator.random(values.shape))
    dealt = np.take_along_axis(values, keys.argsort(1), axis=1)
    place, n_half = np.arange(values.shape[1]), (n_votes // 2)[:, None]
    first = join_votes(np.where(place < n_half, dealt, np.nan), "mean")
    second = join_votes(np.where((place >= n_half) & (place < 2 * n_half), dealt, np.nan), "mean")
    held_out, other_votes = dealt[:, 0], dealt[:, 1:]
    return [(first, second), (held_out, join_votes(other_votes, how)), (held_out, join_votes(other_votes, "mean"))]


def _noise_free(correlations: np.ndarray, factor: float) -> tuple[float, float]:
    """Return the correlation of the expected with the joined vote, and the reliability of the mean vote."""
    halves, joined, mean = (_weigh(column.tolist(), [1] * len(column)) for column in correlations.T)
    if math.isnan(halves) or math.isnan(mean):
        return math.nan, math.nan
    if halves <= 0 or mean <= 0:
        return 0.0, 0.0
    reliability = factor * halves / (1 + (factor - 1) * halves)
    return min(1.0, math.sqrt(reliability) * max(0.0, joined / mean)), reliability


def correlation_interval(correlations: npt.ArrayLike) -> tuple[float, float]:
    """Return the 95 % interval of correlations of several splits, Student's on Fisher's z, as `split_interval`."""
    values = np.asarray(correlations, dtype=float)
    low, high = split_interval(np.arctanh(values.clip(-_LARGEST, _LARGEST)))
    return math.tanh(low), math.tanh(high)


def split_interval(values: np.ndarray) -> tuple[float, float]:
    """Return Student's 95 % interval of a mean over splits; NaN below 3 splits, or if all splits agree by chance."""
    if values.size < LEAST_SPLITS or np.ptp(values) <= _ROUNDING * np.abs(values).max():
        return math.nan, math.nan
    return t_interval(values, (-math.inf, math.inf))


def quadratic_kappa(predicted: Tensor, votes: Tensor) -> Tensor:
    """Return the quadratic weighted kappa (Q,) of whole votes (Q, N), NaN where all are the same or there is none."""
    # Kazmierczak et al., PASTA, Eq. 7.
    voted = ~votes.isnan()
    cells = (votes - MIN_VOTE) * N_VOTES + (predicted - MIN_VOTE)
    cells = cells + N_VOTES**2 * torch.arange(len(votes), device=votes.device)[:, None]
    counts = torch.bincount(cells[voted].long(), minlength=len(votes) * N_VOTES**2)
    exact = widest_float(votes.device)
    counts = counts.view(-1, N_VOTES, N_VOTES).to(exact)
    scale = torch.arange(N_VOTES, device=votes.device, dtype=exact)
    cost = (scale[:, None] - scale).square()
    # Whole numbers up to the division: no agreement beyond chance is exactly 0.
    expected = counts.sum(2, keepdim=True) * counts.sum(1, keepdim=True)
    return 1 - (cost * counts).sum((1, 2)) * counts.sum((1, 2)) / (cost * expected).sum((1, 2))


def _weigh(values: list[float], weights: list[int]) -> float:
    defined = [(value, weight) for value, weight in zip(values, weights, strict=True) if not math.isnan(value)]
    total = sum(weight for _, weight in defined)
    return sum(value * weight for value, weight in defined) / total if total else math.nan
