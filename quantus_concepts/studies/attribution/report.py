"""The report of `benchmark attribution`: answers, tables, charts and findings, declared over its frame."""

from __future__ import annotations

import math
import re
from functools import partial
from typing import Any

import pandas as pd
from markupsafe import Markup, escape

from quantus_concepts.studies._kit.charts import Bars, Chart, Curves
from quantus_concepts.studies._kit.findings import Finding, Writer, count_range, join_words, number, points
from quantus_concepts.studies._kit.page import Page, Section
from quantus_concepts.studies._kit.results import PAPER, against, load_paper, names, pick
from quantus_concepts.studies._kit.run import Run
from quantus_concepts.studies._kit.tables import Table, arrange
from quantus_concepts.studies.attribution.findings import (
    CONTROLS,
    OF_COMMONALITY,
    WRITERS,
    GroundTruth,
    answers,
    any_size,
    best_of,
    findings,
    methods_of,
    reference_of,
)
from quantus_concepts.studies.attribution.global_method import TCAV
from quantus_concepts.studies.attribution.options import AttributionOptions

SOURCE = "Yang and Kim (2019), BIM: Towards Quantitative Evaluation of Interpretability Methods with Ground Truth"


def page(frame: pd.DataFrame, run: Run[AttributionOptions]) -> Page:
    """Declare the report of a run."""
    truth, paper = GroundTruth(run.facts["checks"], run.frames["premises"]), run.facts["paper"]
    charts, tables = draw(frame, truth, run), declare(frame, truth)
    premises = [premise for check in truth.checks for premise in check.premises]

    def section(heading: str, *figures: str, folded: str = "") -> Section:
        present = [charts[name] for name in figures if name in charts]
        return Section(heading, charts=present, folded=[tables[folded]] if folded in tables else [])

    sections = [
        Section(
            "Does the ground truth hold?",
            "f_o learns the object, f_s the scene, each from images in which every object is on every scene. So "
            "f_o should ignore the scene and f_s the object: removing it should cost nothing, and alone it should be "
            "worth no more than a guess.",
            tables=[premise_table(truth, paper), *([commonality_table(truth, paper)] if len(truth.drops) else [])],
            after=" ".join(f"{'✓' if premise.holds else '✗'} {premise.sentence}" for premise in premises)
            + (f" {PAPER}: {SOURCE}, Figure 3." if paper else ""),
        ),
        Section("All methods", tables=[tables["methods"]], folded=[tables["counts"]]),
        section("MCS: does the map change with the model?", "mcs", "sheet_mcs", "robustness", folded="robustness"),
        section(
            "Relative MCS: does the map follow how much it matters?",
            "relative",
            "correlation",
            "sheet_relative",
            folded="relative",
        ),
        section("IDR: is the unimportant object left alone?", "idr", "sheet_idr"),
        section("IIR: is a patch that changes nothing left alone?", "iir", "perturbation", "sheet_iir"),
    ]
    return Page(
        f"Attribution benchmark: {run.settings['data']}",
        findings(frame, truth),
        [part for part in sections if part.tables or part.charts or part.folded],
        main=[tables["methods"]],
        printed=[Finding(premise.sentence, "Not verified") for premise in premises if not premise.holds],
        answers=answers(frame, truth),
        banner=banner(frame, truth),
        source=f"Metrics: {SOURCE}.",
        metrics={"MCS": "mcs", "IDR": "idr", "IIR": "iir"},
        template="attribution/page.html.j2",
        content={"seed": run.options.seed, "signs": signs},
    )


def banner(frame: pd.DataFrame, truth: GroundTruth) -> str:
    """Say what rests on a ground truth that was not verified; empty where all of it was."""
    present = set(frame["metric"])
    doubted = [metric for metric in ("MCS", "relative MCS", "IDR") if metric in present and truth.unverified(metric)]
    if not doubted:
        return ""
    models, metrics = ", ".join(truth.unverified(*doubted)), join_words(doubted)
    return (
        f"Ground truth not verified ({models}). {metrics[0].upper()}{metrics[1:]} "
        f"{'rests' if len(doubted) == 1 else 'rest'} on what these models are taken to ignore, and the checks below do "
        "not show that they ignore it. A method that scores low here may be right. Every table and figure concerned is "
        "marked."
    )


def signs(text: str) -> Markup:
    """Set the names of models and image sets, f_o or X_os, with an index."""
    return Markup(
        re.sub(
            r"\b([fXg])_(os|og|0s|[os0c])(?:\^k)?(?![\w])",
            lambda match: f"<i>{match[1]}</i><sub>{match[2]}</sub>" + ("<sup>k</sup>" if match[0][-2:] == "^k" else ""),
            str(escape(text)),
        )
    )


def marked(frame: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows of the frame as a table shows them: marked by their reference, the best in bold."""
    best = {(metric, method) for metric in names(rows, "metric") for method in best_of(frame, metric)}
    numbers = rows.to_dict("records")
    return arrange(
        rows.assign(
            # A control is meant to be at its reference; the findings say whether it is.
            mark=["" if row["method"] in CONTROLS else against(row, reference_of(frame, row)) for row in numbers],
            best=[(row["metric"], row["method"]) in best for row in numbers],
            low=rows["low"].where(rows["low"] != rows["high"]),
        ),
        method=methods_of(rows),
    )


# Tables.

HEADINGS = {
    "MCS": "MCS",
    "MCS baseline": "random mask",
    "IDR": "IDR %",
    "IIR": "IIR %",
    "perturbation": "average perturbation",
}
TCAV_SCALE = (
    "TCAV is a difference of its scores: one number for all images, on a scale of its own; random concepts stand in "
    "place of a random mask."
)
#: The paper prints no numbers of its red bars (Figure 5), only this sentence.
ROBUSTNESS_IN_THE_PAPER = (
    'The paper draws such bars in its Figure 5 and says that MCS "is robust to the scale and location of objects"; it '
    "prints no number for them."
)
#: Rows of the table of premises, by what a check measures.
PREMISES: dict[str, tuple[str, Writer]] = {
    "accuracy with": ("accuracy on X_os", points),
    "accuracy without": ("without the common feature", points),
    "remains correct": ("of the correct, remain correct without it", points),
    "accuracy only": ("only the common feature", points),
    "chance": ("chance", points),
    "median KL same": ("median KL, same prediction", any_size),
    "median KL changed": ("median KL, changed prediction", any_size),
}
#: Image sets of accuracies, by what the common feature is.
IMAGE_SETS = {
    ("scene", "accuracy without"): "X_og",
    ("scene", "accuracy only"): "X_0s",
    ("object", "accuracy without"): "X_0s",
    ("object", "accuracy only"): "X_og",
}
#: Rows of the table of accuracy over commonality.
ACCURACIES = {"accuracy with": "with the object", "accuracy without": "without it", "accuracy drop": "drop"}


def paper_numbers() -> pd.DataFrame:
    """Return the paper's numbers; its own models stand under ``of``."""
    return load_paper(__package__, k=float)


def declare(frame: pd.DataFrame, truth: GroundTruth) -> dict[str, Table]:
    """Declare the tables of methods that there are numbers for."""
    present = set(frame["metric"])
    main = pd.concat([pick(frame, metric=metric) for metric in HEADINGS])
    counted = main[main["metric"] != "MCS baseline"]
    left_out = pick(counted, metric=["IIR", "perturbation"]).groupby("method", sort=False, as_index=False).first()
    counts = pd.concat(
        [
            counted.assign(text=[f"{n} of {n + undefined}" for n, undefined in counted[["n", "undefined"]].to_numpy()]),
            left_out.assign(metric="patches left out", text=left_out["unconverged"].astype(str)),
        ]
    )[["method", "metric", "text"]]
    tables = {
        "methods": Table(
            "Importance of what does not matter",
            "Higher is better for MCS, IDR and IIR, lower for the average perturbation. ≈ not distinguishable from its "
            "random mask (MCS) or from 50 % (IDR), ▼ below it.",
            marked(frame, main),
            ["method"],
            ["metric"],
            write=WRITERS,
            labels=HEADINGS,
            heads={metric: _counted(main, metric) for metric in HEADINGS},
            controls=CONTROLS,
            key="Small numbers are 95 % intervals. Bold: the best, and what cannot be distinguished from it. Grey: "
            f"controls without knowledge of the model.{f' {TCAV_SCALE}' if TCAV in set(main['method']) else ''}",
            unverified=truth.mark(*names(main, "metric")),
        ),
        "counts": Table(
            "Scores that were defined",
            "Of all images: those that every model concerned classifies correctly and whose score has a value.",
            arrange(counts, method=methods_of(main)),
            ["method"],
            ["metric"],
            heads={"patches left out": "not converged"},
            controls=CONTROLS,
            key="A score is undefined where an image is not classified correctly, a patch did not converge, the map "
            "failed, or (IIR, perturbation) the attribution of the region is 0. Undefined scores enter no mean.",
        ),
    }
    if "relative MCS" in present:
        curves = marked(frame, pick(frame, metric=["relative MCS", "correlation"])).astype({"method": str})
        levels = sorted(curves["k"].dropna().unique())
        lost = truth.drops[truth.drops["k"].isin(levels)].assign(method="accuracy drop", style=PAPER)
        rows = pd.concat([curves, lost])
        rows["column"] = rows["k"].map("k = {:g}".format).where(rows["k"].notna(), "correlation")
        tables["relative"] = Table(
            "Relative MCS",
            "Contrast of the model of commonality k with that of k = 1, and Pearson's correlation of the curve with "
            "the accuracy lost when the object is removed.",
            arrange(rows, method=names(rows, "method"), column=[*(f"k = {k:g}" for k in levels), "correlation"]),
            ["method"],
            ["column"],
            write=WRITERS,
            controls=CONTROLS,
            key="Small numbers are 95 % bootstrap intervals over images.",
            unverified=truth.mark("relative MCS"),
        )
    if "robustness" in present:
        tables["robustness"] = Table(
            "Robustness",
            "MCS of the same models on test images in which the object is smaller (.35 to .45 of the side) or larger "
            "(.8 to .9) than in training (.58 to .71), or always in the middle or in a corner.",
            marked(frame, with_usual(frame)),
            ["method"],
            ["variant"],
            write=WRITERS,
            controls=CONTROLS,
            key="Small numbers are 95 % intervals. Images that either model classifies wrongly are left out. "
            f"{ROBUSTNESS_IN_THE_PAPER}",
            unverified=truth.mark("robustness"),
        )
    return tables


def with_usual(frame: pd.DataFrame) -> pd.DataFrame:
    """Return MCS under every change of size and place, after MCS as trained."""
    changed = pick(frame, metric="robustness")
    usual = pick(frame, metric="MCS", method=names(changed, "method"))
    return pd.concat([usual.assign(metric="robustness", variant="as trained"), changed], ignore_index=True)


def _counted(frame: pd.DataFrame, metric: str) -> str:
    # TCAV counts something else than images.
    counts = frame.loc[(frame["metric"] == metric) & (frame["method"] != TCAV), "n"]
    return count_range(counts) if counts.any() else ""


def premise_table(truth: GroundTruth, paper: bool) -> Table:
    """Declare the premise checks in the form of the paper's Figure 3, top."""
    features: dict[str | None, str] = {check.model: check.feature for check in truth.checks}
    ours = truth.premises.assign(column=truth.premises["model"])
    ours["small"] = [
        IMAGE_SETS.get((features.get(model, ""), metric), "") for model, metric in ours[["model", "metric"]].values
    ]
    theirs = paper_numbers() if paper else pd.DataFrame(columns=["of", "metric"])
    theirs = theirs.assign(model=theirs["of"], column=f"{PAPER} " + theirs["of"], style=PAPER)
    rows = pick(pd.concat([ours, theirs]), metric=[*PREMISES], model=[*features])
    rows["row"] = [PREMISES[metric][0] for metric in rows["metric"]]
    columns = [name for model in features for name in (model, f"{PAPER} {model}")]
    return Table(
        "Premises",
        "Does the model ignore what it should ignore? Accuracies and shares in %, median divergence of the predictions "
        "with and without the common feature.",
        arrange(rows, row=[label for label, _ in PREMISES.values()], column=columns),
        ["row"],
        ["column"],
        write={metric: write for metric, (_, write) in PREMISES.items()},
        labels={f"{PAPER} {model}": PAPER for model in features},
        heads={check.model: f"common feature: {check.feature}; n = {check.n}" for check in truth.checks},
        unverified=truth.mark("MCS"),
    )


def commonality_table(truth: GroundTruth, paper: bool) -> Table:
    """Declare accuracy of the target class over commonality, as the paper's Figure 3, bottom."""
    rows = pick(truth.premises[truth.premises["k"].notna()], metric=[*ACCURACIES])
    rows = rows.assign(row=rows["metric"].map(ACCURACIES))
    heads = {k: f"n = {n:g}" for k, n in zip(rows["k"], rows["n"], strict=True) if n == n}
    if paper:
        theirs = pick(paper_numbers(), of=OF_COMMONALITY, k=set(rows["k"]))
        labels = f"{PAPER}, " + theirs["metric"].map(ACCURACIES)
        rows = pd.concat(
            [rows, theirs.assign(row=labels, text=(100 * theirs["value"]).map("{:.0f}".format), style=PAPER)]
        )
    order = [*ACCURACIES.values(), *(f"{PAPER}, {label}" for label in ACCURACIES.values())]
    return Table(
        "Commonality",
        "Accuracy on the target class in %, with the object and without it, for models trained with the object in a "
        "share k of the scene classes.",
        arrange(rows, row=order, k=sorted(set(rows["k"]))),
        ["row"],
        ["k"],
        write=points,
        labels={k: f"k = {k:g}" for k in rows["k"]},
        heads=heads,
        unverified=truth.mark("relative MCS"),
    )


# Charts.

OUTLINED = "Outlined: the mask; in each map its mean attribution. Dark is 0, bright is 1."
FREE = "Does not rest on the premises: each patch is checked on its own image."
MASKS = {"MCS": "the object's mask", "MCS baseline": "a random mask of its size"}
ZERO: dict[str, Any] = {"reference": (0.0, "")}
SHARE: dict[str, Any] = {"scale": 100.0, "limits": (0, 108), "write": lambda value: f"{100 * value:.0f}"}
#: By chart: the metric it rests on, what it shows, and the look of its bars.
CHARTS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "mcs": (
        "MCS",
        "Does the object get more when the model needs it? Bars with 95 % intervals; right is better.",
        {"label": "MCS: attribution of the object, model that needs it minus model that ignores it", "series": "mask"}
        | ZERO,
    ),
    "robustness": (
        "robustness",
        "MCS where objects are smaller or larger than in training, in the middle or in a corner, with 95 % intervals. "
        f"{ROBUSTNESS_IN_THE_PAPER}",
        {"label": "MCS by size and place of the object", "series": "variant", "write": None} | ZERO,
    ),
    "relative": (
        "relative MCS",
        "Does the contrast fall as the object becomes common? A panel for each method, with 95 % intervals; dotted, "
        "the same in all, what removing the object costs, scaled to the height of the highest curve.",
        {},
    ),
    "correlation": (
        "correlation",
        "How closely each curve follows the accuracy drop, with 95 % intervals.",
        {"label": "Pearson correlation of relative MCS with the accuracy drop (1 is best)"} | ZERO,
    ),
    "idr": (
        "IDR",
        "How often the unimportant object gets less than what it covers, with 95 % intervals.",
        {"label": "IDR: images in which the unimportant object gets less than what it covers (%)"}
        | SHARE
        | {"reference": (50.0, "random: 50 %")},
    ),
    "iir": (
        "IIR",
        "How often a patch that changes nothing leaves its region's attribution as it was, with 95 % intervals.",
        {"label": "IIR: images where the patch changes the attribution by less than {threshold:.0%} (%)"} | SHARE,
    ),
    "perturbation": (
        "perturbation",
        "How much that patch changes the attribution, relative to what it was; lower is better.",
        {"label": "average perturbation by a meaningless patch (lower is better)", "write": any_size, "points": True}
        | {"logarithmic": True},
    ),
}


def draw(frame: pd.DataFrame, truth: GroundTruth, run: Run[AttributionOptions]) -> dict[str, Chart]:
    """Declare every chart there are numbers for, and the saliency sheets."""
    ordered = arrange(frame, method=methods_of(frame))
    drawable = set(frame.loc[frame["value"].notna(), "metric"])
    free = f" {FREE}" if any(truth.unverified(metric) for metric in names(frame, "metric")) else ""
    charts = {}
    for name, (metric, caption, look) in CHARTS.items():
        if metric not in drawable:
            continue
        rows = pick(ordered, metric=metric)
        if name == "mcs":
            rows = pick(ordered, metric=[*MASKS]).assign(mask=lambda rows: rows["metric"].map(MASKS))
            caption += tcav_caption(frame, paper=run.facts["paper"])
        elif name == "robustness":
            rows = with_usual(ordered)
        bars = partial(Bars, frame=rows, groups="method", flat=True, grey=CONTROLS)
        if look:
            look = look | {"label": look["label"].format(threshold=run.options.threshold)}
        drawing = bars(**look) if look else relative_curves(rows, truth)
        caption += free if metric in ("IIR", "perturbation") else ""
        charts[name] = Chart(name, caption, drawing, wide=name == "relative", unverified=truth.mark(metric))
    for name, sheet in run.facts["sheets"].items():
        metric, key = CHARTS[name][0], f"sheet_{name}"
        caption = f"{sheet.caption} {OUTLINED}{free if metric == 'IIR' else ''}"
        charts[key] = Chart(key, caption, sheet, wide=True, unverified=truth.mark(metric))
    return charts


def tcav_caption(frame: pd.DataFrame, *, paper: bool) -> str:
    """Say on which scale TCAV is, where it was scored."""
    if pick(frame, method=TCAV, metric="MCS").empty:
        return ""
    theirs = pick(paper_numbers(), of=TCAV)["value"]
    return f" {TCAV_SCALE}" + (f" The paper's baseline of TCAV is {number(theirs.iloc[0])}." if paper else "")


def relative_curves(rows: pd.DataFrame, truth: GroundTruth) -> Curves:
    """Declare relative MCS over commonality, a panel for each method, and what removing the object costs."""
    lost = "accuracy lost (scaled)"
    drops = truth.drops[truth.drops["k"].isin(rows["k"])]
    scale = rows["value"].abs().max() / max(drops["value"].abs().max(), 0.01)
    drops = drops.assign(value=scale * drops["value"], low=math.nan, high=math.nan, curve=lost)
    parts = [rows.assign(curve="relative MCS"), *(drops.assign(method=method) for method in names(rows, "method"))]
    return Curves(
        frame=pd.concat(parts),
        x="k",
        series="curve",
        panels="method",
        across=4,
        label_x="commonality k",
        label="relative MCS",
        styles={lost: ":"},
    )
