"""The report of the substitution study: verdicts, S+ and S- of every model, the paper's tables, single attributes."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping

import pandas as pd
from matplotlib.figure import Figure

from captum_concepts.texts import readable_name
from quantus_concepts.results.comparison import compare
from quantus_concepts.results.verdicts import ABOVE_ZERO, BELOW_ZERO, difference_verdict
from quantus_concepts.studies._kit.comparisons import READING as DIFFERENCES
from quantus_concepts.studies._kit.comparisons import adjusted, comparison_table
from quantus_concepts.studies._kit.galleries import draw_gallery
from quantus_concepts.studies._kit.plots import INK, PALETTE, WIDTH, dots, lines
from quantus_concepts.studies._kit.report import Picture, Report, Section, Table, Verdict, percent
from quantus_concepts.studies._kit.results import PAPER, UNBOUNDED, arrange, join_seeds, load_paper, one, pick
from quantus_concepts.studies.substitution import kinds
from quantus_concepts.studies.substitution.gallery import Gallery, answer_rows
from quantus_concepts.studies.substitution.kinds import CLASS_HARD, CONTROLS, LABELS, RANDOM, RECITER, SHORT, TRAINED
from quantus_concepts.studies.substitution.vision_language import WITH_NONE, WITHOUT_NONE

#: In place of labels of vision-language models: whether "none" is among the options.
OPTIONS = (WITH_NONE, WITHOUT_NONE)
#: What a number is called in tables.
HEADS = {
    "S+": "S+ (put in: seen)",
    "S-": "S− (taken out: gone)",
    "recital": "class recited",
    "rises": "value rises",
    "selectivity": "selectivity",
    "class kept": "class kept",
    "T_A": "T, attributes of SUB",
    "T": "T, all concepts",
}
#: Questions, of which less than random is good, or more.
QUESTIONS = {
    "S+": "Attribute put in is seen (S+)",
    "S-": "Attribute taken out is gone (S−)",
    "rises": "Value of the attribute put in rises",
    "recital": "Class is recited",
}
#: How the two scores are written, and what files are named.
SIGNS, FILES = {"S+": "S+", "S-": "S−"}, {"S+": "seen", "S-": "gone"}
OF_FILE, GROUP_OF_CONTROLS, OTHERS, CHANCE = "of the file", "controls", "others", "chance"
COLOURS = dict(zip(TRAINED, PALETTE[:6], strict=True))
COLOURS |= {kinds.ORACLE: PALETTE[5], kinds.MEMORISER: PALETTE[6], RECITER: INK}
READING = {
    "S+ and S−": "Each image shows a bird of which one attribute is replaced by another of its group. S+: the one put "
    "in is predicted present. S−: the one taken out, which its class has, is predicted absent. Read both together: "
    "what sees the picture scores 100 and 100, what recites its class 0 and 0, what always says no 0 and 100.",
    "Class recited": "All attributes of the class are predicted present, the one taken out among them. Less is better.",
    "Value rises": "The value of the concept put in is higher after the substitution than before, at any threshold.",
    "Selectivity": "How far the two touched concepts move, compared with all others: 100 where nothing else moves, 50 "
    "where the others move as far.",
    "T": "Concept accuracy on images without a substitution.",
    "Labels": "Per class: a concept is one of its class where most of its images have it (soft: the share that have "
    "it). Per image: the image's own (soft: a quarter of the class's share mixed in).",
    "Random range": "Where 95 % of random directions in place of the post-hoc model's lie, drawn many times. A number "
    "is above or below it where its whole 95 % interval is.",
    "Intervals": "95 %. One seed: over pairs of class and attribute put in (T: over classes), without what another "
    "training would change. Several seeds: Student's t over the seeds.",
    "Post-hoc": "Concept directions found in a backbone that was trained on the classes.",
    "Independent, joint": "A network trained on the concepts alone, or on concepts and classes at once.",
    "Net per concept": "A small network for each concept, side by side: none shares a weight with another.",
    "Embedding": "A concept embedding model: its value is the probability that the concept is present.",
    "Oracle, memoriser": "They know the attributes of every image, or its class, whose attributes it recites.",
    "Recites its class": "Recites the attributes of the class that the backbone predicts: the baseline of reciting.",
    **DIFFERENCES,
    "Source": "Bader et al. (2025), SUB: Benchmarking CBM Generalization via Synthetic Attribute Substitutions.",
}


def joined_substitutions(frame: pd.DataFrame) -> pd.DataFrame:
    """Average over seeds, and add the range of random directions to every number of the other models."""
    rows = join_seeds(
        frame,
        RANDOM,
        lambda row: (0.0, 1.0) if row["metric"] in HEADS else UNBOUNDED,
        ["correlation", "metric", "item_kind", "item"],
    )
    # Vision-language models have another chance, which has a column of its own.
    rows.loc[rows["labels"].isin(OPTIONS), ["random_low", "random_high"]] = math.nan
    return rows


def make_report(
    frame: pd.DataFrame, images: pd.DataFrame, correlation: float, gallery: Gallery | None, *, published: bool
) -> Report:
    """Declare the report; `correlation` is that of the main table, `images` are its scores of images."""
    rows, compared = joined_substitutions(frame), compare_models(images)
    here = pick(rows, correlation=correlation)
    encoders, here = here[here["labels"].isin(OPTIONS)], pick(here, model=[*SHORT])
    every, some = pick(here, item_kind=""), [kinds.POST_HOC, kinds.INDEPENDENT, kinds.EMBEDDING, kinds.SAVED, RANDOM]
    plain = pick(here, labels=[CLASS_HARD, ""], model=some)
    sections = [Section("Seen or recited?", [main_table(every)], [differences_table(compared)])]
    if published:
        sections.append(Section("Beside the paper", [substitution_paper_table(every)]))
    if len(encoders):
        sections.append(Section("Vision-language models", [encoders_table(encoders, published)]))
    if frame["correlation"].nunique() > 1:
        pictures = [draw_curve(pick(rows, item_kind="", model=[*SHORT], metric=metric), metric) for metric in SIGNS]
        sections.append(Section("Where attributes go together", pictures))
    sections.append(Section("Attribute by attribute", [item_table(plain, "group")], [item_table(plain, "attribute")]))
    if gallery is not None:
        caption = (
            "The image before and after, and the options of the touched group that each model (hard labels per class) "
            "predicts for the image after. Green: only the one put in; orange: the one taken out."
        )
        sections.append(
            Section(
                "What was said",
                [Picture("gallery", draw_gallery(*answer_rows(gallery), cell=0.9), caption, wide=True)],
            )
        )
    images, n_seeds = one(every, metric="S+", model=RECITER), frame["seed"].nunique()
    count = 0 if images is None else int(images["n"])
    what = "the images of SUB" if published else "painted birds with one attribute replaced"
    caption = (
        "S+ and S− of the trained models and their labels. The dashed line is the baseline that recites the class the "
        "backbone predicts; an oracle scores 100 in both."
    )
    return Report(
        "Does the model see the concept, or recite its class?",
        verdicts(every, compared),
        Picture("scores", draw_scores(every), caption),
        sections,
        lead=f"{count} substitutions: {what}; {n_seeds} seed{'s' if n_seeds > 1 else ''}.",
        reading=READING,
    )


def model_with_labels(row: Mapping[Hashable, object]) -> str:
    """Name a model with its labels."""
    return f"{row['model']} ({row['labels']})" if row["labels"] else str(row["model"])


def compare_models(images: pd.DataFrame) -> pd.DataFrame:
    """Compare S+ and S- of each trained model with what recites its class, and with the highest, image by image.

    P-values are corrected for the models of a metric (Holm). Several seeds have images of their own: seeds are then
    what is independent, else pairs of class and attribute.
    """
    parts = images["model"].str.partition(kinds.OF).rename(columns={0: "model", 2: "labels"})
    images = images.assign(model=[model_with_labels(row) for row in parts.to_dict("records")])
    images = images[parts["model"].isin([*TRAINED, RECITER])]
    several = images["seed"].nunique() > 1
    if several:
        images = images.assign(image=images.groupby(["seed", "image"]).ngroup())
    results = []
    for metric in SIGNS:
        rows = pick(images, metric=metric)
        means = rows[rows["model"] != RECITER].groupby("model", sort=False)["value"].mean()
        if len(means) and (rows["model"] == RECITER).any():
            results.append(compare(rows, reference=RECITER, clusters="seed" if several else "pair"))
        if len(means) > 1:
            own = rows[rows["model"] != RECITER]
            results.append(compare(own, reference=means.idxmax(), clusters="seed" if several else "pair"))
    return pd.concat(results, ignore_index=True) if results else adjusted([])


def differences_table(compared: pd.DataFrame) -> Table:
    """Return how far models are from what recites its class, and from the highest."""
    rows = compared.assign(what=compared["metric"].map(SIGNS))
    title = "Difference from what recites its class, and from the highest"
    caption = "On the same images, in % and percentage points. p-values are corrected for the models of a score (Holm)."
    return comparison_table("differences", title, rows, percent, caption)


def verdicts(rows: pd.DataFrame, compared: pd.DataFrame) -> list[Verdict]:
    """Return for each question the highest of the trained models against random directions, and the lowest.

    Of S+ and S- in place of the lowest how many are above what recites its class.
    """
    answers = []
    for metric, question in QUESTIONS.items():
        trained = pick(rows, metric=metric, model=list(TRAINED))
        trained = trained[trained["value"].notna()]
        for end, extreme in (("highest", trained["value"].max()), ("lowest", trained["value"].min())):
            tied = trained[trained["value"] == extreme].to_dict("records")
            if not tied or (end == "lowest" and (metric in SIGNS or len(tied) == len(trained))):
                continue
            who = " and ".join(map(model_with_labels, tied)) if len(tied) < 3 else f"{len(tied)} models"
            text = f"{question}, {end} of {len(trained)}: {who}{' (tie)' if len(tied) > 1 else ''}"
            if metric in SIGNS and len(trained) > 1:
                from_highest = pick(compared, metric=metric)
                from_highest = from_highest[from_highest["b"] != RECITER]
                lower = [difference_verdict(row) for row in from_highest.to_dict("records")].count(BELOW_ZERO)
                text += f"; clearly above {lower} of the {len(from_highest)} others"
            said = [difference_verdict(row) for row in pick(compared, metric=metric, b=RECITER).to_dict("records")]
            if said:
                text += f"; {said.count(ABOVE_ZERO)} of {len(said)} above the model that recites its class, "
                text += f"{said.count(BELOW_ZERO)} below"
            verdict = Verdict.of(text, tied[0])
            answers.append(
                verdict if metric != "recital" else Verdict.of(text, tied[0], text=f"{verdict.verdict}, less is better")
            )
    return answers


def draw_scores(rows: pd.DataFrame) -> Figure:
    """Draw S+ and S- of each trained model side by side, over the random range and the baseline that recites."""
    cells = arrange(pick(rows, model=list(TRAINED)), model=TRAINED, labels=(*LABELS, ""))
    cells = cells.sort_values(["model", "labels"], kind="stable")
    labels = cells["labels"].astype(str).str.removeprefix("per ").str.replace(", hard", "")
    cells = cells.assign(name=cells["model"].map(SHORT).astype(str) + ": " + labels)
    figure = Figure(figsize=(WIDTH, 1.3 + 0.24 * cells["name"].nunique()), layout="constrained")
    for ax, (metric, sign) in zip(figure.subplots(1, 2, sharey=True), SIGNS.items(), strict=True):
        dots(pick(cells, metric=metric), "name", label=f"{sign}, %", ax=ax)
        if (recital := one(rows, metric=metric, model=RECITER)) is not None:
            # Over the random range, which `dots` would draw above it.
            ax.axvline(100 * recital["value"], color=INK, linewidth=1.2, linestyle=(0, (4, 3)), zorder=2)
        ax.set(xlim=(-4, 104), xticks=[0, 50, 100])
    for legend in figure.legends[1:]:
        legend.remove()
    return figure


def draw_curve(rows: pd.DataFrame, metric: str) -> Picture:
    """Draw a score over the correlation of attributes in training, of the models that were trained at several."""
    several = rows.groupby(["model", "labels"])["correlation"].transform("nunique") > 1
    figure, ax = lines(
        rows[several].replace({"model": SHORT}),
        "correlation",
        "model",
        label_x="correlation of attributes in training",
        label=f"{SIGNS[metric]}, %",
        order=[*SHORT.values()],
        colours={SHORT[name]: colour for name, colour in COLOURS.items()},
        dashed=[SHORT[name] for name in CONTROLS],
        band=SHORT[RANDOM],
    )
    ax.set_ylim(-4, 104)
    caption = (
        f"{SIGNS[metric]} as the colours of a class go together more in training. A model that learned the company of "
        "an attribute names it by its company."
    )
    return Picture(f"curve-{FILES[metric]}", figure, caption)


def main_table(rows: pd.DataFrame) -> Table:
    """Return the main metrics by labels and model."""
    cells = pick(rows, metric=[name for name in HEADS if name != "T_A"])
    caption = (
        "In %; small: 95 % interval, of random directions where 95 % of them lie. Less is better of class recited."
    )
    return Table("table-1", "All models", by_labels(cells), ["labels", "model"], ["metric"], caption=caption)


def substitution_paper_table(rows: pd.DataFrame) -> Table:
    """Return Table 1 of the paper next to ours, and below it the paper's scores of people."""
    paper = load_paper(__package__).assign(source=PAPER).drop(columns="model").rename(columns={"of": "model"})
    paper = paper[~paper["labels"].isin(OPTIONS)].replace({"labels": {"": OTHERS}})
    ours = pick(rows, metric=["S+", "S-", "T_A", "T"]).assign(source="ours")
    caption = (
        "In %. S+ and S− on SUB; concept accuracy on the test images of CUB-200-2011 for the attributes of SUB and for "
        "all. The paper's models are trained end to end on CUB-200-2011."
    )
    cells = by_labels(pd.concat([ours, paper]))
    return Table(
        "table-paper", "Table 1 of the paper", cells, ["labels", "model"], ["metric", "source"], caption=caption
    )


def encoders_table(rows: pd.DataFrame, published: bool) -> Table:
    """Return S+, S- and how often the option taken out is chosen, each with its chance, as the paper's Table 2."""
    ours = pick(rows, item_kind="", metric=["S+", "S-", "original"]).assign(source="ours")
    parts = [ours, ours.assign(source=CHANCE, value=ours["chance"], low=math.nan, high=math.nan)]
    if published:
        theirs = pick(load_paper(__package__), labels=list(OPTIONS)).drop(columns="model")
        parts.append(theirs.rename(columns={"of": "model"}).assign(source=PAPER))
    cells = pd.concat(parts).replace({"metric": HEADS})
    cells = arrange(
        cells, labels=OPTIONS, source=("ours", CHANCE, PAPER), metric=(HEADS["S+"], HEADS["S-"], "original")
    )
    caption = (
        "In %. The option of the touched group whose text is the most similar to the image is predicted; chance draws "
        "one. Original: the option taken out is chosen, the paper's hallucination. “embedded” is untrained."
    )
    return Table("table-2", "Table 2 of the paper", cells, ["labels", "model"], ["metric", "source"], caption=caption)


def item_table(rows: pd.DataFrame, kind: str) -> Table:
    """Return S+ and S- by attribute or group: one model of each kind, trained with hard labels per class."""
    cells = pick(rows, item_kind=kind, metric=list(SIGNS))
    cells = cells.assign(item=cells["item"].map(readable_name)).replace({"model": SHORT, "metric": SIGNS})
    cells = arrange(cells, metric=[*SIGNS.values()], model=[*SHORT.values()])
    return Table(
        f"{kind}s", f"S+ and S− by {kind}", cells, ["metric", "item"], ["model"], caption="In %; hard labels per class."
    )


def by_labels(cells: pd.DataFrame) -> pd.DataFrame:
    """Arrange cells by the labels of their models, those without any last; with the short names of tables."""
    unlabelled = cells["model"].map({kinds.SAVED: OF_FILE}).fillna(GROUP_OF_CONTROLS)
    cells = cells.assign(labels=cells["labels"].where(cells["labels"] != "", unlabelled))
    cells = cells.replace({"metric": HEADS, "model": SHORT})
    labels, models = [*LABELS, OF_FILE, GROUP_OF_CONTROLS, OTHERS], [*SHORT.values()]
    return arrange(cells, labels=labels, model=models, metric=[*HEADS.values()], source=("ours", PAPER))
