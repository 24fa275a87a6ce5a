"""Results of training a scorer: one record a number, and their mean and deviation over seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from quantus_concepts.functional.agreement import LEAST_SPLITS, correlation_interval
from quantus_concepts.functional.intervals import t_interval
from quantus_concepts.studies.records import select

#: Measures, each with whether low is good.
MEASURES = {"MSE": True, "QWK": False, "SCC": False, "SCC rounded": False}

SCORER = "PASTA-score"
SHUFFLED = "shuffled votes"
HUMAN = "one annotator"
SIMULATED_HUMAN = "one simulated rater"
CEILING = "ceiling"
#: Order of the rows; the regressors come after the scorer.
MODELS = (SCORER, "ridge", "lasso", "SVM", SHUFFLED, HUMAN, SIMULATED_HUMAN, CEILING)


@dataclass(frozen=True)
class Record:
    """One number of one seed."""

    model: str
    question: str
    measure: str
    value: float
    n: int = 0
    seed: int = 0
    modality: str = "all"


@dataclass(frozen=True)
class Summary:
    """Mean and deviation over seeds."""

    mean: float
    deviation: float
    n_seeds: int
    values: tuple[float, ...] = ()
    share: bool = False


def summary(
    records: Sequence[Record], model: str, question: str, measure: str, modality: str = "all"
) -> Summary | None:
    """Sum up the seeds of one number."""
    chosen = select(records, model=model, question=question, measure=measure, modality=modality)
    if not chosen:
        return None
    values = np.array([record.value for record in chosen if not math.isnan(record.value)])
    return Summary(
        mean=float(values.mean()) if values.size else math.nan,
        deviation=float(values.std(ddof=1)) if values.size > 1 else math.nan,
        n_seeds=int(values.size),
        values=tuple(values.tolist()),
    )


def of_ceiling(records: Sequence[Record], question: str, measure: str = "SCC") -> Summary | None:
    """Sum up which share of what the raters' noise allows the scorer reaches."""
    found = {
        record.seed: record.value
        for record in select(records, model=SCORER, question=question, measure=measure, modality="all")
    }
    limits = {
        record.seed: record.value
        for record in select(records, model=CEILING, question=question, measure=measure, modality="all")
    }
    shared = [seed for seed in found if seed in limits and limits[seed] > 0]
    ratios = [Record(SCORER, question, measure, found[seed] / limits[seed], seed=seed) for seed in shared]
    found_ratio = summary(ratios, SCORER, question, measure)
    return None if found_ratio is None else replace(found_ratio, share=True)


def seed_interval(found: Summary | None) -> tuple[float, float]:
    """Return the 95 % interval of a correlation, a kappa or a share over seeds."""
    values = np.array(() if found is None else found.values)
    if found is None or not found.share:
        return correlation_interval(values)
    return t_interval(values, (-math.inf, math.inf)) if values.size >= LEAST_SPLITS else (math.nan, math.nan)


def models_of(records: Sequence[Record]) -> list[str]:
    """Return what was rated by, in the order of the rows."""
    found = {record.model for record in records}
    return [name for name in MODELS if name in found]


def questions_of(records: Sequence[Record]) -> list[str]:
    """Return the questions of some records."""
    return sorted({record.question for record in records})
