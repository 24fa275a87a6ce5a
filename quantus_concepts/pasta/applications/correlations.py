"""Whether metrics of explanations agree with people's ratings of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from quantus.metrics.complexity.sparseness import Sparseness
from scipy import stats
from torch import Tensor

from captum_concepts.support.checks import check_choice, check_numbers, check_shape
from captum_concepts.support.progress import progress
from captum_concepts.support.shown import one_line
from quantus_concepts.datasets.ratings.explanations import (
    QUESTIONS,
    ConceptExplanation,
    DrawingExplanation,
    Explanation,
    MapExplanation,
    check_questions,
)
from quantus_concepts.functional.statistics.votes import JOINS, join_votes

#: Fewer pairs than this always lie on a line.
LEAST = 3


@dataclass(frozen=True)
class RatingCorrelation:
    """How a metric goes with the answers to one question.

    Attributes
    ----------
    metric : str
        Name of the metric.
    question : str
        "Q1" to "Q6".
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
    """

    metric: str
    question: str
    pearson: float
    pearson_p: float
    spearman: float
    spearman_p: float
    n: int
    missing: int

    def __repr__(self) -> str:
        return one_line(self)


def rating_correlations(
    values: Mapping[str, Tensor | ArrayLike],
    ratings: Tensor | ArrayLike,
    questions: Sequence[str] = tuple(QUESTIONS),
    how: str = "mode",
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
    records = []
    for metric, scores in values.items():
        scores = check_numbers(f"values[{metric!r}]", scores).astype(float)
        check_shape(f"values[{metric!r}]", scores, ("N",), (len(targets),))
        for column, question in enumerate(questions):
            records.append(_correlation(metric, question, scores, targets[:, column]))
    return records


def _correlation(metric: str, question: str, scores: np.ndarray, targets: np.ndarray) -> RatingCorrelation:
    complete = np.isfinite(scores) & np.isfinite(targets)
    x, y = scores[complete], targets[complete]
    pearson = spearman = (math.nan, math.nan)
    if len(x) >= LEAST and np.ptp(x) > 0 and np.ptp(y) > 0:
        pearson, spearman = stats.pearsonr(x, y), stats.spearmanr(x, y)
    return RatingCorrelation(
        metric,
        question,
        float(pearson[0]),
        float(pearson[1]),
        float(spearman[0]),
        float(spearman[1]),
        n=len(x),
        missing=len(scores) - len(x),
    )


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
