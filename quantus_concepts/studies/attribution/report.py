"""The report of `benchmark attribution`: verdicts, MCS, IDR and IIR of every method, the paper's tables, maps."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from captum_concepts.attributions.methods import CONTROL_METHODS
from quantus_concepts.functional.statistics.intervals import relation
from quantus_concepts.results.comparison import compare
from quantus_concepts.results.verdicts import ABOVE_ZERO, BELOW_ZERO, NOT_SHOWN, UNKNOWN, difference_verdict
from quantus_concepts.studies._kit.comparisons import adjusted, comparison_table
from quantus_concepts.studies._kit.galleries import GalleryRow, draw_gallery, wrapped
from quantus_concepts.studies._kit.plots import BAND, GRID, MARKERS, MUTED, PALETTE, WIDTH, add_legend, dots
from quantus_concepts.studies._kit.report import Picture, Report, Section, Table, Verdict, number, percent, three
from quantus_concepts.studies._kit.results import load_paper, names, pick
from quantus_concepts.studies.attribution.global_method import TCAV
from quantus_concepts.studies.attribution.study import ExplainedImage, Results

#: Methods without knowledge of the model.
CONTROLS = (RANDOM, SOBEL) = tuple(CONTROL_METHODS)
#: Rows that are in no competition for the highest number.
GREY = ("paper", *CONTROLS, TCAV)
TITLES = {
    "painted": "painted objects on painted scenes",
    "coco-miniplaces": "objects of COCO on scenes",
    "folders": "cut-outs on scenes",
    "bam": "images in the layout of BAM",
}
PAPER_SOURCE = (
    "Yang and Kim (2019), BIM: Towards Quantitative Evaluation of Interpretability Methods with Ground Truth; objects "
    "of COCO on scenes of MiniPlaces."
)
#: The paper prints no numbers of its bars.
PAPER_FINDS = (
    "Bold: the highest, where its paired difference from every other method is clear; none is bold where methods tie. "
    "Random and Sobel edges know no model. The paper draws bars without numbers (Figures 5 and 9): it finds Grad-CAM "
    "highest in MCS, Grad-CAM and vanilla gradient highest in IDR and IIR, and every other IIR below 20 %."
)


def any_size(value: float) -> str:
    """Write a number of any size with two digits."""
    return "–" if math.isnan(value) else f"{value:.2g}".replace("-", "−")


#: By metric of the comparison: what it asks, how it is written, the label of its axis, and what random maps expect.
METRICS: dict[str, tuple[str, Callable[[float], str], str, float | None]] = {
    "MCS": ("the map changes with what the model needs", three, "MCS", 0.0),
    "IDR": ("the object that does not matter gets less", percent, "IDR, %", 0.5),
    "IIR": ("a patch that changes nothing changes no map", percent, "IIR, %", None),
}
WRITERS: dict[str, Callable[[float], str]] = {
    **{metric: write for metric, (_, write, _, _) in METRICS.items()},
    **dict.fromkeys(("accuracy with", "accuracy without", "remains correct", "accuracy only", "chance"), percent),
    **dict.fromkeys(("median KL same", "median KL changed"), any_size),
}
#: Rows of the table of premises, by what a check measures.
PREMISES = {
    "accuracy with": "accuracy, objects on scenes, %",
    "accuracy without": "without the common feature, %",
    "remains correct": "of the correct, remain correct without it, %",
    "accuracy only": "only the common feature, %",
    "chance": "chance, %",
    "median KL same": "median KL, same prediction",
    "median KL changed": "median KL, changed prediction",
}
ACCURACIES = {"accuracy with": "with the object", "accuracy without": "without it", "accuracy drop": "drop"}
PREMISE_NAMES = {
    "removed": "accuracy lost without the feature, at most",
    "remain correct": "correct answers that stay correct, at least",
    "alone": "accuracy above chance from the feature alone, at most",
    "learned": "accuracy above chance, more than",
}
FEATURES = {"f_o": "f_o: learns objects, ignores scenes", "f_s": "f_s: learns scenes, ignores objects"}
GALLERIES = {
    "MCS": "MCS: each image for the model of objects (f_o) and of scenes (f_s). Importance inside the outline should "
    "be high above and low below.",
    "IDR": "IDR: the model of scenes (f_s) with an object that it does not use, and without. Importance inside the "
    "outline should be lower above than below.",
    "IIR": "IIR: a model of bare scenes without and with a patch that leaves its logits as they were. Importance "
    "inside the outline should stay as it is.",
    "relative": "Relative MCS: one image under models trained with the object in a share k of the scenes.",
}
CURVES = (
    "Contrast of the model of commonality k with that of k = 1, with 95 % intervals; dotted, the same in all: the "
    "accuracy lost without the object, scaled to the highest curve. The more common the object, the less it tells."
)
ROBUSTNESS = (
    "MCS with 95 % intervals. Objects are smaller (.35 to .45 of the side) or larger (.8 to .9) than in training (.58 "
    'to .71), in the middle or in a corner. The paper says that MCS "is robust to the scale and location of objects".'
)
READING = {
    "MCS": "Two models, one image. Does the object get more when the model needs it (f_o) than when the model ignores "
    "it (f_s)? 0: no difference. Its random mask has the same size at a random place.",
    "IDR": "One model that ignores the object, two images. How often does the object get less than what it covers? A "
    "random map scores 50 %.",
    "IIR": "One model, two images with nearly the same logits: the second has a patch optimised to change nothing. How "
    "often does the attribution of that region stay as it was, within the threshold? There is no chance value: coarse, "
    "smooth maps change less than fine ones, whatever they explain.",
    "Random range": "The 95 % interval of one random map on the same images.",
    "Above, within, below": "By the difference from the random map, image by image, with p-values corrected for the "
    "methods of a metric (Holm): above or below where p is at most .05, else within.",
    "Tie": "The difference from the highest, image by image, may be luck (p above .05, corrected in the same way); of "
    "correlations, their intervals overlap. Everything is over images, within one run: nothing here is about other "
    "models or seeds.",
    "Undefined": "A score is undefined where a model misclassifies the image, a patch did not converge, the map "
    "failed, or (IIR) the region's attribution is 0. results.csv counts them, and has MCS of a random mask and "
    "the average perturbation by a patch, in which few images with a tiny attribution can dominate.",
    "Attribution of a region": "The mean of the map inside it. Only positive attributions count, and every map is "
    "scaled to [0, 1] by itself. Only images that every model concerned classifies correctly enter.",
}

#: The last of them as printed.
RAW = (
    "The mean of the map inside it. Only positive attributions count, in the units of the method: MCS is comparable "
    "within a method, not between methods. Only images that every model concerned classifies correctly enter."
)


def make_attribution_report(results: Results, *, data: str, as_printed: bool = False) -> Report:
    """Return the report of a run."""
    printed = " As printed in the papers: maps have no scale of their own." if as_printed else ""
    frame, premises = results.frame, results.premises
    present = set(frame["metric"])
    compared = compare_methods(frame, results.images)
    scores = with_random_map(frame, compared)
    wrong = unverified(results)
    sections = [Section("Does the ground truth hold?", premise_tables(results), [premise_check_table(results)])]
    sections.append(Section("All methods", [method_table(scores)], [differences_table(compared)]))
    curves = pick(frame, metric="relative MCS").dropna(subset="value")
    if len(curves):
        parts = [Picture("relative", draw_curves(curves, pick(premises, metric="accuracy drop")), CURVES)]
        correlations = pick(frame, metric="correlation").dropna(subset="value")
        if len(correlations):
            label = "correlation with the accuracy lost"
            figure, _ = dots(correlations, "method", label=label, percent=False, reference=0.0)
            parts.append(Picture("correlation", figure, "How closely each curve follows it, with 95 % intervals."))
        sections.append(Section("Relative MCS: does the map follow how much it matters?", parts))
    if "robustness" in present:
        changed = with_usual(frame)
        figure, _ = dots(changed, "method", "variant", label="MCS", percent=False, reference=0.0)
        sections.append(Section("Other sizes and places", [Picture("robustness", figure, ROBUSTNESS)]))
    if len(results.layers):
        sections.append(Section("TCAV, a global method", [tcav_table(frame)]))
    maps = [
        Picture(f"maps_{name.lower()}", draw_gallery(*attribution_rows(gallery), cell=1.05), GALLERIES[name], wide=True)
        for name, gallery in results.galleries.items()
        if gallery
    ]
    sections.append(Section("Maps", [], maps))
    return Report(
        f"Attribution methods on {TITLES[data]}: do they give importance to what does not matter?",
        verdicts(scores, compared, results),
        Picture("methods", draw_methods(scores), "Every method with its 95 % interval; higher is better."),
        sections,
        lead="Models are trained so that one of object and scene provably does not matter to them. Images explained: "
        f"{results.details['images explained']}.{printed}",
        reading=READING | ({"Attribution of a region": RAW} if as_printed else {}),
        banner=f"The ground truth is not verified for {' and '.join(wrong)}: MCS and IDR rest on premises that do not "
        "hold (first table). A method that scores low here may be right."
        if wrong
        else "",
        links={file: file for file in ("premises.csv", *(["tcav_layers.csv"] if len(results.layers) else []))},
    )


def methods_of(frame: pd.DataFrame) -> list[str]:
    """Return the methods that occur, controls last: the order of every table and figure."""
    methods = names(frame, "method")
    return [name for name in methods if name not in CONTROLS] + [name for name in methods if name in CONTROLS]


def in_method_order(frame: pd.DataFrame) -> pd.DataFrame:
    """Return rows with the methods in the order of every table."""
    return frame.assign(method=pd.Categorical(frame["method"], methods_of(frame)))


def compare_methods(frame: pd.DataFrame, images: pd.DataFrame) -> pd.DataFrame:
    """Compare each method with the random map and with the highest method, image by image; corrected by metric."""
    results = []
    for metric in METRICS:
        rows = pick(images, metric=metric)
        rows = rows[~rows["method"].isin(unscored(rows))]
        own = pick(frame, metric=metric).dropna(subset="value")
        own = own[~own["method"].isin(GREY) & own["method"].isin(rows["method"])]
        references = [RANDOM] if (rows["method"] == RANDOM).any() else []
        if len(own):
            references.append(str(own.loc[own["value"].idxmax(), "method"]))
        for reference in references:
            chosen = rows[rows["method"].isin([*own["method"], reference])]
            if chosen["method"].nunique() > 1:
                results.append(compare(chosen, reference=reference, clusters=None))
    return pd.concat(results, ignore_index=True) if results else adjusted([])


def unscored(rows: pd.DataFrame) -> list[str]:
    """Return the methods without any score."""
    defined = rows.groupby("method")["score"].count()
    return list(defined[defined == 0].index)


def with_random_map(frame: pd.DataFrame, compared: pd.DataFrame) -> pd.DataFrame:
    """Return MCS, IDR and IIR with the interval of the random map, the verdict against it, and which is the best."""
    rows = pick(frame, metric=[*METRICS])
    ends = pick(rows, method=RANDOM).set_index("metric")
    rows = rows.assign(**{f"random_{end}": rows["metric"].map(ends[end]) for end in ("low", "high")})
    words = {ABOVE_ZERO: "above", NOT_SHOWN: "within", BELOW_ZERO: "below"}
    relations = {
        (row["metric"], row["a"]): words.get(difference_verdict(row), UNKNOWN)
        for row in pick(compared, b=RANDOM).to_dict("records")
    }
    best = {metric: found for metric in METRICS if (found := highest(rows, compared, metric))}
    names_of = list(zip(rows["metric"], rows["method"], strict=True))
    rivals = {metric: (pick(compared, metric=metric)["b"] != RANDOM).any() for metric in best}
    alone = {(metric, rows_[0]["method"]) for metric, rows_ in best.items() if len(rows_) == 1 and rivals[metric]}
    return rows.assign(
        verdict=[relations.get(name, UNKNOWN) for name in names_of], best=[name in alone for name in names_of]
    )


def highest(scores: pd.DataFrame, compared: pd.DataFrame, metric: str) -> list[pd.Series]:
    """Return the row of the method with the highest number, and those that do not differ from it."""
    rows = pick(scores, metric=metric)
    rows = rows[rows["value"].notna() & ~rows["method"].isin(GREY)].sort_values("value", ascending=False, kind="stable")
    if rows.empty:
        return []
    first, *others = (row for _, row in rows.iterrows())
    from_first = pick(compared, metric=metric, b=first["method"]).set_index("a")
    return [first, *(row for row in others if difference_verdict(from_first.loc[row["method"]]) != BELOW_ZERO)]


def highest_correlation(frame: pd.DataFrame) -> list[pd.Series]:
    """Return the row of the method with the highest correlation, and those whose intervals overlap with its own."""
    rows = pick(frame, metric="correlation")
    rows = rows[rows["value"].notna() & ~rows["method"].isin(GREY)].sort_values("value", ascending=False, kind="stable")
    lines = [row for _, row in rows.iterrows()]
    return [row for row in lines if relation(ends_of(row), ends_of(lines[0])) == "at"]


def ends_of(row: pd.Series) -> tuple[float, float]:
    """Return the interval of a number, which stands for itself where it has none."""
    low, high = (row["value"] if math.isnan(row[end]) else row[end] for end in ("low", "high"))
    return float(low), float(high)


def tied_names(best: list[pd.Series]) -> str:
    """Name the highest method and those that tie with it."""
    first, *tied = (row["method"] for row in best)
    others = ", ".join(tied) if len(tied) < 4 else f"{len(tied)} others"
    return f"{first}, tied with {others}" if tied else first


def unverified(results: Results) -> list[str]:
    """Return the models whose premises do not hold."""
    holds = results.checks.groupby("model", sort=False)["holds"].all()
    return list(holds.index[~holds])


def verdicts(scores: pd.DataFrame, compared: pd.DataFrame, results: Results) -> list[Verdict]:
    """Return whether the premises hold, and by metric the highest methods and how many are above the random map."""
    holds = results.checks["holds"]
    wrong = unverified(results)
    rows = [
        Verdict(
            "Ground truth: premises of f_o and f_s that hold",
            int(holds.sum()),
            write=_of(len(holds)),
            text=f"not verified: {', '.join(wrong)}" if wrong else "verified",
        )
    ]
    for metric, (question, write, _, _) in METRICS.items():
        best = highest(scores, compared, metric)
        if not best:
            continue
        own = pick(scores, metric=metric)
        relations = list(own.loc[own["value"].notna() & ~own["method"].isin(GREY), "verdict"])
        named = f"{metric}, {question}. Highest: {tied_names(best)}"
        rows.append(Verdict.of(named, best[0], write=write, text=best[0]["verdict"]))
        if set(relations) != {UNKNOWN}:
            text = ", ".join(f"{relations.count(word)} {word}" for word in ("within", "below"))
            above = relations.count("above")
            rows.append(Verdict(f"{metric}: methods above the random map", above, write=_of(len(relations)), text=text))
    if best := highest_correlation(results.frame):
        question = f"Relative MCS, correlation with the accuracy lost. Highest: {tied_names(best)}"
        rows.append(Verdict.of(question, best[0], write=number))
    return rows


def _of(total: int) -> Callable[[float], str]:
    return lambda value: f"{value:.0f} of {total}"


def premise_tables(results: Results) -> list[Table]:
    """Return the paper's Figure 3: what the models do without the common feature, and by commonality."""
    paper = load_paper(__package__, k=float)
    rows = pick(results.premises, metric=[*PREMISES], model=[*FEATURES]).assign(source="ours")
    theirs = pick(paper, metric=[*PREMISES], of=[*FEATURES])
    rows = pd.concat([rows, theirs.assign(model=theirs["of"], source="paper")], ignore_index=True)
    rows["measure"] = pd.Categorical(rows["metric"].map(PREMISES), [*PREMISES.values()])
    rows["model"] = pd.Categorical(rows["model"].map(FEATURES), [*FEATURES.values()])
    caption = (
        f"{results.checks['n'].iloc[0]} test images. The paper's numbers, its Figure 3 (top), are of other images: "
    )
    title = "Does the model ignore what it should ignore?"
    columns = ["model", "source"]
    tables = [Table("premises", title, rows, ["measure"], columns, WRITERS, caption=caption + PAPER_SOURCE)]
    ours = pick(results.premises, model="f_s^k").assign(source="ours")
    if len(ours):
        rows = pd.concat([ours, pick(paper, of="f_s^k").assign(source="paper")], ignore_index=True)
        rows = rows.assign(measure=rows["metric"].map(ACCURACIES), k=rows["k"].map("k = {:g}".format))
        caption = "In %, for models trained with the object in a share k of the scenes. Paper: Figure 3 (bottom)."
        title = "Accuracy on the target scene, with the object and without it"
        tables.append(Table("commonality", title, rows, ["source", "measure"], ["k"], percent, caption=caption))
    return tables


def premise_check_table(results: Results) -> Table:
    """Return the premises one by one, with their limits."""
    rows = [
        {"model": FEATURES[row["model"]], "premise": PREMISE_NAMES[row["metric"]]}
        | {"column": column, "value": value, "text": text}
        for row in results.checks.to_dict("records")
        for column, value, text in (
            ("measured, %", row["value"], ""),
            ("limit, %", row["limit"], ""),
            ("holds", math.nan, "yes" if row["holds"] else "no"),
        )
    ]
    title = "The premises one by one"
    return Table("premise-checks", title, pd.DataFrame(rows), ["model", "premise"], ["column"], percent)


def method_table(scores: pd.DataFrame) -> Table:
    """Return MCS, IDR and IIR of every method."""
    rows = in_method_order(scores[scores["method"] != TCAV])
    rows = rows.assign(column=rows["metric"].map({name: label for name, (_, _, label, _) in METRICS.items()}))
    title = "Importance of what does not matter"
    return Table("methods", title, rows, ["method"], ["column"], WRITERS, PAPER_FINDS)


def differences_table(compared: pd.DataFrame) -> Table:
    """Return how far methods are from the random map, and from the highest."""
    caption = "Image by image; p-values are corrected for the methods of a metric (Holm)."
    title = "Difference from the random map, and from the highest"
    return comparison_table("differences", title, compared.assign(what=compared["metric"]), WRITERS, caption)


def with_usual(frame: pd.DataFrame) -> pd.DataFrame:
    """Return MCS under every change of size and place, after MCS as trained."""
    changed = pick(frame, metric="robustness")
    usual = pick(frame, metric="MCS", method=names(changed, "method"))
    both = pd.concat([usual.assign(metric="robustness", variant="as trained"), changed], ignore_index=True)
    return in_method_order(both).sort_values("method", kind="stable")


def tcav_table(frame: pd.DataFrame) -> Table:
    """Return the contrast of TCAV beside that of random concepts."""
    ours = pick(frame, method=TCAV, metric=["MCS", "MCS baseline"]).assign(source="ours")
    theirs = pick(load_paper(__package__, k=float), of=TCAV).assign(source="paper")
    rows = pd.concat([ours, theirs], ignore_index=True)
    rows["column"] = rows["metric"].map({"MCS": "contrast of f_o and f_s", "MCS baseline": "random concepts"})
    caption = (
        "One number for all images, a difference of two TCAV scores: it is not ranked with the maps. A model's score "
        "is the mean over the layers whose score differs from that of random concepts (tcav_layers.csv)."
    )
    return Table("tcav", "Model contrast of TCAV", rows, ["source"], ["column"], number, caption)


def draw_methods(scores: pd.DataFrame) -> Figure:
    """Draw a panel a metric: every method with its interval, over the interval of the random map."""
    methods = [method for method in methods_of(scores) if method != TCAV]
    places = np.arange(len(methods))
    figure = Figure(figsize=(WIDTH, 1.3 + 0.32 * len(methods)), layout="constrained")
    panels = zip(figure.subplots(1, len(METRICS), sharey=True), METRICS.items(), strict=True)
    for ax, (metric, (_, write, label, expected)) in panels:
        scale = 100.0 if write is percent else 1.0
        rows = pick(scores, metric=metric).set_index("method").reindex(methods)
        value, low, high = (scale * rows[name].to_numpy(float) for name in ("value", "low", "high"))
        ends = np.maximum(np.nan_to_num([value - low, high - value]), 0)
        random = methods.index(RANDOM)
        ax.axvspan(value[random] - ends[0, random], value[random] + ends[1, random], color=BAND, linewidth=0, zorder=0)
        if expected is not None:
            ax.axvline(scale * expected, color=MUTED, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
        own = ~np.isin(methods, CONTROLS)
        for chosen, colour, marker in ((own, PALETTE[1], MARKERS[0]), (~own, MUTED, MARKERS[1])):
            look = {"color": colour, "marker": marker, "markersize": 5, "linestyle": "", "elinewidth": 1.4}
            ax.errorbar(value[chosen], places[chosen], xerr=ends[:, chosen], capsize=2, **look)
        ax.set(xlabel=label, ylim=(len(methods) - 0.5, -0.5))
        if write is percent:
            ax.set(xlim=(-6, 106), xticks=(0, 50, 100))
        ax.set_yticks(places, [wrapped(name, 16) for name in methods], fontsize=9)
        ax.tick_params(axis="y", length=0)
        ax.grid(axis="x")
    add_legend(ax, {"random map, 95 % interval": Patch(color=BAND)})
    return figure


def draw_curves(curves: pd.DataFrame, drops: pd.DataFrame) -> Figure:
    """Draw relative MCS over commonality, a panel for each method, and what removing the object costs."""
    methods, across = methods_of(curves), 2
    lost = drops[drops["k"].isin(curves["k"])].sort_values("k")
    scale = curves["value"].abs().max() / max(lost["value"].abs().max(), 0.01)
    figure = Figure(figsize=(WIDTH, 0.6 + 1.5 * -(-len(methods) // across)), layout="constrained")
    panels = figure.subplots(-(-len(methods) // across), across, sharex=True, sharey=True, squeeze=False)
    for ax, method in zip(panels.flat, methods, strict=False):
        rows = pick(curves, method=method).sort_values("k")
        k, value, low, high = (rows[name].to_numpy(float) for name in ("k", "value", "low", "high"))
        ends = np.maximum(np.nan_to_num([value - low, high - value]), 0)
        ax.errorbar(k, value, ends, color=PALETTE[1], marker=MARKERS[0], markersize=4, capsize=2, elinewidth=1)
        ax.plot(lost["k"], scale * lost["value"], color=MUTED, linestyle=":")
        ax.set_title(method, fontsize=9)
        ax.grid(axis="y", color=GRID)
    for ax in panels.flat[len(methods) :]:
        ax.set_axis_off()
    figure.supxlabel("commonality k", fontsize=10)
    figure.supylabel("relative MCS", fontsize=10)
    return figure


def attribution_rows(images: list[ExplainedImage]) -> tuple[list[str], list[GalleryRow]]:
    """Return the columns and rows of a gallery: image and maps, the region outlined, with each map's mean inside."""
    columns = [name for name in images[0].maps if all(name in image.maps for image in images)]
    rows = []
    for image in images:
        maps = [image.maps[name] for name in columns]
        cells, corners = [image.image, *(values for values, _ in maps)], ["", *(number(inside) for _, inside in maps)]
        rows.append(GalleryRow(image.label, cells, corners=corners, region=image.mask))
    return ["image", *columns], rows
