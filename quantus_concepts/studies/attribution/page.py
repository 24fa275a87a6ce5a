"""The report: which tables, charts and findings stand over the frame, and where."""

from __future__ import annotations

import re

import pandas as pd
from markupsafe import Markup, escape

from quantus_concepts.studies._kit.charts import Chart
from quantus_concepts.studies._kit.findings import Finding, listed, minus
from quantus_concepts.studies._kit.page import Page, Section
from quantus_concepts.studies._kit.pictures import plot_grid
from quantus_concepts.studies._kit.results import pick
from quantus_concepts.studies._kit.run import Run
from quantus_concepts.studies._kit.tables import terminal
from quantus_concepts.studies.attribution.charts import (
    plot_correlation,
    plot_idr,
    plot_iir,
    plot_mcs,
    plot_perturbation,
    plot_relative,
    plot_robustness,
)
from quantus_concepts.studies.attribution.findings import findings
from quantus_concepts.studies.attribution.global_method import TCAV
from quantus_concepts.studies.attribution.options import AttributionOptions
from quantus_concepts.studies.attribution.tables import (
    ROBUSTNESS_IN_THE_PAPER,
    TCAV_SCALE,
    GroundTruth,
    commonality_table,
    count_table,
    method_table,
    paper_numbers,
    premise_table,
    relative_table,
    robustness_table,
    terminal_method_table,
)

SOURCE = "Yang and Kim (2019), BIM: Towards Quantitative Evaluation of Interpretability Methods with Ground Truth"
OUTLINED = "Outlined: the mask; in each map its mean attribution. Dark is 0, bright is 1."
FREE = "Does not rest on the premises: each patch is checked on its own image."
#: By chart: the metric it rests on, and what it shows.
CAPTIONS = {
    "mcs": ("MCS", "Does the object get more when the model needs it? Bars with 95 % intervals; right is better."),
    "robustness": (
        "robustness",
        "MCS where objects are smaller or larger than in training, in the middle or in a corner, with 95 % intervals. "
        f"{ROBUSTNESS_IN_THE_PAPER}",
    ),
    "relative": (
        "relative MCS",
        "Does the contrast fall as the object becomes common? Each panel is one method, the band its 95 % interval; "
        "dashed, the same in all, what removing the object costs. Both scales have their zero at one height.",
    ),
    "correlation": ("correlation", "How closely each curve follows the accuracy drop, with 95 % intervals."),
    "idr": ("IDR", "How often the unimportant object gets less than what it covers, with 95 % intervals."),
    "iir": (
        "IIR",
        "How often a patch that changes nothing leaves its region's attribution as it was, with 95 % intervals.",
    ),
    "perturbation": (
        "perturbation",
        "How much that patch changes the attribution, relative to what it was; lower is better.",
    ),
}


def page(frame: pd.DataFrame, run: Run[AttributionOptions]) -> Page:
    """Declare the report of a run."""
    truth = GroundTruth(run.facts["checks"], run.frames["premises"])
    paper = run.facts["paper"]
    found = charts(frame, truth, run)

    def drawn(*names: str) -> list[Chart]:
        return [found[name] for name in names if name in found]

    relative = "relative MCS" in set(frame["metric"])
    robustness = [robustness_table(frame, truth)] if "robustness" in set(frame["metric"]) else []
    sections = [
        Section("All methods", tables=[method_table(frame, truth)], folded=[count_table(frame)]),
        Section(
            "MCS: does the map change with the model?",
            charts=drawn("mcs", "sheet_mcs", "robustness"),
            folded=robustness,
        ),
        Section(
            "Relative MCS: does the map follow how much it matters?",
            charts=drawn("relative", "correlation", "sheet_relative"),
            folded=[relative_table(frame, truth)] if relative else [],
        ),
        Section("IDR: is the unimportant object left alone?", charts=drawn("idr", "sheet_idr")),
        Section("IIR: is a patch that changes nothing left alone?", charts=drawn("iir", "perturbation", "sheet_iir")),
    ]
    premises = [premise for check in truth.checks for premise in check.premises]
    return Page(
        f"Attribution benchmark: {run.settings['data']}",
        findings(frame, truth),
        [section for section in sections if section.tables or section.charts or section.folded],
        main=[terminal_method_table(frame, truth, terminal().width)],
        printed=[Finding(premise.sentence, "Not verified") for premise in premises if not premise.holds],
        banner=banner(frame, truth),
        source=f"Metrics: {SOURCE}.",
        template="attribution/page.html.j2",
        content={
            "seed": run.options.seed,
            "premises": premises,
            "premise_table": premise_table(truth, paper),
            "commonality_table": commonality_table(truth, paper) if len(truth.drops) else None,
            "paper": SOURCE if paper else "",
            "signs": signs,
        },
    )


def banner(frame: pd.DataFrame, truth: GroundTruth) -> str:
    """Say what rests on a ground truth that was not verified; empty where all of it was."""
    present = set(frame["metric"])
    doubted = [metric for metric in ("MCS", "relative MCS", "IDR") if metric in present and truth.unverified(metric)]
    if not doubted:
        return ""
    models, metrics = ", ".join(truth.unverified(*doubted)), listed(doubted)
    return (
        f"Ground truth not verified ({models}). {metrics[0].upper()}{metrics[1:]} "
        f"{'rests' if len(doubted) == 1 else 'rest'} on what these models are taken to ignore, and the checks below do "
        "not show that they ignore it. A method that scores low here may be right. Every table and figure concerned is "
        "marked."
    )


def charts(frame: pd.DataFrame, truth: GroundTruth, run: Run[AttributionOptions]) -> dict[str, Chart]:
    """Draw every chart there are numbers for, and the saliency sheets."""
    makers = {
        "mcs": lambda: plot_mcs(frame),
        "robustness": lambda: plot_robustness(frame),
        "relative": lambda: plot_relative(frame, truth.drops),
        "correlation": lambda: plot_correlation(frame),
        "idr": lambda: plot_idr(frame),
        "iir": lambda: plot_iir(frame, threshold=run.options.threshold),
        "perturbation": lambda: plot_perturbation(frame),
    }
    drawable = set(frame.loc[frame["value"].notna(), "metric"])
    doubted = any(truth.unverified(metric) for metric in frame["metric"].unique())
    made = {}
    for name, (metric, caption) in CAPTIONS.items():
        if metric not in drawable:
            continue
        if name == "mcs" and len(pick(frame, method=TCAV, metric="MCS")):
            caption += f" {TCAV_SCALE}"
            if run.facts["paper"]:
                theirs = pick(paper_numbers(), of=TCAV)["value"].iloc[0]
                caption += f" The paper's baseline of TCAV is {minus(f'{theirs:g}')}."
        if doubted and metric in ("IIR", "perturbation"):
            caption += f" {FREE}"
        figure = makers[name]()[0]
        made[name] = Chart(name, caption, figure, wide=name == "relative", unverified=truth.mark(metric))
    for name, sheet in run.facts["sheets"].items():
        metric, _ = CAPTIONS[name]
        caption = f"{sheet.caption} {OUTLINED}" + (f" {FREE}" if doubted and metric == "IIR" else "")
        figure = plot_grid(sheet)[0]
        made[f"sheet_{name}"] = Chart(f"sheet_{name}", caption, figure, wide=True, unverified=truth.mark(metric))
    return made


def signs(text: str) -> Markup:
    """Set the names of models and image sets, f_o or X_os, with an index."""
    return Markup(
        re.sub(
            r"\b([fXg])_(os|og|0s|[os0c])(?:\^k)?(?![\w])",
            lambda found: f"<i>{found[1]}</i><sub>{found[2]}</sub>" + ("<sup>k</sup>" if found[0][-2:] == "^k" else ""),
            str(escape(text)),
        )
    )
