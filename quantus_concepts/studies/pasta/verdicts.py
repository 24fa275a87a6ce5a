"""Sentences that say what a training has found, written from the numbers and their intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from quantus_concepts.datasets.ratings.explanations import MODALITIES
from quantus_concepts.datasets.ratings.rated import RatedExplanations
from quantus_concepts.functional.intervals import CONFIDENCE, relation
from quantus_concepts.studies.findings import listed, minus, number, percent
from quantus_concepts.studies.pasta.results import (
    CEILING,
    HUMAN,
    SCORER,
    SHUFFLED,
    SIMULATED_HUMAN,
    Record,
    Summary,
    of_ceiling,
    questions_of,
    seed_interval,
    summary,
)
from quantus_concepts.studies.rating.rating_facts import INVERTED, inverted_rank, kind_difference, score_rank
from quantus_concepts.studies.records import select
from quantus_concepts.studies.verdict import Verdict

if TYPE_CHECKING:
    from quantus_concepts.studies.pasta.seeds import Outcome

#: Share of the ceiling that a scorer has to reach on unseen images and explainers.
ENOUGH = 0.6
KIND_NAMES = {"map": "maps", "drawing": "drawings", "concepts": "concepts"}
SIMULATED = (
    "The raters are simulated: a stated function of how well an explanation matches a known truth, with noise and a "
    "bias for each rater. No person was asked, and no number here says how people would judge."
)
NO_CEILING = (
    "There is none to hold the scorer against: what the raters' noise allows takes several votes on an explanation."
)
UNDEFINED = "not defined, for scores or votes are all alike"


def verdicts(outcome: Outcome, ratings: RatedExplanations, votes: str = "mode") -> list[Verdict]:
    """Return what can be said of a training."""
    # "Above" and "below" are said where the 95 % interval over splits excludes the value, otherwise that it cannot
    # be told.
    records = outcome.records
    questions = questions_of(records)
    said = [("Raters", SIMULATED)] if ratings.simulated else []
    said += [("Unseen explanations", unseen(records, question)) for question in questions]
    if questions:
        if not select(records, model=CEILING):
            said.append(("Ceiling", NO_CEILING))
        said.append(("Control", control(records)))
        said.append(("One rater", one_rater(records, ratings.simulated)))
        said.append(("Within one kind", within_kinds(records)))
        said.append(("Maps or concepts", _kinds(ratings, questions, votes)))
    if INVERTED in questions:
        said.append((INVERTED, _inverted(outcome, ratings, votes)))
    return [Verdict(topic, text) for topic, text in said if text]


def unseen(records: Sequence[Record], question: str) -> str:
    """Say whether the scorer is above 60 % of what the raters' noise allows."""
    found = summary(records, SCORER, question, "SCC")
    if found is None:
        return ""
    if math.isnan(found.mean):
        return f"{question}: Spearman's correlation is {UNDEFINED}."
    limit, share = summary(records, CEILING, question, "SCC"), of_ceiling(records, question)
    if limit is None or math.isnan(limit.mean):
        return f"{question}: Spearman's correlation is {_with_interval(found)}."
    if share is None or math.isnan(share.mean):
        return (
            f"{question}: Spearman's correlation is {_with_interval(found)}. The ceiling is {number(limit.mean)}: "
            "the raters' votes do not order the explanations, so there is nothing to reach."
        )
    numbers = f"Spearman {number(found.mean)} of {number(limit.mean)}"
    threshold = f"{percent(ENOUGH)} of the ceiling"
    place = relation(seed_interval(share), (ENOUGH, ENOUGH))
    if place in ("above", "below"):
        return f"{question}: {place} {threshold}. {numbers}, {_share(share)}."
    if place == "at":
        return f"{question}: whether it is above {threshold} cannot be told. {numbers}, {_share(share)}."
    return (
        f"{question}: whether it is above {threshold} cannot be told from {_splits(share.n_seeds)}: fewer than 3 have "
        f"no interval. There: {numbers}, {_whole(share.mean)}."
    )


def control(records: Sequence[Record]) -> str:
    """Say whether a scorer that learned from shuffled votes knows anything."""
    found = {question: summary(records, SHUFFLED, question, "SCC") for question in questions_of(records)}
    trained = {question: each for question, each in found.items() if each is not None}
    if not trained:
        return "No scorer was trained on shuffled votes, so nothing shows what one that knows nothing would get."
    places = {question: relation(seed_interval(each), (0, 0)) for question, each in trained.items()}
    parts = []
    holding = [question for question, place in places.items() if place == "at"]
    if holding:
        parts.append(
            "Trained on shuffled votes, the scorer's correlation on "
            f"{_listed(holding, trained)} has an interval that holds 0, as it must."
        )
    missing = [question for question, place in places.items() if place in ("above", "below")]
    if missing:
        parts.append(
            f"On {_listed(missing, trained)} the interval does not hold 0, though the votes were shuffled. One in "
            "twenty misses by chance alone; a repetition with another seed tells."
        )
    alone = [question for question, place in places.items() if not place and not math.isnan(trained[question].mean)]
    if alone:
        each = ", ".join(f"{question} ({number(trained[question].mean)})" for question in alone)
        parts.append(
            f"Trained on shuffled votes, whether the correlation is 0 cannot be told from fewer than 3 splits: {each}."
        )
    undefined = {
        question: len(select(records, model=SHUFFLED, question=question, measure="SCC", modality="all")) - each.n_seeds
        for question, each in trained.items()
    }
    if any(undefined.values()):
        each = ", ".join(f"{question} in {_splits(count)}" for question, count in undefined.items() if count)
        parts.append(f"Not defined, for all its scores are alike: {each}.")
    return " ".join(parts)


def one_rater(records: Sequence[Record], simulated: bool) -> str:
    """Say how the scorer stands to a single rater."""
    model = SIMULATED_HUMAN if simulated else HUMAN
    who = "a simulated rater" if simulated else "an annotator"
    if not select(records, model=model):
        return "Each explanation has a single annotator: there is no row of one annotator against the others."
    groups: dict[str, list[str]] = {"above": [], "at": [], "below": [], "": []}
    for question in questions_of(records):
        ours, theirs = (summary(records, name, question, "QWK") for name in (SCORER, model))
        if ours is None or theirs is None or math.isnan(ours.mean) or math.isnan(theirs.mean):
            continue
        place = relation(seed_interval(ours), seed_interval(theirs))
        groups[place].append(f"{question} ({number(ours.mean)} against {number(theirs.mean)})")
    if not any(groups.values()):
        return ""
    return (
        f"Agreement with the joined vote (QWK), scorer against {who}, whose own vote is part of it: "
        + _phrases(
            groups,
            {"above": "higher on", "at": "not told apart on", "below": "lower on", "": "in fewer than 3 splits, on"},
        )
        + "."
    )


def within_kinds(records: Sequence[Record]) -> str:
    """Say whether the scorer orders the explanations of one kind, and not only one kind before the other."""
    parts = []
    for kind in MODALITIES:
        groups: dict[str, list[str]] = {"above": [], "at": [], "below": [], "": []}
        for question in questions_of(records):
            found = summary(records, SCORER, question, "SCC", kind)
            if found is not None and not math.isnan(found.mean):
                groups[relation(seed_interval(found), (0, 0))].append(f"{question} ({number(found.mean)})")
        if any(groups.values()):
            phrases = {
                "above": "above 0 on",
                "at": "not told apart from 0 on",
                "below": "below 0 on",
                "": "fewer than 3 splits, on",
            }
            parts.append(f"Spearman's correlation among {KIND_NAMES[kind]} alone: {_phrases(groups, phrases)}.")
    return " ".join(parts)


def _kinds(ratings: RatedExplanations, questions: Sequence[str], votes: str) -> str:
    groups: dict[str, list[str]] = {"above": [], "below": [], "at": []}
    for question in questions:
        found = kind_difference(ratings, question, votes)
        if found is None:
            continue
        low, high = found.low, found.high
        place = relation((low, high), (0, 0)) or "at"
        sides = f"{found.maps:.2f} against {found.concepts:.2f}"
        if not math.isnan(low):
            sides += f", difference {_signed(found.difference)}, {_span(low, high)}"
        groups[place].append(f"{question} ({sides})")
    if not any(groups.values()):
        return ""
    raters = "The simulated raters' mean vote" if ratings.simulated else "The mean vote"
    text = _phrases(
        groups,
        {"above": "higher for maps on", "below": "higher for concepts on", "at": "not told apart on"},
    )
    hint = " On Q5, low is good." if "Q5 (" in text else ""
    return f"{raters} on images explained in both ways is {text}.{hint}"


def _inverted(outcome: Outcome, ratings: RatedExplanations, votes: str) -> str:
    asked = inverted_rank(ratings, votes)
    if asked is None:
        return ""
    text = (
        "Low is good: the best explanation has the lowest answer. In the votes, Q5 goes with Q1 at a Spearman "
        f"correlation of {number(asked)}"
    )
    text += ", as good explanations should change little." if asked < 0 else ", where a negative one would be expected."
    found = score_rank(outcome)
    if found is not None and not math.isnan(found.mean):
        text += f" In the scores of unseen explanations it is {_with_interval(found)}."
    return text


def _share(share: Summary) -> str:
    ends = _span(*seed_interval(share), _whole)
    return f"{_whole(share.mean)} ({percent(CONFIDENCE)} interval {ends}, {_splits(share.n_seeds)})"


def _with_interval(found: Summary) -> str:
    low, high = seed_interval(found)
    if math.isnan(low):
        return f"{number(found.mean)} in {_splits(found.n_seeds)}, too few for an interval"
    return f"{number(found.mean)} ({percent(CONFIDENCE)} interval {_span(low, high)}, over {_splits(found.n_seeds)})"


def _listed(questions: Sequence[str], found: dict[str, Summary]) -> str:
    return listed(
        [
            f"{question} ({number(found[question].mean)}, {_span(*seed_interval(found[question]))})"
            for question in questions
        ]
    )


def _span(low: float, high: float, write: Callable[[float], str] = number) -> str:
    return f"{write(low)} to {write(high)}"


def _whole(value: float) -> str:
    return minus(f"{100 * value:z.0f} %")


def _signed(value: float) -> str:
    return minus(f"{value:+z.2f}")


def _phrases(groups: dict[str, list[str]], phrases: dict[str, str]) -> str:
    return "; ".join(f"{phrase} {listed(groups[key])}" for key, phrase in phrases.items() if groups[key])


def _splits(count: int) -> str:
    return f"{count} split" + ("" if count == 1 else "s")
