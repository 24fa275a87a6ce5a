"""The section of the concept report on whether the class rests on its concepts."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd

from quantus_concepts.functional.bottleneck.wrong_labels import MOST_UNIQUE, MOST_WRONG
from quantus_concepts.metrics.concepts.completeness import Completeness
from quantus_concepts.metrics.concepts.leakage import (
    AS_WRONG_LABELS,
    UNIQUE_CONCEPTS,
    ConceptSetCeiling,
    ConceptTaskLeakage,
)
from quantus_concepts.metrics.concepts.names import ACCURACY, SCORE
from quantus_concepts.metrics.concepts.oracle_head import LABELS
from quantus_concepts.metrics.concepts.sparse_heads import SparseHeadAccuracy
from quantus_concepts.painted.subject import POST_HOC, RANDOM
from quantus_concepts.results.verdicts import ABOVE
from quantus_concepts.studies._kit.plots import lines, new_axes
from quantus_concepts.studies._kit.report import Picture, Table, Verdict, number, percent
from quantus_concepts.studies._kit.results import one, pick
from quantus_concepts.studies.concepts.scores import SWAP
from quantus_concepts.studies.concepts.terms import COLOURS, MODELS, ordered

LEAKAGE, SPARSE = ConceptTaskLeakage.name, SparseHeadAccuracy.name
#: Columns of the table, and how their numbers are written.
TITLES = {
    ACCURACY: "accuracy",
    LABELS["oracle"]: "accuracy, oracle head",
    LABELS["gap"]: "head gap",
    f"{SPARSE} 5": "5 weights a class",
    Completeness.name: "completeness",
    SWAP: "heads of other seeds",
    LEAKAGE: "leakage",
    f"{LEAKAGE} p": "leakage, p",
    f"{LEAKAGE} {AS_WRONG_LABELS}": "leakage, as wrong labels",
}


def wrong_labels(share: float) -> str:
    """Write a share of wrong labels in percent; the largest one that is considered stands for all beyond."""
    return f"beyond {100 * MOST_WRONG:.0f}" if share >= MOST_WRONG else percent(share)


WRITE: dict[str, Callable[[float], str]] = dict.fromkeys(TITLES.values(), percent)
WRITE |= {TITLES[name]: number for name in (LEAKAGE, f"{LEAKAGE} p")}
WRITE |= {TITLES[f"{LEAKAGE} {AS_WRONG_LABELS}"]: wrong_labels}
CAPTION = (
    "In %, leakage as a share of the class's entropy. The oracle head takes the class whose concepts, by what people "
    "say, agree best with those predicted; the head gap is what the learned head knows beyond it. Heads of random "
    "banks are as accurate as others and have the largest gap. Leakage: what a value says about the class beyond its "
    "concept; 0 without any, p by permutation, means over concepts (and seeds). Wrong concept labels look like "
    "leakage: the last column says which share of wrong labels would give as much with an honest model; a small one "
    "does not exclude a small leak. 5 weights a class: ANEC-5."
)
CURVE = (
    "Accuracy of heads with so many weights a class (NEC), fitted to one half of the test images and tested on the "
    "other. Grey: 95 % of random banks."
)


def bottleneck_parts(rows: pd.DataFrame) -> list[Table | Picture]:
    """Return the table and the picture of sparse heads."""
    return [bottleneck_table(rows), *sparse_heads(rows)]


def bottleneck_table(rows: pd.DataFrame) -> Table:
    """Return oracle head, sparse head, completeness, swap and leakage of every model."""
    scores = pick(rows, what=SCORE)
    scores = scores[(scores["metric"] != SPARSE) | (scores["l"] == 5)]
    scores = scores.assign(metric=scores["metric"].replace(SPARSE, f"{SPARSE} 5"))
    caption = CAPTION
    oracle = one(scores, metric=LABELS["on_labels"], model=POST_HOC)
    if oracle is not None:
        caption += f" The oracle head on the concept labels of these images reaches {percent(oracle['value'])} %."
    caption += ceiling_text(scores)
    cells = ordered(scores, metric=TITLES, model=MODELS)
    return Table("bottleneck", "Accuracy, and what it rests on", cells, ["model"], ["metric"], WRITE, caption)


def ceiling_text(scores: pd.DataFrame) -> str:
    """Say how accurate the best head on labelled concepts is, and what an accuracy above it means."""
    names = (ConceptSetCeiling.name, f"{ConceptSetCeiling.name} {AS_WRONG_LABELS}", UNIQUE_CONCEPTS)
    ceiling, share, unique = (one(scores, metric=name, model=POST_HOC) for name in names)
    if ceiling is None:
        return ""
    text = f" The best head on the concept labels reaches {percent(ceiling['value'])} %"
    if share is not None and share["value"] > 0:
        text += (
            f"; the post-hoc CBM is more accurate, which is leakage or what {wrong_labels(share['value'])} % wrong "
            "labels would give"
        )
    elif share is None and unique is not None:
        text += (
            f", which says nothing about accuracy: {percent(unique['value'])} % of the images have concepts that no "
            f"other image has (more than {100 * MOST_UNIQUE:.0f} %)"
        )
    return f"{text}."


def sparse_heads(rows: pd.DataFrame) -> list[Picture]:
    """Draw accuracy by the number of weights a class."""
    curves = ordered(pick(rows, metric=SPARSE, what=SCORE), model=MODELS)
    if curves.empty:
        return []
    sizes = sorted(curves["l"].unique())
    figure, _ = lines(
        curves.assign(x=curves["l"].map(sizes.index)),
        "x",
        "model",
        label_x="weights a class",
        label="class accuracy (%)",
        order=[name for name in MODELS if name in set(curves["model"])],
        colours=COLOURS,
        ax=new_axes(5.2)[1],
        band=RANDOM,
        ticks={place: f"{size:g}" for place, size in enumerate(sizes)},
    )
    return [Picture("sparse_heads", figure, CURVE)]


def gap_verdict(rows: pd.DataFrame) -> list[Verdict]:
    """Return the answer on the head gap, which is blamed where it is above that of random banks."""
    gap = one(pick(rows, model=POST_HOC, what=SCORE), metric=LABELS["gap"])
    if gap is None:
        return []
    text = f"{ABOVE} (bad)" if gap["verdict"] == ABOVE else ""
    return [Verdict.of("Accuracy that the named concepts do not explain (head gap; low is good)?", gap, text=text)]
