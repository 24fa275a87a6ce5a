"""Whether metrics of explanations agree with people's ratings of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from quantus.metrics.complexity.sparseness import Sparseness
from scipy import stats
from torch import Tensor

from captum_concepts.support.checks import check_axes, check_choice, check_numbers, check_shape, to_numpy
from captum_concepts.support.running import progress
from captum_concepts.texts import in_one_line
from quantus_concepts.datasets.ratings.explanations import (
    QUESTIONS,
    ConceptExplanation,
    DrawingExplanation,
    Explanation,
    MapExplanation,
    check_questions,
)
from quantus_concepts.functional.statistics.intervals import baseline_range
from quantus_concepts.functional.statistics.votes import JOINS, join_votes
from quantus_concepts.pasta.agreement import correlation, spearman

#: Resamplings of the images behind an interval, and shuffles behind the range of the baseline.
N_DRAWN = 200


@in_one_line
@dataclass(frozen=True)
class RatingCorrelation:
    """How a metric goes with the answers to one question.

    Attributes
    ----------
    metric : str
        Name of the metric.
    question : str
        Name of the question, such as "Q1".
    pearson : float
        Pearson's correlation coefficient, the paper's PCC; NaN where metric or answers are constant.
    pearson_p : float
        Its two-sided p-value.
    spearman : float
        Spearman's rank correlation coefficient, the paper's SCC.
    spearman_p : float
        Its two-sided p-value.
    n : int
        Explanations that have both a value and a rating.
    missing : int
        Explanations left out because they lack one of them.
    low, high : float
        95 % interval of `spearman` over resampled images with all their explanations; NaN where images are not known.
    random_low, random_high : float
        Range of `spearman` with the ratings shuffled among the explanations; likewise.
    """

    metric: str
    question: str
    pearson: float
    pearson_p: float
    spearman: float
    spearman_p: float
    n: int
    missing: int
    low: float = math.nan
    high: float = math.nan
    random_low: float = math.nan
    random_high: float = math.nan


def rating_correlations(
    values: Mapping[str, Tensor | ArrayLike],
    ratings: Tensor | ArrayLike,
    questions: Sequence[str] = tuple(QUESTIONS),
    how: str = "mode",
    *,
    images: Tensor | ArrayLike | None = None,
    seed: int = 0,
) -> list[RatingCorrelation]:
    """Correlate metrics with ratings, as the paper's Tables 7 to 9.

    Kazmierczak et al., Appendix B.2. Signs are those of the answers as they were given: for Q5 low is good. The
    p-values take explanations for independent, which several of one image or of one explainer are not; the paper's
    are of the same kind. It finds none of the metrics strongly correlated (at most -0.33, `MaxSensitivity` with Q1).

    Parameters
    ----------
    values : mapping of str to array_like
        For each metric its N values, NaN where undefined: what `metric_values` returns.
    ratings : array_like
        (N, Q): one rating for each question, as `RatedExplanations.targets` joins them; or the votes (N, A, Q) of A
        annotators. NaN if there are no votes.
    questions : sequence of str
        The Q questions of the last axis.
    how : str
        How votes are joined: "mode", "mean" or "median".
    images : array_like, optional
        (N,) the image of each explanation, for intervals and random ranges.
    seed : int
        Random seed of both.

    Returns
    -------
    list of RatingCorrelation
        Question by question within each metric; ``pandas.DataFrame`` makes a table of it.

    Raises
    ------
    ValueError
        If shapes do not fit, or a question or a way to join votes is unknown.
    """
    check_choice("how", how, JOINS)
    questions = check_questions(questions)
    targets = check_numbers("ratings", ratings).astype(float)
    if targets.ndim == 3:
        targets = np.asarray(join_votes(targets.transpose(0, 2, 1), how), dtype=float)
    check_shape("ratings", targets, ("N", "Q"), (None, len(questions)))
    groups = None if images is None else to_numpy(images)
    check_axes(ratings=(targets, "N Q"), images=(groups, "N"))
    records = []
    for metric, scores in values.items():
        scores = check_numbers(f"values[{metric!r}]", scores).astype(float)
        check_shape(f"values[{metric!r}]", scores, ("N",), (len(targets),))
        for column, question in enumerate(questions):
            votes = targets[:, column]
            complete = np.isfinite(scores) & np.isfinite(votes)
            pearson, rank = correlation(scores, votes, stats.pearsonr), correlation(scores, votes)
            n = int(complete.sum())
            ranges = {}
            if groups is not None and not math.isnan(rank[0]):
                frame = pd.DataFrame({"image": groups, "metric": scores, "rating": votes})[complete]
                ranges = with_baseline(frame, _rank_correlation, "rating", seed)
                del ranges["value"]
            records.append(
                RatingCorrelation(
                    metric,
                    question,
                    pearson=pearson[0],
                    pearson_p=pearson[1],
                    spearman=rank[0],
                    spearman_p=rank[1],
                    n=n,
                    missing=len(scores) - n,
                    **ranges,
                )
            )
    return records


def _rank_correlation(frame: pd.DataFrame) -> float:
    return spearman(frame["metric"].to_numpy(float), frame["rating"].to_numpy(float))


def with_baseline(
    frame: pd.DataFrame, statistic: Callable[[pd.DataFrame], float], shuffled: str, seed: int = 0
) -> dict[str, float]:
    """Return the value of a statistic of a frame with a column `image`, with its interval and its baseline.

    The interval is the range over resampled images with all their explanations, the baseline that with the column
    `shuffled` shuffled among all explanations.
    """
    rng = np.random.default_rng([seed, 3])
    groups = list(frame.groupby("image", sort=False).indices.values())
    resampled, baseline = [], []
    for _ in range(N_DRAWN):
        chosen = rng.integers(0, len(groups), len(groups))
        resampled.append(statistic(frame.iloc[np.concatenate([groups[place] for place in chosen])]))
        baseline.append(statistic(frame.assign(**{shuffled: rng.permutation(frame[shuffled].to_numpy())})))
    low, high = pd.Series(resampled, dtype=float).quantile([0.025, 0.975])
    random_low, random_high = baseline_range(baseline)
    return {
        "value": statistic(frame),
        "low": float(low),
        "high": float(high),
        "random_low": random_low,
        "random_high": random_high,
    }


def sparseness(
    explanations: Sequence[Tensor | ArrayLike | Explanation], display_progressbar: bool = False
) -> np.ndarray:
    """Return how sparse maps are: the Gini index of their absolute values, by Quantus's `Sparseness`.

    Kazmierczak et al., Appendix B.2, Algorithm 2 (Chalasani et al., 2020). Needs neither a model nor the image. In
    [0, 1]; 0 for a map that is the same everywhere, close to 1 for a single pixel.

    Parameters
    ----------
    explanations : sequence
        N maps (h, w), or (C, h, w) summed over channels, as arrays or tensors, of any sizes; or explanations, such as
        `RatedExplanations.explanations`, read one at a time.
    display_progressbar : bool
        Whether to show progress.

    Returns
    -------
    np.ndarray
        (N,); NaN for concepts and drawings, and for maps that are not finite or zero everywhere.

    Raises
    ------
    ValueError
        If a map has another number of axes.
    """
    gini = Sparseness(disable_warnings=True)
    scores = np.full(len(explanations), np.nan)
    for index in progress(range(len(explanations)), "sparseness", show=display_progressbar, leave=True):
        explanation = explanations[index]
        if isinstance(explanation, ConceptExplanation | DrawingExplanation):
            continue
        heat = check_numbers(
            "explanations", explanation.map if isinstance(explanation, MapExplanation) else explanation
        )
        if heat.ndim not in (2, 3):
            raise ValueError(
                f"Expected argument `explanations` to hold maps (h, w) or (C, h, w) but got shape {heat.shape} at "
                f"{index}."
            )
        magnitude = np.abs(heat.sum(0, dtype=float) if heat.ndim == 3 else heat.astype(float))
        largest = magnitude.max(initial=0)
        if not 0 < largest < math.inf or np.isnan(magnitude).any():
            continue
        # A batch of one: Quantus scales by the maximum of a batch, and then adds a small constant.
        (scores[index],) = gini.evaluate_batch(x_batch=magnitude[None], a_batch=magnitude[None] / largest)
    return scores
