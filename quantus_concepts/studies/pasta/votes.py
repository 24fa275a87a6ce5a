"""What people said: mean votes by explainer, how far raters agree, and whether a scorer ranks as they do."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from quantus_concepts.datasets.ratings.explanations import QUESTIONS
from quantus_concepts.datasets.ratings.rated import RatedExplanations
from quantus_concepts.functional import seeds_interval
from quantus_concepts.functional.statistics.intervals import baseline_range, interval
from quantus_concepts.functional.statistics.votes import MAX_VOTE, MIN_VOTE
from quantus_concepts.pasta.agreement import ceiling, human_figures
from quantus_concepts.studies._kit.results import pick

IMAGE, EXPLAINER, MODALITY = "image", "explainer", "modality"
#: Shuffles of the explainers behind a random range.
N_SHUFFLED = 199
#: Share of the pairs of explainers that people rate clearly apart which a scorer has to put in their order.
IN_ORDER = 0.9
COLUMNS = [EXPLAINER, "measure", "value", "deviation", "low", "high", "random_low", "random_high", "n"]


def explainer_means(frame: pd.DataFrame, measures: Sequence[str]) -> pd.DataFrame:
    """Return mean, deviation over explanations, interval over images and random range of measures by explainer.

    `frame` has a row for each explanation, with its ``image`` and ``explainer``. The random range is that of the means
    with the values of each image shuffled among its explanations.
    """
    rows = []
    for measure in measures:
        defined = frame.dropna(subset=[measure])
        values, images = defined[measure].to_numpy(float), pd.factorize(defined[IMAGE])[0]
        places, names = pd.factorize(defined[EXPLAINER])
        rng, counts, draws = np.random.default_rng(0), np.bincount(places), []
        # Rows by image, in their own order and in random orders: values change places within an image.
        own = np.argsort(images, kind="stable")
        for _ in range(N_SHUFFLED if len(names) > 1 else 0):
            shuffled = np.empty_like(values)
            shuffled[own] = values[np.lexsort((rng.random(len(values)), images))]
            draws.append(np.bincount(places, shuffled) / counts)
        bounds = (MIN_VOTE, MAX_VOTE) if measure in QUESTIONS else (-math.inf, math.inf)
        for explainer in dict.fromkeys(frame[EXPLAINER]):
            place = list(names).index(explainer) if explainer in names else -1
            chosen = places == place
            one = values[chosen]
            numbers = (one.mean() if one.size else math.nan, one.std(ddof=1) if one.size > 1 else math.nan)
            # Explanations of one image depend on each other.
            clusters = images[chosen] if len(set(images[chosen])) < one.size else None
            ends = interval(one, bounds, clusters) if one.size else (math.nan, math.nan)
            shuffled_ends = baseline_range([draw[place] for draw in draws]) if one.size else (math.nan, math.nan)
            rows.append((explainer, measure, *numbers, *ends, *shuffled_ends, one.size))
    return pd.DataFrame(rows, columns=COLUMNS)


def vote_means(ratings: RatedExplanations, questions: Sequence[str], groups: np.ndarray | None = None) -> pd.DataFrame:
    """Return the mean vote on the explanations of each explainer, or of other `groups` (N,), as `explainer_means` does.

    Where it is known who voted, the interval is over raters and images.
    """
    groups = ratings.explainer_ids if groups is None else groups
    columns = {name: ratings.targets("mean")[:, ratings.questions.index(name)] for name in questions}
    frame = pd.DataFrame({IMAGE: ratings.image_ids, EXPLAINER: groups, **columns})
    means = explainer_means(frame, questions)
    if not ratings.raters:
        return means
    images, image_names = pd.factorize(ratings.image_ids)
    ends = means[["low", "high"]].to_numpy(float, copy=True)
    for place, (group, measure) in enumerate(zip(means[EXPLAINER], means["measure"], strict=True)):
        rows = np.flatnonzero(groups == group)
        votes = ratings.votes[rows, :, ratings.questions.index(measure)]
        sums, counts = np.zeros((2, len(image_names), votes.shape[1]))
        np.add.at(sums, images[rows], np.nan_to_num(votes))
        np.add.at(counts, images[rows], ~np.isnan(votes))
        with np.errstate(invalid="ignore"):
            by_rater = (sums / counts).T
        voted = by_rater[~np.isnan(by_rater).all(1)]
        if len(voted) > 1:
            ends[place] = seeds_interval(voted, None, (MIN_VOTE, MAX_VOTE))
    means[["low", "high"]] = ends
    return means


def rater_agreement(ratings: RatedExplanations, questions: Sequence[str], votes: str = "mode") -> pd.DataFrame:
    """Return how single raters agree with the joined vote (SCC), and the reliability of the mean vote, by question."""
    rows: list[dict[str, Any]] = []
    for name in questions:
        given = ratings.votes[:, :, ratings.questions.index(name)]
        human, limit = human_figures(given, votes), ceiling(given, votes)
        agreement = math.nan if human is None else human.spearman
        reliability = math.nan if limit is None else limit.reliability
        rows += [
            {"measure": name, EXPLAINER: "one rater and the joined vote (SCC)", "value": agreement},
            {"measure": name, EXPLAINER: "reliability of the mean vote", "value": reliability},
        ]
    return pd.DataFrame(rows)


def clear_pairs(means: pd.DataFrame, question: str) -> list[tuple[str, str]]:
    """Return the pairs of explainers, the higher first, whose mean votes have intervals that do not overlap."""
    rows = pick(means, measure=question).dropna(subset=["low", "high"]).to_dict("records")
    return [(high[EXPLAINER], low[EXPLAINER]) for high in rows for low in rows if high["low"] > low["high"]]


def ranking(means: pd.DataFrame, scores: Mapping[str, float], question: str) -> dict[str, Any]:
    """Return in how many of the `clear_pairs` mean scores by explainer have the order of the votes."""
    pairs = clear_pairs(means, question)
    ordered = sum(scores[high] > scores[low] for high, low in pairs)
    votes = pick(means, measure=question).set_index(EXPLAINER)["value"]
    return {"pairs": len(pairs), "ordered": int(ordered), "scores": dict(scores), "votes": votes.to_dict()}


def ranks_as_people(found: Mapping[str, Any]) -> str:
    """Return why a scorer does not rank the explainers it learned from as people did; "" if it does."""
    pairs, ordered = found["pairs"], found["ordered"]
    if not pairs:
        return "people rate no explainer that it learned from clearly above another"
    if ordered < IN_ORDER * pairs:
        return f"it puts {ordered} of {pairs} pairs of explainers that people rate clearly apart in their order"
    return ""
