"""The report of the substitution study."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from quantus_concepts.studies._kit.charts import (
    BAND,
    INK,
    PALETTE,
    WIDTH,
    Chart,
    legend_right,
    new_axes,
    tidy,
    whiskers,
)
from quantus_concepts.studies._kit.page import Page, Section
from quantus_concepts.studies._kit.results import PAPER, against_control, names, over_seeds, pick, published
from quantus_concepts.studies._kit.run import Run
from quantus_concepts.studies._kit.tables import Table, arranged, in_percent, in_percents
from quantus_concepts.studies.substitution.findings import findings
from quantus_concepts.studies.substitution.names import (
    ASKED,
    CLASS_HARD,
    CONTROLS,
    EMBEDDING,
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
)
from quantus_concepts.studies.substitution.options import SUB, SubstitutionOptions

# Random directions are a band.
_DRAWN = [name for name in MODELS if name not in (SAVED, RANDOM)]
COLOURS = dict(zip(_DRAWN, PALETTE, strict=True)) | {SAVED: INK}
MARKERS = dict(zip(("", *LABELS), ("*", "o", "^", "s", "D"), strict=True))


def plane(frame: pd.DataFrame) -> Figure:
    """Draw every model at its S+ and S-, over where random directions lie."""
    fig, ax = new_axes(None, (WIDTH, 5.0))
    for (model, labels), rows in pick(frame, item_kind="").groupby(["model", "labels"], sort=False):
        both = rows.set_index("metric").reindex(["S+", "S-"])
        if both["value"].isna().any():
            continue
        if model == RANDOM:
            (left, right), (low, high) = 100 * both[["low", "high"]].to_numpy(dtype=np.float64)
            ax.add_patch(Rectangle((left, low), right - left, high - low, color=BAND, zorder=1, label="95 % of random"))
            continue
        (x, y), (across, up) = 100 * both["value"], whiskers(both, 100).T[:, :, None]
        look: dict[str, Any] = {"color": COLOURS[model], "marker": MARKERS[labels], "markersize": 7 if labels else 11}
        name = f"{model} ({labels})" if labels else model
        ax.errorbar(x, y, up, across, linestyle="", capsize=2, elinewidth=0.9, zorder=4, label=name, **look)
    ax.set_xlim(-4, 104)
    ax.set_ylim(-4, 104)
    ax.set_xlabel("attribute put in is said to be there (S+, %)")
    ax.set_ylabel("attribute taken out is said to be gone (S−, %)")
    legend_right(ax, 8)
    tidy(ax)
    return fig


def curve(frame: pd.DataFrame) -> Figure:
    """Draw S+ and S- over the correlation of attributes in training."""
    fig = Figure(figsize=(WIDTH + 1.5, 3.9), layout="constrained")
    axes = fig.subplots(1, 2, sharey=True)
    rows = pick(frame, item_kind="")
    several = rows.groupby(["model", "labels"])["correlation"].transform("nunique") > 1
    for ax, metric in zip(axes, ("S+", "S-"), strict=True):
        found = rows[several & (rows["metric"] == metric)].sort_values("correlation", kind="stable")
        random = pick(found, model=RANDOM)
        ax.fill_between(random["correlation"], 100 * random["low"], 100 * random["high"], color=BAND, linewidth=0)
        shown = [name for name in names(found, "model", MODELS) if name != RANDOM]
        for model, shift in zip(shown, np.linspace(-0.012, 0.012, len(shown)), strict=True):
            line = pick(found, model=model)
            look: dict[str, Any] = {"color": COLOURS[model], "marker": "o", "markersize": 5, "capsize": 2}
            at = line["correlation"] + shift
            ax.errorbar(at, 100 * line["value"], whiskers(line, 100), label=model, **look)
        ax.set_title(metric.replace("-", "−"), fontsize=10)
        ax.set_ylim(-4, 104)
        ax.set_xlabel("correlation of attributes in training")
        tidy(ax)
    axes[0].set_ylabel("%")
    legend_right(axes[1], 8)
    return fig


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
    RANDOM: "Random directions in place of the post-hoc model's, drawn many times: what knowing nothing scores.",
}
#: The numbers of the main table with their heads.
SHOWN = {
    "S+": "put in: seen",
    "S-": "out: gone",
    "recital": "of the class",
    "rises": "put in",
    "selectivity": "touched",
    "class kept": "prediction",
    "T": "concepts right",
}
#: Of these, whether they are above random directions says nothing good or bad.
UNMARKED = ("recital", "class kept", "added moves", "removed moves", "others move")
SHARES = ("S+", "S-", "recital", "selectivity", "class kept", "rises", "T_A", "T")
OF_FILE, GROUP_OF_CONTROLS, OTHERS = "of the file", "controls", "others"
#: One model of each kind, for what has no room for more.
SHORT = {POST_HOC: "post-hoc", INDEPENDENT: "indep.", EMBEDDING: "embedding", SAVED: "saved", RANDOM: "random"}
MINUS = {"S-": "S−"}
IN_PERCENT: dict[str, Any] = {"write": in_percent, "span": in_percents, "labels": MINUS}
KEY = (
    "≈ 95 % interval meets what 95 % of the random banks score; ▼ lies below it. Small numbers are 95 % intervals; of "
)
KEY += "random directions, where 95 % of the banks lie."


def joined(frame: pd.DataFrame) -> pd.DataFrame:
    """Average over seeds, and mark what is not above random directions."""
    rows = over_seeds(
        frame,
        lambda row: (0.0, 1.0) if row["metric"] in SHARES else (-math.inf, math.inf),
        controls=[RANDOM],
    )
    mark = against_control(rows.drop(columns="labels"), RANDOM)
    # Of those who choose among options chance is another, which stands beside.
    unmarked = rows["metric"].isin(UNMARKED) | rows["labels"].isin(ASKED)
    return rows.assign(mark=mark.where(~unmarked, ""))


def page(frame: pd.DataFrame, run: Run[SubstitutionOptions]) -> Page:
    """Declare the report."""
    options = run.options
    rows = joined(frame)
    here = pick(rows, correlation=options.correlation, model=list(MODELS))
    chosen = pick(rows, correlation=options.correlation, labels=list(ASKED))
    seeds = names(frame, "seed")
    main = main_table(frame, options)
    sentences = findings(rows, options.correlation)
    sections = [
        Section(
            "Seen or recited?",
            tables=[main],
            charts=[
                Chart(
                    "plane",
                    "What sees stands at the top right, what recites at the bottom left, what says no to everything at "
                    "the top left. Grey: where 95 % of the random banks lie on each axis.",
                    plane(here),
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
            tables=[encoders_table(chosen, beside=options.data == SUB)],
            after="The encoder “embedded” is untrained and knows nothing."
            if "embedded" in set(chosen["model"])
            else "",
        )
        if len(chosen)
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
                    curve(pick(rows, model=list(MODELS))),
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
            folded=[
                table
                for table in (item_table(here, "attribute"), item_table(here, "class"), moves_table(here))
                if len(table.frame)
            ],
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
        sentences,
        [section for section in sections if section is not None],
        main=[main],
        printed=sentences,
        source=f"Scores: {SOURCE}.",
        template="substitution/page.html.j2",
        content={
            "legend": {name: text for name, text in LEGEND.items() if name in set(rows["model"])},
            "seeds": seeds,
            "sub": options.data == SUB,
            "n_banks": int((control["n"] + control["undefined"]).max()),
        },
    )


def main_table(frame: pd.DataFrame, options: SubstitutionOptions) -> Table:
    """Return the numbers of most weight: for each kind of labels and each model, and for the controls."""
    shown = pick(frame, model=list(MODELS), correlation=options.correlation, item_kind="", metric=list(SHOWN))
    return Table(
        "Does the model see the concept, or recite its class?",
        "In %. Chance of S+ and S− is that of random directions; read the two together: what says no to everything has "
        "S− = 100.",
        _by_labels(joined(shown), metric=list(SHOWN)),
        ["labels", "model"],
        ["metric"],
        heads=SHOWN,
        controls=CONTROLS,
        key=KEY,
        **IN_PERCENT,
    )


def paper_table(frame: pd.DataFrame) -> Table:
    """Return Table 1 of the paper beside ours, and below it what it has of people."""
    metrics = ("S+", "S-", "T_A", "T")
    paper = published(__package__).assign(source=PAPER, style=PAPER).drop(columns="model")
    paper = paper[~paper["labels"].isin(ASKED)].rename(columns={"of": "model"}).replace({"labels": {"": OTHERS}})
    ours = pick(frame, item_kind="", metric=list(metrics)).assign(source="ours", style="")
    return Table(
        "Table 1",
        "S+ and S− on SUB, concept accuracy on the test images of CUB-200-2011 for the attributes of SUB (T_A) and for "
        "all (T), in %.",
        _by_labels(pd.concat([ours, paper]), metric=metrics, source=("ours", PAPER)),
        ["labels", "model"],
        ["metric", "source"],
        controls=CONTROLS,
        **IN_PERCENT,
    )


def encoders_table(frame: pd.DataFrame, *, beside: bool) -> Table:
    """Return Table 2 of the paper: S+, S- and how often what was taken out is chosen, each with its chance."""
    cells = pick(frame, item_kind="", metric=["S+", "S-", "original"]).assign(source="ours", style="")
    parts = [cells, cells.assign(source="chance", value=cells["chance"], low=math.nan, high=math.nan, style="chance")]
    if beside:
        paper = pick(published(__package__), labels=list(ASKED)).drop(columns="model").rename(columns={"of": "model"})
        parts.append(paper.assign(source=PAPER, style=PAPER))
    cells = pd.concat(parts)
    orders = {"metric": ("S+", "S-", "original"), "source": ("ours", "chance", PAPER)}
    return Table(
        "Table 2",
        "In %; original: the option that was taken out is chosen, the paper's hallucination.",
        arranged(cells, labels=ASKED, model=names(cells, "model"), **orders),
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
        arranged(cells, item=items, metric=metrics, model=list(SHORT)).assign(small=""),
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
        _by_labels(pick(frame, item_kind="", metric=list(moves)), metric=moves),
        ["labels", "model"],
        ["metric"],
        controls=CONTROLS,
    )


def _by_labels(cells: pd.DataFrame, **orders: Sequence[str]) -> pd.DataFrame:
    """Arrange cells by the labels of their models, those without any last."""
    others = cells["model"].map({SAVED: OF_FILE}).fillna(GROUP_OF_CONTROLS)
    cells = cells.assign(labels=cells["labels"].where(cells["labels"] != "", others))
    models = [*MODELS, *names(cells, "model")]
    return arranged(cells, labels=[*LABELS, OF_FILE, GROUP_OF_CONTROLS, OTHERS], model=models, **orders)
