"""The report of the concept study, declared over its frame: tables, charts and findings, section by section."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from quantus_concepts.metrics.streaming.names import GAUSSIAN, INTERVENED, OTHER_IMAGE
from quantus_concepts.studies._kit.charts import Chart
from quantus_concepts.studies._kit.findings import number
from quantus_concepts.studies._kit.page import Page, Section
from quantus_concepts.studies._kit.results import names, one, pick, published
from quantus_concepts.studies._kit.run import Run
from quantus_concepts.studies._kit.tables import Table, terminal
from quantus_concepts.studies.concepts import charts
from quantus_concepts.studies.concepts.evaluation import joined
from quantus_concepts.studies.concepts.findings import answers, findings
from quantus_concepts.studies.concepts.names import (
    BASELINES,
    ORACLE,
    PLAIN,
    POST_HOC,
    RANDOM,
    TRADITIONAL,
)
from quantus_concepts.studies.concepts.options import CUB, ConceptOptions
from quantus_concepts.studies.concepts.tables import (
    PLURALS,
    WEAK,
    accuracy_table,
    cem_table,
    cgim_table,
    clm_table,
    defined_table,
    full_table,
    main_table,
    named_table,
    settings_table,
)

SOURCE = "Aysel et al. (2025), Concept-Based Explainable AI: Metrics and Benchmarks"
LEGEND = {
    POST_HOC: "Concept directions found in a trained backbone, and a linear head on the projections.",
    TRADITIONAL: "A concept layer trained with the concept labels of each image; sigmoid values.",
    ORACLE: "The true attributes as values and a Gaussian at each true part as map: the best one can do.",
    RANDOM: "The post-hoc CBM with random directions in place of concepts, drawn many times, each with a head of its "
    "own: what knowing nothing scores. Mean over the banks, in small type where 95 % of them lie.",
    PLAIN: "The backbone with its own classifier, without a bottleneck.",
    OTHER_IMAGE: "Baseline of CLM: the same maps, scored against the parts of another image.",
    GAUSSIAN: "Baseline of CLM: one blob at the centre of every image, scored against the true parts.",
}


def is_whole_cub(settings: Mapping[str, str]) -> bool:
    """Return whether a run has the images and classes of all of CUB-200-2011, as the paper has."""
    n_images = sum(int(settings.get(name, 0)) for name in ("training images", "test images"))
    return (n_images, int(settings.get("classes", 0))) == (11_788, 200)


def page(frame: pd.DataFrame, run: Run[ConceptOptions]) -> Page:
    """Declare the report."""
    paper = run.options.data == CUB
    by_class, gallery = run.facts["by class"], run.facts["gallery"]
    seeds = names(frame, "seed")
    rows = joined(frame)
    beside = published(__package__, l=float, alpha=float) if paper else None
    tables = {
        "cem": cem_table(rows, beside, by_class),
        "clm": clm_table(rows, beside),
        "cgim": cgim_table(rows),
        "settings": settings_table(rows, beside),
        "accuracy": accuracy_table(rows),
    }
    tables = {name: table for name, table in tables.items() if table.frame["value"].notna().any()}
    whose = "one of the image's class" if by_class else "in the image"
    present = "a concept of the image's class" if by_class else "present in the image"
    located = "clm" in tables
    sections = [
        Section(
            "Are the concepts present?",
            tables=_of(tables, "cem"),
            charts=[
                Chart(
                    "cem",
                    f"Is the concept ranked first {whose}? Means with 95 % intervals; grey is what 95 % of random "
                    "banks score.",
                    charts.existence(rows, by_class),
                )
            ],
        ),
        Section(
            "Are they in the right place?",
            tables=_of(tables, "clm"),
            charts=[
                Chart(
                    "clm",
                    "Is the map's strongest region where the concept is? Dashed lines know nothing of the concept, and "
                    "the grey band is what 95 % of random banks score, the maps of each on some 200 of the images.",
                    charts.location(rows),
                )
            ]
            if located
            else [],
            after="Chance is that of a point anywhere in the image. Parts and maps both sit on the object, so any map "
            "scores more: the two baselines in italics, for the ranking by θ·u, are the honest comparison.",
        )
        if located
        else None,
        Section(
            "Are they important where they belong?",
            tables=_of(tables, "cgim"),
            charts=[
                Chart(
                    "cgim_histograms",
                    "Do importance and truth agree? As the paper's Figure 2; best is one bar at 1. Nothing is held "
                    "against 0: the grey band is where the means of 95 % of random banks lie.",
                    charts.histograms(rows),
                )
            ],
        ),
        _extremes(rows),
        _directions(rows, len(seeds)),
        _interventions(rows),
        Section(
            "Gallery",
            charts=[
                Chart(
                    "gallery",
                    "Correctly classified images, and below them wrong ones, with the concepts ranked first, their "
                    f"contributions to the predicted class, and their maps. ✓ {present} or ✗ not; “no …” speaks for "
                    "the class by being absent, and its map shows where the concept would be.",
                    gallery,
                    wide=True,
                )
            ],
        ),
        Section("How well do the models classify?", tables=_of(tables, "accuracy", "settings"), beside=True),
    ]
    control = pick(frame, model=RANDOM)
    shown = set(rows["model"]) | {name for name in BASELINES if located}
    return Page(
        f"Concept benchmark: {run.settings['data']}",
        findings(rows, by_class),
        [section for section in sections if section is not None],
        main=[main_table(rows, tables, terminal().width)],
        answers=answers(rows),
        source=f"Metrics: {SOURCE}.",
        template="concepts/page.html.j2",
        content={
            "legend": {name: text for name, text in LEGEND.items() if name in shown},
            "paper": SOURCE if paper else "",
            "whole_cub": is_whole_cub(run.settings),
            "by_class": by_class,
            "seeds": seeds,
            "n_banks": (control["n"] + control["undefined"]).max(),
            "defined": defined_table(rows),
        },
    )


def _interventions(frame: pd.DataFrame) -> Section | None:
    """Show what people's corrections of concepts do to the class accuracy."""
    if pick(frame, metric=INTERVENED).empty:
        return None
    chart = Chart(
        "interventions",
        "Class accuracy after so many concepts of an image are set to what people say of them: in random order, those "
        "the model is least sure of first, and those first that change the predicted class's logit most, which only "
        "who knows the answers can choose. Dashed, a control: every answer turned into its opposite. Grey, another: "
        "right answers in random order to random directions, which know nothing of the concepts asked for. Bands are "
        "95 % intervals; where 95 % of the random banks lie is the grey one.",
        charts.interventions(frame),
        wide=True,
    )
    text = (
        f"Of the {POST_HOC} and of random banks, absent and present are the 5th and 95th percentile of the values of "
        "the training images"
    )
    return Section("Does it listen to corrections?", f"{text}; elsewhere they are 0 and 1.", charts=[chart])


def _of(tables: Mapping[str, Table], *wanted: str) -> list[Table]:
    return [tables[name] for name in wanted if name in tables]


def _extremes(frame: pd.DataFrame) -> Section | None:
    """Name the best and worst concepts and classes, and fold away the full lists."""
    kinds = [kind for kind in PLURALS if len(charts.ranked(frame, kind)[0])]
    if not kinds:
        return None
    return Section(
        "Best and worst, by name",
        f"By CGIM of the contribution (type 3), {POST_HOC}.",
        tables=[named_table(frame, kind) for kind in kinds],
        charts=[
            Chart(
                PLURALS[kind],
                f"The best and the worst {PLURALS[kind]}, and in grey what 95 % of random banks score for them.",
                charts.extremes(frame, kind),
            )
            for kind in kinds
        ],
        folded=[full_table(frame, kind) for kind in kinds],
        beside=True,
    )


def _directions(frame: pd.DataFrame, n_seeds: int) -> Section | None:
    """Tell how well the concept directions know their concepts, and which do not."""
    rows = pick(frame, metric="CAV accuracy")
    mean, items = one(rows, item=""), rows[rows["item"] != ""]
    if mean is None:
        return None
    weak = items[items["value"] < WEAK].sort_values("value", kind="stable")
    text = f"Accuracy of the {POST_HOC}'s concept directions on images held back: mean {number(mean['value'])}. "
    if len(weak):
        wording = ", ".join(
            f"{item} ({number(value)})" for item, value in zip(weak["item"], weak["value"], strict=True)
        )
        text += f"Below {WEAK:g}, hardly better than a guess: {wording}. Read what is said of them with care."
    else:
        seeds = " as a mean over the seeds; where single seeds are, a note above names them" if n_seeds > 1 else ""
        text += f"None is below {WEAK:g}{seeds}."
    unknown = int(items["value"].isna().sum())
    text += f" Not known for {unknown}, of which no image was left." if unknown else ""
    return Section("Do the directions know their concepts?", text)
