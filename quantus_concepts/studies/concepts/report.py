"""The report of the concept study: verdicts, presence and place by ranking, the paper's tables, galleries."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Literal

import numpy as np
import pandas as pd

from quantus_concepts.metrics.bottleneck.concept_regions import BASELINES as REGION_BASELINES
from quantus_concepts.metrics.bottleneck.concept_regions import SCORES as REGION_SCORES
from quantus_concepts.metrics.concepts.names import (
    ACCURACY,
    AUC_WITHIN,
    BASELINE,
    CEM_GAIN,
    CGIM_CORRELATION,
    CONCEPT_AUC,
    ITEM,
    OTHER_PARTS,
    PART_SPECIFICITY,
    SCORE,
)
from quantus_concepts.metrics.streaming.table import kinds_of_rows
from quantus_concepts.painted.subject import POST_HOC, RANDOM, TRADITIONAL
from quantus_concepts.results.over_seeds import with_reliability
from quantus_concepts.results.verdicts import CHANCE as BY_CHANCE
from quantus_concepts.results.verdicts import NO_VERDICT, UNKNOWN, WEAK, doubt, with_verdicts
from quantus_concepts.results.verdicts import RANKINGS as VERDICTS_BY
from quantus_concepts.studies._kit.comparisons import comparison_table
from quantus_concepts.studies._kit.report import Picture, Report, Section, Table, Verdict, Writer, number, percent
from quantus_concepts.studies._kit.results import PAPER, join_seeds, load_paper, one, pick
from quantus_concepts.studies.concepts import figures
from quantus_concepts.studies.concepts.bottleneck import bottleneck_parts, gap_verdict
from quantus_concepts.studies.concepts.collection import Collected, Scored
from quantus_concepts.studies.concepts.comparisons import (
    PLAIN,
    bounds_of,
    compare_answers,
    compare_rivals,
    concepts_of,
    discoveries_of,
    is_shown_set,
    with_chance,
    with_image_intervals,
    with_own_ranges,
)
from quantus_concepts.studies.concepts.settings import Concepts
from quantus_concepts.studies.concepts.terms import (
    BASELINES,
    CEM_BASELINES,
    CGIM_BASELINES,
    CHANCE,
    HELD_OUT,
    KINDS,
    MODEL_COLUMNS,
    MODELS,
    RANKINGS,
    READING,
    SETS,
    SETTINGS,
    UNTRAINED,
    ordered,
    setting_name,
    shown_names,
    values_name,
)

OUTSIDE = "outside its own random range, corrected for all concepts (Benjamini and Hochberg)."
SMALL = "Small numbers: 95 % intervals; of random directions where 95 % of the banks lie."
#: Why a difference of maps' places, or of CGIM, has no verdict or no numbers beside it.
NO_ZERO = (
    "Part specificity, and maps less the other parts, have no verdict against 0: parts lie where they lie. The two "
    "CGIM correlations are compared over the classes that both have, so only their difference is here."
)
#: What says which number a value is; the last row of a table of models, with several seeds.
NUMBER_OF = ["metric", "explanation", "set", "l", "alpha", "item_kind", "baseline"]
SEPARATING = "separates these models?"
#: What the range of a model is of.
AGAINST = "compared with"
VALUES = ("margin", "raw")
LEVELS = ("l = 1", "l = 3", "l = 5", "")
#: What else the rows of a table of scores are about, besides the ranking.
ROWS: dict[str, Mapping[float, str] | Mapping[str, str]] = {
    "set": SETS,
    "alpha": {alpha: f"α = {alpha:g}" for alpha in (1.0, 3.0, 6.0)},
    "item_kind": KINDS,
}
#: Scores of maps against the object.
REGIONS = [*REGION_SCORES.values()]
#: How differences of a metric are written.
DIFFERENCES = dict.fromkeys([ACCURACY, CONCEPT_AUC, "CEM", CEM_GAIN, PART_SPECIFICITY, "CLM"], percent) | {
    CGIM_CORRELATION: number
}


def build_report(collected: Collected, settings: Concepts) -> Report:
    """Declare the report; on CUB the paper's rows stand beside ours."""
    whose, paper = whose_concepts(collected.by_class), settings.data == "cub"
    seeds, observed = settings.all_seeds, collected.main.observed
    rows = shown_rows(collected.main, collected.same_images)
    published = load_paper(__package__, l=float, alpha=float) if paper else rows.iloc[:0]
    shown = Picture(
        "gallery",
        collected.gallery,
        "Correctly classified images, below them wrong ones; concepts of the largest effects on the predicted "
        f"class, and their maps. ✓ {whose}, ✗ not; “no …” speaks for the class by being absent.",
        wide=True,
    )
    gain, gain_of_more, cem = presence_tables(rows, published, whose)
    correlation, cgim = importance_tables(rows)
    histograms = Picture("cgim_histograms", figures.histograms(rows), figures.HISTOGRAMS)
    # Painted birds have no row of the paper, and the classes' names are invented.
    painted = settings.data == "painted"
    kinds = ["concept"] if painted else ["concept", "class"]
    place: tuple[list[Table | Picture], list[Table]] = ([], [])
    if has_points := not pick(rows, metric="CLM").empty:
        clm, specificity = place_tables(rows, published)
        place = [Picture("clm", figures.location(rows), figures.PLACE)], [*([] if painted else [clm]), specificity]
    elif not (regions := pick(rows, metric=REGIONS)).empty:
        place = [regions_table(regions)], []
    important: list[Table | Picture] = [cgim, histograms, *figures.extremes(rows, kinds)]
    important += [values_table(rows, settings.values), *full_tables(rows, observed)]
    of_rivals = rivals_tables(collected, rows)
    bottleneck, *curves = bottleneck_parts(rows)
    sections = [
        Section("Is one model better?", of_rivals[:1], [*of_rivals[1:], comparisons_table(collected, rows)]),
        Section("Are the concepts present?", [gain], [gain_of_more, *([] if painted else [cem])]),
        Section("Are they in the right place?", *place),
        Section("Are they important where they belong?", [correlation], important),
        Section("Does the class rest on its concepts?", [bottleneck], curves),
        Section("Does it listen to corrections?", figures.interventions(rows)),
        Section("Gallery", [shown]),
        Section(
            "How well do the models classify?",
            folded=[accuracy_table(rows, settings.trains), *settings_table(rows, published)],
        ),
    ]
    used = {*rows["model"], *rows["baseline"], *(["paper"] if paper else [])}
    optional = {*MODELS, PLAIN, UNTRAINED, *BASELINES, *CEM_BASELINES, *CGIM_BASELINES, "paper"}
    n_seeds = f"{len(seeds)} seeds" if len(seeds) > 1 else f"seed {seeds[0]}"
    banks = f"{settings.random_banks} random banks for each"
    printed = "; as printed in the papers" if settings.as_printed else ""
    return Report(
        "Are the concepts real, present, and in the right place?",
        verdicts(rows, observed, whose),
        Picture(
            "presence_and_place",
            figures.presence_and_place(rows, whose),
            "The concept ranked first, by four rankings: how much more often it is "
            f"{whose} than in other images (CEM gain)"
            f"{' and its map holds its own part than other parts (part specificity, α = 1)' if has_points else ''}.",
        ),
        sections,
        lead=f"{collected.images[:1].upper()}{collected.images[1:]}; {n_seeds}, {banks}{printed}.",
        reading={name: text for name, text in READING.items() if name in used or name not in optional},
        links={"concept explorer": "explore.html"} if settings.explore else {},
        subject=f"{POST_HOC} of {collected.name}",
    )


def whose_concepts(by_class: bool) -> str:
    """Return where a concept is said to be."""
    return "of its class" if by_class else "in the image"


def shown_rows(scored: Scored, same_images: bool) -> pd.DataFrame:
    """Return the means over seeds that the page shows, with their ranges and verdicts."""
    rows = joined(scored, same_images)
    others = (rows["metric"] == CGIM_CORRELATION) & np.array(
        [not is_shown_set(row) for row in rows.to_dict("records")], dtype=bool
    )
    return with_verdicts(with_own_ranges(rows[~others], scored.observed))


def joined(scored: Scored, same_images: bool) -> pd.DataFrame:
    """Average over seeds; seeds that share their images have intervals over both where there are scores of images."""
    # Random banks have the kinds of row that models have, so that each number finds its range.
    frame = scored.frame.astype({"l": float}).assign(what=kinds_of_rows(scored.frame))
    rows = join_seeds(frame, RANDOM, bounds_of)
    # The random banks have the values of the first post-hoc model.
    rows.loc[rows["model"].isin(map(values_name, VALUES)), ["random_low", "random_high"]] = math.nan
    return with_image_intervals(rows, scored.observed) if same_images and frame["seed"].nunique() > 1 else rows


def verdicts(rows: pd.DataFrame, observed: pd.DataFrame, whose: str) -> list[Verdict]:
    """Return the answers on accuracy, presence, place and importance: in all images first, by the fixed rankings."""
    ours = pick(rows, model=POST_HOC, what=SCORE)

    def by_ranking(question: str, metric: str, write: Writer = percent, **where: float | str) -> list[Verdict]:
        return [
            Verdict.of(
                question.format(f"by {name}", counts=own_range(rows, observed, name)),
                one(ours, metric=metric, explanation=name, **where),
                write=write,
            )
            for name in VERDICTS_BY
        ]

    plain = one(rows, model=PLAIN, metric=ACCURACY)
    beside = "" if plain is None else f" (plain backbone: {percent(plain['value'])} %)"
    present = by_ranking(f"First concept {whose}, beyond prevalence ({CEM_GAIN}, {{}})?", CEM_GAIN, set="all", l=1)
    correct = one(ours, metric=CEM_GAIN, set="correct", explanation=VERDICTS_BY[0], l=1)
    question = "Map at its own part, more than random directions (part specificity, α = 1, {})?"
    place = by_ranking(question, PART_SPECIFICITY, alpha=1, l=1)
    question = f"Important where it belongs ({CGIM_CORRELATION}, {{}}; {{counts}})?"
    return [
        Verdict.of(f"Class accuracy{beside}", one(ours, metric=ACCURACY)),
        Verdict.of("Are the concepts known (concept AUC)?", one(ours, metric=CONCEPT_AUC)),
        *present,
        Verdict.of(f"In correctly classified images ({CEM_GAIN}, by {VERDICTS_BY[0]})?", correct),
        *(place if not pick(ours, metric=PART_SPECIFICITY).empty else []),
        *by_ranking(question, CGIM_CORRELATION, number, item_kind="concept"),
        *gap_verdict(rows),
    ]


def own_range(rows: pd.DataFrame, observed: pd.DataFrame, ranking: str) -> str:
    """Count the concepts above and below their own random range, with what luck brings."""
    items, found = discoveries_of(rows, observed, ranking)
    counts = f"{found.n_above} of {len(items)} concepts above own range, {found.n_below} below"
    return f"{counts}; {found.n_by_luck:.1f} by luck"


def comparisons_table(collected: Collected, rows: pd.DataFrame) -> Table:
    """Return the paired differences of models, and of maps and their baselines."""
    compared = compare_answers(collected.main.observed, collected.same_images)
    models = {*compared["a"]} if doubt(pick(rows, model=POST_HOC)) else set()
    caption = "On the same images, in % and percentage points (CGIM correlation: over classes): the first concept, and "
    caption += f"maps at α = 1. p-values are corrected for all rows (Holm). {NO_ZERO}"
    return comparison_table(
        "comparisons", "Paired differences", without_verdict(compared, models), DIFFERENCES, caption
    )


def without_verdict(compared: pd.DataFrame, models: Collection[str]) -> pd.DataFrame:
    """Set the verdict on the concepts of some models to "no verdict", and leave out what is no verdict against 0.

    Part specificity is none, nor what a ranking depends on where the zero of the values is. Accuracies are compared all
    the same. CGIM's two numbers are those of the shared classes, and stand in no other
    table: only their difference is shown.
    """
    of_them = (compared["a"].isin(models) | compared["b"].isin(models)) & (compared["metric"] != ACCURACY)
    of_place = (compared["metric"] == PART_SPECIFICITY) | (compared["b"] == OTHER_PARTS)
    if "explanation" in compared:
        of_place |= compared["explanation"].isin([*RANKINGS][1:])
    verdict = np.select([of_place, of_them], [UNKNOWN, NO_VERDICT], "")
    of_classes = compared["metric"] == CGIM_CORRELATION
    numbers = {name: compared[name].mask(of_classes) for name in ("value_a", "value_b")}
    return compared.assign(verdict=verdict, **numbers)


def verdict_and_text(row: pd.Series) -> tuple[str, str]:
    """Return the verdict of a model's number, and how a cell shows both."""
    if math.isnan(row["value"]):
        return "", f"– ({row['undefined']} undefined)" if row["metric"] == CGIM_CORRELATION else ""
    return row["verdict"], f"{DIFFERENCES[row['metric']](row['value'])} {row['verdict']}"


def rivals_tables(collected: Collected, rows: pd.DataFrame) -> list[Table]:
    """Return the numbers of each backbone and each model of the user's, and the paired differences of all of them."""
    if not collected.rivals:
        return []
    tables = {name: scored.observed for name, scored in collected.models.items()}
    of_model = {collected.name: pick(rows, model=POST_HOC, what=SCORE)}
    for name, rival in collected.rivals.items():
        own = pick(joined(rival, collected.same_images), model=POST_HOC, what=SCORE)
        if RANDOM not in set(rival.frame["model"]):
            own = with_chance(own, rival.observed)
        of_model[name] = with_verdicts(own)
    unknowing = [name for name, own in of_model.items() if doubt(own)]
    concepts = {name: concepts_of(images) for name, images in tables.items()}
    others = [name for name in collected.rivals if concepts[name] != concepts[collected.name]]
    cells = pd.concat([found.assign(model=name) for name, found in of_model.items()], ignore_index=True)
    shown = pick(cells, metric=CGIM_CORRELATION)
    shown = shown[np.array([is_shown_set(row) for row in shown.to_dict("records")], dtype=bool)]
    columns = {
        AGAINST: pick(cells, metric=ACCURACY).assign(metric=AGAINST),
        ACCURACY: pick(cells, metric=ACCURACY),
        CONCEPT_AUC: pick(cells, metric=CONCEPT_AUC),
        CEM_GAIN: pick(cells, metric=CEM_GAIN, set="all", l=1),
        PART_SPECIFICITY: pick(cells, metric=PART_SPECIFICITY, alpha=1, l=1),
        CGIM_CORRELATION: shown[shown["item_kind"] == "concept"],
    }
    cells = pd.concat(list(columns.values())[1:], ignore_index=True)
    cells[["verdict", "text"]] = [verdict_and_text(row) for _, row in cells.iterrows()]
    cells = pd.concat([cells, separating(cells, of_seeds(collected))], ignore_index=True)
    kinds = columns[AGAINST].assign(text=columns[AGAINST]["against"], verdict="")
    kinds[["value", "low", "high", "random_low", "random_high"]] = math.nan
    cells = pd.concat([kinds, cells], ignore_index=True).fillna({"explanation": ""})
    rankings = {"": ""} | {name: RANKINGS[name] for name in VERDICTS_BY}
    cells = ordered(cells, model=[*of_model, SEPARATING], metric=list(columns), explanation=rankings)
    caption = (
        "In % and percentage points; CGIM correlation: its mean over the concepts. The first concept of all images, "
        f"and maps at α = 1. Of a backbone it is the {POST_HOC}. Above, within or below: against the range that the "
        "first column names; the CSV has the ranges."
    )
    if BY_CHANCE in set(cells["text"]):
        caption += (
            " A model without random banks has chance: the share of the commonest class for the accuracy, 0 for CEM "
            "gain, and where 95 % of the correlations by effect lie when classes are shuffled; others have none."
        )
    if SEPARATING in set(cells["model"]):
        caption += (
            " The last row: whether a number tells these models apart, or the luck of a training (`reliability`)."
        )
    if cells["text"].str.endswith("undefined)").any():
        caption += " Undefined: too few classes have a correctly classified image, or the importance does not vary."
    differences = without_verdict(compare_rivals(tables, collected.same_images), unknowing)
    every = f"Each pair on the same images, as above; p-values are corrected for all rows (Holm). {NO_ZERO}"
    if others:
        every += (
            f" Other concepts than those of {collected.name}: {', '.join(others)}. Differences can come from them; "
        )
        every += "only CGIM correlation is over the concepts that all have."
    if unknowing:
        every += f" No verdict on the concepts of {', '.join(unknowing)}: the concept AUC is not above random banks."
    return [
        Table("models", "All models", cells, ["model"], ["metric", "explanation"], DIFFERENCES, caption),
        comparison_table("models-compared", "Paired differences of all models", differences, DIFFERENCES, every),
    ]


def of_seeds(collected: Collected) -> pd.DataFrame:
    """Return the numbers of all models by seed."""
    frames = [
        pick(
            scored.frame.astype({"l": float}).assign(what=kinds_of_rows(scored.frame)), what=SCORE, model=scored.kind
        ).assign(model=name)
        for name, scored in collected.models.items()
    ]
    return pd.concat(frames, ignore_index=True)[["model", "seed", "value", *NUMBER_OF]]


def separating(cells: pd.DataFrame, numbers: pd.DataFrame) -> pd.DataFrame:
    """Return the last row of a table of models: of each number whether it separates them; none of a single seed."""
    if numbers["seed"].nunique() < 2:
        return cells.iloc[:0]
    shown = numbers.merge(cells[NUMBER_OF].drop_duplicates(), on=NUMBER_OF)
    found = with_reliability(cells, shown).drop_duplicates(NUMBER_OF)
    found[["value", "low", "high", "random_low", "random_high"]] = math.nan
    return found.assign(model=SEPARATING, text=found["reliability"], verdict="")


def ranked_table(
    name: str,
    title: str,
    cells: pd.DataFrame,
    by: Literal["set", "alpha", "item_kind"],
    caption: str,
    *,
    baselines: Sequence[str] = (),
    levels: bool = False,
    write: Writer = percent,
) -> Table:
    """Return a table of scores by ranking, with rows of the `baselines`, and columns of models and, if asked, of l."""
    cells = with_baselines(cells, baselines)
    cells = cells.assign(level=[f"l = {top:g}" if top == top else "" for top in cells["l"]])
    shown = RANKINGS | {baseline: baseline for baseline in baselines}
    cells = ordered(
        cells, **{by: ROWS[by]}, explanation=shown, model=MODEL_COLUMNS, **({"level": LEVELS} if levels else {})
    )
    columns = ["model", *(["level"] if levels else [])]
    return Table(name, title, cells, [by, "explanation"], columns, write, f"{caption} {SMALL}")


def with_sources(rows: pd.DataFrame, published: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return the rows of a metric of all models, of the paper and of chance."""
    ours = pick(rows, metric=metric)
    chance = pick(ours, model=POST_HOC, what=SCORE, l=1)
    chance = chance.assign(model=CHANCE, value=chance["chance"], l=math.nan)
    chance[["low", "high", "random_low", "random_high"]] = math.nan
    return pd.concat([ours, pick(published, metric=metric), chance], ignore_index=True)


def with_baselines(rows: pd.DataFrame, baselines: Sequence[str]) -> pd.DataFrame:
    """Return rows in which a baseline takes the place of a ranking; it is compared with no random range."""
    is_baseline = rows["what"] == BASELINE
    rows = rows[~is_baseline | rows["baseline"].isin(baselines)].copy()
    rows["explanation"] = rows["baseline"].where(rows["what"] == BASELINE, rows["explanation"])
    rows.loc[rows["what"] == BASELINE, ["random_low", "random_high"]] = math.nan
    return rows


def presence_tables(rows: pd.DataFrame, published: pd.DataFrame, whose: str) -> list[Table]:
    """Return CEM gain by ranking, of the first concept and of several, and Table 1 of the paper."""
    gain, cem = pick(rows, metric=CEM_GAIN), with_sources(rows, published, "CEM")
    title = "Concept existence above prevalence (CEM gain)"
    caption = "Presence of the first {} less {} share of the other images, in percentage points."
    one, several = caption.format("concept", "its"), caption.format("l concepts", "their")
    often = f"How often the first l concepts are {whose}, in %."
    return [
        ranked_table("cem-gain", title, pick(gain, l=1), "set", one),
        ranked_table("cem-gain-of-several", f"{title} of several", gain[gain["l"] > 1], "set", several, levels=True),
        ranked_table(
            "table-1", "Table 1: concept existence (CEM)", cem, "set", often, baselines=CEM_BASELINES, levels=True
        ),
    ]


def place_tables(rows: pd.DataFrame, published: pd.DataFrame) -> list[Table]:
    """Return Table 2 of the paper with the baselines of the maps, and how much oftener maps hold their own part."""
    clm, specificity = with_sources(rows, published, "CLM"), pick(rows, metric=PART_SPECIFICITY)
    title, caption = (
        "Table 2: concept location (CLM)",
        "How often the strongest α/12 of the map holds the part, in %. Baselines of the maps are for the ranking by "
        "effect.",
    )
    more = "How much more often the map of the first concept holds its own part than the other visible parts of the "
    more += "same image, in percentage points."
    return [
        ranked_table("table-2", title, clm, "alpha", caption, baselines=BASELINES, levels=True),
        ranked_table("part-specificity", "Part specificity", specificity, "alpha", more, baselines=BASELINES),
    ]


def regions_table(rows: pd.DataFrame) -> Table:
    """Return how much of the maps is on the object, where it is marked."""
    cells = with_baselines(rows, REGION_BASELINES)
    cells = ordered(cells, metric=REGIONS, explanation=["effect", *REGION_BASELINES], model=MODEL_COLUMNS)
    caption = (
        "Maps of the concept of largest effect against the object, as it is marked, in %. Coverage: how often a map "
    )
    caption += (
        f"spans more than those of 39 random directions (chance is 1 in 40); neither more nor less is better. {SMALL}"
    )
    title = "Maps and the object (ConceptRegions)"
    return Table("regions", title, cells, ["metric", "explanation"], ["model"], percent, caption)


def importance_tables(rows: pd.DataFrame) -> list[Table]:
    """Return the mean correlation of importance and truth by ranking, and the mean CGIM."""
    correlation = pick(rows, metric=CGIM_CORRELATION, what=SCORE)
    cosine = pick(rows, metric="CGIM", what=[SCORE, BASELINE])
    title = "Importance and truth (CGIM correlation)"
    caption = "Mean of Pearson's correlation of importance and truth; 0 is no relation. By value over all images."
    cgim, mean = "Concept global importance (CGIM)", "Mean cosine of importance and truth. By effect, value and "
    mean += "contribution, classes without a correctly classified image are left out."
    return [
        ranked_table("cgim-correlation", title, correlation, "item_kind", caption, write=number),
        ranked_table("cgim", cgim, cosine, "item_kind", mean, baselines=CGIM_BASELINES, write=number),
    ]


def values_table(rows: pd.DataFrame, values: str) -> Table:
    """Return CEM and CGIM correlation with margins and with raw values."""
    (other,) = [name for name in VALUES if name != values]
    columns = {POST_HOC: values, values_name(other): other}
    metrics = {"CEM": "CEM, l = 1", CGIM_CORRELATION: f"{CGIM_CORRELATION}, per concept"}
    found = [
        pick(rows, metric="CEM", set="all", l=1, what=SCORE, model=list(columns)),
        pick(rows, metric=CGIM_CORRELATION, item_kind="concept", what=SCORE, model=list(columns)),
    ]
    cells = ordered(pd.concat(found).assign(name=lambda of: of["metric"]), name=metrics, explanation=RANKINGS)
    cells = ordered(cells, model=columns)
    caption = "The same directions, with a head for each kind of values; the choice can reverse what a ranking finds. "
    caption += f"All other tables have {values} values (--values)."
    title = "Margin or raw values"
    return Table("values", title, cells, ["name", "explanation"], ["model"], DIFFERENCES, caption)


def accuracy_table(rows: pd.DataFrame, trains: bool) -> Table:
    """Return the accuracies of all models, of their concepts, and of the directions on images held back."""
    metrics = {"accuracy": "classes", "concept accuracy": "concepts", CONCEPT_AUC: "concept AUC"}
    metrics |= {AUC_WITHIN: "within predicted classes", "CAV accuracy": f"directions, {HELD_OUT}"}
    cells = ordered(pick(rows, what=SCORE), metric=metrics, model=[PLAIN, *MODELS, UNTRAINED])
    caption = f"On the test images, in %. {SMALL}"
    if why := doubt(pick(rows, model=POST_HOC)):
        caption += f" The {POST_HOC} does not know its concepts ({why}): no score of them is praised."
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


def full_tables(rows: pd.DataFrame, observed: pd.DataFrame) -> list[Table]:
    """Return all correlations by name, as the paper's Tables 6 to 8, and how well the directions know the concepts."""
    tables, passed, fewest = [], set(), 1
    doubted = bool(doubt(pick(rows, model=POST_HOC)))
    for ranking in VERDICTS_BY:
        items, found = discoveries_of(rows, observed, ranking)
        fewest = max(fewest, found.fewest)
        passed |= {(ranking, name) for name in items.loc[found.passed, "item"]}
    for kind, plural in (("concept", "concepts"), ("class", "classes")):
        items = pick(rows, what=ITEM, item_kind=kind)
        scores = pick(items, metric=CGIM_CORRELATION, model=[POST_HOC, TRADITIONAL, RANDOM])
        marks = [
            ("▲" if row["value"] > row["random_high"] else "▼")
            if kind == "concept"
            and row["model"] == POST_HOC
            and (row["explanation"], row["item"]) in passed
            and not (doubted and row["value"] > row["random_high"])
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
        caption = SMALL
        if kind == "concept":
            caption += f" Weak: held-out accuracy below {WEAK:g}. ▲ ▼: {OUTSIDE}"
            if fewest > 1:
                caption += f" So few banks let a concept pass only if {fewest} do: more (--random-banks) can show more."
        tables.append(Table(f"all-{plural}", title, cells, ["item"], ["model", "column"], number, caption))
    return tables
