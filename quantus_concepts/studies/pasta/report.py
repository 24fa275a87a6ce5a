"""The report of scorers that were trained over several splits, and what the reports of all PASTA commands share."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from quantus_concepts.datasets.ratings.explanations import QUESTIONS, ConceptExplanation, MapExplanation
from quantus_concepts.datasets.ratings.rated import RatedExplanations
from quantus_concepts.datasets.ratings.split import PARTS
from quantus_concepts.functional import paired_difference
from quantus_concepts.functional.statistics.intervals import relation, t_interval
from quantus_concepts.functional.statistics.votes import MAX_VOTE, MIN_VOTE
from quantus_concepts.pasta.applications.mixture import Mixture, plot_mixture
from quantus_concepts.pasta.encoders.open_clip_encoder import PRESETS
from quantus_concepts.studies._kit.comparisons import adjusted, comparison_table
from quantus_concepts.studies._kit.plots import MUTED, PALETTE, add_legend, dots, lines
from quantus_concepts.studies._kit.report import Picture, Report, Section, Table, Verdict, Writer, number
from quantus_concepts.studies._kit.results import PAPER, load_paper, names, one, pick, with_random_range
from quantus_concepts.studies.pasta.cards import GalleryRow, draw_gallery, pixels, shown_picture, top_concepts
from quantus_concepts.studies.pasta.material import EMBEDDED
from quantus_concepts.studies.pasta.scorers import (
    CEILING,
    HUMAN,
    MEASURES,
    PAPER_MEASURES,
    REGRESSORS,
    SCORER,
    SHUFFLED,
    SIMULATED_HUMAN,
    Plan,
    Trained,
    best_seed,
    over_splits,
    shuffled_ranges,
)
from quantus_concepts.verdicts import ABOVE_ZERO, BELOW_ZERO, NOT_SHOWN, UNKNOWN

three = partial(number, decimals=3)
#: Order of the rows.
MODELS = (SCORER, *REGRESSORS.values(), HUMAN, SIMULATED_HUMAN, CEILING, SHUFFLED)
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
#: Explanations on either end of the galleries by score, names of concepts among them, and pixels of a drawing.
N_RANKED, N_NAMED, RANKED_SIZE = 6, 6, 224
#: Epochs of a learning curve that are drawn, at most, and panels in a row.
EPOCHS, ACROSS = 20, 2
#: Ceiling below which raters hardly agree.
HARDLY = 0.1
CHOICE, AVERAGE = "mixture", "average of explainers"
MEAN_COLUMNS = ["name", "mean", "low", "high", "n", "difference", "difference_low", "difference_high"]
READING = {
    "Score": "Predicted rating from 1 to 5. A scorer learns from votes on maps, drawings and lists of concepts alike, "
    "and is tested on explanations whose image and explainer are both new to it.",
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
TRAINED_RANGE = "The 95 % interval over the same splits of scorers that were trained on shuffled votes."
SHUFFLED_RANGE = "Where 95 % of the means over splits lie when the votes on the test explanations are shuffled."


@dataclass(frozen=True)
class Uses:
    """What came of the uses of a score: tables, and pictures of the steered RISE and of perturbed images."""

    question: str
    mixture: Mixture
    faithfulness: pd.DataFrame
    steering: pd.DataFrame
    correlations: pd.DataFrame
    steered: list[GalleryRow]
    light: list[GalleryRow]
    strong: list[GalleryRow]

    @property
    def frames(self) -> dict[str, pd.DataFrame]:
        """The tables, as files have them."""
        wins = sorted(self.mixture.wins.items(), key=lambda pair: -pair[1])
        steering = self.steering[self.steering["measure"] == "score"].reindex(columns=MEAN_COLUMNS)
        return {
            "wins": pd.DataFrame(wins, columns=["explainer", "images"]),
            "faithfulness": self.faithfulness,
            "steering": steering,
            "correlations": self.correlations,
        }


def paper_table(table: int | str) -> pd.DataFrame:
    """Return a table of the paper as it is printed: model ("paper"), row, question, measure, value, deviation, p."""
    paper = load_paper("quantus_concepts.studies.pasta", table=str, row=str, deviation=float, p=float)
    return pick(paper, table=str(table)).reset_index(drop=True)


def is_release(ratings: RatedExplanations) -> bool:
    """Whether these are the published ratings."""
    return set(ratings.datasets.tolist()) == RELEASE[0] and len(ratings) >= RELEASE[1] and not ratings.simulated


def banner_of(ratings: RatedExplanations, encoder: str = "") -> str:
    """Return the warning of a page whose numbers say nothing about people, or are not comparable with the paper's."""
    if ratings.simulated:
        return f"Simulated raters. {SIMULATED_TEXT}"
    texts = (
        [] if is_release(ratings) else ["These are not the published ratings: the paper's numbers are no reference."]
    )
    if encoder.startswith(EMBEDDED):
        texts.append("The embedded encoder is untrained: it shows how the method works, not how good it is.")
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


def regressor_differences(frame: pd.DataFrame) -> pd.DataFrame:
    """Compare the scorer with each regressor split by split: SCC and MSE; corrected for all (Holm)."""
    rows = []
    of_all = pick(frame, modality="all")
    for measure, question in (
        pick(of_all, model=SCORER, measure=["SCC", "MSE"])[["measure", "question"]].drop_duplicates().to_numpy()
    ):
        same = pick(of_all, measure=measure, question=question)
        by_split = {model: part.set_index("seed")["value"] for model, part in same.groupby("model", sort=False)}
        rows += [
            {"metric": measure, "what": f"{measure}, {question}", "a": SCORER, "b": name}
            | paired_splits(by_split[SCORER], by_split[name])
            for name in REGRESSORS.values()
            if name in by_split
        ]
    return adjusted([pd.DataFrame(rows)])


def table(
    name: str,
    title: str,
    frame: pd.DataFrame,
    rows: str,
    columns: str,
    caption: str = "",
    write: Writer = three,
    /,
    **orders: Iterable[object],
) -> Table:
    """Declare a table with its rows in the orders given by column; names that are not in an order come last."""
    if orders:
        places = {
            key: frame[key].map({value: place for place, value in enumerate(order)}) for key, order in orders.items()
        }
        frame = frame.reset_index(drop=True).loc[
            pd.DataFrame(places).reset_index(drop=True).sort_values([*orders], kind="stable").index
        ]
    frame = frame if "text" in frame else with_texts(frame, write)
    return Table(name, title, frame, rows.split(), [columns], write, caption)


def with_baseline(means: pd.DataFrame, ranges: pd.DataFrame | None = None) -> pd.DataFrame:
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
    encoder: str,
    *,
    used: Uses | None = None,
    correlations: pd.DataFrame | None = None,
) -> Report:
    """Declare the report of a training."""
    questions = names(frame, "question", list(QUESTIONS))
    scored = pick(scores, model=SCORER)
    is_controlled = SHUFFLED in set(frame["model"])
    means = with_baseline(
        over_splits(frame, BY).reset_index(drop=True), None if is_controlled else shuffled_ranges(scored)
    )
    of_all = pick(means, modality="all")
    rater = next((name for name in (HUMAN, SIMULATED_HUMAN) if name in set(frame["model"])), "")
    scc = pick(of_all, measure="SCC", model=[SCORER, rater, CEILING]).sort_values("question", kind="stable")
    ends = ["random_low", "random_high"]
    scc[ends] = scc.groupby("question", sort=False)[ends].transform("first")
    n_splits, mean_votes = frame["seed"].nunique(), kind_votes(ratings, plan.votes)
    sections = [
        Section(
            "Agreement with the votes",
            [table_1(of_all, questions, None if ratings.simulated else encoder), *regressors_table(frame)],
            [orientation_table(questions), splits_table(ratings, plan)],
        ),
        kind_section(means, scored, questions),
        Section("Votes", [votes_picture(mean_votes), votes_table(mean_votes, questions)]),
        Section("Training", [curves_picture(trained)]),
    ]
    if used is not None:
        sections += use_sections(used, scored, trained, ratings)
        correlations = used.correlations
    if correlations is not None and len(correlations):
        sections.append(Section("Other metrics", [correlation_table(correlations)]))
    label = "Spearman's correlation with the votes"
    return Report(
        title,
        [*agreement_verdicts(of_all, questions), *use_verdicts(used)],
        Picture(
            "agreement",
            dots(scc, "question", "model", label=label, percent=False, reference=0)[0],
            f"Agreement with the joined votes (by {plan.votes}) on explanations whose image and explainer are new, "
            f"mean over {n_splits} split{'s' * (n_splits > 1)}. Low is good in Q5.",
        ),
        [section for section in sections if section.parts],
        lead=f"Votes on {len(ratings):,} explanations of {len(set(ratings.image_ids.tolist())):,} images; encoder "
        f"{encoder}.",
        reading={**READING, "Random range": TRAINED_RANGE if is_controlled else SHUFFLED_RANGE}
        | {name: QUESTIONS[name].text for name in questions},
        banner=banner_of(ratings, encoder),
        links={f"{name}.csv": f"{name}.csv" for name in (used.frames if used else ())},
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


def table_1(means: pd.DataFrame, questions: Sequence[str], encoder: str | None) -> Table:
    """Return ours in the form of the paper's Table 1 and, of the models of Table 17, the paper's where comparable."""
    parts = [means.assign(label=means["model"])]
    if encoder is not None:
        parts.append(pick(paper_table(1), row=["human", *([encoder] if encoder in PRESETS else [])]))
        if encoder == "siglip" and set(REGRESSORS.values()) & set(means["model"]):
            parts.append(pick(paper_table(17), row=[*REGRESSORS.values()]))
    parts = [parts[0], *(part.assign(label="paper, " + part["row"]) for part in parts[1:])]
    frame = pick(pd.concat(parts, ignore_index=True), question=list(questions), measure=list(MEASURES))
    title = "Table 1: agreement with the votes on unseen images and explainers"
    caption = (
        "Small numbers are 95 % intervals over splits. MSE: lower is better. "
        f"paper: {SOURCE}, Tables 1 and 17, mean ± deviation over 5 splits of its 21,110 rated explanations."
    )
    orders = {"measure": list(MEASURES), "label": [*MODELS, *frame["label"]], "question": questions}
    return table("table-1", title, frame, "measure label", "question", caption, **orders)


def regressors_table(frame: pd.DataFrame) -> list[Table]:
    """Return how far the scorer is from each regressor on the same splits."""
    compared = regressor_differences(frame)
    caption = (
        "The same test explanations, split by split; MSE: lower is better. p-values are corrected for all rows (Holm)."
    )
    return [comparison_table("regressors", "Scorer less regressor", compared, three, caption)] if len(compared) else []


def orientation_table(questions: Sequence[str]) -> Table:
    """Return the paper's Table 1, where ours cannot be compared with it."""
    paper = pick(paper_table(1), measure=list(PAPER_MEASURES), question=list(questions))
    caption = "People's votes on explanations of photographs; not comparable with votes on other explanations."
    return table("paper", "For orientation: the paper's Table 1", paper, "measure row", "question", caption)


def splits_table(ratings: RatedExplanations, plan: Plan) -> Table:
    """Return how many explanations, images and explainers each part of each split has."""
    rows = []
    for seed, split in plan.splits(ratings).items():
        for part in PARTS:
            counts = f"{len(split.images[part])} images, {len(split.explainers[part])} explainers"
            rows.append((f"seed {seed}", part, size := len(getattr(split, part)), f"{size} ({counts})"))
        rows.append((f"seed {seed}", "left out", split.dropped, str(split.dropped)))
    frame = pd.DataFrame(rows, columns=["split", "part", "value", "text"])
    caption = "No image and no explainer is in two parts; explanations whose two fall in different parts are left out."
    return table("splits", "Explanations in each part of each split", frame, "split", "part", caption)


def kind_section(means: pd.DataFrame, scored: pd.DataFrame, questions: Sequence[str]) -> Section:
    """Return the agreement among maps, drawings and concepts alone, and among the means of explainers."""
    of_kind = pick(means, measure="SCC", modality=list(KINDS), model=[SCORER, SHUFFLED])
    of_kind = of_kind.assign(kind=of_kind["modality"].map(KINDS) + " alone")
    caption = "The order of all explanations may come from one kind being rated higher; this one does not."
    orders = {"modality": list(KINDS), "model": MODELS, "question": questions}
    title = "Correlation (SCC) with the votes within one kind"
    kinds = table("kinds", title, of_kind, "kind model", "question", caption, **orders)
    by = scored.dropna(subset=["vote"]).groupby(["question", "explainer"])
    points = by.agg({"modality": "last", "vote": "mean", "score": "mean"}).reset_index()
    points = points.rename(columns={"modality": "kind"})
    texts = points["score"].map(number) + " / " + points["vote"].map(number)
    listed = points.assign(value=points["score"], text=texts).sort_values(["kind", "question", "vote"], kind="stable")
    title = "Explainers never seen in training: mean score / mean vote"
    folded = [table("explainers-seen", title, listed, "kind explainer", "question")]
    return Section("By kind and explainer", [*([kinds] if len(of_kind) else []), explainer_picture(points)], folded)


def _panels(count: int, width: float = 2.2, height: float = 2.1) -> tuple[Figure, list[Any]]:
    columns = min(ACROSS, count)
    n_rows = math.ceil(count / columns)
    figure = Figure(figsize=(0.5 + width * columns, 0.6 + height * n_rows), layout="constrained")
    panels = figure.subplots(n_rows, columns, sharex=True, sharey=True, squeeze=False).ravel()
    for spare in panels[count:]:
        spare.set_visible(False)
    return figure, list(panels[:count])


def explainer_picture(points: pd.DataFrame) -> Picture:
    """Draw the mean score of each explainer against its mean vote, a panel for each question."""
    questions = names(points, "question")
    figure, panels = _panels(len(questions))
    handles: dict[str, Any] = {}
    for panel, question in zip(panels, questions, strict=True):
        for kind, rows in pick(points, question=question).groupby("kind"):
            name = KINDS[str(kind)]
            handles[name] = panel.scatter(
                rows["vote"], rows["score"], color=KIND_COLOURS[name], s=18, zorder=3, linewidths=0
            )
        panel.axline((3, 3), slope=1, color=MUTED, linewidth=1, linestyle="--", zorder=1)
        panel.set(title=question, xlabel="mean vote", ylabel="mean score")
        panel.label_outer()
    add_legend(panels[0], handles)
    caption = "Explainers never seen in training: mean score against mean vote. On the dashed line they are the same."
    return Picture("explainers", figure, caption)


def curves_picture(trained: Mapping[int, Trained]) -> Picture:
    """Draw learning curves, a panel for each question."""
    curves = {seed: pd.DataFrame(of.qwk, columns=list(of.scorer.questions)) for seed, of in trained.items()}
    rows = pd.concat(curves, names=["seed", "epoch"]).reset_index()
    rows = rows[rows["epoch"] % max(1, (rows["epoch"].max() + 1) // EPOCHS) == 0].assign(measure="QWK")
    rows = rows.melt(["seed", "epoch", "measure"], var_name="question").assign(epoch=lambda of: of["epoch"] + 1)
    frame = over_splits(rows, ["question", "epoch", "measure"])
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


def image_means(ratings: RatedExplanations, question: str, kinds: Sequence[str], votes: str) -> pd.Series:
    """Return the mean vote on each image's explanations of some kinds."""
    joined = pd.Series(ratings.targets(votes)[:, list(QUESTIONS).index(question)], index=ratings.image_ids)
    return joined[np.isin(ratings.modalities, list(kinds))].dropna().groupby(level=0).mean()


def kind_votes(ratings: RatedExplanations, votes: str = "mode") -> pd.DataFrame:
    """Return the mean vote by question and kind with its interval over images, and maps minus concepts of an image."""
    rows = []
    for question in ratings.questions:
        for kind, name in KINDS.items():
            values = image_means(ratings, question, [kind], votes).to_numpy()
            if values.size:
                rows.append((question, name, values.mean(), *t_interval(values, (MIN_VOTE, MAX_VOTE)), values.size))
        maps, concepts = (image_means(ratings, question, kinds, votes) for kinds in (("map", "drawing"), ("concepts",)))
        paired = (maps - concepts).dropna().to_numpy()
        if paired.size:
            ends = t_interval(paired, (-math.inf, math.inf))
            rows.append((question, "maps minus concepts", paired.mean(), *ends, paired.size))
    return pd.DataFrame(rows, columns=["question", "kind", "value", "low", "high", "n"])


def votes_picture(means: pd.DataFrame) -> Picture:
    """Draw the mean votes by kind, as the paper's Figure 4."""
    means = means[means["kind"] != "maps minus concepts"]
    labels = {name: f"{name} (low is good)" if question.low_is_good else name for name, question in QUESTIONS.items()}
    figure, _ = dots(
        means.assign(question=means["question"].map(labels)),
        "question",
        "kind",
        label="mean vote, 1 to 5",
        percent=False,
        colours=KIND_COLOURS,
    )
    return Picture("votes", figure, "Mean joined vote by kind of explanation, with 95 % intervals over images.")


def votes_table(means: pd.DataFrame, questions: Sequence[str]) -> Table:
    """Return mean votes by kind."""
    caption = "Small numbers are 95 % intervals over images. maps minus concepts: of the same image."
    means = pick(means, question=list(questions))
    return table("votes-by-kind", "Mean votes by kind", means, "kind", "question", caption, number)


def use_verdicts(used: Uses | None) -> list[Verdict]:
    """Ask whether the choice by the score is more faithful than a random choice, the average of explainers."""
    if used is None:
        return []
    rows = used.faithfulness.assign(
        value=used.faithfulness["difference"],
        low=used.faithfulness["difference_low"],
        high=used.faithfulness["difference_high"],
    )
    row = one(rows, name=AVERAGE)
    question = "Is the explainer chosen by score more faithful than the average? (difference)"
    if row is None:
        return []
    words = {"above": ABOVE_ZERO, "at": NOT_SHOWN, "below": BELOW_ZERO, "": UNKNOWN}
    text = words[relation((row["low"], row["high"]), (0.0, 0.0))]
    return [Verdict.of(question, row, write=three, text=text)]


def ranked_rows(scored: pd.DataFrame, ratings: RatedExplanations, question: str) -> dict[str, list[GalleryRow]]:
    """Return the explanations of one split that score best and worst, the best and the worst first."""
    low_is_good = QUESTIONS[question].low_is_good
    ranked = pick(scored, question=question).sort_values("score", ascending=low_is_good, kind="stable")
    n = max(1, min(N_RANKED, len(ranked) // 2))

    def row_of(row: dict[Hashable, Any]) -> GalleryRow:
        explanation = ratings.explanations[row["item"]]
        label = f"{row['explainer']}: score {row['score']:.2f}, vote {number(row['vote'])}"
        if isinstance(explanation, ConceptExplanation):
            return GalleryRow(label, ["", "\n".join(name for name, _ in top_concepts(explanation)[:N_NAMED])])
        image: np.ndarray | str = ""
        size = RANKED_SIZE
        if isinstance(explanation, MapExplanation):
            image, size = pixels(explanation.image), max(explanation.image.shape[:2])
        return GalleryRow(label, [image, pixels(shown_picture(explanation, size))])

    ends = {"best": ranked[:n], "worst": ranked[::-1][:n]}
    return {name: [row_of(row) for row in rows.to_dict("records")] for name, rows in ends.items()}


def use_sections(
    used: Uses, scored: pd.DataFrame, trained: Mapping[int, Trained], ratings: RatedExplanations
) -> list[Section]:
    """Return a section for each use of the score."""
    ranked = [
        Picture(
            name, draw_gallery(["image", "explanation"], rows), f"Explanations with the {name} score ({used.question})."
        )
        for name, rows in ranked_rows(pick(scored, seed=best_seed(trained)), ratings, used.question).items()
    ]
    faithful = used.faithfulness.assign(value=used.faithfulness["mean"])
    faithful["name"] = faithful["name"].replace({CHOICE: "chosen by the score"})
    bars = pd.concat([faithful.head(2), faithful.iloc[2:].sort_values("value", ascending=False, kind="stable")])
    chosen = Picture(
        "faithfulness",
        dots(bars, "name", label="faithfulness correlation (higher is better)", percent=False, reference=0)[0],
        "What the choice does to faithfulness: means over images with 95 % intervals.",
    )
    pictures = [
        Picture(name, draw_gallery(["image", "perturbed", "map before", "map after"], rows), caption)
        for name, rows, caption in (
            (
                "light",
                used.light,
                "Light perturbations (Q5): the explanation should stay. Beside each name its magnitude.",
            ),
            ("strong", used.strong, "Strong perturbations that change the prediction (Q6): so should the explanation."),
        )
        if rows
    ]
    columns = ["image", *(f"λ = {name}" for name in names(used.steering, "name"))]
    steered = Picture("steering", draw_gallery(columns, used.steered), "RISE with growing weight λ of the score.")
    return [
        Section("Best and worst explanations", ranked),
        Section(
            "Choosing the explainer for each image",
            [chosen, Picture("wins", plot_mixture(used.mixture)[0], "How often each explainer has the best score.")],
            [faithfulness_table(faithful)],
        ),
        Section("Steering RISE", [steering_table(used.steering), steered]),
        Section("Perturbations", pictures),
    ]


def faithfulness_table(faithful: pd.DataFrame) -> Table:
    """Return the mean faithfulness of the choice, of each explainer alone and of their average."""
    ends = {"value": "difference", "low": "difference_low", "high": "difference_high"}
    difference = faithful.assign(**{name: faithful[column] for name, column in ends.items()}, head="choice minus this")
    frame, printed = (
        pd.concat([faithful.assign(head="mean"), difference]),
        paper_table("text").set_index("row")["value"],
    )
    caption = (
        "Small numbers are 95 % intervals over images; the difference is paired. For orientation, the paper on its own "
        f"images: {printed[CHOICE]:.4f} for the choice, {printed[AVERAGE]:.4f} on average."
    )
    return table(
        "faithfulness-by-explainer", "Faithfulness of the choice and of each explainer", frame, "name", "head", caption
    )


def steering_table(steering: pd.DataFrame) -> Table:
    """Return mean score and faithfulness of steered explanations by the weight of the score."""
    frame = steering.assign(value=steering["mean"], weight="λ = " + steering["name"])
    caption = (
        "Masks are weighted by λ · score + (1 − λ) · class probability; λ = 0, RISE itself, is the baseline. The score "
        "is what steers: that it rises says only that steering works."
    )
    return table("steered-rise", "Steered RISE: mean score and faithfulness", frame, "measure", "weight", caption)


def correlation_table(related: pd.DataFrame) -> Table:
    """Return the correlations of votes with metrics, as the paper's Tables 7 to 9, with its own next to them."""
    printed = pd.concat([paper_table(number_) for number_ in (7, 8, 9)]).assign(metric=lambda rows: rows["row"])
    printed = pick(printed, metric=names(related, "metric"), question=names(related, "question"))
    parts = [printed.assign(label="paper, " + printed["measure"])]
    for name, measure in (("spearman", "SCC"), ("pearson", "PCC")):
        parts.append(related.assign(value=related[name], p=related[f"{name}_p"], label=measure))
    frame = pd.concat(parts, ignore_index=True)
    p_values = ["" if math.isnan(p) else f" (p {'< 0.001' if p < 0.001 else f'= {p:.3f}'})" for p in frame["p"]]
    frame = frame.assign(text=frame["value"].map(number) + p_values)
    title = "Correlation of the joined votes with other metrics of the same explanations"
    caption = (
        "p-values take explanations for independent, which several of one image are not. Low is good in Q5. "
        f"Explanations: {related['n'].min()} to {related['n'].max()}. paper: {SOURCE}, Tables 7 to 9."
    )
    orders = {
        "metric": names(related, "metric"),
        "label": ["SCC", "paper, SCC", "PCC", "paper, PCC"],
        "question": list(QUESTIONS),
    }
    return table("other-metrics", title, frame, "metric label", "question", caption, number, **orders)
