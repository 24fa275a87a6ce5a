"""What the numbers of the PASTA study say, and how its tables write them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup
from scipy import stats

from quantus_concepts.datasets.ratings.questions import QUESTIONS
from quantus_concepts.datasets.ratings.rated import RatedExplanations
from quantus_concepts.functional.intervals import CONFIDENCE, relation, t_interval
from quantus_concepts.functional.votes import MAX_VOTE, MIN_VOTE
from quantus_concepts.studies._kit.findings import Finding, listed, minus, number, percent
from quantus_concepts.studies._kit.page import Page, Section
from quantus_concepts.studies._kit.results import PAPER, pick, published
from quantus_concepts.studies._kit.tables import Table
from quantus_concepts.studies.pasta.evaluation import UNBOUNDED, SplitResult, over_splits
from quantus_concepts.studies.pasta.options import (
    CEILING,
    HUMAN,
    KINDS,
    SCORER,
    SHUFFLED,
    SIMULATED,
    SIMULATED_HUMAN,
    SIMULATED_TEXT,
    SOURCE,
)

three = partial(number, decimals=3)


def paper_table(table: int | str) -> pd.DataFrame:
    """Return a table of the paper as it is printed: model ("paper"), row, question, measure, value, deviation, p."""
    found = published("quantus_concepts.studies.pasta", table=str, row=str, deviation=float, p=float)
    chosen = found[found["table"] == str(table)].reset_index(drop=True)
    if chosen.empty:
        raise ValueError(f"Expected the number of a table, one of {sorted(set(found['table']))}, but got {table}.")
    return chosen


def written(
    frame: pd.DataFrame,
    write: Callable[[float], str] = three,
    *,
    small: Sequence[str] = ("interval", "deviation"),
) -> pd.DataFrame:
    """Write numbers as text, with the first of interval and deviation that there is in small type below."""
    return frame.assign(
        text=[write(value) for value in frame["value"].astype(float)],
        small=[_small(row, write, small) for row in frame.to_dict("records")],
        style=[PAPER if model == PAPER else "" for model in frame.get("model", frame["value"])],
    )


def _small(row: Mapping[str, Any], write: Callable[[float], str], wanted: Sequence[str]) -> str:
    low, high, deviation = (float(row.get(name, math.nan)) for name in ("low", "high", "deviation"))
    parts = []
    if "interval" in wanted and not math.isnan(low):
        parts.append(f"{write(low)} to {write(high)}")
    elif "deviation" in wanted and not math.isnan(deviation):
        parts.append(f"± {write(deviation)}")
    if "interval" in wanted and row.get("undefined", 0) > 0:
        parts.append(f"{int(row['undefined'])} undefined")
    return ", ".join(parts)


def span(low: float, high: float, decimals: int = 2) -> str:
    """Write an interval."""
    return f"{number(low, decimals)} to {number(high, decimals)}"


def whole(value: float) -> str:
    """Write a share in whole percents."""
    return minus(f"{100 * value:z.0f} %")


def splits_text(count: int) -> str:
    """Write how many splits."""
    return f"{count} split" + ("" if count == 1 else "s")


def ordered(frame: pd.DataFrame, **orders: Sequence[Any]) -> pd.DataFrame:
    """Return the rows whose columns have one of some values, in the order of these, that of the first column first."""
    for column, order in reversed(orders.items()):
        places = {name: place for place, name in enumerate(order)}
        frame = frame[frame[column].isin(places)]
        frame = frame.sort_values(column, key=lambda values, places=places: values.map(places), kind="stable")
    return frame


def study_page(
    title: str,
    findings: Sequence[Finding],
    sections: Sequence[Section],
    simulated: bool,
    *,
    main: Sequence[Table] | None = None,
    printed: Sequence[Finding] | None = None,
    **more: Any,
) -> Page:
    """Declare a page on which every title, table and chart says whether raters are simulated.

    The terminal shows all tables and findings unless `main` and `printed` are given. Tables without rows are left out.
    """
    mark = SIMULATED if simulated else ""
    shown = [
        replace(
            section,
            tables=[replace(table, unverified=mark) for table in section.tables if len(table.frame)],
            charts=[replace(chart, unverified=mark) for chart in section.charts],
        )
        for section in sections
    ]
    tables = [table for section in shown for table in section.tables] if main is None else main
    return Page(
        title if not simulated or SIMULATED in title else f"{title} ({SIMULATED})",
        findings,
        shown,
        main=[replace(table, unverified=mark) for table in tables],
        printed=findings if printed is None else printed,
        banner=Markup("<b>Simulated raters.</b> ") + SIMULATED_TEXT if simulated else "",
        **({"source": f"Method and figures of the paper: {SOURCE}."} | more),
    )


#: Share of the ceiling that a scorer has to reach on unseen images and explainers.
ENOUGH = 0.6
SHARE = "share of the ceiling"
#: A question that is answered high where an explanation is good, and the one that is answered low.
LIKED, INVERTED = "Q1", "Q5"
NO_CEILING = (
    "There is none to hold the scorer against: what the raters' noise allows takes several votes on an explanation."
)
BY = ("model", "question", "measure", "modality")
Found = Mapping[str, Any]


def summarised(frame: pd.DataFrame) -> pd.DataFrame:
    """Return means over splits, and the share of what the raters' noise allows that the scorer reaches."""
    if frame.empty:
        return pd.DataFrame(columns=[*BY, "value", "deviation", "low", "high", "splits", "undefined"])
    of_all = pick(frame, measure="SCC", modality="all")
    keys = ["question", "seed"]
    both = pick(of_all, model=SCORER).merge(pick(of_all, model=CEILING), on=keys, suffixes=("", " allowed"))
    both = both[both["value allowed"] > 0]
    shares = both.assign(value=both["value"] / both["value allowed"], measure=SHARE)
    return over_splits(pd.concat([frame, shares[frame.columns]]) if len(shares) else frame, BY)


def found_in(means: pd.DataFrame, model: str, question: str, measure: str, modality: str = "all") -> Found | None:
    """Return the mean of one measure, None where there is none."""
    rows = pick(means, model=model, question=question, measure=measure, modality=modality)
    return None if rows.empty else rows.iloc[0].to_dict()


def findings(
    means: pd.DataFrame, results: Sequence[SplitResult], ratings: RatedExplanations, votes: str = "mode"
) -> list[Finding]:
    """Return what can be said of a training.

    "Above" and "below" are said where the 95 % interval over splits excludes the value, otherwise that it cannot be
    told.
    """
    questions = sorted(set(means["question"]))
    texts = [(unseen(means, question), "Unseen explanations") for question in questions]
    if questions:
        texts.append(("" if CEILING in set(means["model"]) else NO_CEILING, "Ceiling"))
        texts.append((control(means), "Control"))
        texts.append((one_rater(means, ratings.simulated), "One rater"))
        texts.append((within_kinds(means), "Within one kind"))
        texts.append((maps_or_concepts(ratings, questions, votes), "Maps or concepts"))
    if INVERTED in questions:
        texts.append((inverted(results, ratings, votes), INVERTED))
    return [Finding(text, topic) for text, topic in texts if text]


def unseen(means: pd.DataFrame, question: str) -> str:
    """Say whether the scorer is above 60 % of what the raters' noise allows."""
    found, limit = (found_in(means, model, question, "SCC") for model in (SCORER, CEILING))
    share = found_in(means, SCORER, question, SHARE)
    if found is None:
        return ""
    if math.isnan(found["value"]):
        return f"{question}: Spearman's correlation is not defined, for scores or votes are all alike."
    if limit is None or math.isnan(limit["value"]):
        return f"{question}: Spearman's correlation is {_with_interval(found)}."
    if share is None or math.isnan(share["value"]):
        return (
            f"{question}: Spearman's correlation is {_with_interval(found)}. The ceiling is {number(limit['value'])}: "
            "the raters' votes do not order the explanations, so there is nothing to reach."
        )
    numbers = f"Spearman {number(found['value'])} of {number(limit['value'])}, {whole(share['value'])}"
    threshold = f"{percent(ENOUGH)} of the ceiling"
    place = relation((share["low"], share["high"]), (ENOUGH, ENOUGH))
    if not place:
        return (
            f"{question}: whether it is above {threshold} is not known from {splits_text(share['splits'])}: fewer "
            f"than 3 have no interval. There: {numbers}."
        )
    ends = f"{percent(CONFIDENCE)} interval {whole(share['low'])} to {whole(share['high'])}"
    text = f"whether it is above {threshold} is not known" if place == "at" else f"{place} {threshold}"
    return f"{question}: {text}. {numbers} ({ends}, {splits_text(share['splits'])})."


def control(means: pd.DataFrame) -> str:
    """Say whether a scorer that learned from shuffled votes knows anything."""
    trained = pick(means, model=SHUFFLED, measure="SCC", modality="all").to_dict("records")
    if not trained:
        return "No scorer was trained on shuffled votes, so nothing shows what one that knows nothing would get."
    places = [relation((row["low"], row["high"]), (0, 0)) for row in trained]

    def of(*wanted: str) -> list[dict[str, Any]]:
        return [row for row, place in zip(trained, places, strict=True) if place in wanted]

    def with_ends(rows: Sequence[Found]) -> str:
        return listed([f"{r['question']} ({number(r['value'])}, {span(r['low'], r['high'])})" for r in rows])

    parts = []
    if holding := of("at"):
        parts.append(
            "Trained on shuffled votes, the scorer's correlation on "
            f"{with_ends(holding)} has an interval that holds 0, as it must."
        )
    if missing := of("above", "below"):
        parts.append(
            f"On {with_ends(missing)} the interval does not hold 0, though the votes were shuffled. One in "
            "twenty misses by chance alone; a repetition with another seed tells."
        )
    if alone := [row for row in of("") if not math.isnan(row["value"])]:
        each = ", ".join(f"{row['question']} ({number(row['value'])})" for row in alone)
        parts.append(
            f"Trained on shuffled votes, whether the correlation is 0 cannot be known from fewer than 3 splits: {each}."
        )
    if undefined := [row for row in trained if row["undefined"]]:
        each = ", ".join(f"{row['question']} in {splits_text(row['undefined'])}" for row in undefined)
        parts.append(f"Not defined, for all its scores are alike: {each}.")
    return " ".join(parts)


def one_rater(means: pd.DataFrame, simulated: bool) -> str:
    """Say how the scorer stands to a single rater."""
    model, who = (SIMULATED_HUMAN, "a simulated rater") if simulated else (HUMAN, "an annotator")
    if model not in set(means["model"]):
        return "Each explanation has a single annotator: there is no row of one annotator against the others."
    parts = []
    for question in sorted(set(means["question"])):
        ours, theirs = (found_in(means, name, question, "QWK") for name in (SCORER, model))
        if ours and theirs and not math.isnan(ours["value"] + theirs["value"]):
            place = relation((ours["low"], ours["high"]), (theirs["low"], theirs["high"]))
            parts.append((place, f"{question} ({number(ours['value'])} against {number(theirs['value'])})"))
    phrases = {
        "above": "higher on",
        "at": "not distinguishable on",
        "below": "lower on",
        "": "in fewer than 3 splits, on",
    }
    text = _phrases(parts, phrases)
    whose = "whose own vote is part of it"
    return text and f"Agreement with the joined vote (QWK), scorer against {who}, {whose}: {text}."


def within_kinds(means: pd.DataFrame) -> str:
    """Say whether the scorer orders the explanations of one kind, and not only one kind before the other."""
    parts = []
    phrases = {
        "above": "above 0 on",
        "at": "not distinguishable from 0 on",
        "below": "below 0 on",
        "": "fewer than 3 splits, on",
    }
    for kind, name in KINDS.items():
        rows = pick(means, model=SCORER, measure="SCC", modality=kind).dropna(subset=["value"])
        lines = [
            (relation((row["low"], row["high"]), (0, 0)), f"{row['question']} ({number(row['value'])})")
            for row in rows.sort_values("question").to_dict("records")
        ]
        if lines:
            parts.append(f"Spearman's correlation among {name} alone: {_phrases(lines, phrases)}.")
    return " ".join(parts)


def image_means(ratings: RatedExplanations, question: str, kinds: Sequence[str], votes: str = "mode") -> pd.Series:
    """Return the mean vote on each image's explanations of some kinds."""
    joined = pd.Series(ratings.targets(votes)[:, list(QUESTIONS).index(question)], index=ratings.image_ids)
    return joined[np.isin(ratings.modalities, list(kinds))].dropna().groupby(level=0).mean()


def kind_votes(ratings: RatedExplanations, votes: str = "mode") -> pd.DataFrame:
    """Return the mean vote by question and kind, with its interval over images."""
    rows = []
    for question in ratings.questions:
        for kind in KINDS:
            values = image_means(ratings, question, [kind], votes).to_numpy()
            if values.size:
                low, high = t_interval(values, (MIN_VOTE, MAX_VOTE))
                rows.append((question, kind, values.mean(), low, high))
    return pd.DataFrame(rows, columns=["question", "kind", "value", "low", "high"])


def kind_difference(ratings: RatedExplanations, question: str, votes: str = "mode") -> dict[str, float] | None:
    """Compare votes on maps with votes on concepts of the same images, image by image."""
    sides = {"maps": ("map", "drawing"), "concepts": ("concepts",)}
    pairs = pd.DataFrame({name: image_means(ratings, question, kinds, votes) for name, kinds in sides.items()}).dropna()
    if pairs.empty:
        return None
    apart = (pairs["maps"] - pairs["concepts"]).to_numpy()
    low, high = t_interval(apart, UNBOUNDED)
    return {**pairs.mean(), "difference": float(apart.mean()), "low": low, "high": high, "n": len(pairs)}


def maps_or_concepts(ratings: RatedExplanations, questions: Sequence[str], votes: str = "mode") -> str:
    """Say whether maps or concepts are rated higher."""
    parts = []
    for question in questions:
        found = kind_difference(ratings, question, votes)
        if found is None:
            continue
        sides = f"{found['maps']:.2f} against {found['concepts']:.2f}"
        if not math.isnan(found["low"]):
            difference = minus(f"{found['difference']:+z.2f}")
            sides += f", difference {difference}, {span(found['low'], found['high'])}"
        parts.append((relation((found["low"], found["high"]), (0, 0)) or "at", f"{question} ({sides})"))
    raters = "The simulated raters' mean vote" if ratings.simulated else "The mean vote"
    phrases = {"above": "higher for maps on", "below": "higher for concepts on", "at": "not distinguishable on"}
    text = _phrases(parts, phrases)
    hint = " On Q5, low is good." if "Q5 (" in text else ""
    return text and f"{raters} on images explained in both ways is {text}.{hint}"


def inverted(results: Sequence[SplitResult], ratings: RatedExplanations, votes: str = "mode") -> str:
    """Say how the question on which low is good goes with the one on which high is."""
    joined = ratings.targets(votes)
    asked = _rank(*(joined[:, list(QUESTIONS).index(question)] for question in (LIKED, INVERTED)))
    if math.isnan(asked):
        return ""
    text = (
        "Low is good: the best explanation has the lowest answer. In the votes, Q5 goes with Q1 at a Spearman "
        f"correlation of {number(asked)}"
    )
    text += ", as good explanations should change little." if asked < 0 else ", where a negative one would be expected."
    ranks = score_ranks(results)
    if ranks.notna().any():
        (found,) = over_splits(pd.DataFrame({"measure": "SCC", "value": ranks}), ["measure"]).to_dict("records")
        text += f" In the scores of unseen explanations it is {_with_interval(found)}."
    return text


def score_ranks(results: Sequence[SplitResult]) -> pd.Series:
    """Return Spearman's correlation of the scores for Q5 with those for Q1 in each split that has both."""
    found = []
    for result in results:
        questions = list(result.training.scorer.questions)
        if {LIKED, INVERTED} <= set(questions):
            found.append(_rank(*(result.scores[:, questions.index(question)] for question in (LIKED, INVERTED))))
    return pd.Series(found, dtype=float)


def _rank(first: np.ndarray, second: np.ndarray) -> float:
    known = ~(np.isnan(first) | np.isnan(second))
    first, second = first[known], second[known]
    if len(first) < 3 or (first == first[0]).all() or (second == second[0]).all():
        return math.nan
    return float(stats.spearmanr(first, second).statistic)


def _with_interval(found: Found) -> str:
    if math.isnan(found["low"]):
        return f"{number(found['value'])} in {splits_text(found['splits'])}, too few for an interval"
    ends = f"{percent(CONFIDENCE)} interval {span(found['low'], found['high'])}, over {splits_text(found['splits'])}"
    return f"{number(found['value'])} ({ends})"


def _phrases(placed: Sequence[tuple[str, str]], phrases: Mapping[str, str]) -> str:
    groups = {place: [text for each, text in placed if each == place] for place in phrases}
    return "; ".join(f"{phrases[place]} {listed(texts)}" for place, texts in groups.items() if texts)
