"""The page of scorers that were trained and tested over several splits, with people's votes or simulated raters'."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from quantus_concepts.datasets.ratings.explanations import QUESTIONS
from quantus_concepts.datasets.ratings.rated import RatedExplanations
from quantus_concepts.datasets.ratings.split import PARTS
from quantus_concepts.functional.votes import MAX_VOTE, MIN_VOTE
from quantus_concepts.pasta.encoders.open_clip_encoder import PRESETS
from quantus_concepts.studies._kit.charts import Bars, Chart, Curves, tidy
from quantus_concepts.studies._kit.findings import count_range, number, with_noun
from quantus_concepts.studies._kit.page import Page, Section
from quantus_concepts.studies._kit.results import names, pick
from quantus_concepts.studies._kit.run import Run
from quantus_concepts.studies._kit.tables import Table
from quantus_concepts.studies.pasta.applications import application_answers, application_findings, application_sections
from quantus_concepts.studies.pasta.evaluation import SplitResult, over_splits
from quantus_concepts.studies.pasta.findings import (
    SHARE,
    answers,
    findings,
    in_cells,
    kind_votes,
    paper_table,
    stack,
    study_page,
    summarise_splits,
    whole_percent,
)
from quantus_concepts.studies.pasta.options import (
    CEILING,
    HUMAN,
    KINDS,
    MEASURES,
    MODELS,
    PAPER_MEASURES,
    REGRESSORS,
    SCORER,
    SHUFFLED,
    SIMULATED,
    SIMULATED_HUMAN,
    TABLE_1_SOURCE,
)

FITTED = tuple(REGRESSORS.values())
#: All models but the regressors.
TRAINED = tuple(model for model in MODELS if model not in FITTED)


def training_page(
    title: str, frame: pd.DataFrame, run: Run[Any], votes: str = "mode", encoder: str | None = None
) -> Page:
    """Declare the page; its facts are the ratings and the splits. `encoder` is one of which the paper has figures."""
    ratings: RatedExplanations = run.facts["ratings"]
    results: Sequence[SplitResult] = run.facts["splits"]
    simulated, means = ratings.simulated, summarise_splits(frame)
    encoder = encoder if encoder in PRESETS else None
    paper = {} if simulated else paper_rows(encoder)
    note, key = agreement_note(frame), agreement_key(means, bool(paper))
    agreement = measure_table("Agreement with the votes", note, means, MEASURES, TRAINED, paper, key, counts(frame))
    main = measure_table(
        "Scores and votes of unseen images and explainers",
        f"Mean over {with_noun(frame['seed'].nunique(), 'split')}; deviations are in report.html."
        + (" The ceiling is what the raters' own noise allows." if CEILING in set(means["model"]) else ""),
        means,
        PAPER_MEASURES,
        MODELS,
        paper,
    )
    points = explainer_points(results, ratings)
    orientation = [orientation_table(run.options.questions, encoder)] if simulated else []
    sections = [
        Section(
            "Does it predict the votes?",
            tables=[agreement, ceiling_table(means, simulated), kind_table(frame, means)],
            charts=[measure_chart(frame, means, "SCC", simulated), explainer_chart(points, simulated)],
            folded=[explainer_table(points, simulated), *orientation],
        ),
        Section("Kappa and squared error", charts=[measure_chart(frame, means, name, simulated) for name in ERRORS]),
        Section("Is the network needed?", tables=[regressor_table(means, encoder, simulated)]),
        Section("The votes", tables=[votes_table(ratings, run.options.questions)], charts=votes_charts(ratings, votes)),
        Section("Splits and training", tables=[split_table(results)], charts=[curve_chart(results)]),
        *application_sections(run.facts, run.frames, simulated),
    ]
    return study_page(
        title,
        [*findings(means, results, ratings, votes), *application_findings(run.facts, run.frames, simulated)],
        [section for section in sections if any(len(table.frame) for table in section.tables) or section.charts],
        simulated,
        main=[main],
        answers=[*answers(means), *application_answers(run.facts, run.frames)],
        source=f"Method and figures of the paper: {TABLE_1_SOURCE}.",
        template="pasta/page.html.j2",
        content={
            "seeds": [result.seed for result in results],
            "votes": votes,
            "questions": [QUESTIONS[name] for name in QUESTIONS if name in set(frame["question"])],
            "has_ceiling": CEILING in set(means["model"]),
            "simulated": simulated,
        },
    )


def paper_rows(encoder: str | None) -> dict[str, pd.DataFrame]:
    """Return the comparable rows of Table 1: the scorer's only where the encoder is the same."""
    printed = paper_table(1)
    rows = {HUMAN: "human"} | ({SCORER: encoder} if encoder else {})
    return {model: pick(printed, row=row).assign(label=f"paper, {row}") for model, row in rows.items()}


def measure_table(
    title: str,
    note: str,
    means: pd.DataFrame,
    measures: Iterable[str],
    models: Sequence[str],
    paper: Mapping[str, pd.DataFrame],
    key: str = "",
    heads: Mapping[str, str] | None = None,
) -> Table:
    """Return means and deviations by measure and model, followed by the paper's."""
    parts = [means.head(0)]
    for measure in measures:
        for model in models:
            ours = pick(means, model=model, measure=measure, modality="all").sort_values("question")
            theirs = paper.get(model, ours.head(0))
            theirs = pick(theirs, measure=measure, question=list(ours["question"]))
            parts += [rows.assign(group=MEASURES[measure]) for rows in (ours.assign(label=model), theirs)]
    cells = in_cells(stack(parts), small=["deviation"])
    return Table(title, note, cells, ["group", "label"], ["question"], heads=heads or {}, controls=[SHUFFLED], key=key)


def agreement_note(frame: pd.DataFrame) -> str:
    """Return what the numbers of the main table are of."""
    seeds = frame["seed"].nunique()
    return (
        "Of explanations whose image and explainer were not seen in training, on the scale from 1 to 5. "
        f"Mean{' ± standard deviation' if seeds > 1 else ''} over {with_noun(seeds, 'split')}."
    )


def agreement_key(means: pd.DataFrame, paper: bool) -> str:
    """Return what the rows of the main table are."""
    models = set(means["model"])
    parts = ["n: test explanations of a split."]
    if SHUFFLED in models:
        parts.append("Grey: the control, trained on shuffled votes.")
    if CEILING in models:
        parts.append("Ceiling: what the raters' own noise allows any scorer.")
    if paper:
        parts.append(f"paper: {TABLE_1_SOURCE}; votes joined by their mode.")
    return " ".join(parts)


def counts(frame: pd.DataFrame) -> dict[str, str]:
    """Return how many test explanations there are of each question."""
    groups = pick(frame, model=SCORER, measure="SCC", modality="all").groupby("question")["n"]
    return {question: count_range(counts) for question, counts in groups}


def _label_rows(rows: pd.DataFrame, label: str, write: Callable[[float], str] = number) -> pd.DataFrame:
    return in_cells(rows.sort_values("question"), write, small=["interval"]).assign(label=label)


def ceiling_table(means: pd.DataFrame, simulated: bool) -> Table:
    """Return which share of what the raters' noise allows is reached, with 95 % intervals over splits."""
    parts = [means.head(0)]
    if CEILING in set(means["model"]):
        of_all = pick(means, modality="all")
        parts += [_label_rows(pick(of_all, model=model, measure="SCC"), model) for model in (SCORER, CEILING)]
        parts.append(_label_rows(pick(of_all, measure=SHARE), SHARE, whole_percent))
        parts.append(_label_rows(pick(of_all, model=SHUFFLED, measure="SCC"), SHUFFLED))
    return Table(
        "Share of the ceiling",
        "Spearman's correlation of scores with the joined votes, compared with that of votes without the raters' noise."
        if simulated
        else "Spearman's correlation of scores with the joined votes, with an estimate from how far the raters agree.",
        stack(parts),
        ["label"],
        ["question"],
        controls=[SHUFFLED],
        key="Small numbers are 95 % intervals over splits, where there are at least 3. The share is taken split by "
        "split.",
    )


def kind_table(frame: pd.DataFrame, means: pd.DataFrame) -> Table:
    """Return Spearman's correlation among maps alone and among concepts alone."""
    parts = [means.head(0)]
    for kind, name in KINDS.items():
        group = f"{name.capitalize()} alone, {count_range(pick(frame, measure='SCC', modality=kind)['n'])}"
        of_kind = pick(means, measure="SCC", modality=kind)
        parts += [_label_rows(pick(of_kind, model=model), model).assign(group=group) for model in TRAINED]
    return Table(
        "Within one kind",
        "Spearman's correlation of scores with the joined votes: an order of all explanations may come from one kind "
        "being rated higher than the other, this one does not.",
        stack(parts),
        ["group", "label"],
        ["question"],
        controls=[SHUFFLED],
        key="Small numbers are 95 % intervals over splits, where there are at least 3.",
    )


def regressor_table(means: pd.DataFrame, encoder: str | None, simulated: bool) -> Table:
    """Return the scoring functions side by side, as the paper's Table 17."""
    fitted = [model for model in FITTED if model in set(means["model"])]
    models = (SCORER, *fitted) if fitted else ()
    paper = {}
    if encoder == "siglip" and not simulated:
        printed = paper_table(17)
        paper = {model: pick(printed, row=model).assign(label=f"paper, {model}") for model in models}
    return measure_table(
        "Scoring functions",
        "The network and three regressors on the same embeddings. Mean ± standard deviation over splits.",
        means,
        PAPER_MEASURES,
        models,
        paper,
        f"paper: {TABLE_1_SOURCE.split(',')[0]}, Table 17, on SigLIP's embeddings, Q1." if paper else "",
    )


def orientation_table(questions: Sequence[str], encoder: str | None = None) -> Table:
    """Return the paper's figures for themselves, where ours cannot be compared with them."""
    rows = [encoder or "siglip", "human"]
    paper = pick(paper_table(1), row=rows, measure=list(PAPER_MEASURES), question=list(questions))
    paper = paper.assign(group=paper["measure"].map(MEASURES), place=paper["row"].map(rows.index))
    return Table(
        "For orientation: the paper",
        f"{TABLE_1_SOURCE}. People's votes on explanations of photographs: not comparable with the numbers of this "
        "run.",
        in_cells(paper.sort_values("place", kind="stable"), small=["deviation"]),
        ["group", "row"],
        ["question"],
    )


def split_table(results: Sequence[SplitResult]) -> Table:
    """Return how many explanations, images and explainers each part of each split has."""
    rows = []
    for result in results:
        split, sizes = result.split, {part: len(getattr(result.split, part)) for part in PARTS}
        for part, size in sizes.items():
            small = f"{len(split.images[part])} images, {len(split.explainers[part])} explainers"
            rows.append((f"seed {result.seed}", part, str(size), small))
        total = sum(sizes.values()) + split.dropped
        rows.append((f"seed {result.seed}", "left out", str(split.dropped), f"of {total}"))
    return Table(
        "Splits",
        "Explanations in each part. No image and no explainer is in two parts; explanations whose image and explainer "
        "fall in different parts are left out.",
        pd.DataFrame(rows, columns=["label", "part", "text", "small"]),
        ["label"],
        ["part"],
    )


def votes_table(ratings: RatedExplanations, questions: Sequence[str]) -> Table:
    """Return how many votes there are and how many are missing."""
    voted = ~np.isnan(ratings.votes[:, :, [list(QUESTIONS).index(question) for question in questions]])
    voters = voted.sum(1)
    counts = {
        "votes": voted.sum((0, 1)),
        "missing": (~voted).sum((0, 1)),
        "explanations without a vote": (voters == 0).sum(0),
        "with a single vote": (voters == 1).sum(0),
    }
    frame = pd.DataFrame(counts, index=list(questions)).rename_axis("question").reset_index()
    places = voted.shape[1]
    return Table(
        "Votes",
        f"{len(ratings)} explanations of {len(set(ratings.image_ids.tolist()))} images by "
        f"{len(set(ratings.explainer_ids.tolist()))} explainers; "
        f"{'a single rater' if places == 1 else f'up to {places} raters'} for each.",
        frame.melt("question", var_name="label"),
        ["label"],
        ["question"],
        write=lambda value: str(int(value)),
        key="A missing vote is left out for its question alone.",
    )


#: Okabe and Ito's colours, which colour-blind readers can distinguish.
COLOURS = {
    SCORER: "#0072B2",
    "ridge": "#56B4E9",
    "lasso": "#009E73",
    "SVM": "#CC79A7",
    SHUFFLED: "#9A9A9A",
    HUMAN: "#E69F00",
    SIMULATED_HUMAN: "#E69F00",
    CEILING: "#D55E00",
}
#: Baselines that are drawn as a line across the bars.
LINES = {HUMAN: "-", SIMULATED_HUMAN: "-", CEILING: (0, (4, 1.5))}
KIND_COLOURS = {"maps": "#0072B2", "drawings": "#56B4E9", "concepts": "#E69F00"}
#: Epochs of a learning curve that are drawn, at most, and panels in a row.
EPOCHS, ACROSS = 20, 3
#: Measures with a chart of their own section.
ERRORS = ("QWK", "MSE")
CAPTIONS = {
    "SCC": "Spearman's correlation of scores with joined votes, of unseen explanations. Bars are means over splits "
    "with 95 % intervals, points the splits.",
    "QWK": "Quadratic weighted kappa of rounded scores and joined votes, of unseen explanations.",
    "MSE": "Mean squared error on the scale from 1 to 5, of unseen explanations.",
}


def measure_chart(frame: pd.DataFrame, means: pd.DataFrame, measure: str, simulated: bool) -> Chart:
    """Draw a measure of each question: scorers as bars, baselines as lines across them, every split as a point."""
    label = f"{measure} ({'lower' if measure == 'MSE' else 'higher'} is better)"
    rows = pick(means, measure=measure, modality="all").sort_values("question", kind="stable")
    bars = Bars(
        frame=rows,
        groups="question",
        series="model",
        label=f"{label}\n{SIMULATED}" if simulated else label,
        order=MODELS,
        colours=COLOURS,
        lines={name: style for name, style in LINES.items() if name in set(rows["model"])},
        reference=(0.0, ""),
        singles=pick(frame, measure=measure, modality="all"),
        write=None,
    )
    return Chart(measure.lower(), CAPTIONS[measure], bars)


def explainer_points(results: Sequence[SplitResult], ratings: RatedExplanations) -> pd.DataFrame:
    """Return mean vote and score of each explainer by question, in the splits that never saw it in training."""
    parts = []
    for result in results:
        test = result.split.test
        for column, question in enumerate(result.training.scorer.questions):
            part = {"question": question, "explainer": ratings.explainer_ids[test], "kind": ratings.modalities[test]}
            parts.append(pd.DataFrame(part | {"vote": result.targets[:, column], "score": result.scores[:, column]}))
    groups = pd.concat(parts).dropna(subset=["vote"]).groupby(["question", "explainer"])
    return groups.agg({"kind": "last", "vote": "mean", "score": "mean"}).reset_index()


def explainer_chart(points: pd.DataFrame, simulated: bool) -> Chart:
    """Draw the mean score of each explainer against its mean vote, a panel for each question."""
    questions = names(points, "question")
    columns = min(ACROSS, len(questions))
    n_rows = math.ceil(len(questions) / columns)
    figure = Figure(figsize=(0.6 + 2.6 * columns, 0.6 + 2.5 * n_rows), layout="constrained")
    panels = figure.subplots(n_rows, columns, sharex=True, sharey=True, squeeze=False).ravel()
    for panel, question in zip(panels, questions, strict=False):
        for kind, rows in pick(points, question=question).groupby("kind"):
            name = KINDS[str(kind)]
            panel.scatter(
                rows["vote"], rows["score"], color=KIND_COLOURS[name], s=18, label=name, zorder=3, linewidths=0
            )
        panel.axline((3, 3), slope=1, color="#9A9A9A", linewidth=1, linestyle="--", zorder=1)
        panel.set(title=question, xlabel=f"mean vote ({SIMULATED})" if simulated else "mean vote", ylabel="mean score")
        panel.label_outer()
        tidy(panel)
    for spare in panels[len(questions) :]:
        spare.set_visible(False)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper right", ncols=len(KINDS), frameon=False)
    caption = "Explainers that were never seen in training: mean score against mean vote. On the dashed line they are "
    return Chart("explainers", f"{caption}the same.", figure)


def explainer_table(points: pd.DataFrame, simulated: bool) -> Table:
    """Return mean score and vote of each explainer that was never seen in training."""
    cells = points.assign(
        text=points["score"].map(number), small="vote " + points["vote"].map(number), kind=points["kind"].map(KINDS)
    )
    return Table(
        "Explainers never seen in training",
        "Mean score, and below it the mean joined vote.",
        cells.sort_values(["kind", "question", "vote"], ascending=[False, True, False], kind="stable"),
        ["kind", "explainer"],
        ["question"],
        unverified=SIMULATED if simulated else "",
    )


def curve_chart(results: Sequence[SplitResult]) -> Chart:
    """Draw learning curves, a panel for each question."""
    rows = [
        {"epoch": point["epoch"], "question": question, "value": value, "measure": "QWK"}
        for result in results
        for point in result.training.curve[:: max(1, len(result.training.curve) // EPOCHS)]
        for question, value in point["qwk"].items()
    ]
    frame = over_splits(pd.DataFrame(rows), ["question", "epoch", "measure"])
    curves = Curves(
        frame=frame,
        x="epoch",
        series="measure",
        panels="question",
        across=min(ACROSS, frame["question"].nunique()),
        label_x="epoch",
        label="validation QWK",
        colours={"QWK": COLOURS[SCORER]},
    )
    caption = "Quadratic weighted kappa on the validation explanations by epoch: mean over splits with 95 % intervals."
    return Chart("curves", caption, curves)


def votes_charts(ratings: RatedExplanations, votes: str) -> list[Chart]:
    """Draw the mean votes by kind, as the paper's Figure 4, where anybody voted."""
    means = kind_votes(ratings, votes)
    labels = {name: f"{name}\n(low is good)" if question.low_is_good else name for name, question in QUESTIONS.items()}
    bars = Bars(
        frame=means.assign(kind=means["kind"].map(KINDS), question=means["question"].map(labels)),
        groups="question",
        series="kind",
        label=f"mean vote\n{SIMULATED}" if ratings.simulated else "mean vote",
        colours=KIND_COLOURS,
        base=MIN_VOTE,
        limits=(MIN_VOTE, MAX_VOTE),
        write=None,
    )
    caption = "Mean joined vote by kind of explanation, with 95 % intervals over images."
    return [Chart("votes", caption, bars)] if len(means) else []
