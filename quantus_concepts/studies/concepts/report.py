"""The report of the concept study, declared over its frame: answers, findings, tables and charts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from quantus_concepts.metrics.streaming.curves import plot_interventions
from quantus_concepts.metrics.streaming.names import (
    BOUNDS,
    FEATURE_NORM,
    GAUSSIAN,
    OTHER_IMAGE,
    OTHER_PARTS,
    PART_SPECIFICITY,
)
from quantus_concepts.studies._kit.charts import Bars, Chart, Curves, Histograms, tidy
from quantus_concepts.studies._kit.findings import ends, number, points
from quantus_concepts.studies._kit.page import Page, Section
from quantus_concepts.studies._kit.results import PAPER, against_control, load_paper, names, one, over_seeds, pick
from quantus_concepts.studies._kit.run import Run
from quantus_concepts.studies._kit.tables import CHANCE, Table, arrange, in_percent, in_percents, with_sources
from quantus_concepts.studies._models.subjects import ORACLE, POST_HOC, RANDOM, TRADITIONAL
from quantus_concepts.studies.concepts.findings import (
    BASELINES,
    FIRST,
    MODELS,
    PLAIN,
    RANKINGS,
    SETS,
    SETTINGS,
    answers,
    baseline_name,
    findings,
    intervention_rows,
    setting_name,
)
from quantus_concepts.studies.concepts.options import CUB, ConceptOptions

SOURCE = "Aysel et al. (2025), Concept-Based Explainable AI: Metrics and Benchmarks"
LEGEND = {
    POST_HOC: "Concept directions found in a trained backbone, and a linear head on the projections.",
    TRADITIONAL: "A concept layer trained with the concept labels of each image; sigmoid values.",
    ORACLE: "The true attributes as values and a Gaussian at each true part as map: the best one can do.",
    RANDOM: "The post-hoc CBM with random directions in place of concepts, drawn many times, each with a head of its "
    "own: what a model without knowledge scores. Mean over the banks, in small type where 95 % of them lie.",
    PLAIN: "The backbone with its own classifier, without a bottleneck.",
    OTHER_PARTS: "Baseline of CLM: the same maps, scored against the other visible parts of the same image, each part "
    "weighted by the number of concepts about it.",
    FEATURE_NORM: "Baseline of CLM: the norm of the backbone's features as map, scored against the true parts. It "
    "knows no concept, and is on the object.",
    OTHER_IMAGE: "Baseline of CLM: the same maps, scored against the parts of another image.",
    GAUSSIAN: "Baseline of CLM: one blob at the centre of every image, scored against the true parts.",
}
COLOURS = {POST_HOC: "#D55E00", TRADITIONAL: "#0072B2", ORACLE: "#009E73", OTHER_IMAGE: "#CC79A7", GAUSSIAN: "#B8860B"}
COLOURS |= {OTHER_PARTS: "#882255", FEATURE_NORM: "#666666"}
#: Held-out accuracy below which a direction hardly knows its concept.
WEAK = 0.6
#: Best, and worst, concepts and classes that are drawn.
BEST = 8
LEVELS = ("l = 1", "l = 3", "l = 5", "")
PLURALS = {"concept": "concepts", "class": "classes"}
SHARES: dict[str, Any] = {"write": in_percent, "span": in_percents}
LABELS = RANKINGS | SETS | {"accuracy": "class accuracy"}
KEY = "Small numbers are 95 % intervals; of random directions, where 95 % of the banks lie. ≈ the interval meets what "
KEY += "95 % of the random banks score; ▼ it lies below."
IN_PLACE = "in the right place (CLM, α = 1)"
SUMMARY: dict[str, dict[str, Any]] = {
    "first concept present (CEM, correctly classified)": {"metric": "CEM", "set": "correct", "l": 1},
    IN_PLACE: {"metric": "CLM", "alpha": 1, "l": 1},
    "its part, not others (part specificity, α = 1)": {"metric": PART_SPECIFICITY, "alpha": 1, "l": 1},
    "important where it belongs (CGIM)": {"metric": "CGIM", "item_kind": "concept", "item": ""},
    "predicted right": {"metric": ["accuracy", "concept accuracy"], "item_kind": ""},
}


def join_seeds(frame: pd.DataFrame) -> pd.DataFrame:
    """Average over seeds, and mark what is not surely above random directions."""
    rows = over_seeds(frame.astype({"l": float}), lambda row: BOUNDS.get(row["metric"], (0, 1)), controls=[RANDOM])
    return rows.assign(mark=against_control(rows, RANDOM))


def page(frame: pd.DataFrame, run: Run[ConceptOptions]) -> Page:
    """Declare the report."""
    rows, paper = join_seeds(frame), run.options.data == CUB
    by_class, seeds = run.facts["by class"], names(frame, "seed")
    paper_rows = load_paper(__package__, l=float, alpha=float) if paper else None
    tables = metric_tables(rows, paper_rows, by_class)
    charts, located = metric_charts(rows, by_class), bool(tables["CLM"])
    present = "a concept of the image's class" if by_class else "present in the image"
    gallery = Chart(
        "gallery",
        "Correctly classified images, and below them wrong ones, with the concepts of the largest contributions to "
        f"the predicted class and their maps. ✓ {present} or ✗ not; “no …” speaks for the class by being absent, and "
        "its map shows where the concept would be.",
        run.facts["gallery"],
        wide=True,
    )
    place = Section(
        "Are they in the right place?",
        tables=tables["CLM"] + tables[PART_SPECIFICITY],
        charts=[charts["CLM"]],
        after="Chance is that of a point anywhere in the image. Parts and maps both sit on the object, so any map "
        "scores more: compare with the baselines in italics, for the ranking by contribution. Part specificity "
        "compares each map with itself at the other visible parts of the same image: a map that is on the object "
        "and knows no concept scores 0.",
    )
    accuracies = tables["accuracy"] + settings_table(rows, paper_rows)
    sections = [
        Section("Are the concepts present?", tables=tables["CEM"], charts=[charts["CEM"]]),
        place if located else None,
        Section("Are they important where they belong?", tables=tables["CGIM"], charts=[charts["CGIM"]]),
        extremes(rows),
        directions(rows, len(seeds)),
        interventions(rows),
        Section("Gallery", charts=[gallery]),
        Section("How well do the models classify?", tables=accuracies, beside=True),
    ]
    control = pick(frame, model=RANDOM)
    explained = set(rows["model"]) | {name for name in BASELINES if located}
    return Page(
        f"Concept benchmark: {run.settings['data']}",
        findings(rows, by_class),
        [section for section in sections if section is not None],
        main=[summary_table(rows)],
        answers=answers(rows),
        source=f"Metrics: {SOURCE}.",
        metrics={"CEM": "cem", "CLM": "clm", "CGIM": "cgim"},
        template="concepts/page.html.j2",
        content={
            "legend": {name: text for name, text in LEGEND.items() if name in explained},
            "paper": SOURCE if paper else "",
            "whole_cub": is_whole_cub(run.settings),
            "by_class": by_class,
            "seeds": seeds,
            "n_banks": (control["n"] + control["undefined"]).max(),
            "defined": defined_table(rows),
        },
    )


def metric_charts(rows: pd.DataFrame, by_class: bool) -> dict[str, Chart]:
    """Declare the chart of each metric."""
    whose = "one of the image's class" if by_class else "in the image"
    return {
        "CEM": Chart(
            "cem",
            f"Is the concept ranked first {whose}? Means with 95 % intervals; grey is what 95 % of random banks score.",
            existence(rows, by_class),
        ),
        "CLM": Chart(
            "clm",
            "Is the map's strongest region where the concept is? Dashed lines are baselines without it, and the grey "
            "band is what 95 % of random banks score, the maps of each on some 200 of the images.",
            location(rows),
        ),
        "CGIM": Chart(
            "cgim_histograms",
            "Do importance and truth agree? As the paper's Figure 2; best is one bar at 1. Compare with the grey "
            "band, where the means of 95 % of random banks lie, not with 0.",
            histograms(rows),
        ),
    }


def is_whole_cub(settings: Mapping[str, str]) -> bool:
    """Return whether a run has the images and classes of all of CUB-200-2011, as the paper has."""
    n_images = sum(int(settings.get(name, 0)) for name in ("training images", "test images"))
    return (n_images, int(settings.get("classes", 0))) == (11_788, 200)


def metric_tables(frame: pd.DataFrame, paper: pd.DataFrame | None, by_class: bool) -> dict[str, list[Table]]:
    """Return the tables of each metric, Tables 1 and 2 of the paper among them; none where there is no number."""
    whose = "are concepts of the image's class" if by_class else "are present in the image"
    maps = with_baselines(pick(frame, metric=["CLM", PART_SPECIFICITY]))
    located = with_sources(pick(maps, metric="CLM"), ["alpha", "explanation"], paper)
    at = [f"α = {alpha:g}" for alpha in sorted({*maps["alpha"], *located["alpha"]})]
    of_maps: dict[str, Any] = {
        "rows": {"α": at, "explanation": [*RANKINGS, *BASELINES]},
        "controls": BASELINES,
        **SHARES,
    }
    accuracies = ["accuracy", "concept accuracy"]
    return {
        "CEM": table_list(
            "Table 1",
            f"Concept existence (CEM): how often the first l concepts {whose}, in %.",
            with_heads(with_sources(pick(frame, metric="CEM"), ["set", "explanation"], paper)),
            {"set": SETS, "explanation": RANKINGS},
            ["model", "level"],
            **SHARES,
        ),
        "CLM": table_list(
            "Table 2",
            "Concept location (CLM): how often the map's strongest α/12 of the image holds the part, in %.",
            with_heads(located),
            columns=["model", "level"],
            **of_maps,
        ),
        PART_SPECIFICITY: table_list(
            "Part specificity",
            "How much more often the map of the first concept holds the concept's part than the other visible parts of "
            "the same image, in percentage points, paired by image.",
            with_heads(pick(maps, metric=PART_SPECIFICITY)),
            columns=["model"],
            **of_maps,
        ),
        "CGIM": table_list(
            "CGIM",
            "Concept global importance (CGIM): mean cosine of importance and truth per concept and per class; 1 is "
            "best, a model without knowledge scores as random directions do. By value and contribution, classes "
            "without a correctly classified image are left out (their number is said at the end).",
            pick(frame, metric="CGIM", item="").assign(item_kind=lambda rows: rows["item_kind"].map("per {}".format)),
            {"item_kind": ["per concept", "per class"], "explanation": RANKINGS},
            ["model"],
        ),
        "accuracy": table_list(
            "Accuracy",
            "Accuracy of every model on the test images, in %.",
            pick(frame, metric=accuracies, item_kind="").assign(mark=""),
            {"model": [PLAIN, *model_order(frame)]},
            {"metric": accuracies},
            **SHARES,
        ),
    }


def with_baselines(rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows in which a baseline of the maps is a row of its model, for the ranking by contribution."""
    whose = {baseline_name(name, model): (name, model) for model in MODELS for name in BASELINES}
    return rows.assign(
        explanation=[whose[name][0] if name in whose else how for name, how in rows[["model", "explanation"]].values],
        mark=rows["mark"].where(~rows["model"].isin(list(whose)), ""),
        model=rows["model"].map(lambda name: whose.get(name, ("", name))[1]),
    )


def settings_table(frame: pd.DataFrame, paper: pd.DataFrame | None) -> list[Table]:
    """Return Table 3 of the paper: class accuracy in % by C and number of images drawn per concept."""
    c_of, n_of = ({setting_name(c, n): text.format(c=c, n=n) for c, n in SETTINGS} for text in ("C = {c:g}", "n = {n}"))
    rows = pick(frame if paper is None else pd.concat([frame, paper]), metric="accuracy")
    swept = pick(rows, item=[*c_of]).assign(group=POST_HOC)
    if swept.empty:
        return []
    swept = swept.assign(C=swept["item"].map(c_of), n=swept["item"].map(n_of))
    # One number without a setting: it stands in the first column of its source.
    plain = rows[(rows["model"] == PLAIN) | (rows["item"] == PLAIN)]
    plain = plain.assign(group=PLAIN, C="", n=f"n = {SETTINGS[0][1]}")
    cells = pd.concat([swept, plain.replace({"model": {PLAIN: POST_HOC}})])
    cells = cells.assign(style=cells["model"].where(cells["model"] == PAPER, ""), mark="")
    return table_list(
        "Table 3",
        "Class accuracy of the post-hoc CBM in %, by the SVM's C and the number n of images drawn with and without "
        "each concept; below, the backbone without a bottleneck.",
        cells,
        {"group": [POST_HOC, PLAIN], "C": [*c_of.values(), ""]},
        {"model": [POST_HOC, PAPER], "n": n_of.values()},
        **SHARES,
    )


def defined_table(frame: pd.DataFrame) -> Table:
    """Return how many scores were defined, and how many not; of random directions they are banks."""
    rows = pick(frame, item="", model=[POST_HOC, TRADITIONAL, ORACLE], metric=["CEM", "CLM", "CGIM"])
    cells = rows[rows["l"].isin([1.0, math.nan]) & rows["alpha"].isin([1.0, math.nan])]
    what = cells["item_kind"].map(PLURALS).fillna(cells["set"].where(cells["metric"] == "CEM", "").map(SETS)).fillna("")
    cells = cells.assign(name=cells["metric"] + ", " + what + cells["explanation"].map(", by {}".format))
    text = [f"{n} of {n + missing}" for n, missing in zip(cells["n"], cells["undefined"], strict=True)]
    cells = cells.assign(text=text, mark="", small="")
    cells = arrange(cells, name=names(cells, "name"), model=model_order(cells))
    return Table("Defined", "Of all scores.", cells, ["name"], ["model"])


def summary_table(frame: pd.DataFrame) -> Table:
    """Return the numbers of most weight, which the terminal shows, also while seeds are still to come."""
    parts = [pick(frame, model=list(MODELS), **keys).assign(group=name) for name, keys in SUMMARY.items()]
    cells = pd.concat(parts)
    cells = cells.assign(row=cells["explanation"].where(cells["explanation"] != "", cells["metric"]))
    # Baselines of the maps are rows, in the column of the model whose maps they are for.
    baselines = pick(frame, metric="CLM", alpha=1, model=list(BASELINES), **FIRST)
    cells = pd.concat([cells, baselines.assign(group=IN_PLACE, row=baselines["model"], model=POST_HOC, mark="")])
    # For random directions: the value that 97.5 % of the banks do not exceed.
    exceeded = (cells["model"] != RANDOM) | cells["high"].isna()
    cells["value"] = cells["value"].where(exceeded, cells["high"])
    rows = [*RANKINGS, *BASELINES, "accuracy", "concept accuracy"]
    return Table(
        "Are the concepts real, present, and in the right place?",
        "In %, CGIM as cosine. Random directions: what 97.5 % of the banks do not exceed. ≈ 95 % interval meets what "
        "95 % of them score, ▼ lies below.",
        arrange(cells, group=SUMMARY, row=rows, model=MODELS),
        ["group", "row"],
        ["model"],
        write=dict.fromkeys(names(cells, "metric"), points) | {"CGIM": number},
        labels=LABELS | {name: "\n".join(name.rsplit(" ", 1)) for name in MODELS} | {RANDOM: "random\n97.5 %"},
    )


def summary_so_far(frame: pd.DataFrame, n_seeds: int) -> Table:
    """Return the summary while other seeds are still to come."""
    # Joining all rows would take a second.
    parts = [pick(frame.astype({"l": float}), **keys) for keys in SUMMARY.values()]
    done = frame["seed"].nunique()
    table = summary_table(join_seeds(pd.concat(parts, ignore_index=True)))
    over = f"Intervals are over {done} seeds." if done > 1 else "One seed: intervals are within it."
    return replace(table, title=f"After {done} of {n_seeds} seeds", note=f"{table.note} {over}")


def extremes(frame: pd.DataFrame) -> Section | None:
    """Name the best and worst concepts and classes, and fold away the full lists."""
    rows = pick(frame, metric="CGIM", model=[POST_HOC, RANDOM], explanation="contribution")
    rows = rows[(rows["item"] != "") & rows["value"].notna()]
    charts, folded = [], []
    for kind, plural in PLURALS.items():
        ours = pick(rows, model=POST_HOC, item_kind=kind).sort_values("value", ascending=False, kind="stable")
        if ours.empty:
            continue
        gap = 0 if len(ours) <= 2 * BEST else BEST
        ours = pd.concat([ours[:BEST], ours[-BEST:]]) if gap else ours
        caption = f"The best and the worst {plural}, and in grey what 95 % of random banks score for them."
        bars = Bars(
            frame=pd.concat([ours, pick(rows, model=RANDOM, item_kind=kind, item=set(ours["item"]))]),
            groups="item",
            series="model",
            label="CGIM by contribution (cosine, 1 is best; grey: 95 % of random banks)",
            colours=COLOURS,
            band=RANDOM,
            flat=True,
            points=True,
            gap_after=gap,
        )
        charts.append(Chart(plural, caption, bars))
        folded += full_table(frame, kind)
    if not charts:
        return None
    return Section(
        "Best and worst, by name",
        f"By CGIM of the contribution, {POST_HOC}.",
        charts=charts,
        folded=folded,
        beside=True,
    )


def full_table(frame: pd.DataFrame, kind: str) -> list[Table]:
    """Return all CGIM scores, model by model, as the paper's Tables 6 to 8."""
    banks, held_out = "95 % of random banks", "held-out accuracy"
    items = pick(frame[frame["item"] != ""], item_kind=kind)
    scores = pick(items, metric="CGIM", model=[POST_HOC, TRADITIONAL, RANDOM])
    scores = scores.assign(column=scores["explanation"].map(RANKINGS), model=scores["model"].replace(RANDOM, banks))
    scores["text"] = [ends(row, number) if row["model"] == banks else None for row in scores.to_dict("records")]
    accuracies = pick(items, metric="CAV accuracy").assign(model="direction", column=held_out)
    accuracies["text"] = [f"{number(value)} (weak)" if value < WEAK else None for value in accuracies["value"]]
    cells = pd.concat([scores, accuracies]).assign(small="", mark="")
    models, columns = [POST_HOC, TRADITIONAL, banks, "direction"], [*RANKINGS.values(), held_out]
    cells = arrange(cells[cells["value"].notna()], item=names(scores, "item"), model=models, column=columns)
    return [Table(f"All {scores['item'].nunique()} {PLURALS[kind]}", "", cells, ["item"], ["model", "column"])]


def directions(frame: pd.DataFrame, n_seeds: int) -> Section | None:
    """Say how well the concept directions know their concepts, and which do not."""
    rows = pick(frame, metric="CAV accuracy")
    mean, items = one(rows, item=""), rows[rows["item"] != ""]
    if mean is None:
        return None
    weak = items[items["value"] < WEAK].sort_values("value", kind="stable")
    text = f"Accuracy of the {POST_HOC}'s concept directions on images held back: mean {number(mean['value'])}. "
    if len(weak):
        wording = ", ".join(f"{row['item']} ({number(row['value'])})" for _, row in weak.iterrows())
        text += f"Below {WEAK:g}, hardly better than a guess: {wording}. Read what is said of them with care."
    else:
        seeds = " as a mean over the seeds; where single seeds are, a note above names them" if n_seeds > 1 else ""
        text += f"None is below {WEAK:g}{seeds}."
    unknown = int(items["value"].isna().sum())
    text += f" Not known for {unknown}, of which no image was left." if unknown else ""
    return Section("Do the directions know their concepts?", text)


def interventions(frame: pd.DataFrame) -> Section | None:
    """Show what people's corrections of concepts do to the class accuracy."""
    curves = intervention_rows(frame)
    if curves.empty:
        return None
    chart = Chart(
        "interventions",
        "Class accuracy after so many concepts of an image are set to what people say of them: in random order, those "
        "the model is least sure of first, and those first that change the predicted class's logit most, which only "
        "who knows the answers can choose. Dashed, a control: every answer turned into its opposite. Grey, another: "
        "right answers in random order to random directions. Bands are 95 % intervals; the grey one is where 95 % of "
        "the random banks lie.",
        draw_interventions(curves),
        wide=True,
    )
    text = (
        f"Of the {POST_HOC} and of random banks, absent and present are the 5th and 95th percentile of the values of "
        "the training images; elsewhere they are 0 and 1."
    )
    return Section("Does it listen to corrections?", text, charts=[chart])


def draw_interventions(curves: pd.DataFrame) -> Figure:
    """Draw class accuracy over the number of concepts corrected, a panel a model: the library's own chart."""
    control, ours = curves[curves["model"] == RANDOM], curves[curves["model"] != RANDOM]
    n_models = ours["model"].nunique()
    figure = Figure(figsize=(2.8 + 2.4 * n_models, 3.6), layout="constrained")
    panels = figure.subplots(1, n_models, sharey=True, squeeze=False)
    plot_interventions(ours, panels, control=None if control.empty else control)
    for panel in panels.flat:
        tidy(panel)
    return figure


def existence(frame: pd.DataFrame, by_class: bool) -> Bars:
    """Declare CEM as bars: one group a ranking, one bar a model, over what random banks score."""
    chosen = pick(frame, metric="CEM", set="correct", l=1)
    whose = "of its class" if by_class else "present"
    return Bars(
        frame=chosen.assign(ranking=chosen["explanation"].map(lambda name: f"by {RANKINGS[name]}")),
        groups="ranking",
        series="model",
        label=f"top concept {whose}\n(CEM, % of correctly classified images)",
        order=MODELS,
        colours=COLOURS,
        band=RANDOM,
        band_label="95 % of random banks (— mean, -- 97.5 %)",
        scale=100,
        limits=(0, 108),
        write=lambda value: f"{100 * value:.0f}",
    )


def location(frame: pd.DataFrame) -> Curves:
    """Declare CLM over the size of the region: a line a model, random banks a band, chance dotted."""
    chosen = pick(frame, metric="CLM", model=[*MODELS, *BASELINES], **FIRST)
    chance = "chance, a point anywhere"
    diagonal = chosen.drop_duplicates("alpha").assign(model=chance, value=lambda rows: rows["alpha"] / 12)
    chosen = pd.concat([chosen, diagonal])
    return Curves(
        frame=chosen.assign(region=100 * chosen["alpha"] / 12),
        x="region",
        series="model",
        label_x="strongest region of the map (% of the image)",
        label="region contains the part of the top concept\n(CLM, % of cases)",
        order=[*MODELS, *BASELINES, chance],
        colours=COLOURS,
        styles=dict.fromkeys(BASELINES, "--") | {chance: ":"},
        band=RANDOM,
        band_label="95 % of random banks",
        ticks={100 * alpha / 12: f"{100 * alpha / 12:.0f} %\nα = {alpha:g}" for alpha in sorted(set(chosen["alpha"]))},
        scale=100,
        limits=(0, 103),
        main=POST_HOC,
    )


def histograms(frame: pd.DataFrame) -> Histograms:
    """Declare the histograms of CGIM, as the paper's Figure 2: classes left, concepts right, types 1 to 3."""
    chosen = arrange(pick(frame, metric="CGIM"), explanation=RANKINGS, item_kind=["class", "concept"])
    return Histograms(
        frame=pick(chosen[chosen["item"] != ""], model=[POST_HOC, TRADITIONAL]),
        rows="explanation",
        columns="item_kind",
        series="model",
        order=[POST_HOC, TRADITIONAL],
        titles={
            (how, kind): f"CGIM of {plural}, by {RANKINGS[how]}" for how in RANKINGS for kind, plural in PLURALS.items()
        },
        label="cosine with the truth (1 is best)",
        count={kind: f"number of {plural}" for kind, plural in PLURALS.items()},
        colours=COLOURS,
        bands=pick(chosen, model=RANDOM, item=""),
        band_label="means of 95 % of random banks",
        limits=(-1.0, 1.0),
    )


def with_heads(cells: pd.DataFrame) -> pd.DataFrame:
    """Return cells with l and α as the heads of columns and rows have them."""
    level = cells["l"].map("l = {:g}".format, na_action="ignore").fillna("")
    return cells.assign(level=level, α=cells["alpha"].map("α = {:g}".format))


def model_order(frame: pd.DataFrame) -> list[str]:
    """Return the models of a table, the paper next to ours and chance last."""
    usual = [POST_HOC, PAPER, *MODELS[1:]]
    return [*usual, *(name for name in names(frame, "model") if name not in (*usual, CHANCE)), CHANCE]


def table_list(
    title: str,
    note: str,
    cells: pd.DataFrame,
    rows: Mapping[str, Any],
    columns: Mapping[str, Any] | Sequence[str],
    **look: Any,
) -> list[Table]:
    """Return a table in a list, none where it has no number; rows and columns are in the order given, or the usual."""
    usual = {"model": model_order(cells), "level": LEVELS}
    across = columns if isinstance(columns, Mapping) else {name: usual[name] for name in columns}
    table = Table(title, note, arrange(cells, **rows, **across), [*rows], [*across], labels=LABELS, key=KEY, **look)
    return [table] if cells["value"].notna().any() else []
