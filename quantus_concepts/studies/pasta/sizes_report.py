"""The page of `pasta sizes`: tables, a figure for each question, and what may be said."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from quantus_concepts.functional.agreement import LEAST_SPLITS
from quantus_concepts.studies.charts import new_axes, tidy
from quantus_concepts.studies.pasta.plot import KIND_NAMES
from quantus_concepts.studies.pasta.results import SCORER, SHUFFLED
from quantus_concepts.studies.pasta.sizes import ACCURACY, CONTROLS, METHODS, SCORE, slopes
from quantus_concepts.studies.pasta.study import Section, Study, cell, number, one, over_splits
from quantus_concepts.studies.pasta.tables import SIMULATED
from quantus_concepts.studies.report_tables import ReportTable, Row

NETWORKS, ENCODERS = "Networks that are explained", "Encoders of the scorer"
FIGURE_8 = (
    "The mean predicted rating of explanations of networks that differ in width only; each is trained anew several "
    "times and explained for the true class, of which the scorer is told: were it the predicted class, even a map that "
    "ignores the network would be rated by the network's accuracy. The paper asks this of CLIP's ViT-B-16 to ViT-g-14, "
    "zero-shot, and finds lower scores for larger networks; its figure prints no numbers but those of two single "
    "explanations (3.12 and 2.75)."
)
OF_ENCODERS = (
    "The agreement with votes of scorers on embeddings of encoders of several sizes. The embedded encoder is "
    "untrained: its width says how many random patterns of pictures it looks at, and texts are the same at every "
    "width. Scorers are trained alike on all of them."
)
KEY = (
    "Small numbers are 95 % intervals over {over}, none below 3, else the deviation. The last column: how much the "
    "value rises for ten times the parameters, by a line through the sizes for each of the {over}."
)
#: Okabe and Ito's colours; controls are grey.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
GREY = "#9A9A9A"


def sizes_study(frames: dict[str, pd.DataFrame], simulated: bool, settings: dict[str, str], notes: list[str]) -> Study:
    """Return what the page, the files and the terminal show of both questions."""
    tables, sections, figures, verdicts, results = {}, [], {}, [], []
    if "networks" in frames:
        networks = frames["networks"]
        means = over_splits(networks, ("name", "parameters", "measure"))
        steep = slopes(networks, ("name", "measure"))
        tables[NETWORKS] = networks_table(means, steep, simulated)
        shown = means[means["measure"] == SCORE]
        figures["networks"] = (plot_sizes(shown, "mean predicted rating")[0], "Mean predicted rating by network size.")
        sections.append(Section(NETWORKS, FIGURE_8, (NETWORKS,), ("networks",)))
        verdicts += [said(row, "the predicted rating") for _, row in steep[steep["name"] != "network"].iterrows()]
        results += [each.assign(part="networks") for each in (means, steep.assign(measure="slope"))]
    splits = frames["encoders"]
    for question in splits["question"].unique():
        chosen = splits[(splits["question"] == question) & (splits["measure"] == "SCC")]
        means = over_splits(chosen, ("name", "parameters", "model", "modality", "measure"))
        steep = slopes(chosen, ("model", "modality"))
        name = f"{ENCODERS}, {question}"
        tables[name] = encoders_table(name, means, steep, simulated)
        shown = means[means["modality"] == "all"].assign(name=means["model"])
        figures[f"encoders-{question}"] = (
            plot_sizes(shown, "SCC with votes")[0],
            f"Rank correlation of scores with votes on {question} by the size of the encoder.",
        )
        sections.append(Section(name, OF_ENCODERS, (name,), (f"encoders-{question}",)))
        row = one(steep, model=SCORER, modality="all")
        verdicts += [said(row | {"name": f"Encoders ({question})"}, "SCC")] if row else []
        results += [each.assign(part="encoders", question=question) for each in (means, steep)]
    return Study(
        title="PASTA-score: does size matter" + (f" ({SIMULATED})" if simulated else ""),
        simulated=simulated,
        verdicts=verdicts,
        sections=sections,
        tables=tables,
        frames={"results": pd.concat(results, ignore_index=True), **frames},
        settings=settings,
        figures=figures,
        notes=notes,
    )


def networks_table(means: pd.DataFrame, steep: pd.DataFrame, simulated: bool) -> ReportTable:
    """Return the mean rating of each method (row) at each size (column)."""
    sizes = sorted(means["parameters"].unique())
    rows = []
    for name, measure in (("network", ACCURACY), *((method, SCORE) for method in METHODS)):
        cells = [cell(one(means, name=name, measure=measure, parameters=size), 2) for size in sizes]
        label = "share the network classifies correctly" if measure == ACCURACY else name
        last = cell(None if measure == ACCURACY else one(steep, name=name), 2)
        rows.append(Row(label, (*cells, last), control=name in CONTROLS))
    return ReportTable(
        NETWORKS,
        "Mean predicted rating, 1 to 5, by number of parameters. The two in grey do not look at the network.",
        (*((f"{size:,.0f}", "parameters") for size in sizes), ("slope", "per tenfold")),
        tuple(rows),
        KEY.format(over="networks trained of a size"),
        SIMULATED if simulated else "",
    )


def encoders_table(name: str, means: pd.DataFrame, steep: pd.DataFrame, simulated: bool) -> ReportTable:
    """Return the agreement with votes at each size (column): of all explanations, of each kind, and of the control."""
    encoders = means.drop_duplicates("name").sort_values("parameters", kind="stable")
    rows = [
        Row(
            model if kind == "all" else f"{model}, {KIND_NAMES[kind]}",
            (
                *(cell(one(means, name=each, model=model, modality=kind)) for each in encoders["name"]),
                cell(one(steep, model=model, modality=kind)),
            ),
            control=model == SHUFFLED,
        )
        for model in (SCORER, SHUFFLED)
        for kind in means["modality"].unique()
    ]
    heads = ((row.name, f"{row.parameters:,.0f} parameters") for row in encoders.itertuples(index=False))
    return ReportTable(
        name,
        "Rank correlation (SCC) of scores with votes on unseen images and explainers.",
        (*heads, ("slope", "per tenfold")),
        tuple(rows),
        KEY.format(over="splits") + " Intervals of correlations are on Fisher's z.",
        SIMULATED if simulated else "",
    )


def said(row: Mapping[str, Any], what: str) -> str:
    """Say whether a slope is above or below 0 by more than its interval."""
    if math.isnan(row["low"]):
        return f"{row['name']}: fewer than {LEAST_SPLITS} repetitions, so nothing is said of size."
    span = f"{number(row['low'], 2)} to {number(row['high'], 2)} for ten times the parameters"
    # A slope of rounding errors is none.
    if row["low"] <= 1e-9 and row["high"] >= -1e-9:
        return f"{row['name']}: no change of {what} with size can be told from chance ({span})."
    return f"{row['name']}: {what} {'rises' if row['value'] > 0 else 'falls'} with size ({span})."


def plot_sizes(means: pd.DataFrame, label: str, ax: Axes | None = None) -> tuple[Figure, Axes]:
    """Draw values against numbers of parameters, a line for each name, with intervals where there are any."""
    figure, ax = new_axes(ax, (7.6, 4.2))
    colours = iter(COLOURS)
    for name, group in means.groupby("name", sort=False):
        line = group.sort_values("parameters")
        control = name in (*CONTROLS, SHUFFLED)
        ax.errorbar(
            line["parameters"],
            line["value"],
            [(line["value"] - line["low"]).fillna(0), (line["high"] - line["value"]).fillna(0)],
            marker="o",
            capsize=3,
            color=GREY if control else next(colours),
            linestyle=":" if name == CONTROLS[0] else "--" if control else "-",
            label=name,
        )
    ax.set_xscale("log")
    ax.set_xlabel("parameters")
    ax.set_ylabel(label)
    tidy(ax)
    ax.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure, ax
