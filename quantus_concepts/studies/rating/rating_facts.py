"""What the votes themselves say: how many there are, and how kinds of explanation and questions differ."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

from quantus_concepts.datasets.ratings.questions import QUESTIONS
from quantus_concepts.datasets.ratings.rated import RatedExplanations
from quantus_concepts.functional.intervals import t_interval
from quantus_concepts.studies.pasta.results import Summary

if TYPE_CHECKING:
    from quantus_concepts.studies.pasta.seeds import Outcome

QUESTION_NAMES = tuple(QUESTIONS)
#: A question that is answered high where an explanation is good, and the one that is answered low.
LIKED, INVERTED = "Q1", "Q5"


@dataclass(frozen=True)
class KindDifference:
    """Mean votes on maps and on concepts of the same images."""

    maps: float
    concepts: float
    difference: float
    low: float
    high: float
    n: int


def image_means(
    ratings: RatedExplanations, question: str, kinds: str | Sequence[str], votes: str = "mode"
) -> dict[str, float]:
    """Return the mean vote on each image's explanations of some kinds."""
    joined = ratings.targets(votes)[:, QUESTION_NAMES.index(question)]
    chosen = np.isin(ratings.modalities, kinds) & ~np.isnan(joined)
    images, places = np.unique(ratings.image_ids[chosen], return_inverse=True)
    counts = np.bincount(places, minlength=len(images))
    sums = np.bincount(places, weights=joined[chosen], minlength=len(images))
    return dict(zip(images.tolist(), (sums / counts).tolist(), strict=True))


def kind_difference(ratings: RatedExplanations, question: str, votes: str = "mode") -> KindDifference | None:
    """Compare votes on maps with votes on concepts, image by image."""
    maps, concepts = (image_means(ratings, question, kind, votes) for kind in (("map", "drawing"), "concepts"))
    shared = sorted(maps.keys() & concepts.keys())
    if not shared:
        return None
    pairs = np.array([[maps[image], concepts[image]] for image in shared])
    differences = pairs[:, 0] - pairs[:, 1]
    low, high = t_interval(differences, (-math.inf, math.inf))
    means = pairs.mean(0)
    return KindDifference(float(means[0]), float(means[1]), float(differences.mean()), low, high, len(shared))


def inverted_rank(ratings: RatedExplanations, votes: str = "mode") -> float | None:
    """Return Spearman's correlation of the votes on Q5, where low is good, with those on Q1."""
    joined = ratings.targets(votes)
    return _rank(*(joined[:, QUESTION_NAMES.index(question)] for question in (LIKED, INVERTED)))


def score_rank(outcome: Outcome) -> Summary | None:
    """Sum up Spearman's correlation of the scores for Q5 with those for Q1, of unseen explanations."""
    found = []
    for result in outcome.seeds:
        questions = list(result.training.scorer.questions)
        if LIKED not in questions or INVERTED not in questions:
            return None
        rank = _rank(*(result.scores[:, questions.index(question)] for question in (LIKED, INVERTED)))
        if rank is not None:
            found.append(rank)
    if not found:
        return None
    deviation = float(np.std(found, ddof=1)) if len(found) > 1 else math.nan
    return Summary(float(np.mean(found)), deviation, len(found), tuple(found))


def _rank(first: np.ndarray, second: np.ndarray) -> float | None:
    known = ~(np.isnan(first) | np.isnan(second))
    first, second = first[known], second[known]
    if len(first) < 3 or (first == first[0]).all() or (second == second[0]).all():
        return None
    return float(stats.spearmanr(first, second).statistic)
