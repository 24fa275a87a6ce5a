"""The report of scorers that were trained over several splits, and what the reports of all PASTA commands share."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from quantus_concepts.datasets.ratings.explanations import Question, low_is_good_in, papers
from quantus_concepts.datasets.ratings.rated import RatedExplanations
from quantus_concepts.functional import paired_difference
from quantus_concepts.functional.statistics.votes import MAX_VOTE, MIN_VOTE
from quantus_concepts.pasta.encoders.encoder import Encoder
from quantus_concepts.pasta.encoders.open_clip_encoder import PRESETS
from quantus_concepts.results.verdicts import ALPHA, difference_verdict
from quantus_concepts.studies._kit.comparisons import comparison_table
from quantus_concepts.studies._kit.plots import MUTED, PALETTE, add_legend, dots, lines
from quantus_concepts.studies._kit.report import (
    Picture,
    Report,
    Section,
    Table,
    Verdict,
    Writer,
    number,
    percent,
    three,
)
from quantus_concepts.studies._kit.results import (
    PAPER,
    arrange,
    load_paper,
    names,
    one,
    over_seeds,
    pick,
    with_random_range,
)
from quantus_concepts.studies.pasta.scorers import (
    CEILING,
    HUMAN,
    MEASURES,
    SCORER,
    SHUFFLED,
    SIMULATED_HUMAN,
    Plan,
    Trained,
    shuffled_ranges,
    splits_interval,
)
from quantus_concepts.studies.pasta.votes import EXPLAINER, rater_agreement, turned, vote_means

#: Order of the rows.
MODELS = (SCORER, HUMAN, SIMULATED_HUMAN, CEILING, SHUFFLED)
KINDS = {"map": "maps", "drawing": "drawings", "concepts": "concepts"}
KIND_COLOURS = dict(zip(KINDS.values(), ("#0072B2", "#56B4E9", "#E69F00"), strict=True))
BY = ("model", "question", "measure", "modality")
#: Data sets and size of the published ratings, with which the paper's numbers are comparable.
RELEASE = ({"coco", "pascalpart", "monumai", "catsdogscars"}, 20_000)
SIMULATED_TEXT = (
    "The raters are simulated: a stated function of how well an explanation matches a known truth, with noise and a "
    "bias for each rater. No person rated anything, and no number here says how people would judge."
)
SOURCE = "Kazmierczak et al., Benchmarking XAI Explanations with Human-Aligned Evaluations"
#: Epochs of a learning curve that are drawn, at most, and panels in a row.
EPOCHS, ACROSS = 20, 2
#: Ceiling below which raters hardly agree.
HARDLY = 0.1
READING = {
    "Score": "Predicted rating from 1 to 5. A scorer learns from votes on maps, drawings and lists of concepts alike, "
    "and is tested on explanations whose image is new to it, and whose explainer too, of 8 explainers or more.",
    "MSE": "Mean squared error between score and joined vote; lower is better.",
    "QWK": "Quadratic weighted kappa of rounded scores and votes: 1 is agreement, 0 is chance.",
    "SCC": "Spearman's rank correlation of scores and votes: are better explanations scored higher? Rounded: of "
    "rounded scores, as the release computes it.",
    "Ceiling": "The same measure of a scorer that knew what the raters agree on; no scorer can know the rest. With "
    "simulated raters it is exact, else estimated from how far raters agree: near 0 they hardly do, and a score above "
    "it is luck.",
    "Intervals": "Student's 95 % intervals over splits, of SCC and QWK on Fisher's z; none below 3 splits. Splits "
    "share explanations, so intervals show how much the choice of images and explainers matters. Only the "
    "p-values of differences are corrected for the number of comparisons.",
}
#: How differences of votes are read, and the random range of mean votes.
VOTES_READING = {
    "Difference of votes": "Between two explainers, on the images that both explain: by the same rater where it is "
    "known who voted, else of the mean vote. What makes a rater strict or an image easy cancels, so that a difference "
    "can be clear where the intervals of the two means overlap. Its 95 % interval is the widest of three: over images, "
    "over raters, and over both.",
    "Not shown": "The p-value of a difference of votes, corrected for all pairs of explainers of its question (Holm), "
    f"is above {ALPHA:g}: the difference may be luck. That does not show that the two are equal.",
    "Mean votes": "They have no verdict: their intervals hold how strict raters and how easy images are, which cancels "
    "in a difference. Columns random_low and random_high of the CSV file: where 95 % of means lie with the votes on "
    "each image shuffled among its explanations.",
}
TRAINED_RANGE = "The 95 % interval over the same splits of scorers that were trained on shuffled votes."
SHUFFLED_RANGE = "Where 95 % of the means over splits lie when the votes on the test explanations are shuffled."


def paper_table(table: int | str) -> pd.DataFrame:
    """Return a table of the paper as it is printed: model ("paper"), row, question, measure, value, deviation, p."""
    paper = load_paper("quantus_concepts.studies.pasta", table=str, row=str, deviation=float, p=float)
    return pick(paper, table=str(table)).reset_index(drop=True)


def is_release(ratings: RatedExplanations) -> bool:
    """Whether these are the published ratings."""
    return set(ratings.datasets.tolist()) == RELEASE[0] and len(ratings) >= RELEASE[1] and not ratings.simulated


def banner_of(ratings: RatedExplanations, encoder: Encoder | None = None) -> str:
    """Return the warning of a page whose numbers say nothing about people, or are not comparable with the paper's."""
    if ratings.simulated:
        return f"Simulated raters. {SIMULATED_TEXT}"
    texts = (
        [] if is_release(ratings) else ["These are not the published ratings: the paper's numbers are no reference."]
    )
    if getattr(encoder, "untrained", False):
        texts.append("The encoder is untrained: it shows how the method works, not how good it is.")
    return " ".join(texts)


def with_texts(frame: pd.DataFrame, write: Writer = three) -> pd.DataFrame:
    """Write the paper's numbers with their deviation, and say how many splits are undefined."""
    texts = []
    for row in frame.to_dict("records"):
        deviation, undefined = row.get("deviation", math.nan), row.get("undefined", 0)
        text = ""
        if row.get("model") == PAPER and not math.isnan(deviation):
            text = f"{write(row['value'])} ± {write(deviation)}"
        elif undefined > 0:
            text = f"{write(row['value'])} ({undefined:.0f} undefined)"
        texts.append(text)
    return frame.assign(text=texts)


def paired_splits(first: pd.Series, second: pd.Series) -> dict[str, float]:
    """Return difference, interval and p-value of numbers by split; none below 3 splits, as everywhere."""
    joined = pd.concat([first, second], axis=1, keys=["first", "second"]).dropna()
    numbers = paired_numbers(joined["first"], joined["second"])
    return numbers if len(joined) > 2 else numbers | dict.fromkeys(("low", "high", "p"), math.nan)


def paired_numbers(first: pd.Series, second: pd.Series) -> dict[str, float]:
    """Return a paired difference as a row of `comparison_table`."""
    numbers = paired_difference(first.to_numpy(float), second.to_numpy(float))._asdict()
    return {"value_a": numbers.pop("first"), "value_b": numbers.pop("second"), **numbers}


def table(
    name: str,
    title: str,
    frame: pd.DataFrame,
    rows: str,
    columns: str,
    caption: str = "",
    write: Writer = three,
    /,
    **orders: Sequence[str],
) -> Table:
    """Declare a table with its rows in the orders given by column; names that are not in an order come last."""
    frame = frame if "text" in frame else with_texts(frame, write)
    return Table(name, title, arrange(frame, **orders), rows.split(), [columns], write, caption)


def with_shuffled_range(means: pd.DataFrame, ranges: pd.DataFrame | None = None) -> pd.DataFrame:
    """Return means with the range of scorers trained on shuffled votes, or of SCC that of shuffled votes."""
    if ranges is None:
        ranged = with_random_range(means, SHUFFLED, ["question", "measure", "modality"])
        return pd.concat([ranged, pick(means, model=SHUFFLED)], ignore_index=True)
    return means.merge(ranges.assign(measure="SCC", modality="all"), on=["question", "measure", "modality"], how="left")


def training_report(
    title: str,
    frame: pd.DataFrame,
    scores: pd.DataFrame,
    trained: Mapping[int, Trained],
    ratings: RatedExplanations,
    plan: Plan,
    encoder: Encoder,
    *,
    first: tuple[Sequence[Verdict], Section],
    more: tuple[Sequence[Verdict], Sequence[Section]] = ((), ()),
    links: Sequence[str] = (),
) -> Report:
    """Declare the report of a training: what people said comes `first`, then the agreement of scorers, then `more`."""
    questions = names(frame, "question", ratings.questions)
    scored = pick(scores, model=SCORER)
    is_controlled = SHUFFLED in set(frame["model"])
    means = with_shuffled_range(
        over_seeds(frame, BY, interval=splits_interval), None if is_controlled else shuffled_ranges(scored)
    )
    of_all = pick(means, modality="all")
    rater = next((name for name in (HUMAN, SIMULATED_HUMAN) if name in set(frame["model"])), "")
    scc = pick(of_all, measure="SCC", model=[SCORER, rater, CEILING]).sort_values("question", kind="stable")
    ends = ["random_low", "random_high"]
    scc[ends] = scc.groupby("question", sort=False)[ends].transform("first")
    n_splits, split = frame["seed"].nunique(), next(iter(plan.splits(ratings).values()))
    known = "image is new to it" if split.by_image_only else "image and explainer are both new to it"
    label = "Spearman's correlation with the votes"
    agreement = Picture(
        "agreement",
        dots(scc, "question", "model", label=label, percent=False, reference=0)[0],
        f"Agreement with the joined votes (by {plan.votes}) on explanations whose {known}, "
        f"mean over {n_splits} split{'s' * (n_splits > 1)}.{low_is_good_in(ratings.asked[name] for name in questions)}",
    )
    sections = [
        first[1],
        Section(
            "Agreement with the votes",
            [
                table_1(means, questions, papers(ratings.asked.values()), None if ratings.simulated else encoder.name),
                explainer_picture(scored),
            ],
        ),
        Section("Training", [curves_picture(trained)]),
        *more[1],
    ]
    return Report(
        title,
        [*first[0], *agreement_verdicts(of_all, questions), *more[0]],
        agreement,
        [section for section in sections if section.parts],
        lead=f"Votes on {len(ratings):,} explanations of {len(set(ratings.image_ids.tolist())):,} images by "
        f"{len(set(ratings.explainer_ids.tolist()))} explainers; encoder {encoder.name}. Scorers were tested on "
        f"{n_splits} split{'s' * (n_splits > 1)}, the first of which: {split.summary()} "
        "The scorer that is written learned from all explanations.",
        reading={
            **VOTES_READING,
            **READING,
            "Random range": TRAINED_RANGE if is_controlled else SHUFFLED_RANGE,
        }
        | {name: ratings.asked[name].reading for name in questions},
        banner=banner_of(ratings, encoder),
        links={f"{name}.csv": f"{name}.csv" for name in links},
    )


def agreement_verdicts(of_all: pd.DataFrame, questions: Sequence[str]) -> list[Verdict]:
    """Ask of each question whether scores follow the votes, with the ceiling beside it."""
    verdicts = []
    for question in questions:
        row, limit = (one(of_all, model=model, question=question, measure="SCC") for model in (SCORER, CEILING))
        beside = "" if limit is None else f"; {ceiling_text(limit['value'])}"
        verdicts.append(Verdict.of(f"{question}: do scores follow the votes? (SCC{beside})", row, write=number))
    return verdicts


def ceiling_text(value: float) -> str:
    """Write a ceiling; near 0 it is no measure of a scorer."""
    text = f"ceiling {number(value)}"
    return f"raters hardly agree, {text}" if value < HARDLY else text


def table_1(means: pd.DataFrame, questions: Sequence[str], comparable: Sequence[str], encoder: str | None) -> Table:
    """Return ours in the form of the paper's Table 1, the paper's of `comparable` questions, and SCC in each kind."""
    of_kind = pick(means, measure="SCC", modality=list(KINDS), model=[SCORER, SHUFFLED])
    kinds = {kind: f"SCC, {name} alone" for kind, name in KINDS.items()}
    parts = [
        pick(means, modality="all", measure=list(MEASURES)).assign(label=lambda of: of["model"]),
        of_kind.assign(label=of_kind["model"], measure=of_kind["modality"].map(kinds)),
    ]
    if encoder is not None:
        beside = ["human", *([encoder] if encoder in PRESETS else [])]
        printed = pick(paper_table(1), row=beside, question=list(comparable))
        parts.append(printed.assign(label="paper, " + printed["row"]))
    frame = pick(pd.concat(parts, ignore_index=True), question=list(questions))
    title = "Agreement with the votes on test explanations, as the paper's Table 1"
    caption = (
        "Small numbers are 95 % intervals over splits. MSE: lower is better. Alone: the order of all explanations may "
        "come from one kind being rated higher, that within a kind does not."
    )
    if encoder is not None and set(comparable) & set(questions):
        caption += f" paper: {SOURCE}, Table 1, mean ± deviation over 5 splits of its 21,110 rated explanations."
    orders = {
        "measure": [*MEASURES, *kinds.values()],
        "label": [*MODELS, *frame["label"]],
        "question": questions,
    }
    return table("table-1", title, frame, "measure label", "question", caption, **orders)


def _panels(count: int) -> tuple[Figure, list[Any]]:
    columns = min(ACROSS, count)
    n_rows = math.ceil(count / columns)
    # One panel is as wide as two, so that its text is not larger.
    figure = Figure(figsize=(0.5 + 2.2 * ACROSS, 0.6 + 2.1 * n_rows), layout="constrained")
    panels = figure.subplots(n_rows, columns, sharex=True, sharey=True, squeeze=False).ravel()
    for spare in panels[count:]:
        spare.set_visible(False)
    return figure, list(panels[:count])


def explainer_picture(scored: pd.DataFrame) -> Picture:
    """Draw the mean score of each explainer against its mean vote, a panel for each question."""
    by = scored.dropna(subset=["vote"]).groupby(["question", "explainer"])
    points = by.agg({"modality": "last", "vote": "mean", "score": "mean"}).reset_index()
    questions = names(points, "question")
    figure, panels = _panels(len(questions))
    handles: dict[str, Any] = {}
    for panel, question in zip(panels, questions, strict=True):
        for kind, rows in pick(points, question=question).groupby("modality"):
            name = KINDS[str(kind)]
            handles[name] = panel.scatter(
                rows["vote"], rows["score"], color=KIND_COLOURS[name], s=18, zorder=3, linewidths=0
            )
        panel.axline((3, 3), slope=1, color=MUTED, linewidth=1, linestyle="--", zorder=1)
        panel.set(title=question, xlabel="mean vote", ylabel="mean score")
        panel.label_outer()
    add_legend(panels[0], handles)
    caption = "Test explanations by explainer: mean score against mean vote. On the dashed line they are the same."
    return Picture("explainers", figure, caption)


def curves_picture(trained: Mapping[int, Trained]) -> Picture:
    """Draw learning curves, a panel for each question."""
    curves = {seed: pd.DataFrame(of.qwk, columns=list(of.scorer.questions)) for seed, of in trained.items()}
    rows = pd.concat(curves, names=["seed", "epoch"]).reset_index()
    rows = rows[rows["epoch"] % max(1, (rows["epoch"].max() + 1) // EPOCHS) == 0].assign(measure="QWK")
    rows = rows.melt(["seed", "epoch", "measure"], var_name="question").assign(epoch=lambda of: of["epoch"] + 1)
    frame = over_seeds(rows, ["question", "epoch", "measure"], interval=splits_interval)
    questions = names(frame, "question")
    figure, panels = _panels(len(questions))
    for panel, question in zip(panels, questions, strict=True):
        lines(
            pick(frame, question=question), "epoch", "question", percent=False, colours={question: PALETTE[1]}, ax=panel
        )
        panel.set(title=question, xlabel="epoch", ylabel="validation QWK")
        panel.label_outer()
    for legend in list(figure.legends):
        legend.remove()
    caption = "Quadratic weighted kappa on the validation explanations by epoch: mean over splits with 95 % intervals."
    return Picture("curves", figure, caption)


#: Explainers that a picture has room for, and a table that is not folded.
ROOM = 20


def best_first(means: pd.DataFrame, question: Question) -> pd.DataFrame:
    """Return the mean votes on a question, the best first, without a range: what they are held against is paired."""
    rows = pick(means, measure=question.name).dropna(subset=["value"])
    rows = rows.drop(columns=["random_low", "random_high"])
    return rows.sort_values("value", ascending=question.low_is_good, kind="stable")


def said_verdicts(means: pd.DataFrame, compared: pd.DataFrame, ratings: RatedExplanations) -> list[Verdict]:
    """Say how the best explainer of the first question differs from the last and the second, and their mean votes."""
    if not len(means):
        return []
    question = ratings.asked[means["measure"].iloc[0]]
    rows = best_first(means, question).to_dict("records")
    who = "Simulated raters" if ratings.simulated else "People"
    about = f"{question.name}; low is good" if question.low_is_good else question.name
    order = [row[EXPLAINER] for row in rows]
    pairs = turned(pick(compared, what=question.name, a=order, b=order), order)
    verdicts = []
    for place, name in dict([("the last", order[-1]), ("the second", order[1])][: len(order) - 1]).items():
        row = one(pairs.assign(value=pairs["difference"]), a=order[0], b=name)
        if row is not None:
            text = f"{who} on {order[0]}, the best, less {name}, {place} of {len(order)} explainers"
            said = difference_verdict(row)
            verdicts.append(Verdict.of(f"{text} (paired difference of votes, {about})", row, write=number, text=said))
    ends = [rows[0], rows[-1]] if len(rows) > 1 else rows
    return verdicts + [
        Verdict.of(
            f"{who} on {row[EXPLAINER]}, {place} of {len(rows)} explainers (mean vote, {about})", row, write=number
        )
        for row, place in zip(ends, ("the best", "the last"), strict=False)
    ]


def said_section(
    means: pd.DataFrame,
    compared: pd.DataFrame,
    ratings: RatedExplanations,
    questions: Sequence[str],
    votes: str = "mode",
    shares: pd.DataFrame | None = None,
) -> Section:
    """Return explainers compared in pairs, the mean votes by explainer, and the agreement of the raters."""
    question = ratings.asked[questions[0]]
    first = best_first(means, question)
    is_long = len(first) > ROOM
    ends = first if not is_long else pd.concat([first.head(ROOM // 2), first.tail(ROOM // 2)])
    low = "low" if question.low_is_good else "high"
    what = "best and worst explainers" if is_long else "explainers"
    picture = Picture(
        "said",
        dots(ends, EXPLAINER, label=f"mean vote on {question.name} ({low} is good)", percent=False)[0],
        f"What the raters said of the {what}: mean votes with 95 % intervals.",
    )
    pairs = compared_table(means, compared, ratings, questions)
    shown = said_table(means, ratings, questions, votes, shares)
    heading = "What the simulated raters said" if ratings.simulated else "What people said"
    return Section(heading, [pairs, picture, *([] if is_long else [shown])], [shown] if is_long else [])


def compared_table(
    means: pd.DataFrame, compared: pd.DataFrame, ratings: RatedExplanations, questions: Sequence[str]
) -> Table:
    """Return the differences between explainers, each question's best first: as many as a table has room for."""
    orders = {name: best_first(means, ratings.asked[name])[EXPLAINER].tolist() for name in questions}
    pairs = pd.concat(turned(pick(compared, what=name, a=of, b=of), of) for name, of in orders.items())
    best = pd.concat(pick(pairs, what=name, a=of[:1]) for name, of in orders.items())
    of_first = pick(best, what=questions[0])
    ends = pd.concat([of_first.head(ROOM // 2), of_first.tail(ROOM // 2)])
    rows = next((rows for rows in (pairs, best, of_first) if len(rows) <= ROOM), ends)
    known = "by the same raters on the same images" if ratings.raters else "on the same images (mean vote on each)"
    caption = (
        f"Votes {known}, {MIN_VOTE} to {MAX_VOTE}; the first is the one rated better on average."
        f"{low_is_good_in(ratings.asked[name] for name in questions)} p-values are corrected for all pairs of "
        "explainers of a question (Holm); vote_differences.csv has all pairs and questions."
    )
    title = "Explainers compared: difference of votes"
    return comparison_table("explainers-compared", title, rows.reset_index(drop=True), number, caption)


def said_table(
    means: pd.DataFrame,
    ratings: RatedExplanations,
    questions: Sequence[str],
    votes: str,
    shares: pd.DataFrame | None,
) -> Table:
    """Return mean votes by explainer (row) and question (column), and the agreement of the raters."""
    order = best_first(means, ratings.asked[questions[0]])[EXPLAINER].tolist()
    kinds = vote_means(ratings, questions, np.array([f"all {KINDS[kind]}" for kind in ratings.modalities]))
    parts = [with_texts(means.assign(question=means["measure"]), number)]
    if kinds[EXPLAINER].nunique() > 1:
        parts.append(with_texts(kinds.assign(question=kinds["measure"]), number))
    if is_release(ratings):
        printed = pick(paper_table("text"), measure="vote", question=list(questions))
        parts.append(with_texts(printed.assign(explainer="paper, all"), number))
    agreement = rater_agreement(ratings, questions, votes)
    parts.append(with_texts(agreement.assign(question=agreement["measure"]), number))
    if shares is not None and len(shares):
        to = shares["random_high"].map(percent)
        text = shares["value"].map(percent) + " % (shuffled: to " + to + " %)"
        parts.append(shares.assign(explainer="share of the variance between explainers", low=np.nan, text=text))
    frame = pd.concat(parts, ignore_index=True)
    over = "raters and images" if ratings.raters else "images; it is not known who gave which vote"
    caption = (
        f"Means over explanations of the mean vote on each, {MIN_VOTE} to {MAX_VOTE}: each explanation counts once, "
        f"however many voted on it. Small numbers are 95 % intervals over {over}."
        f"{low_is_good_in(ratings.asked[name] for name in questions)} Reliability: 0 if raters agree by chance alone, "
        "1 if they all say the same."
    )
    orders = {EXPLAINER: [*order, *frame[EXPLAINER]], "question": questions}
    return table("said", "Mean vote by explainer", frame, EXPLAINER, "question", caption, number, **orders)
