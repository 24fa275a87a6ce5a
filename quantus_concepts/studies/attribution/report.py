"""The report of `benchmark attribution`: answers, tables, charts and findings, declared over its frame."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import pandas as pd
from markupsafe import Markup, escape

from quantus_concepts.studies._kit.charts import Bars, Chart, Curves, Drawing
from quantus_concepts.studies._kit.findings import Finding, count_range, join_words, number
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
    points,
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

    def section(heading: str, *drawn: str, folded: str = "") -> Section:
        shown = [charts[name] for name in drawn if name in charts]
        return Section(heading, charts=shown, folded=[tables[folded]] if folded in tables else [])

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
        [each for each in sections if each.tables or each.charts or each.folded],
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
            lambda found: f"<i>{found[1]}</i><sub>{found[2]}</sub>" + ("<sup>k</sup>" if found[0][-2:] == "^k" else ""),
            str(escape(text)),
        )
    )


def cells(frame: pd.DataFrame, chosen: pd.DataFrame) -> pd.DataFrame:
    """Return rows as a table shows them: written in the way of their metric, marked, the best in bold."""
    best = {(metric, method) for metric in names(chosen, "metric") for method in best_of(frame, metric)}
    made = []
    for _, row in chosen.iterrows():
        write, low, high = WRITERS[row["metric"]], row["low"], row["high"]
        alone = math.isnan(row["value"]) or math.isnan(low) or low == high
        made.append(
            {
                "text": write(row["value"]),
                "small": "" if alone else f"{write(low)}{' to ' if low < 0 else '–'}{write(high)}",
                # A control is meant to be at its reference; the findings say whether it is.
                "mark": "" if row["method"] in CONTROLS else against(row, reference_of(frame, row)),
                "best": (row["metric"], row["method"]) in best,
            }
        )
    shown = chosen.assign(**pd.DataFrame(made, index=chosen.index))
    return arrange(shown, method=methods_of(chosen)) if len(shown) else shown


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
#: What the paper's text says of its red bars, which is all there is: its Figure 5 is a picture.
ROBUSTNESS_IN_THE_PAPER = (
    'The paper draws such bars in its Figure 5 and says that MCS "is robust to the scale and location of objects"; it '
    "prints no number for them."
)
#: Rows of the table of premises, by what a check measures.
PREMISES: dict[str, tuple[str, Callable[[float], str]]] = {
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
            cells(frame, main),
            ["method"],
            ["metric"],
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
            arrange(counts, method=methods_of(main)) if len(counts) else counts,
            ["method"],
            ["metric"],
            heads={"patches left out": "not converged"},
            controls=CONTROLS,
            key="A score is undefined where an image is not classified correctly, a patch did not converge, the map "
            "failed, or (IIR, perturbation) the attribution of the region is 0. Undefined scores enter no mean.",
        ),
    }
    if "relative MCS" in present:
        chosen = cells(frame, pick(frame, metric=["relative MCS", "correlation"]))
        levels = sorted(chosen["k"].dropna().unique())
        drops = truth.drops[truth.drops["k"].isin(levels)]
        lost = drops.assign(method="accuracy drop", text=drops["value"].map(number), style=PAPER, value=math.nan)
        shown = pd.concat([chosen.assign(method=chosen["method"].astype(str)), lost])
        shown = shown.assign(column=shown["k"].map(lambda k: f"k = {k:g}").where(shown["k"].notna(), "correlation"))
        tables["relative"] = Table(
            "Relative MCS",
            "Contrast of the model of commonality k with that of k = 1, and Pearson's correlation of the curve with "
            "the accuracy lost when the object is removed.",
            arrange(shown, method=names(shown, "method"), column=[*(f"k = {k:g}" for k in levels), "correlation"]),
            ["method"],
            ["column"],
            controls=CONTROLS,
            key="Small numbers are 95 % bootstrap intervals over images.",
            unverified=truth.mark("relative MCS"),
        )
    if "robustness" in present:
        tables["robustness"] = Table(
            "Robustness",
            "MCS of the same models on test images in which the object is smaller (.35 to .45 of the side) or larger "
            "(.8 to .9) than in training (.58 to .71), or always in the middle or in a corner.",
            cells(frame, with_usual(frame)),
            ["method"],
            ["variant"],
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
    features = {check.model: check.feature for check in truth.checks}
    ours = pick(truth.premises, metric=[*PREMISES], model=[*features])
    shown = [ours.assign(column=ours["model"])]
    if paper:
        theirs = paper_numbers()
        shown.append(theirs.assign(model=theirs["of"], column=f"{PAPER} " + theirs["of"], style=PAPER))
    frame = pd.concat(shown, ignore_index=True)
    frame = frame[frame["metric"].isin([*PREMISES]) & frame["model"].isin([*features])]
    frame = frame.assign(
        row=[PREMISES[metric][0] for metric in frame["metric"]],
        text=[PREMISES[row["metric"]][1](row["value"]) for _, row in frame.iterrows()],
        small=[
            IMAGE_SETS.get((features[row["model"]], row["metric"]), "") if row["column"] in features else ""
            for _, row in frame.iterrows()
        ],
    )
    columns = [name for model in features for name in (model, f"{PAPER} {model}")]
    missing = [check.model for check in truth.checks if not check.verified]
    return Table(
        "Premises",
        "Does the model ignore what it should ignore? Accuracies and shares in %, median divergence of the predictions "
        "with and without the common feature.",
        arrange(frame.drop(columns="value"), row=[label for label, _ in PREMISES.values()], column=columns),
        ["row"],
        ["column"],
        labels={f"{PAPER} {model}": PAPER for model in features},
        heads={check.model: f"common feature: {check.feature}; n = {check.n}" for check in truth.checks},
        unverified=f"ground truth not verified ({', '.join(missing)})" if missing else "",
    )


def commonality_table(truth: GroundTruth, paper: bool) -> Table:
    """Declare accuracy of the target class over commonality, as the paper's Figure 3, bottom."""
    found = pick(truth.premises[truth.premises["k"].notna()], metric=[*ACCURACIES])
    found = found.assign(row=found["metric"].map(ACCURACIES), text=found["value"].map(points))
    heads = {k: f"n = {n:g}" for k, n in zip(found["k"], found["n"], strict=True) if n == n}
    if paper:
        theirs = pick(paper_numbers(), of=OF_COMMONALITY, k=set(found["k"]))
        rows = f"{PAPER}, " + theirs["metric"].map(ACCURACIES)
        text = [f"{100 * value:.0f}" for value in theirs["value"]]
        found = pd.concat([found, theirs.assign(row=rows, text=text, style=PAPER)])
    order = [*ACCURACIES.values(), *(f"{PAPER}, {label}" for label in ACCURACIES.values())]
    return Table(
        "Commonality",
        "Accuracy on the target class in %, with the object and without it, for models trained with the object in a "
        "share k of the scene classes.",
        arrange(found.drop(columns="value"), row=order, k=sorted(set(found["k"]))),
        ["row"],
        ["k"],
        labels={k: f"k = {k:g}" for k in found["k"]},
        heads=heads,
        unverified=truth.mark("relative MCS"),
    )


# Charts.

OUTLINED = "Outlined: the mask; in each map its mean attribution. Dark is 0, bright is 1."
FREE = "Does not rest on the premises: each patch is checked on its own image."
MASKS = {"MCS": "the object's mask", "MCS baseline": "a random mask of its size"}
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
        "Does the contrast fall as the object becomes common? A panel for each method, with 95 % intervals; dotted, "
        "the same in all, what removing the object costs, scaled to the height of the highest curve.",
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


def draw(frame: pd.DataFrame, truth: GroundTruth, run: Run[AttributionOptions]) -> dict[str, Chart]:
    """Declare every chart there are numbers for, and the saliency sheets."""
    drawable = set(frame.loc[frame["value"].notna(), "metric"])
    doubted = any(truth.unverified(metric) for metric in frame["metric"].unique())
    made = {}
    for name, (metric, caption) in CAPTIONS.items():
        if metric not in drawable:
            continue
        if name == "mcs" and len(pick(frame, method=TCAV, metric="MCS")):
            caption += f" {TCAV_SCALE}"
            if run.facts["paper"]:
                caption += (
                    f" The paper's baseline of TCAV is {number(pick(paper_numbers(), of=TCAV)['value'].iloc[0])}."
                )
        free = f" {FREE}" if doubted and metric in ("IIR", "perturbation") else ""
        drawing = drawing_of(name, frame, truth, run.options.threshold)
        made[name] = Chart(name, caption + free, drawing, wide=name == "relative", unverified=truth.mark(metric))
    for name, sheet in run.facts["sheets"].items():
        metric, _ = CAPTIONS[name]
        caption = f"{sheet.caption} {OUTLINED}" + (f" {FREE}" if doubted and metric == "IIR" else "")
        key = f"sheet_{name}"
        made[key] = Chart(key, caption, sheet, wide=True, unverified=truth.mark(metric))
    return made


def drawing_of(name: str, frame: pd.DataFrame, truth: GroundTruth, threshold: float) -> Drawing:
    """Declare one chart; bars of methods with the controls last, in grey."""
    ordered = arrange(frame, method=methods_of(frame))

    def bars(rows: pd.DataFrame, label: str, **look: Any) -> Bars:
        return Bars(frame=rows, groups="method", flat=True, grey=CONTROLS, label=label, **look)

    share: dict[str, Any] = {"scale": 100.0, "limits": (0, 108), "write": lambda value: f"{100 * value:.0f}"}
    zero: dict[str, Any] = {"reference": (0.0, "")}
    if name == "mcs":
        rows = pick(ordered, metric=[*MASKS])
        label = "MCS: attribution of the object, model that needs it minus model that ignores it"
        return bars(rows.assign(mask=rows["metric"].map(MASKS)), label, series="mask", **zero)
    if name == "robustness":
        rows = arrange(with_usual(frame), method=methods_of(frame))
        return bars(rows, "MCS by size and place of the object", series="variant", write=None, **zero)
    if name == "relative":
        rows = pick(ordered, metric="relative MCS").assign(curve="relative MCS")
        drops = truth.drops[truth.drops["k"].isin(rows["k"])]
        scale = rows["value"].abs().max() / max(drops["value"].abs().max(), 0.01)
        lost = drops.assign(value=scale * drops["value"], low=math.nan, high=math.nan, curve="accuracy lost (scaled)")
        rows = pd.concat([rows, *(lost.assign(method=method) for method in names(rows, "method"))])
        return Curves(
            frame=rows,
            x="k",
            series="curve",
            panels="method",
            across=4,
            label_x="commonality k",
            label="relative MCS",
            styles={"accuracy lost (scaled)": ":"},
        )
    rows = pick(ordered, metric=CAPTIONS[name][0])
    if name == "correlation":
        return bars(rows, "Pearson correlation of relative MCS with the accuracy drop (1 is best)", **zero)
    if name == "perturbation":
        label = "average perturbation by a meaningless patch (lower is better)"
        return bars(rows, label, write=any_size, points=True, logarithmic=True)
    if name == "idr":
        label = "IDR: images in which the unimportant object gets less than what it covers (%)"
        return bars(rows, label, reference=(50.0, "random: 50 %"), **share)
    return bars(rows, f"IIR: images where the patch changes the attribution by less than {threshold:.0%} (%)", **share)
