"""The report of the concept study: verdicts, presence and place by ranking, the paper's tables, galleries."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from captum_concepts.pictures.gallery import gallery
from quantus_concepts.metrics.concepts.names import (
    BOUNDS,
    CEM_GAIN,
    CGIM_CORRELATION,
    CLASS_RECITAL,
    COMMONEST_CONCEPT,
    FEATURE_NORM,
    GAUSSIAN,
    INTERVENED,
    OTHER_IMAGE,
    OTHER_PARTS,
    PART_SPECIFICITY,
    SAME_IMPORTANCE,
    WRONG_LABELS,
)
from quantus_concepts.metrics.streaming.curves import TRUE_LABELS
from quantus_concepts.painted.subject import ORACLE, POST_HOC, RANDOM, TRADITIONAL
from quantus_concepts.studies._kit.comparisons import READING as DIFFERENCES
from quantus_concepts.studies._kit.comparisons import comparison_table
from quantus_concepts.studies._kit.plots import BAND, INK, PALETTE, WIDTH, add_legend, dots, lines, new_axes
from quantus_concepts.studies._kit.report import (
    Picture,
    Report,
    Section,
    Table,
    Verdict,
    Writer,
    number,
    percent,
    readable,
)
from quantus_concepts.studies._kit.results import PAPER, load_paper, one, over_seeds, pick, with_random_range
from quantus_concepts.studies.concepts.comparisons import (
    ACCURACY,
    PLAIN,
    compare_answers,
    discoveries_of,
    with_image_intervals,
    with_own_ranges,
)

SOURCE = "Aysel et al. (2025), Concept-Based Explainable AI: Metrics and Benchmarks"
CHANCE, UNTRAINED = "chance", "untrained network"
#: Concept models in the order of every table and figure.
MODELS = (POST_HOC, TRADITIONAL, ORACLE, RANDOM)
COLUMNS = [POST_HOC, PAPER, TRADITIONAL, ORACLE, RANDOM, CHANCE]
COLOURS = {POST_HOC: "#D55E00", TRADITIONAL: "#0072B2", ORACLE: "#009E73", OTHER_IMAGE: "#CC79A7", GAUSSIAN: "#B8860B"}
COLOURS |= {OTHER_PARTS: "#882255", FEATURE_NORM: "#666666", CHANCE: "#8A8A8A"}
#: The baselines of the concept location metric.
BASELINES = (OTHER_PARTS, OTHER_IMAGE, FEATURE_NORM, GAUSSIAN)
#: The baselines of CEM, and of the cosine CGIM.
CEM_BASELINES, CGIM_BASELINES = (COMMONEST_CONCEPT, CLASS_RECITAL), (SAME_IMPORTANCE,)
#: Rankings of the concepts, with the letters that the paper writes for them.
RANKINGS = {"weight": "weight θ", "value": "value u", "contribution": "contribution θ·u"}
SETS = {"all": "all images", "correct": "correctly classified"}
KINDS = {"concept": "per concept", "class": "per class"}
#: C and number of images of the concept bank, of the paper's Table 3.
SETTINGS = [(strength, count) for count in (50, 100) for strength in (0.001, 0.01, 0.1, 1.0, 10.0)]
#: The first concept by contribution, which decides the class.
FIRST: dict[str, Any] = {"explanation": "contribution", "l": 1}
#: Held-out accuracy below which a direction hardly knows its concept.
WEAK = 0.6
#: Best, and worst, concepts and classes that are drawn.
BEST = 8
HELD_OUT = "held-out accuracy"
#: Orders in which concepts are corrected; every answer turned round is the control.
ORDERS = {"random": "random order", "uncertainty": "least sure first", "contribution": "most effect first"}
ANSWERS = {TRUE_LABELS: "", WRONG_LABELS: ", wrong answers"}

READING = {
    "CEM": "How often the concepts ranked first are present in the image (or, where labels are given by class, are "
    "concepts of its class). Best is 100 %.",
    "CLM": "How often the strongest α/12 of a concept's map holds the concept's part. Parts and maps both sit on the "
    "object, so any map scores more than chance: compare with the baselines.",
    CEM_GAIN: "CEM less prevalence: whether the concept ranked first is present in this image, less the share of the "
    "other images that show it. A model that names concepts without looking has 0, also one that names the commonest.",
    PART_SPECIFICITY: "CLM less the CLM of the same map at the other visible parts of the same image. A map that is on "
    "the object and knows no concept has 0.",
    CGIM_CORRELATION: "Over classes, Pearson's correlation of a concept's importance and its truth: 1 is best, 0 no "
    "relation. Its scores of one model depend on each other: a single run has no interval.",
    "CGIM": "The same as a cosine, as in the paper. 0 is not its baseline: truth is never negative, so that the same "
    "importance everywhere scores high.",
    "Own range, by luck": "Where 95 % of random banks lie for the same concept. One concept in 40 lies above it by "
    "luck, and one below. ▲ ▼: above or below it after the correction for all concepts (Benjamini and Hochberg).",
    "No verdict": "The class accuracy is not above that of random banks, and the directions' mean accuracy on images "
    f"held back is below {WEAK:g}: the model knows neither its classes nor its concepts.",
    COMMONEST_CONCEPT: "Baseline of CEM: always the commonest concepts.",
    CLASS_RECITAL: "Baseline of CEM: the commonest concepts of the image's true class, from training.",
    SAME_IMPORTANCE: "Baseline of the cosine: every concept as important for every class.",
    UNTRAINED: "A linear head on the features of the small network's initial weights.",
    **DIFFERENCES,
    "Rankings": "Concepts are ranked by the head's weight θ, by the concept value u, or by the contribution θ·u, which "
    "decides the class. The first table has the contribution and the better of the others.",
    POST_HOC: "Concept directions found in a trained backbone, and a linear head on the projections.",
    TRADITIONAL: "A concept layer trained with the concept labels of each image; sigmoid values.",
    ORACLE: "The true attributes as values and a Gaussian at each true part as map: the best one can do.",
    RANDOM: "The post-hoc CBM with random directions in place of concepts, each bank with a head of its own. The "
    "range holds 95 % of the banks; over several seeds it is the mean of the seeds' ranges.",
    PLAIN: "The backbone with its own classifier, without a bottleneck.",
    OTHER_PARTS: "Baseline of CLM: the same maps, scored against the other visible parts of the same image.",
    OTHER_IMAGE: "Baseline of CLM: the same maps, scored against the parts of another image.",
    FEATURE_NORM: "Baseline of CLM: the norm of the backbone's features as map.",
    GAUSSIAN: "Baseline of CLM: one blob at the centre of every image.",
    "Above, within, below": "Above: the whole 95 % interval lies above the random range. Within: interval and range "
    "overlap, whatever the number itself is. Below: the whole interval lies below.",
    "95 % interval": "In a single run: over the predicted classes (CEM, CLM) or the images (accuracy), without what "
    "another training would change. Over several seeds: Student's t over the seeds, never narrower than the single "
    "runs' errors imply. Seeds on the same photographs: over both images and seeds, for the first concept in all "
    "images, the smallest region and accuracy; others, without a score of each image at hand, are over seeds only.",
    "paper": f"The published numbers of a post-hoc CBM on all of CUB-200-2011 (11,788 images): {SOURCE}.",
}


@dataclass(frozen=True)
class Collected:
    """All numbers, and what the page says of the images of the first seed."""

    frame: pd.DataFrame
    #: Scores of the images that are compared, and the correlations of each concept in each random bank, by seed.
    compared: pd.DataFrame
    draws: pd.DataFrame
    gallery: Figure
    images: str
    by_class: bool
    is_whole_cub: bool
    #: Whether seeds share their images; whether the small networks are trained.
    same_images: bool
    trains: bool


def baseline_name(baseline: str, model: str = POST_HOC) -> str:
    """Name the baseline of a model's maps, or answers."""
    return baseline if model == POST_HOC else f"{baseline}, {model}"


def setting_name(regularisation: float, samples: int) -> str:
    """Name a setting of the concept bank."""
    return f"C={regularisation:g}, n={samples}"


def build_report(collected: Collected, *, paper: bool, n_banks: int, explorer: bool) -> Report:
    """Declare the report; `paper` puts the paper's rows beside ours."""
    frame, whose = collected.frame, "of its class" if collected.by_class else "in the image"
    seeds = list(dict.fromkeys(frame["seed"]))
    rows = with_own_ranges(join_seeds(frame), collected.draws)
    if collected.same_images and len(seeds) > 1:
        rows = with_image_intervals(rows, collected.compared)
    compared = compare_answers(collected.compared, collected.same_images)
    published = load_paper(__package__, l=float, alpha=float) if paper else rows.iloc[:0]
    located = not pick(rows, metric="CLM").empty
    place = [clm_table(rows, published), specificity_table(rows)]
    shown = Picture(
        "gallery",
        collected.gallery,
        "Correctly classified images, below them wrong ones; concepts of the largest contributions to the predicted "
        f"class, and their maps. ✓ {whose}, ✗ not; “no …” speaks for the class by being absent.",
        wide=True,
    )
    sections = [
        Section("Is one model better?", [comparisons_table(compared)]),
        Section("Are the concepts present?", [gain_table(rows), cem_table(rows, published, whose)]),
        Section("Are they in the right place?", [Picture("clm", location(rows), PLACE), *place] if located else []),
        Section(
            "Are they important where they belong?",
            [
                correlation_table(rows),
                discoveries_table(rows, collected.draws),
                cgim_table(rows),
                Picture("cgim_histograms", histograms(rows), HISTOGRAMS),
                *extremes(rows),
            ],
            full_tables(rows, collected.draws),
        ),
        Section("Does it listen to corrections?", *interventions(rows)),
        Section("Gallery", [shown]),
        Section(
            "How well do the models classify?",
            [accuracy_table(rows, collected.trains), *settings_table(rows, published)],
            [defined_table(rows)],
        ),
    ]
    used = {*rows["model"], *(["paper"] if paper else [])}
    optional = {*MODELS, PLAIN, UNTRAINED, *BASELINES, *CEM_BASELINES, *CGIM_BASELINES, "paper"}
    n_seeds = f"{len(seeds)} seeds" if len(seeds) > 1 else f"seed {seeds[0]}"
    return Report(
        "Are the concepts real, present, and in the right place?",
        verdicts(rows, collected.draws, whose),
        Picture(
            "presence_and_place",
            presence_and_place(rows, whose),
            "The concept ranked first, by three rankings: how much more often it is "
            f"{whose} than in other images (CEM gain)"
            f"{' and its map holds its own part than other parts (part specificity, α = 1)' if located else ''}.",
        ),
        sections,
        lead=f"{collected.images[:1].upper()}{collected.images[1:]}; {n_seeds}, {n_banks} random banks for each.",
        reading={name: text for name, text in READING.items() if name in used or name not in optional},
        links={"concept explorer": "explore.html"} if explorer else {},
    )


PLACE = (
    "Does the strongest region of the first concept's map hold its part? Ranked by contribution; dashed lines are "
    "baselines that know no concept."
)
HISTOGRAMS = (
    "CGIM (cosine) of single concepts and classes, as the paper's Figure 2. Grey: means of 95 % of random banks."
)
CORRECTIONS = (
    "Class accuracy after so many concepts of an image are set to what people say: in random order, those the model is "
    "least sure of first, or those of most effect first, which needs the answers. Dashed: every answer turned round. "
    "Grey: right answers to random directions."
)


def join_seeds(frame: pd.DataFrame) -> pd.DataFrame:
    """Average over seeds, and put the range of random directions beside each number; their own rows come last."""
    rows = over_seeds(frame.astype({"l": float}), lambda row: BOUNDS.get(row["metric"], (0, 1)), controls=[RANDOM])
    return pd.concat([with_random_range(rows, RANDOM), pick(rows, model=RANDOM)], ignore_index=True)


def knows_classes(rows: pd.DataFrame) -> bool:
    """Whether the model knows anything: its accuracy is above random banks, or its directions recognise their concepts.

    Heads on random directions of a trained network classify as well as those on its concepts; with an untrained network
    neither holds.
    """
    above = Verdict.of("", one(rows, model=POST_HOC, metric=ACCURACY, item="")).verdict == "above"
    held_out = one(rows, model=POST_HOC, metric="CAV accuracy", item="")
    return above or (held_out is not None and held_out["value"] >= WEAK)


def verdicts(rows: pd.DataFrame, draws: pd.DataFrame, whose: str) -> list[Verdict]:
    """Return the answers on accuracy, presence, place and importance: in all images first.

    Concepts are ranked by contribution, which decides the class, and by the better of value and weight. A model that
    does not know its classes has no verdict.
    """
    ours = pick(rows, model=POST_HOC)
    none = {} if knows_classes(rows) else {"text": "no verdict"}

    def by_ranking(question: str, metric: str, write: Writer = percent, **where: Any) -> list[Verdict]:
        found = {name: one(ours, metric=metric, explanation=name, **where) for name in RANKINGS}
        values = {name: found[name]["value"] for name in ("value", "weight") if found[name] is not None}  # type: ignore[index]
        better = max(values, key=lambda name: values[name], default="value")
        return [
            Verdict.of(
                question.format(f"by {name}", counts=own_range(rows, draws, name)), found[name], write=write, **none
            )
            for name in (better, "contribution")
        ]

    plain = one(rows, model=PLAIN, metric=ACCURACY, item="")
    beside = "" if plain is None else f" (plain backbone: {percent(plain['value'])} %)"
    present = by_ranking(f"First concept {whose}, beyond prevalence ({CEM_GAIN}, {{}})?", CEM_GAIN, set="all", l=1)
    correct = one(ours, metric=CEM_GAIN, set="correct", **FIRST)
    question = "Map at its own part (part specificity, α = 1, {})?"
    place = by_ranking(question, PART_SPECIFICITY, alpha=1, l=1)
    question = f"Important where it belongs ({CGIM_CORRELATION}, {{}}; {{counts}})?"
    return [
        Verdict.of(f"Class accuracy{beside}", one(ours, metric=ACCURACY, item="")),
        *present,
        Verdict.of(f"In correctly classified images ({CEM_GAIN}, by contribution)?", correct, **none),
        *(place if not pick(ours, metric=PART_SPECIFICITY).empty else []),
        *by_ranking(question, CGIM_CORRELATION, number, item_kind="concept", item=""),
    ]


def own_range(rows: pd.DataFrame, draws: pd.DataFrame, ranking: str) -> str:
    """Count the concepts above and below their own random range, with what luck brings."""
    items, found = discoveries_of(rows, draws, ranking)
    counts = f"{found.n_above} of {len(items)} concepts above own range, {found.n_below} below"
    return f"{counts}; {found.n_by_luck:.1f} by luck"


def presence_and_place(rows: pd.DataFrame, whose: str) -> Figure:
    """Draw gain and part specificity of the first concept by ranking, over the ranges of random directions."""
    models = list(MODELS[:3])
    chosen = [
        pick(rows, metric=metric, set="all", l=1, alpha=alpha, model=models).assign(
            row=lambda found, what=what: found["explanation"].map(lambda name: f"{what},\nby {RANKINGS[name]}")
        )
        for metric, alpha, what in ((CEM_GAIN, None, whose), (PART_SPECIFICITY, 1, "map at its part"))
    ]
    label = "percentage points"
    return dots(pd.concat(chosen), "row", "model", label=label, order=models, colours=COLOURS, reference=0)[0]


def ordered(frame: pd.DataFrame, **orders: Sequence[str] | Mapping[Any, str]) -> pd.DataFrame:
    """Return the rows whose columns are in these orders, as ordered categories; a mapping also renames."""
    for name, order in orders.items():
        column = frame[name].map(order) if isinstance(order, Mapping) else frame[name]
        names = list(order.values() if isinstance(order, Mapping) else order)
        frame = frame.assign(**{name: column})[column.isin(names).to_numpy()]
        present = [value for value in names if value in set(frame[name])]
        frame = frame.assign(**{name: pd.Categorical(frame[name], present)})
    return frame


def with_sources(rows: pd.DataFrame, published: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return the rows of a metric of all models, of the paper and of chance, with the level of l."""
    ours = pick(rows, metric=metric)
    chance = pick(ours, model=POST_HOC, l=1)
    chance = chance.assign(model=CHANCE, value=chance["chance"], l=math.nan)
    chance[["low", "high", "random_low", "random_high"]] = math.nan
    joined = pd.concat([ours, pick(published, metric=metric), chance], ignore_index=True)
    return joined.assign(level=joined["l"].map("l = {:g}".format, na_action="ignore").fillna(""))


LEVELS = ("l = 1", "l = 3", "l = 5", "")


def comparisons_table(compared: pd.DataFrame) -> Table:
    """Return the paired differences of models, and of maps and their baselines."""
    write = dict.fromkeys([ACCURACY, CEM_GAIN, PART_SPECIFICITY, "CLM"], percent) | {CGIM_CORRELATION: number}
    caption = "On the same images, in % and percentage points (CGIM correlation: over classes): the first concept, and "
    caption += "maps at α = 1. p-values are corrected for all rows (Holm)."
    return comparison_table("comparisons", "Paired differences", compared, write, caption)


def gain_table(rows: pd.DataFrame) -> Table:
    """Return CEM gain by ranking."""
    cells = pick(rows, metric=CEM_GAIN)
    cells = cells.assign(level=cells["l"].map("l = {:g}".format))
    cells = ordered(cells, set=SETS, explanation=RANKINGS, model=COLUMNS, level=LEVELS)
    caption = f"Presence of the first l concepts less their share of the other images, in percentage points. {SMALL}"
    by = ["set", "explanation"]
    return Table(
        "cem-gain", "Concept existence above prevalence (CEM gain)", cells, by, ["model", "level"], caption=caption
    )


def cem_table(rows: pd.DataFrame, published: pd.DataFrame, whose: str) -> Table:
    """Return Table 1 of the paper."""
    cells = with_baselines(with_sources(rows, published, "CEM"), CEM_BASELINES)
    shown = RANKINGS | {name: name for name in CEM_BASELINES}
    cells = ordered(cells, set=SETS, explanation=shown, model=COLUMNS, level=LEVELS)
    by, caption = ["set", "explanation"], f"How often the first l concepts are {whose}, in %. {SMALL}"
    return Table("table-1", "Table 1: concept existence (CEM)", cells, by, ["model", "level"], caption=caption)


SMALL = "Small numbers: 95 % intervals; of random directions where 95 % of the banks lie."


def clm_table(rows: pd.DataFrame, published: pd.DataFrame) -> Table:
    """Return Table 2 of the paper, with the baselines of the maps."""
    cells = with_baselines(with_sources(rows, published, "CLM"))
    cells = ordered(cells, alpha=ALPHAS, explanation=MAP_ROWS, model=COLUMNS, level=LEVELS)
    caption = "How often the strongest α/12 of the map holds the part, in %. Baselines of the maps are for the ranking "
    caption += f"by contribution. {SMALL}"
    by = ["alpha", "explanation"]
    return Table("table-2", "Table 2: concept location (CLM)", cells, by, ["model", "level"], caption=caption)


ALPHAS = {alpha: f"α = {alpha:g}" for alpha in (1.0, 3.0, 6.0)}
MAP_ROWS = RANKINGS | {name: name for name in BASELINES}


def specificity_table(rows: pd.DataFrame) -> Table:
    """Return how much more often maps hold their own part than others."""
    cells = with_baselines(pick(rows, metric=PART_SPECIFICITY))
    cells = ordered(cells, alpha=ALPHAS, explanation=MAP_ROWS, model=COLUMNS)
    caption = "How much more often the map of the first concept holds its own part than the other visible parts of "
    caption += f"the same image, in percentage points. {SMALL}"
    return Table("part-specificity", "Part specificity", cells, ["alpha", "explanation"], ["model"], caption=caption)


def with_baselines(rows: pd.DataFrame, baselines: Sequence[str] = BASELINES) -> pd.DataFrame:
    """Return rows in which a baseline is a row of its model."""
    whose = {baseline_name(name, model): (name, model) for model in MODELS for name in baselines}
    moved = rows["model"].isin(list(whose))
    rows = rows.assign(
        explanation=[whose[name][0] if name in whose else how for name, how in rows[["model", "explanation"]].values],
        model=rows["model"].map(lambda name: whose.get(name, ("", name))[1]),
    )
    rows.loc[moved, ["random_low", "random_high"]] = math.nan
    return rows


def correlation_table(rows: pd.DataFrame) -> Table:
    """Return the mean correlation of importance and truth by ranking."""
    cells = pick(rows, metric=CGIM_CORRELATION, item="")
    cells = ordered(cells, item_kind=KINDS, explanation=RANKINGS, model=COLUMNS)
    caption = f"Mean of Pearson's correlation of importance and truth; 0 is no relation. {SMALL}"
    by, title = ["item_kind", "explanation"], "Importance and truth (CGIM correlation)"
    return Table("cgim-correlation", title, cells, by, ["model"], number, caption)


def discoveries_table(rows: pd.DataFrame, draws: pd.DataFrame) -> Table:
    """Count the concepts outside their own random range."""
    counts, fewest = [], 1
    for ranking, name in RANKINGS.items():
        items, found = discoveries_of(rows, draws, ranking)
        up = items["value"].to_numpy(float) > items["random_high"].to_numpy(float)
        columns: dict[str, float] = {
            "concepts": len(items),
            "above own range": found.n_above,
            "below": found.n_below,
            "by luck, each": found.n_by_luck,
            "above, corrected": int((found.passed & up).sum()),
            "below, corrected": int((found.passed & ~up).sum()),
        }
        if len(items):
            counts += [{"ranking": name, "column": column, "value": value} for column, value in columns.items()]
        fewest = max(fewest, found.fewest)
    caption = "Concepts of the post-hoc CBM by their CGIM correlation, each against its own random banks. "
    caption += "Corrected: by Benjamini and Hochberg's procedure."
    if fewest > 1:
        caption += f" So few banks let a concept pass only if {fewest} do: more banks (--random-banks) can show more."
    title, frame = (
        "Concepts outside their own random range",
        pd.DataFrame(counts, columns=["ranking", "column", "value"]),
    )
    return Table("discoveries", title, frame, ["ranking"], ["column"], _count, caption)


def _count(value: float) -> str:
    return f"{value:.0f}" if value == int(value) else f"{value:.1f}"


def cgim_table(rows: pd.DataFrame) -> Table:
    """Return the mean CGIM by ranking."""
    cells = with_baselines(pick(rows, metric="CGIM", item=""), CGIM_BASELINES)
    shown = RANKINGS | {name: name for name in CGIM_BASELINES}
    cells = ordered(cells, item_kind=KINDS, explanation=shown, model=COLUMNS)
    caption = "Mean cosine of importance and truth. By value and contribution, classes without a correctly classified "
    caption += f"image are left out. {SMALL}"
    by = ["item_kind", "explanation"]
    return Table("cgim", "Concept global importance (CGIM)", cells, by, ["model"], number, caption)


def accuracy_table(rows: pd.DataFrame, trains: bool) -> Table:
    """Return the accuracies of all models, of their concepts, and of the directions on images held back."""
    metrics = {"accuracy": "classes", "concept accuracy": "concepts", "CAV accuracy": f"directions, {HELD_OUT}"}
    cells = ordered(pick(rows, item=""), metric=metrics, model=[PLAIN, *MODELS, UNTRAINED])
    caption = f"On the test images, in %. {SMALL}"
    if not knows_classes(rows):
        caption += f" The {POST_HOC} is not above random banks: there is no verdict on its concepts."
    if not trains:
        caption += " An untrained network would take another pass over all images: it is not here."
    return Table("accuracy", "Accuracy", cells, ["model"], ["metric"], caption=caption)


def settings_table(rows: pd.DataFrame, published: pd.DataFrame) -> list[Table]:
    """Return Table 3 of the paper: class accuracy by C and number of images drawn per concept."""
    accuracies = pick(pd.concat([rows, published]), metric="accuracy")
    c_of, n_of = ({setting_name(c, n): text.format(c=c, n=n) for c, n in SETTINGS} for text in ("C = {c:g}", "n = {n}"))
    swept = pick(accuracies, item_kind="setting").assign(
        row=lambda found: found["item"].map(c_of), column=lambda found: found["item"].map(n_of)
    )
    if pick(swept, model=POST_HOC).empty:
        return []
    # One number without a setting: it stands in the first column of its source.
    plain = accuracies[(accuracies["model"] == PLAIN) | (accuracies["item"] == PLAIN)]
    plain = plain.assign(
        row=PLAIN, column=n_of[setting_name(*SETTINGS[0])], model=plain["model"].replace(PLAIN, POST_HOC)
    )
    order = {"row": list(dict.fromkeys([*c_of.values(), PLAIN])), "column": list(dict.fromkeys(n_of.values()))}
    cells = ordered(pd.concat([swept, plain], ignore_index=True), model=[POST_HOC, PAPER], **order)
    caption = "Class accuracy of the post-hoc CBM in %, by the SVM's C and the number n of images drawn with and "
    caption += "without each concept."
    title = "Table 3: class accuracy by setting of the bank"
    return [Table("table-3", title, cells, ["row"], ["model", "column"], caption=caption)]


def defined_table(rows: pd.DataFrame) -> Table:
    """Return how many scores were defined; of random directions they are banks."""
    cells = pick(rows, item="", model=list(MODELS[:3]), metric=["CEM", CEM_GAIN, "CLM", "CGIM", CGIM_CORRELATION])
    cells = cells[cells["l"].isin([1.0, math.nan]) & cells["alpha"].isin([1.0, math.nan])]
    what = (
        cells["item_kind"]
        .map(KINDS)
        .fillna(cells["set"].where(cells["metric"].isin(["CEM", CEM_GAIN]), "").map(SETS))
        .fillna("")
    )
    cells = cells.assign(
        name=cells["metric"] + " " + what + cells["explanation"].map(", by {}".format),
        text=[f"{n} of {n + missing}" for n, missing in zip(cells["n"], cells["undefined"], strict=True)],
        low=math.nan,
        high=math.nan,
    )
    caption = "Undefined are images in which no part of the ranked concepts is visible, wrong ones where only correct "
    caption += "ones enter, and concepts or classes without a correct image. They enter no mean."
    return Table("defined", "Scores that were defined", cells, ["name"], ["model"], caption=caption)


def shown_names(names: Sequence[str]) -> dict[str, str]:
    """Return readable names; as they are where two would be the same."""
    shown = {name: readable(name) for name in names}
    return shown if len(set(shown.values())) == len(shown) else {name: name for name in names}


def extremes(rows: pd.DataFrame) -> list[Picture]:
    """Draw the best and worst concepts and classes over their own random ranges."""
    pictures = []
    scores = pick(rows, metric=CGIM_CORRELATION, model=POST_HOC, explanation="contribution")
    for kind, plural in (("concept", "concepts"), ("class", "classes")):
        items = pick(scores[(scores["item"] != "") & scores["value"].notna()], item_kind=kind)
        items = items.sort_values("value", ascending=False, kind="stable")
        if items.empty:
            continue
        chosen = items if len(items) <= 2 * BEST else pd.concat([items[:BEST], items[-BEST:]])
        chosen = chosen.assign(item=chosen["item"].map(shown_names(list(chosen["item"]))))
        figure, _ = dots(chosen, "item", label="CGIM correlation by contribution", percent=False, reference=0)
        which = f"The {BEST} best and the {BEST} worst of {len(items)}" if len(chosen) < len(items) else "All"
        pictures.append(Picture(f"best_and_worst_{plural}", figure, f"{which} {plural} of the {POST_HOC}."))
    return pictures


def full_tables(rows: pd.DataFrame, draws: pd.DataFrame) -> list[Table]:
    """Return all correlations by name, as the paper's Tables 6 to 8, and how well the directions know the concepts."""
    tables, passed = [], set()
    for ranking in RANKINGS:
        items, found = discoveries_of(rows, draws, ranking)
        passed |= {(ranking, name) for name in items.loc[found.passed, "item"]}
    for kind, plural in (("concept", "concepts"), ("class", "classes")):
        items = pick(rows[rows["item"] != ""], item_kind=kind)
        scores = pick(items, metric=CGIM_CORRELATION, model=[POST_HOC, TRADITIONAL, RANDOM])
        marks = [
            ("▲" if row["value"] > row["random_high"] else "▼")
            if kind == "concept" and row["model"] == POST_HOC and (row["explanation"], row["item"]) in passed
            else ""
            for row in scores.to_dict("records")
        ]
        texts = [f"{number(value)} {mark}" if mark else "" for value, mark in zip(scores["value"], marks, strict=True)]
        scores = scores.assign(column=scores["explanation"].map(RANKINGS), text=texts)
        known = pick(items, metric="CAV accuracy").assign(model="directions", column=HELD_OUT)
        known["text"] = [f"{number(value)} (weak)" if value < WEAK else "" for value in known["value"]]
        cells = pd.concat([scores, known], ignore_index=True)
        names = shown_names(list(dict.fromkeys(cells["item"])))
        models, columns = [POST_HOC, TRADITIONAL, RANDOM, "directions"], [*RANKINGS.values(), HELD_OUT]
        cells = ordered(cells, item=names, model=models, column=columns)
        title = f"All {len(names)} {plural} (CGIM correlation)"
        caption = f"{SMALL} Weak: held-out accuracy below {WEAK:g}." if kind == "concept" else SMALL
        tables.append(Table(f"all-{plural}", title, cells, ["item"], ["model", "column"], number, caption))
    return tables


def intervention_rows(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the accuracies after interventions; before any, with the interval of the class accuracy."""
    whose = {baseline_name(WRONG_LABELS, model): model for model in MODELS}
    curves = pick(rows, metric=INTERVENED)
    wrong = curves["model"].isin(list(whose))
    curves = curves.assign(
        model=curves["model"].replace(whose),
        labels=np.where(wrong, WRONG_LABELS, TRUE_LABELS),
        count=curves["l"].astype(int),
    )
    accuracies = pick(rows, metric="accuracy", item="").set_index("model")
    for end in ("low", "high"):
        # One accuracy has one interval, though that of the curve is over classes.
        curves[end] = curves[end].where(curves["count"] > 0, curves["model"].map(accuracies[end]))
    return curves


def interventions(rows: pd.DataFrame) -> tuple[list[Picture], list[Picture]]:
    """Draw what people's corrections do to the class accuracy: the post-hoc CBM, and folded the other models."""
    curves = intervention_rows(rows)
    counts = sorted(set(curves["count"]))
    curves = curves.assign(x=curves["count"].map(counts.index))
    curves["series"] = curves["explanation"].map(ORDERS) + curves["labels"].map(ANSWERS)
    curves.loc[curves["model"] == RANDOM, "series"] = RANDOM
    series = [order + answers for answers in ANSWERS.values() for order in ORDERS.values()]
    pictures = []
    for model in MODELS[:3]:
        own = pick(curves, model=[model, RANDOM] if model == POST_HOC else model)
        if not own.empty:
            figure, _ = lines(
                own,
                "x",
                "series",
                label_x="concepts answered by people",
                label="class accuracy (%)",
                order=series,
                colours=dict(zip(series, PALETTE[:3] * 2, strict=True)),
                dashed=series[len(ORDERS) :],
                ax=new_axes(5.2)[1],
                band=RANDOM,
                ticks={place: str(count) for place, count in enumerate(counts)},
            )
            caption = CORRECTIONS if model == POST_HOC else f"Corrections of the {model}"
            pictures.append(Picture(f"interventions_{model.split()[0]}", figure, caption))
    return pictures[:1], pictures[1:]


def location(rows: pd.DataFrame) -> Figure:
    """Draw CLM over the size of the region: models, baselines of the maps, chance and the band of random banks."""
    chosen = pick(rows, metric="CLM", model=[*MODELS, *BASELINES], **FIRST)
    chance = chosen.drop_duplicates("alpha").assign(model=CHANCE, value=lambda found: found["alpha"] / 12)
    chance[["low", "high"]] = math.nan
    chosen = pd.concat([chosen, chance])
    return lines(
        chosen.assign(region=100 * chosen["alpha"] / 12),
        "region",
        "model",
        label_x="strongest region of the map (% of the image)",
        label="region holds the part (CLM, %)",
        order=[*MODELS, *BASELINES, CHANCE],
        colours=COLOURS,
        dashed=[*BASELINES, CHANCE],
        band=RANDOM,
        ticks={100 * alpha / 12: f"{100 * alpha / 12:.0f} %\nα = {alpha:g}" for alpha in sorted(set(chosen["alpha"]))},
        # Room for a legend of nine lines.
        ax=new_axes(5.6)[1],
    )[0]


def histograms(rows: pd.DataFrame) -> Figure:
    """Draw the histograms of CGIM, as the paper's Figure 2: concepts left, classes right, a ranking a row."""
    figure = Figure(figsize=(WIDTH, 5.4), layout="constrained")
    panels = figure.subplots(3, 2, sharex=True)
    handles: dict[str, Any] = {}
    for row, ranking in zip(panels, RANKINGS, strict=True):
        for ax, kind in zip(row, KINDS, strict=True):
            scores = pick(rows, metric="CGIM", explanation=ranking, item_kind=kind)
            for model in (POST_HOC, TRADITIONAL):
                values = pick(scores[scores["item"] != ""], model=model)["value"].dropna()
                if len(values):
                    ax.hist(values, np.linspace(-1, 1, 21), histtype="step", color=COLOURS[model], linewidth=1.6)
                    handles[model] = Line2D([], [], color=COLOURS[model])
            if (random := one(scores, model=RANDOM, item="")) is not None:
                ax.axvspan(random["low"], random["high"], color=BAND, zorder=0)
                handles["95 % of random banks"] = Patch(color=BAND)
            ax.yaxis.set_major_locator(MaxNLocator(4, integer=True))
        row[0].set_ylabel(f"by {RANKINGS[ranking]}")
    for ax, kind in zip(panels[0], KINDS, strict=True):
        ax.set_title(f"number, {KINDS[kind]}")
    figure.supxlabel("CGIM (cosine, 1 is best)", fontsize=10)
    add_legend(panels[0, 0], handles)
    return figure


def draw_gallery(shown: Mapping[str, Tensor], class_names: Sequence[str], concept_names: Sequence[str]) -> Figure:
    """Draw images with their concepts and maps, as `OneSeed` keeps them."""
    titles = [
        f"{'' if guess == label else 'WRONG '}true: {readable(class_names[label])}\n"
        f"predicted: {readable(class_names[guess])}"
        for label, guess in zip(shown["labels"].tolist(), shown["predicted"].tolist(), strict=True)
    ]
    figure, axes = gallery(
        shown["images"],
        shown["maps"],
        [[readable(concept_names[j]) for j in row] for row in shown["concepts"].tolist()],
        shown["present"],
        shown["class_maps"],
        titles,
        absent=shown["absent"],
        contributions=shown["contributions"],
    )
    for ax in axes.flat:
        if ax.title.get_color() == "black":
            # Text that turns light on a dark page.
            ax.title.set_color(INK)
    return figure
