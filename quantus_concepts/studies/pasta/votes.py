"""What people said: explainers compared, mean votes, how far raters agree, and whether a scorer ranks as they do."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from quantus_concepts.datasets.ratings.rated import RatedExplanations
from quantus_concepts.functional import seeds_interval
from quantus_concepts.functional.statistics.intervals import baseline_range, interval
from quantus_concepts.functional.statistics.votes import MAX_VOTE, MIN_VOTE, vote_difference
from quantus_concepts.pasta.agreement import ceiling, human_figures
from quantus_concepts.results.verdicts import ABOVE_ZERO, BELOW_ZERO, difference_verdict
from quantus_concepts.studies._kit.comparisons import adjusted
from quantus_concepts.studies._kit.results import pick

IMAGE, EXPLAINER, MODALITY = "image", "explainer", "modality"
#: Shuffles of the explainers behind a random range.
N_SHUFFLED = 199
#: Share of the pairs of explainers that people rate clearly apart which a scorer has to put in their order.
IN_ORDER = 0.9
COLUMNS = [EXPLAINER, "measure", "value", "deviation", "low", "high", "random_low", "random_high", "n"]


def explainer_means(
    frame: pd.DataFrame, measures: Sequence[str], bounds: tuple[float, float] = (MIN_VOTE, MAX_VOTE)
) -> pd.DataFrame:
    """Return mean, deviation over explanations, interval over images and random range of measures by explainer.

    `bounds` are the smallest and the largest value possible. `frame` has a row for each explanation, with its ``image``
    and ``explainer``. The random range is that of the means with the values of each image shuffled among its
    explanations.
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
    ends = means[["low", "high"]].to_numpy(float, copy=True)
    for place, (group, measure) in enumerate(zip(means[EXPLAINER], means["measure"], strict=True)):
        by_rater = votes_by_rater(ratings, groups == group, measure)
        voted = by_rater[~np.isnan(by_rater).all(1)]
        if len(voted) > 1:
            ends[place] = seeds_interval(voted, None, (MIN_VOTE, MAX_VOTE))
    means[["low", "high"]] = ends
    return means


def votes_by_rater(ratings: RatedExplanations, rows: np.ndarray, question: str) -> np.ndarray:
    """Return the mean vote (A, I) of each rater on some explanations (N,) of each image, NaN where there is none."""
    images, names = pd.factorize(ratings.image_ids)
    votes = ratings.votes[rows, :, ratings.questions.index(question)]
    sums, counts = np.zeros((2, len(names), votes.shape[1]))
    np.add.at(sums, images[rows], np.nan_to_num(votes))
    np.add.at(counts, images[rows], ~np.isnan(votes))
    with np.errstate(invalid="ignore"):
        return np.asarray((sums / counts).T)


def vote_differences(ratings: RatedExplanations, questions: Sequence[str]) -> pd.DataFrame:
    """Compare each two explainers, a row each: the votes of the same raters on the same images, by `vote_difference`.

    The p-values are corrected for all pairs of a question (Holm). Where it is not known who voted, the mean votes on
    each image are compared.
    """
    explainers = list(dict.fromkeys(ratings.explainer_ids.tolist()))
    parts = []
    for question in questions:
        votes = {name: votes_by_rater(ratings, ratings.explainer_ids == name, question) for name in explainers}
        if not ratings.raters:
            mean = pd.Series(ratings.targets("mean")[:, ratings.questions.index(question)])
            by = mean.groupby([ratings.explainer_ids, ratings.image_ids]).mean().unstack()
            votes = {name: by.loc[[name]].to_numpy() for name in explainers}
        rows = []
        for a, b in combinations(explainers, 2):
            numbers = vote_difference(votes[a], votes[b])._asdict()
            values = {"value_a": numbers.pop("first"), "value_b": numbers.pop("second")}
            rows.append({"metric": question, "what": question, "a": a, "b": b, **values, **numbers})
        parts.append(adjusted([pd.DataFrame(rows)]))
    return pd.concat(parts, ignore_index=True)


def turned(compared: pd.DataFrame, order: Sequence[str]) -> pd.DataFrame:
    """Return comparisons with the explainer that comes first in an order as the first, in that order."""
    places = {name: place for place, name in enumerate(order)}
    swap = (compared["a"].map(places) > compared["b"].map(places)).to_numpy()
    signs = {"difference": ("difference", -1), "low": ("high", -1), "high": ("low", -1)}
    signs |= {"a": ("b", 1), "b": ("a", 1), "value_a": ("value_b", 1), "value_b": ("value_a", 1)}
    columns = {
        name: compared[name].where(~swap, compared[other] if sign > 0 else -compared[other])
        for name, (other, sign) in signs.items()
    }
    rows = compared.assign(**columns)
    return rows.sort_values(["a", "b"], key=lambda column: column.map(places), kind="stable")


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


def clear_pairs(compared: pd.DataFrame, question: str) -> list[tuple[str, str]]:
    """Return the pairs of explainers, the higher first, whose votes differ by their `vote_differences`."""
    said = [(difference_verdict(row), row["a"], row["b"]) for row in pick(compared, what=question).to_dict("records")]
    return [(a, b) if text == ABOVE_ZERO else (b, a) for text, a, b in said if text in (ABOVE_ZERO, BELOW_ZERO)]


def ranking(means: pd.DataFrame, compared: pd.DataFrame, scores: Mapping[str, float], question: str) -> dict[str, Any]:
    """Return in how many of the `clear_pairs` mean scores by explainer have the order of the votes."""
    pairs = clear_pairs(compared, question)
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
