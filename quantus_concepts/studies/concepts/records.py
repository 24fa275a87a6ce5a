"""From the scores of one model to the records of the result table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from quantus_concepts.studies.concepts.results import Record, baseline_name, item_records, mean_record
from quantus_concepts.studies.concepts.scores import ConceptScores


def score_records(
    scores: ConceptScores,
    model: str,
    concept_names: Sequence[str],
    class_names: Sequence[str],
    seed: int | None = None,
) -> list[Record]:
    """Sum the scores of one model up."""
    records = [accuracy_record(scores.labels, scores.predicted, model, seed)]
    common: dict[str, Any] = {"model": model, "seed": seed, "clusters": scores.predicted}
    if not np.isnan(scores.concept_accuracy).all():
        records.append(mean_record(scores.concept_accuracy, metric="concept accuracy", **common))
    if not np.isnan(scores.negative_first).all():
        records.append(
            mean_record(scores.negative_first, metric="negative first", explanation="contribution", l=1, **common)
        )
    return [
        *records,
        *_existence(scores, model, seed),
        *_location(scores, model, seed),
        *_global_importance(scores, model, concept_names, class_names, seed),
    ]


def accuracy_record(
    labels: np.ndarray,
    predicted: np.ndarray,
    model: str,
    seed: int | None = None,
    item_kind: str = "",
    item: str = "",
) -> Record:
    """Return the record of a class accuracy."""
    return mean_record(labels == predicted, model=model, metric="accuracy", item_kind=item_kind, item=item, seed=seed)


def _existence(scores: ConceptScores, model: str, seed: int | None) -> list[Record]:
    records = []
    for kind, chosen in (("all", np.ones(len(scores.labels), bool)), ("correct", scores.correct)):
        chance = float(scores.density[chosen].mean()) if chosen.any() else math.nan
        for (explanation, top), column in scores.cem.items():
            # As the metric has it: what does not belong to the set is undefined.
            defined = np.where(chosen, column, np.nan)
            record = mean_record(
                defined,
                model=model,
                metric="CEM",
                explanation=explanation,
                set=kind,
                l=top,
                chance=chance,
                seed=seed,
                clusters=scores.predicted,
            )
            records.append(record)
    return records


def _location(scores: ConceptScores, model: str, seed: int | None) -> list[Record]:
    # The explanation of a baseline's record is what ranked the concepts whose parts it is asked for.
    ranked_by = next(reversed(scores.class_importance))
    own = [((model, explanation), top, alpha, c) for (explanation, top, alpha), c in scores.clm.items()]
    other = [
        ((baseline_name(baseline, model), ranked_by), top, alpha, c)
        for (baseline, top, alpha), c in scores.clm_baselines.items()
    ]
    return [
        mean_record(
            column,
            model=name,
            metric="CLM",
            explanation=explanation,
            l=top,
            alpha=alpha,
            chance=alpha / 12,
            seed=seed,
            clusters=scores.predicted,
        )
        for (name, explanation), top, alpha, column in own + other
    ]


def _global_importance(
    scores: ConceptScores,
    model: str,
    concept_names: Sequence[str],
    class_names: Sequence[str],
    seed: int | None,
) -> list[Record]:
    records = []
    kinds = (("concept", scores.cgim_concept, concept_names), ("class", scores.cgim_class, class_names))
    for kind, by_importance, names in kinds:
        for explanation, column in by_importance.items():
            records += item_records(
                column,
                names,
                model=model,
                item_kind=kind,
                explanation=explanation,
                set="correct",
                seed=seed,
            )
    return records
