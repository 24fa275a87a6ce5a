"""Figures of the concept study: presence and place, location, histograms, corrections, extremes and the gallery."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from captum_concepts.pictures.gallery import gallery
from captum_concepts.texts import readable_name
from quantus_concepts.metrics.concepts.names import (
    BASELINE,
    CEM_GAIN,
    CGIM_CORRELATION,
    INTERVENED,
    ITEM,
    PART_SPECIFICITY,
    SCORE,
    WRONG_LABELS,
)
from quantus_concepts.metrics.streaming.curves import TRUE_LABELS
from quantus_concepts.painted.subject import POST_HOC, RANDOM, TRADITIONAL
from quantus_concepts.results.verdicts import RANKINGS as VERDICTS_BY
from quantus_concepts.studies._kit.plots import BAND, INK, PALETTE, WIDTH, add_legend, dots, lines, new_axes
from quantus_concepts.studies._kit.report import Picture
from quantus_concepts.studies._kit.results import one, pick
from quantus_concepts.studies.concepts.terms import (
    BASELINES,
    CHANCE,
    COLOURS,
    KINDS,
    MODELS,
    RANKINGS,
    shown_names,
)

#: The ranking of figures that have one.
RANKED_BY = VERDICTS_BY[0]
#: Best, and worst, concepts and classes that are drawn.
BEST = 8
#: Orders in which concepts are corrected; every answer turned round is the control.
ORDERS = {"random": "random order", "uncertainty": "least sure first", "contribution": "most effect first"}
ANSWERS = {TRUE_LABELS: "", WRONG_LABELS: ", wrong answers"}
PLACE = (
    "Does the strongest region of the first concept's map hold its part? Ranked by effect; dashed lines are "
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


def presence_and_place(rows: pd.DataFrame, whose: str) -> Figure:
    """Draw gain and part specificity of the first concept by ranking, over the ranges of random directions."""
    models = list(MODELS[:3])
    chosen = [
        pick(rows, metric=metric, set="all", l=1, alpha=alpha, model=models, what=SCORE).assign(
            row=lambda found, what=what: found["explanation"].map(lambda name: f"{what},\nby {RANKINGS[name]}")
        )
        for metric, alpha, what in ((CEM_GAIN, None, whose), (PART_SPECIFICITY, 1, "map at its part"))
    ]
    label = "percentage points"
    return dots(pd.concat(chosen), "row", "model", label=label, order=models, colours=COLOURS, reference=0)[0]


def extremes(rows: pd.DataFrame, kinds: Sequence[str]) -> list[Picture]:
    """Draw the best and worst concepts or classes over their own random ranges."""
    pictures = []
    scores = pick(rows, metric=CGIM_CORRELATION, model=POST_HOC, explanation=RANKED_BY)
    plurals = {"concept": "concepts", "class": "classes"}
    for kind, plural in ((kind, plurals[kind]) for kind in kinds):
        items = pick(scores[scores["value"].notna()], what=ITEM, item_kind=kind)
        items = items.sort_values("value", ascending=False, kind="stable")
        if items.empty:
            continue
        chosen = items if len(items) <= 2 * BEST else pd.concat([items[:BEST], items[-BEST:]])
        chosen = chosen.assign(item=chosen["item"].map(shown_names(list(chosen["item"]))))
        figure, _ = dots(chosen, "item", label=f"CGIM correlation by {RANKED_BY}", percent=False, reference=0)
        which = f"The {BEST} best and the {BEST} worst of {len(items)}" if len(chosen) < len(items) else "All"
        pictures.append(Picture(f"best_and_worst_{plural}", figure, f"{which} {plural} of the {POST_HOC}."))
    return pictures


def intervention_rows(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the accuracies after interventions; before any, with the interval of the class accuracy."""
    curves = pick(rows, metric=INTERVENED)
    labels = np.where(curves["baseline"] == WRONG_LABELS, WRONG_LABELS, TRUE_LABELS)
    curves = curves.assign(labels=labels, count=curves["l"].astype(int))
    accuracies = pick(rows, metric="accuracy", what=SCORE).set_index("model")
    for end in ("low", "high"):
        # One accuracy has one interval, though that of the curve is over classes.
        curves[end] = curves[end].where(curves["count"] > 0, curves["model"].map(accuracies[end]))
    return curves


def interventions(rows: pd.DataFrame) -> list[Picture]:
    """Draw what people's corrections do to the class accuracy of the post-hoc CBM."""
    curves = intervention_rows(rows)
    counts = sorted(set(curves["count"]))
    curves = curves.assign(x=curves["count"].map(counts.index))
    curves["series"] = curves["explanation"].map(ORDERS) + curves["labels"].map(ANSWERS)
    curves.loc[curves["model"] == RANDOM, "series"] = RANDOM
    own = pick(curves, model=[POST_HOC, RANDOM])
    if own.empty:
        return []
    series = [order + answers for answers in ANSWERS.values() for order in ORDERS.values()]
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
    return [Picture("interventions_post-hoc", figure, CORRECTIONS)]


def location(rows: pd.DataFrame) -> Figure:
    """Draw CLM over the size of the region: models, baselines of the maps, chance and the band of random banks."""
    chosen = pick(rows, metric="CLM", model=list(MODELS), explanation=RANKED_BY, l=1)
    of_maps = pick(chosen, what=BASELINE, model=POST_HOC, baseline=list(BASELINES))
    chosen = pd.concat([pick(chosen, what=SCORE), of_maps.assign(model=of_maps["baseline"])])
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
        # Room for a legend of ten lines.
        ax=new_axes(5.6)[1],
    )[0]


def histograms(rows: pd.DataFrame) -> Figure:
    """Draw the histograms of CGIM, as the paper's Figure 2: concepts left, classes right, a ranking a row."""
    figure = Figure(figsize=(WIDTH, 7.0), layout="constrained")
    panels = figure.subplots(len(RANKINGS), 2, sharex=True)
    handles: dict[str, Artist] = {}
    for row, ranking in zip(panels, RANKINGS, strict=True):
        for ax, kind in zip(row, KINDS, strict=True):
            scores = pick(rows, metric="CGIM", explanation=ranking, item_kind=kind)
            for model in (POST_HOC, TRADITIONAL):
                values = pick(scores, what=ITEM, model=model)["value"].dropna()
                if len(values):
                    ax.hist(values, np.linspace(-1, 1, 21), histtype="step", color=COLOURS[model], linewidth=1.6)
                    handles[model] = Line2D([], [], color=COLOURS[model])
            if (random := one(scores, model=RANDOM, what=SCORE)) is not None:
                ax.axvspan(random["low"], random["high"], color=BAND, zorder=0)
                handles["95 % of random banks"] = Patch(color=BAND)
            ax.yaxis.set_major_locator(MaxNLocator(4, integer=True))
        row[0].set_ylabel(f"by {RANKINGS[ranking]}")
    for ax, kind in zip(panels[0], KINDS, strict=True):
        ax.set_title(f"number, {KINDS[kind]}")
    figure.supxlabel("CGIM (cosine, 1 is best)", fontsize=10)
    add_legend(panels[0, 0], handles)
    return figure


def concept_gallery(shown: Mapping[str, Tensor], class_names: Sequence[str], concept_names: Sequence[str]) -> Figure:
    """Draw images with their concepts and maps, as `Seed` keeps them."""
    titles = [
        f"{'' if guess == label else 'WRONG '}true: {readable_name(class_names[label])}\n"
        f"predicted: {readable_name(class_names[guess])}"
        for label, guess in zip(shown["labels"].tolist(), shown["predicted"].tolist(), strict=True)
    ]
    figure, axes = gallery(
        shown["images"],
        shown["maps"],
        [[readable_name(concept_names[j]) for j in row] for row in shown["concepts"].tolist()],
        shown["present"],
        shown["class_maps"],
        titles,
        absent=shown["absent"],
        contributions=shown["effects"],
    )
    for ax in axes.flat:
        if ax.title.get_color() == "black":
            # Text that turns light on a dark page.
            ax.title.set_color(INK)
    return figure
