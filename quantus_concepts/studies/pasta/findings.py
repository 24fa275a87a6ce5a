"""Findings and answers of the PASTA study, and the cells of its tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup

from quantus_concepts.datasets.ratings.explanations import QUESTIONS
from quantus_concepts.datasets.ratings.rated import RatedExplanations
from quantus_concepts.functional.agreement import LEAST_SPLITS
from quantus_concepts.functional.intervals import t_interval
from quantus_concepts.functional.votes import MAX_VOTE, MIN_VOTE
from quantus_concepts.studies._kit.findings import (
    Finding,
    compared,
    minus,
    named_with_interval,
    number,
    percent,
    said,
    sentence,
    three,
    with_intervals,
    with_noun,
)
from quantus_concepts.studies._kit.page import Page, Section
from quantus_concepts.studies._kit.results import PAPER, against, load_paper, pick
from quantus_concepts.studies._kit.tables import Table
from quantus_concepts.studies.pasta.evaluation import UNBOUNDED, SplitResult, over_splits, spearman
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


def paper_table(table: int | str) -> pd.DataFrame:
    """Return a table of the paper as it is printed: model ("paper"), row, question, measure, value, deviation, p."""
    paper = load_paper("quantus_concepts.studies.pasta", table=str, row=str, deviation=float, p=float)
    return pick(paper, table=str(table)).reset_index(drop=True)


def stack(parts: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Join frames, without those that have no rows unless all have none."""
    return pd.concat([part for part in parts if len(part)] or parts)


def in_cells(
    frame: pd.DataFrame,
    write: Callable[[float], str] = three,
    *,
    small: Sequence[str] = ("interval", "deviation"),
) -> pd.DataFrame:
    """Write numbers as text, with the interval, or else the deviation, in small type below."""
    return frame.assign(
        text=[write(value) for value in frame["value"].astype(float)],
        small=[_small_print(row, write, small) for row in frame.to_dict("records")],
        style=[PAPER if model == PAPER else "" for model in frame.get("model", frame["value"])],
    )


def _small_print(row: Mapping[str, Any], write: Callable[[float], str], small: Sequence[str]) -> str:
    low, high, deviation = (float(row.get(name, math.nan)) for name in ("low", "high", "deviation"))
    parts = []
    if "interval" in small and not math.isnan(low):
        parts.append(f"{write(low)} to {write(high)}")
    elif "deviation" in small and not math.isnan(deviation):
        parts.append(f"± {write(deviation)}")
    if "interval" in small and row.get("undefined", 0) > 0:
        parts.append(f"{int(row['undefined'])} undefined")
    return ", ".join(parts)


def compared_with_zero(
    rows: pd.DataFrame, text: str, column: str, noun: str, repetitions: str, write: Callable[[float], str] = number
) -> str:
    """Say which rows, named by a column, are above and below 0 by their interval."""
    sentence = compared(with_intervals(rows), 0.0, text, named_with_interval(column, write))
    return sentence or f"Fewer than {LEAST_SPLITS} {repetitions}, or all alike, so that no {noun} has an interval."


def whole_percent(value: float) -> str:
    """Write a share in whole percents."""
    return minus(f"{100 * value:z.0f} %")


def study_page(
    title: str,
    findings: Sequence[Finding],
    sections: Sequence[Section],
    simulated: bool,
    *,
    main: Sequence[Table] | None = None,
    **more: Any,
) -> Page:
    """Declare a page on which every title, table and chart says whether raters are simulated.

    The terminal shows all tables unless `main` is given, and the findings where there are no `answers`. Tables without
    rows are left out.
    """
    mark = SIMULATED if simulated else ""
    marked = [
        replace(
            section,
            tables=[replace(table, unverified=mark) for table in section.tables if len(table.frame)],
            charts=[replace(chart, unverified=mark) for chart in section.charts],
        )
        for section in sections
    ]
    tables = [table for section in marked for table in section.tables] if main is None else main
    return Page(
        title if not simulated or SIMULATED in title else f"{title} ({SIMULATED})",
        findings,
        marked,
        main=[replace(table, unverified=mark) for table in tables],
        printed=() if more.get("answers") else findings,
        banner=Markup("<b>Simulated raters.</b> ") + SIMULATED_TEXT if simulated else "",
        metrics={"PASTA-score": "pasta_score", "Faithfulness": "faithfulness"},
        **({"source": f"Method and figures of the paper: {SOURCE}."} | more),
    )


#: Share of the ceiling that a scorer has to reach on unseen images and explainers.
ENOUGH = 0.6
SHARE = "share of the ceiling"
#: A question that is answered high where an explanation is good, and the one that is answered low.
LIKED, INVERTED = "Q1", "Q5"
BY = ("model", "question", "measure", "modality")


def summarise_splits(frame: pd.DataFrame) -> pd.DataFrame:
    """Return means over splits, and the scorer's share of the ceiling."""
    if frame.empty:
        return pd.DataFrame(columns=[*BY, "value", "deviation", "low", "high", "splits", "undefined"])
    of_all = pick(frame, measure="SCC", modality="all")
    keys = ["question", "seed"]
    pairs = pick(of_all, model=SCORER).merge(pick(of_all, model=CEILING), on=keys, suffixes=("", " of ceiling"))
    pairs = pairs[pairs["value of ceiling"] > 0]
    shares = pairs.assign(value=pairs["value"] / pairs["value of ceiling"], measure=SHARE)
    return over_splits(pd.concat([frame, shares[frame.columns]]) if len(shares) else frame, BY)


def rows_of(means: pd.DataFrame, model: str, measure: str, modality: str = "all") -> pd.DataFrame:
    """Return the means of one measure, a row for each question."""
    rows = pick(means, model=model, measure=measure, modality=modality)
    return rows[rows["value"].notna()].sort_values("question")


def by_question(rows: pd.DataFrame) -> dict[str, Mapping[str, Any]]:
    """Return rows by their question."""
    return {row["question"]: row for _, row in rows.iterrows()}


def question_of(row: Mapping[str, Any]) -> str:
    """Return the question of a row, for a list of questions."""
    return str(row["question"])


def rater_of(means: pd.DataFrame) -> str:
    """Return the name of a single rater among the models, "" where there is none."""
    return next((name for name in (SIMULATED_HUMAN, HUMAN) if name in set(means["model"])), "")


def answers(means: pd.DataFrame) -> list[Finding]:
    """Return one short line for each question of the study, with the number of a baseline."""

    def above(model: str, measure: str) -> str:
        ours, theirs = rows_of(means, SCORER, measure), by_question(rows_of(means, model, measure))
        pairs = [(row, theirs[row["question"]]) for _, row in ours.iterrows() if row["question"] in theirs]
        if not pairs:
            return ""
        count = sum(against(row, other) == "above" for row, other in pairs)
        ranges = [value_range([side["value"] for side in sides]) for sides in zip(*pairs, strict=True)]
        return f"on {count} of {len(pairs)} questions ({measure} {ranges[0]}, {model} {ranges[1]})"

    shares = rows_of(means, SCORER, SHARE)["value"].tolist()
    share_text = f"{value_range(shares, whole_percent)} of the ceiling" if shares else ""
    models, rater = set(means["model"]), rater_of(means)
    return said(
        Finding(above(SHUFFLED, "SCC"), "Predicts unseen votes") if SHUFFLED in models else None,
        Finding(share_text, "Near what raters' noise allows") if CEILING in models else None,
        Finding(above(rater, "QWK"), "Better than one rater") if rater else None,
    )


def value_range(values: Sequence[float], write: Callable[[float], str] = number) -> str:
    """Write the smallest and the largest of some values."""
    ends = [write(end) for end in (min(values), max(values))]
    return ends[0] if ends[0] == ends[1] else " to ".join(ends)


def findings(
    means: pd.DataFrame, results: Sequence[SplitResult], ratings: RatedExplanations, votes: str = "mode"
) -> list[Finding]:
    """Return the findings on a training, with intervals over splits; fewer than 3 splits have none."""
    ours, shuffled, limits = (rows_of(means, model, "SCC") for model in (SCORER, SHUFFLED, CEILING))
    texts = [("Unseen explanations", _correlation_finding(row, shuffled, limits)) for _, row in ours.iterrows()]
    shares = with_intervals(rows_of(means, SCORER, SHARE))
    texts.append(("Ceiling", compared(shares, ENOUGH, f"Above {percent(ENOUGH)} of the ceiling", question_of)))
    if len(ours) and limits.empty:
        texts.append(("Ceiling", "None: what the raters' noise allows takes several votes on an explanation."))
    control = "No scorer was trained on shuffled votes." if len(ours) else ""
    if SHUFFLED in set(means["model"]):
        control = compared(with_intervals(shuffled), 0.0, "Trained on shuffled votes, SCC above 0", question_of)
    texts.append(("Control", control))
    if rater := rater_of(means):
        theirs = by_question(rows_of(means, rater, "QWK"))
        kappas = with_intervals(rows_of(means, SCORER, "QWK"))
        kappas = pick(kappas, question=list(theirs))
        phrase = f"QWK above that of {rater}, whose own vote is part of the joined one"
        texts.append(("One rater", compared(kappas, lambda row: theirs[row["question"]], phrase, question_of)))
    elif len(ours):
        texts.append(("One rater", "Each explanation has a single annotator: there is none to compare with."))
    for kind, name in KINDS.items():
        rows = with_intervals(rows_of(means, SCORER, "SCC", kind))
        texts.append(("Within one kind", compared(rows, 0.0, f"SCC among {name} alone above 0", question_of)))
    rows = with_intervals(kind_differences(ratings, sorted(set(means["question"])), votes))
    texts.append(("Maps or concepts", compared(rows, 0.0, "Votes on maps higher than on concepts", _with_both_means)))
    if INVERTED in set(means["question"]):
        texts.append((INVERTED, inverted_finding(results, ratings, votes)))
    return said(*(Finding(text, topic) for topic, text in texts))


def _correlation_finding(row: pd.Series, shuffled: pd.DataFrame, limits: pd.DataFrame) -> str:
    question = row["question"]
    baselines = {SHUFFLED: by_question(shuffled).get(question), "the ceiling": by_question(limits).get(question)}
    text = f"{question}: Spearman's correlation is {{}}, over {with_noun(row['splits'], 'split')}"
    return sentence(text, row, {} if math.isnan(row["low"]) else baselines, write=number)


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


def kind_differences(ratings: RatedExplanations, questions: Sequence[str], votes: str = "mode") -> pd.DataFrame:
    """Compare votes on maps with votes on concepts of the same images, image by image; a row for each question."""
    sides = {"maps": ("map", "drawing"), "concepts": ("concepts",)}
    rows = []
    for question in questions:
        pairs = pd.DataFrame({name: image_means(ratings, question, kinds, votes) for name, kinds in sides.items()})
        pairs = pairs.dropna()
        differences = (pairs["maps"] - pairs["concepts"]).to_numpy()
        low, high = t_interval(differences, UNBOUNDED)
        value = differences.mean() if differences.size else math.nan
        rows.append({"question": question, **pairs.mean(), "value": value, "low": low, "high": high, "n": len(pairs)})
    columns = ["question", "maps", "concepts", "value", "low", "high", "n"]
    return pd.DataFrame(rows, columns=columns).astype({"value": float, "low": float, "high": float})


def _with_both_means(row: Mapping[str, Any]) -> str:
    hint = ", low is good" if row["question"] == INVERTED else ""
    return f"{row['question']} ({row['maps']:.2f} and {row['concepts']:.2f}{hint})"


def inverted_finding(results: Sequence[SplitResult], ratings: RatedExplanations, votes: str = "mode") -> str:
    """Say how the question on which low is good goes with the one on which high is."""
    in_votes = _inverted_correlation(ratings.targets(votes), list(QUESTIONS))
    if math.isnan(in_votes):
        return ""
    text = (
        f"Low is good: the best explanation has the lowest answer. Q5 and Q1 correlate at {number(in_votes)} in votes"
    )
    in_scores = [
        _inverted_correlation(result.scores, questions)
        for result in results
        if {LIKED, INVERTED} <= set(questions := list(result.training.scorer.questions))
    ]
    if not in_scores:
        return f"{text} (Spearman)."
    (row,) = over_splits(pd.DataFrame({"measure": "SCC", "value": in_scores}), ["measure"]).to_dict("records")
    return sentence(f"{text}, and at {{}} in scores of unseen explanations (Spearman)", row, write=number) or f"{text}."


def _inverted_correlation(answers: np.ndarray, questions: Sequence[str]) -> float:
    return spearman(*(answers[:, questions.index(question)] for question in (LIKED, INVERTED)))
