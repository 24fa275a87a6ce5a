"""The report of the substitution study, declared over its frame: answers, findings, tables and charts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from quantus_concepts.metrics.streaming.vision_language import WITH_NONE, WITHOUT_NONE
from quantus_concepts.studies._kit.charts import INK, PALETTE, Chart, Curves, Plane
from quantus_concepts.studies._kit.findings import (
    Finding,
    compared,
    ends,
    leader,
    number,
    percent,
    relation_to,
    said,
    sentence,
    trend,
)
from quantus_concepts.studies._kit.page import Page, Section
from quantus_concepts.studies._kit.results import PAPER, against_control, load_paper, names, one, over_seeds, pick
from quantus_concepts.studies._kit.run import Run
from quantus_concepts.studies._kit.tables import CHANCE, Table, arrange, in_percent, in_percents
from quantus_concepts.studies.substitution.options import (
    CLASS_HARD,
    CONTROLS,
    CURVE,
    EMBEDDING,
    IMAGE_HARD,
    INDEPENDENT,
    JOINT,
    LABELS,
    MEMORISER,
    MODELS,
    ORACLE,
    POST_HOC,
    RANDOM,
    RECITER,
    SAVED,
    SEPARATE,
    SUB,
    TRAINED,
    SubstitutionOptions,
)

#: In place of labels of vision-language models: whether "none" is among the options.
OPTIONS = (WITH_NONE, WITHOUT_NONE)


def model_with_labels(row: pd.Series) -> str:
    """Name a model with its labels."""
    return f"{row['model']} ({row['labels']})" if row["labels"] else str(row["model"])


def trained_rows(rows: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return a number of the trained models, the lowest first."""
    rows = pick(rows, metric=metric, model=list(TRAINED))
    return rows[rows["value"].notna()].sort_values("value", kind="stable")


def answers(frame: pd.DataFrame, correlation: float) -> list[Finding]:
    """Return a short line for each question of the study."""
    rows = pick(frame, correlation=correlation, item_kind="")
    return said(
        Finding(leader_answer(rows, "S+"), "Put in, and seen"),
        Finding(leader_answer(rows, "S-"), "Taken out, and gone"),
        Finding(leader_answer(rows, "rises"), "Its value rises"),
        Finding(recital_answer(rows), "Class recited"),
    )


def leader_answer(rows: pd.DataFrame, metric: str) -> str:
    """Say how many models are above random directions, and which is best."""
    models, control = trained_rows(rows, metric), one(rows, metric=metric, model=RANDOM)
    if models.empty or control is None:
        return ""
    n_above = sum(relation_to(row, control) == "above" for _, row in models.iterrows())
    share = f"{n_above or 'none'} of {len(models)} models"
    best = models.iloc[-1]
    more = f"more often than by random directions ({percent(control['value'])})"
    return f"by {share} {more}; most often by the {model_with_labels(best)}, {percent(best['value'])}"


def recital_answer(rows: pd.DataFrame) -> str:
    """Say how often all of the class's concepts are named, the one taken out among them."""
    models = trained_rows(rows, "recital")
    if models.empty:
        return ""
    low, high = (f"{percent(row['value'])} ({model_with_labels(row)})" for row in (models.iloc[0], models.iloc[-1]))
    return f"in {low} to {high} of the images"


def findings(frame: pd.DataFrame, correlation: float) -> list[Finding]:
    """Return the findings on one correlation, and on the curve, with all intervals."""
    rows = pick(frame, correlation=correlation, item_kind="")
    texts = {
        "Seen": leader(trained_rows(rows, "S+"), "The attribute put in is seen most often by the", model_with_labels),
        "Chance": " ".join(chance_finding(rows, metric, sign) for metric, sign in (("S+", "S+"), ("S-", "S−"))).strip(),
        "Controls": control_finding(rows),
        "Recited": leader(
            trained_rows(rows, "recital"),
            "All the class's concepts, the one taken out among them, are named most often by the",
            model_with_labels,
        ),
        "Labels": label_finding(rows),
        "Moved": leader_finding(
            rows,
            "rises",
            "Whatever the threshold, the value of the concept put in rises from the image before to the image after "
            "most often in the",
        ),
        "Selective": leader_finding(
            rows,
            "selectivity",
            "Selectivity, 1 where only the touched concepts move and 0.5 where all others move as far, is highest in "
            "the",
        ),
        "Correlation": correlation_finding(pick(frame, item_kind="", metric="S+")),
    }
    return said(*(Finding(text, topic) for topic, text in texts.items()))


def chance_finding(rows: pd.DataFrame, metric: str, sign: str) -> str:
    """Say which models score above random directions."""
    models, control = trained_rows(rows, metric), one(rows, metric=metric, model=RANDOM)
    if control is None:
        return ""
    text = f"{sign} above random directions ({percent(control['value'])}, 95 % of them {ends(control)})"
    return compared(models, control, text, model_with_labels)


def control_finding(rows: pd.DataFrame) -> str:
    """Return the scores that are known beforehand."""
    parts = []
    for model in (ORACLE, MEMORISER, RECITER):
        put_in, taken_out = (one(rows, metric=metric, model=model) for metric in ("S+", "S-"))
        if put_in is not None and taken_out is not None:
            parts.append(f"{model} {percent(put_in['value'])} and {percent(taken_out['value'])}")
    return f"S+ and S− of what is known beforehand: {'; '.join(parts)}." if parts else ""


def label_finding(rows: pd.DataFrame) -> str:
    """Compare models trained with labels per image with those per class."""
    parts = []
    for model in TRAINED:
        by_class, by_image = (one(rows, metric="S+", model=model, labels=labels) for labels in (CLASS_HARD, IMAGE_HARD))
        if by_class is not None and by_image is not None:
            parts.append(sentence(f"the {model} {{}}", by_image, {"those per class": by_class}).rstrip("."))
    return f"S+ of models trained with labels per image: {'; '.join(parts)}." if parts else ""


def leader_finding(rows: pd.DataFrame, metric: str, text: str) -> str:
    """Say in which model a number is highest, and how many are above random directions."""
    models, control = trained_rows(rows, metric), one(rows, metric=metric, model=RANDOM)
    if models.empty or control is None:
        return ""
    write = number if metric == "selectivity" else percent
    above = f"{(models['mark'] == 'above').sum()} of {len(models)} models are above random directions"
    return f"{leader(models, text, model_with_labels, write)} {above} ({write(control['value'])})."


def correlation_finding(rows: pd.DataFrame) -> str:
    """Say how S+ changes with the correlation of attributes."""
    parts = []
    for model, (first, *_) in CURVE.items():
        points = pick(rows, model=model, labels=first).sort_values("correlation", kind="stable")
        points = points[points["value"].notna()]
        if len(points) > 1:
            parts.append(f"{model} {trend(points.iloc[0], points.iloc[-1])}")
    low, high = rows["correlation"].min(), rows["correlation"].max()
    text = f"S+ as attributes of the classes go together more, from correlation {low:g} to {high:g}"
    return f"{text}: {'; '.join(parts)}." if parts else ""


SOURCE = "Bader et al. (2025), SUB: Benchmarking CBM Generalization via Synthetic Attribute Substitutions"
LEGEND = {
    POST_HOC: "Concept directions found in a backbone that was trained on the classes.",
    INDEPENDENT: "A network trained on the concepts alone; the head goes from the labels to the classes.",
    JOINT: "One network trained on concepts and classes at once; the classes are read off the concepts.",
    SEPARATE: "A small network for each concept, side by side: none shares a weight with another.",
    EMBEDDING: "Each concept is an embedding, mixed of one for its presence and one for its absence; its value is the "
    "probability of the presence.",
    SAVED: "The one that was given as a file, on the same backbone.",
    ORACLE: "Knows the attributes of every image: the best one can do.",
    MEMORISER: "Knows the class of every image and recites the attributes that define it.",
    RECITER: "Recites those of the class that the backbone predicts.",
    RANDOM: "Random directions in place of the post-hoc model's, drawn many times: the score without knowledge.",
}
#: Random directions are a band.
COLOURS = dict(zip([name for name in MODELS if name not in (SAVED, RANDOM)], PALETTE, strict=True)) | {SAVED: INK}
#: The numbers of the main table with their heads.
MAIN_METRICS = {
    "S+": "put in: seen",
    "S-": "out: gone",
    "recital": "of the class",
    "rises": "put in",
    "selectivity": "touched",
    "class kept": "prediction",
    "T": "concepts right",
}
#: Metrics for which more than random directions is neither good nor bad.
UNMARKED = ("recital", "class kept", "added moves", "removed moves", "others move")
SHARES = ("S+", "S-", "recital", "selectivity", "class kept", "rises", "T_A", "T")
OF_FILE, GROUP_OF_CONTROLS, OTHERS = "of the file", "controls", "others"
#: One model of each kind, for tables and charts without room for more.
SHORT = {POST_HOC: "post-hoc", INDEPENDENT: "indep.", EMBEDDING: "embedding", SAVED: "saved", RANDOM: "random"}
MINUS = {"S-": "S−"}
IN_PERCENT: dict[str, Any] = {"write": in_percent, "span": in_percents, "labels": MINUS}
KEY = (
    "≈ 95 % interval meets what 95 % of the random banks score; ▼ lies below it. Small numbers are 95 % intervals; of "
)
KEY += "random directions, where 95 % of the banks lie."


def join_seeds(frame: pd.DataFrame) -> pd.DataFrame:
    """Average over seeds, and mark what is not above random directions."""
    rows = over_seeds(
        frame,
        lambda row: (0.0, 1.0) if row["metric"] in SHARES else (-math.inf, math.inf),
        controls=[RANDOM],
    )
    mark = against_control(rows.drop(columns="labels"), RANDOM)
    # Vision-language models have another chance, which has a column of its own.
    unmarked = rows["metric"].isin(UNMARKED) | rows["labels"].isin(OPTIONS)
    return rows.assign(mark=mark.where(~unmarked, ""))


def page(frame: pd.DataFrame, run: Run[SubstitutionOptions]) -> Page:
    """Declare the report."""
    options, rows = run.options, join_seeds(frame)
    here = pick(rows, correlation=options.correlation, model=list(MODELS))
    encoders = pick(rows, correlation=options.correlation, labels=list(OPTIONS))
    seeds, main = names(frame, "seed"), main_table(frame, options)
    folded = [item_table(here, "attribute"), item_table(here, "class"), moves_table(here)]
    sections = [
        Section(
            "Seen or recited?",
            tables=[main],
            charts=[
                Chart(
                    "plane",
                    "A model that sees is at the top right, one that recites at the bottom left, one that says no to "
                    "everything at the top left. Grey: where 95 % of the random banks lie on each axis.",
                    Plane(
                        frame=pick(here, item_kind=""),
                        x="S+",
                        y="S-",
                        series="model",
                        kinds="labels",
                        label_x="attribute put in is said to be there (S+, %)",
                        label_y="attribute taken out is said to be gone (S−, %)",
                        colours=COLOURS,
                        band=RANDOM,
                        band_label="95 % of random",
                        scale=100,
                        limits=(-4, 104),
                    ),
                )
            ],
        ),
        Section(
            "Beside the paper",
            "Of one data set, SUB; the paper's models are trained end to end on CUB-200-2011.",
            tables=[paper_table(here)],
        )
        if options.data == SUB
        else None,
        Section(
            "Vision-language models",
            "Of the options of the touched group, the one whose text is the most similar to the image is said to be "
            "there. Chance is that of drawing one.",
            tables=[encoders_table(encoders, paper=options.data == SUB)],
            after="The encoder “embedded” is untrained." if "embedded" in set(encoders["model"]) else "",
        )
        if len(encoders)
        else None,
        Section(
            "Where attributes go together",
            "In training the colours of a class go together more and more. A model that learned the company of an "
            "attribute, in place of the attribute, names it by its company.",
            charts=[
                Chart(
                    "curve",
                    "S+ and S− over the correlation of attributes in training, with 95 % intervals; grey is what 95 % "
                    "of random banks score.",
                    curve(pick(rows, model=list(MODELS), item_kind="", metric=["S+", "S-"])),
                    wide=True,
                )
            ],
        )
        if len(options.curve) > 1
        else None,
        Section(
            "Attribute by attribute",
            "S+ and S− of one model of each kind, trained with hard labels per class, by group of the attribute; "
            "results.csv has all models.",
            tables=[item_table(here, "group", [metric]) for metric in ("S+", "S-")],
            beside=True,
            folded=[table for table in folded if len(table.frame)],
        ),
        Section(
            "What was said",
            charts=[
                Chart(
                    "gallery",
                    "The image before and after, and the options of the touched group that each model, trained with "
                    "hard labels per class, says the image after has: green only what was put in, orange what was "
                    "taken out.",
                    run.facts["gallery"],
                    wide=True,
                )
            ],
        )
        if "gallery" in run.facts
        else None,
    ]
    control = pick(frame, model=RANDOM)
    return Page(
        f"Substitution benchmark: {'SUB' if options.data == SUB else 'painted birds'}",
        findings(rows, options.correlation),
        [section for section in sections if section is not None],
        main=[main],
        answers=answers(rows, options.correlation),
        source=f"Scores: {SOURCE}.",
        metrics={"S+ and S−": "substitution_score"},
        template="substitution/page.html.j2",
        content={
            "legend": {name: text for name, text in LEGEND.items() if name in set(rows["model"])},
            "seeds": seeds,
            "sub": options.data == SUB,
            "n_banks": int((control["n"] + control["undefined"]).max()),
        },
    )


def curve(rows: pd.DataFrame) -> Curves:
    """Declare S+ and S- over the correlation of attributes in training."""
    several = rows.groupby(["model", "labels"])["correlation"].transform("nunique") > 1
    return Curves(
        frame=rows[several].replace({"metric": MINUS}),
        x="correlation",
        series="model",
        panels="metric",
        label_x="correlation of attributes in training",
        label="%",
        order=MODELS,
        colours=COLOURS,
        band=RANDOM,
        band_label="95 % of random",
        scale=100,
        limits=(-4, 104),
    )


def main_table(frame: pd.DataFrame, options: SubstitutionOptions) -> Table:
    """Return the main metrics by labels and model."""
    rows = pick(frame, model=list(MODELS), correlation=options.correlation, item_kind="", metric=list(MAIN_METRICS))
    return Table(
        "Does the model see the concept, or recite its class?",
        "In %. Chance of S+ and S− is that of random directions; read the two together: what says no to everything has "
        "S− = 100.",
        by_labels(join_seeds(rows), metric=list(MAIN_METRICS)),
        ["labels", "model"],
        ["metric"],
        heads=MAIN_METRICS,
        controls=CONTROLS,
        key=KEY,
        **IN_PERCENT,
    )


def paper_table(frame: pd.DataFrame) -> Table:
    """Return Table 1 of the paper next to ours, and below it the paper's scores of people."""
    metrics = ("S+", "S-", "T_A", "T")
    paper = load_paper(__package__).assign(source=PAPER, style=PAPER).drop(columns="model")
    paper = paper[~paper["labels"].isin(OPTIONS)].rename(columns={"of": "model"}).replace({"labels": {"": OTHERS}})
    ours = pick(frame, item_kind="", metric=list(metrics)).assign(source="ours", style="")
    return Table(
        "Table 1",
        "S+ and S− on SUB, concept accuracy on the test images of CUB-200-2011 for the attributes of SUB (T_A) and for "
        "all (T), in %.",
        by_labels(pd.concat([ours, paper]), metric=metrics, source=("ours", PAPER)),
        ["labels", "model"],
        ["metric", "source"],
        controls=CONTROLS,
        **IN_PERCENT,
    )


def encoders_table(frame: pd.DataFrame, *, paper: bool) -> Table:
    """Return S+, S- and how often the option taken out is chosen, each with its chance, as the paper's Table 2."""
    ours = pick(frame, item_kind="", metric=["S+", "S-", "original"]).assign(source="ours", style="")
    parts = [ours, ours.assign(source=CHANCE, value=ours["chance"], low=math.nan, high=math.nan, style=CHANCE)]
    if paper:
        theirs = pick(load_paper(__package__), labels=list(OPTIONS)).drop(columns="model")
        parts.append(theirs.rename(columns={"of": "model"}).assign(source=PAPER, style=PAPER))
    cells = pd.concat(parts)
    orders = {"metric": ("S+", "S-", "original"), "source": ("ours", CHANCE, PAPER)}
    return Table(
        "Table 2",
        "In %; original: the option that was taken out is chosen, the paper's hallucination.",
        arrange(cells, labels=OPTIONS, model=names(cells, "model"), **orders),
        ["labels", "model"],
        ["metric", "source"],
        key="Small numbers are 95 % intervals over pairs.",
        **IN_PERCENT,
    )


def item_table(frame: pd.DataFrame, kind: str, metrics: Sequence[str] = ("S+", "S-")) -> Table:
    """Return S+ and S- by attribute, group or class: one model of each kind, trained with hard labels per class."""
    cells = pick(frame, item_kind=kind, metric=list(metrics), labels=[CLASS_HARD, ""], model=list(SHORT))
    items = names(cells, "item")
    wording = {
        item: item.removeprefix("has_").replace("_", " ").replace("::", ": ") for item in items if kind != "class"
    }
    several = len(metrics) > 1
    return Table(
        f"By {kind}" if several else f"{metrics[0].replace('-', '−')} by {kind}",
        "In %, with the marks of the main table.",
        arrange(cells, item=items, metric=metrics, model=list(SHORT)).assign(small=""),
        ["item"],
        ["metric", "model"] if several else ["model"],
        write=in_percent,
        labels=wording | SHORT | MINUS,
    )


def moves_table(frame: pd.DataFrame) -> Table:
    """Return how far concept values move, in their own units."""
    moves = ("added moves", "removed moves", "others move")
    return Table(
        "How far values move",
        "Rise of the concept put in, fall of the one taken out, and the mean distance of all others, in the units of "
        "each model's values: margins of post-hoc models and random directions, probabilities of the others.",
        by_labels(pick(frame, item_kind="", metric=list(moves)), metric=moves),
        ["labels", "model"],
        ["metric"],
        controls=CONTROLS,
    )


def by_labels(cells: pd.DataFrame, **orders: Sequence[str]) -> pd.DataFrame:
    """Arrange cells by the labels of their models, those without any last."""
    unlabelled = cells["model"].map({SAVED: OF_FILE}).fillna(GROUP_OF_CONTROLS)
    cells = cells.assign(labels=cells["labels"].where(cells["labels"] != "", unlabelled))
    models = [*MODELS, *names(cells, "model")]
    return arrange(cells, labels=[*LABELS, OF_FILE, GROUP_OF_CONTROLS, OTHERS], model=models, **orders)
