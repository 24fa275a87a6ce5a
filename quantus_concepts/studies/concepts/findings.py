"""Answers and findings of the concept study: sentences over its frame, with all intervals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from quantus_concepts.metrics.streaming.curves import TRUE_LABELS
from quantus_concepts.metrics.streaming.names import (
    FEATURE_NORM,
    GAUSSIAN,
    INTERVENED,
    OTHER_IMAGE,
    OTHER_PARTS,
    PART_SPECIFICITY,
    WRONG_LABELS,
)
from quantus_concepts.studies._kit.findings import Finding, answer, number, percent, said, sentence, trend
from quantus_concepts.studies._kit.results import baseline_of, one, pick
from quantus_concepts.studies._models.subjects import ORACLE, POST_HOC, RANDOM, TRADITIONAL

PLAIN = "plain backbone"

#: Concept models in the order of every table and figure.
MODELS = (POST_HOC, TRADITIONAL, ORACLE, RANDOM)
#: The baselines of the concept location metric.
BASELINES = (OTHER_PARTS, OTHER_IMAGE, FEATURE_NORM, GAUSSIAN)
#: Rankings of the concepts, with the letters that the paper writes for them.
RANKINGS = {"weight": "weight θ", "value": "value u", "contribution": "contribution θ·u"}
SETS = {"all": "all images", "correct": "correctly classified"}
#: C and number of images of the concept bank, of the paper's Table 3.
SETTINGS = [(strength, count) for count in (50, 100) for strength in (0.001, 0.01, 0.1, 1.0, 10.0)]
#: The first concept by contribution, which most findings are about.
FIRST = {"explanation": "contribution", "l": 1}
MAP_BASELINES = {
    OTHER_PARTS: "the other parts of the same image",
    OTHER_IMAGE: "the parts of another image",
    FEATURE_NORM: "the norm of the features",
    GAUSSIAN: "a centred Gaussian",
}
#: By metric: the finding about the place of the first concept's map, and what its baseline scores.
PLACES = {
    PART_SPECIFICITY: (
        "Part specificity at α = {alpha:g}, how much more often the map of the {model}'s first concept contains its "
        "own part than the other visible parts of the same image, is {number}",
        "a map that is anywhere on the object has 0",
    ),
    "CLM": (
        "At α = {alpha:g} the map of the {model}'s first concept contains its part in {number} of the cases",
        "a point anywhere would be in it in {}",
    ),
}


def baseline_name(baseline: str, model: str = POST_HOC) -> str:
    """Name the CLM baseline of a model's maps and ranking."""
    return baseline if model == POST_HOC else f"{baseline}, {model}"


def setting_name(regularisation: float, samples: int) -> str:
    """Name a setting of the concept bank."""
    return f"C={regularisation:g}, n={samples}"


def answers(frame: pd.DataFrame) -> list[Finding]:
    """Return the answer to each question of the study, one short line for a reader in a hurry."""
    present = {f"by {name}": first_present(frame, explanation=name) for name in ("value", "weight", "contribution")}
    located = {
        f"by contribution, own part minus other parts of the image at α = {row['alpha']:g}": row
        for _, row in regions(frame, PART_SPECIFICITY, POST_HOC).head(1).iterrows()
    }
    important = {"by contribution": mean_importance(frame)}
    ours, plain = (one(frame, metric="accuracy", model=model, item_kind="") for model in (POST_HOC, PLAIN))
    accuracy = "" if ours is None else percent(ours["value"])
    if ours is not None and plain is not None:
        accuracy += f" (the backbone alone {percent(plain['value'])})"

    def short(rows: Mapping[str, pd.Series | None], **look: Any) -> str:
        pairs = {how: (row, None if row is None else baseline_of(frame, row, RANDOM)) for how, row in rows.items()}
        return answer(pairs, RANDOM, **look)

    correct = any(row is not None and row["set"] == "correct" for row in present.values())
    return said(
        Finding(short(present) + ", in correctly classified images" * correct, "Present"),
        Finding(short(located), "In the right place"),
        Finding(short(important, write=number), "Important where it belongs"),
        Finding(accuracy, "Class accuracy"),
    )


def first_present(frame: pd.DataFrame, **changed: str) -> pd.Series | None:
    """Return how often the first concept is present: in correctly classified images, where there are such numbers."""
    keys: dict[str, Any] = {"metric": "CEM", "model": POST_HOC, **FIRST} | changed
    correct = one(frame, **keys, set="correct")
    return one(frame, **keys, set="all") if correct is None else correct


def mean_importance(frame: pd.DataFrame) -> pd.Series | None:
    """Return the mean CGIM of the concepts by contribution."""
    return one(frame, metric="CGIM", model=POST_HOC, explanation="contribution", item_kind="concept", item="")


def findings(frame: pd.DataFrame, by_class: bool) -> list[Finding]:
    """Return what is said of presence, location, global importance, accuracy and corrections, with all intervals."""
    row = first_present(frame)
    images = "the images" if row is not None and row["set"] == "all" else "the correctly classified images"
    by_value = first_present(frame, explanation="value")
    whose = "one of its class" if by_class else "present"
    by_model = {f"the {model}": first_present(frame, model=model) for model in (TRADITIONAL, ORACLE)}
    absent = one(frame, metric="negative first", model=POST_HOC)
    ours, plain = (one(frame, metric="accuracy", model=model, item_kind="") for model in (POST_HOC, PLAIN))
    absence = (
        "In {} of the images that first concept has a negative value and a negative weight: it speaks for the class "
        "by being absent, so its map's strongest region need not be where the part is"
    )
    texts = {
        "Present": [
            against_random(
                frame,
                f"The concept the {POST_HOC} ranks first by contribution is {whose} in {{}} of {images}",
                row,
                "" if row is None else f"the share of labelled concepts is {percent(row['chance'])}",
            ),
            against_random(frame, "Ranked by value alone, which does not decide the class, it is so in {}", by_value),
            sentence(f"The {POST_HOC}'s {{}} compared with other models", row, by_model),
            "" if absent is None or absent["value"] == 0 else sentence(absence, absent),
        ],
        "In the right place": [
            *(place_finding(frame, metric, model) for metric in PLACES for model in (POST_HOC, TRADITIONAL)),
            no_map_is_better(frame),
        ],
        "Important where it belongs": [importance_finding(frame)],
        "Class accuracy": [
            sentence(
                f"The {POST_HOC} classifies {{}} of the test images correctly", ours, {"the backbone alone": plain}
            )
        ],
        "Corrections": [interventions_finding(frame)],
    }
    return said(*(Finding(text, topic) for topic, sentences in texts.items() for text in sentences))


def against_random(frame: pd.DataFrame, text: str, row: pd.Series | None, more: str = "", **look: Any) -> str:
    """Return a sentence that compares a number with random directions."""
    control = None if row is None else baseline_of(frame, row, RANDOM)
    return sentence(text, row, {RANDOM: control}, draws=[RANDOM], more=more, **look)


def regions(frame: pd.DataFrame, metric: str, model: str) -> pd.DataFrame:
    """Return a metric of the map of a model's first concept by contribution, the smallest region first."""
    rows = pick(frame, metric=metric, model=model, **FIRST)
    return rows[rows["value"].notna()].sort_values("alpha")


def place_finding(frame: pd.DataFrame, metric: str, model: str) -> str:
    """Say whether the map of the first concept contains its part, compared with the baselines of the model's maps."""
    rows = regions(frame, metric, model)
    if rows.empty:
        return ""
    row = rows.iloc[0]
    baselines: dict[str, Any] = {RANDOM: baseline_of(frame, row, RANDOM)}
    for baseline, phrase in MAP_BASELINES.items():
        # Those of the model's own ranking, else the bare ones.
        for name in (baseline, baseline_name(baseline, model)):
            match = one(frame, metric=metric, model=name, alpha=row["alpha"], **FIRST)
            baselines |= {} if match is None else {phrase: match}
    text, more = PLACES[metric]
    return sentence(
        text.format(model=model, alpha=row["alpha"], number="{}"),
        row,
        baselines,
        draws=[RANDOM],
        more=more.format(percent(row["chance"])),
    )


def no_map_is_better(frame: pd.DataFrame) -> str:
    """Say so plainly when no trained model's map prefers its own part at any size of the region."""
    rows = pd.concat([regions(frame, PART_SPECIFICITY, model) for model in (POST_HOC, TRADITIONAL)])
    if rows.empty or ((rows["low"] > 0) & rows["mark"].isin(["", "above"])).any():
        return ""
    return (
        "At no α do the maps of a trained model prefer the concept's part to the other parts of the same image: there "
        "is no evidence that they tell more about where a concept is than that it is somewhere on the object."
    )


def importance_finding(frame: pd.DataFrame) -> str:
    """Say how far contributions agree with the truth, and which concept is worst."""
    rows = pick(frame, metric="CGIM", model=POST_HOC, explanation="contribution", item_kind="concept")
    items, mean = rows[(rows["item"] != "") & rows["value"].notna()], mean_importance(frame)
    if items.empty or mean is None:
        return ""
    worst = items.loc[items["value"].idxmin()]
    more = f"“{worst['item']}” is worst with {number(worst['value'])}"
    if (items["mark"] != "").any():
        more = (
            f"{(items['mark'] != 'above').sum()} of {len(items)} concepts are not above their own random range; {more}"
        )
    text = (
        f"Over the classes, the {POST_HOC}'s contributions agree with the truth with a mean cosine of {{}} per concept"
    )
    return against_random(frame, text, mean, more, write=number)


def interventions_finding(frame: pd.DataFrame) -> str:
    """Say what corrections of a quarter of the concepts do to the class accuracy, compared with wrong ones."""
    curves = intervention_rows(frame)
    rows = pick(curves, model=POST_HOC)
    counts = sorted(set(rows["count"]))
    quarter = max([count for count in counts if 4 * count <= counts[-1]], default=0)
    before, after = (one(rows, count=count, labels=TRUE_LABELS, order="uncertainty") for count in (0, quarter))
    if not quarter or before is None or after is None:
        return ""
    comparisons = {
        "in random order": one(rows, count=quarter, labels=TRUE_LABELS, order="random"),
        f"all {counts[-1]}": one(rows, count=counts[-1], labels=TRUE_LABELS),
        "of random banks": one(curves, model=RANDOM, count=quarter),
        "set to the opposite, the control,": one(rows, count=quarter, labels=WRONG_LABELS, order="uncertainty"),
    }
    listed = "; ".join(f"{name} {percent(row['value'])}" for name, row in comparisons.items() if row is not None)
    return (
        f"With the {quarter} concepts of an image that the {POST_HOC} is least sure of set to what people say of them, "
        f"the share it classifies correctly goes {trend(before, after)} ({listed})."
    )


def intervention_rows(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the accuracies after interventions as `intervention_curve` has them, models in their order."""
    whose = {baseline_name(WRONG_LABELS, model): model for model in MODELS}
    rows = pick(frame, metric=INTERVENED)
    wrong = rows["model"].isin(list(whose))
    rows = rows.assign(
        model=rows["model"].replace(whose),
        labels=np.where(wrong, WRONG_LABELS, TRUE_LABELS),
        order=rows["explanation"],
        count=rows["l"].astype(int),
    )
    return rows.sort_values("model", key=lambda column: column.map(MODELS.index), kind="stable")
