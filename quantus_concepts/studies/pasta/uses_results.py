"""What the score was used for: results of the sections of the report that follow the training."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from quantus_concepts.pasta.correlations import RatingCorrelation

#: Rows of the comparison of the mixture, as `Mixture.compare` calls the first two.
CHOICE, AVERAGE = "mixture", "average of explainers"


@dataclass(frozen=True)
class MeanRow:
    """A mean over images."""

    name: str
    mean: float
    low: float = math.nan
    high: float = math.nan
    n: int = 0
    difference: float = math.nan
    difference_low: float = math.nan
    difference_high: float = math.nan


@dataclass(frozen=True)
class SteeredRow:
    """One image explained with growing weight of the score."""

    label: str
    image: np.ndarray
    maps: Sequence[np.ndarray]
    scores: Sequence[float]


@dataclass(frozen=True)
class PerturbedRow:
    """An image and its explanation, before and after a perturbation."""

    name: str
    magnitude: float
    image: np.ndarray
    perturbed: np.ndarray
    map: np.ndarray
    perturbed_map: np.ndarray
    score: float = math.nan


@dataclass(frozen=True)
class RankedRow:
    """One explanation with its score."""

    explainer: str
    image: np.ndarray | None
    shown: np.ndarray | Sequence[str]
    score: float
    vote: float = math.nan


@dataclass(frozen=True)
class Uses:
    """Everything the score was used for; what is left empty has no section."""

    mixture_names: tuple[str, ...] = ()
    mixture_wins: tuple[int, ...] = ()
    mixture_tied: int = 0
    mixture_question: str = "Q1"
    faithfulness: tuple[MeanRow, ...] = ()
    faithfulness_name: str = "faithfulness correlation"
    steering_weights: tuple[float, ...] = ()
    steering: tuple[SteeredRow, ...] = ()
    steering_scores: tuple[MeanRow, ...] = ()
    steering_faithfulness: tuple[MeanRow, ...] = ()
    steering_metric: str = "faithfulness"
    light: tuple[PerturbedRow, ...] = ()
    strong: tuple[PerturbedRow, ...] = ()
    ranked: tuple[RankedRow, ...] = ()
    ranked_question: str = "Q1"
    correlations: tuple[RatingCorrelation, ...] = ()
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if len(self.mixture_names) != len(self.mixture_wins):
            raise ValueError(
                f"Expected argument `mixture_wins` to hold one count for each of {len(self.mixture_names)} explainers "
                f"but got {len(self.mixture_wins)}."
            )
        for row in self.steering:
            counts = (len(row.maps), len(row.scores))
            if counts != (len(self.steering_weights),) * 2:
                raise ValueError(
                    f"Expected each row of `steering` to have one map and one score for each of "
                    f"{len(self.steering_weights)} weights but {row.label!r} has {counts[0]} and {counts[1]}."
                )

        for rows in (self.steering_scores, self.steering_faithfulness):
            if rows and len(rows) != len(self.steering_weights):
                raise ValueError(
                    f"Expected argument `steering_weights` to hold one weight for each of {len(rows)} means but got "
                    f"{len(self.steering_weights)}."
                )

    def wins(self) -> list[tuple[str, int]]:
        """Return the explainers by how often they alone are best."""
        return sorted(zip(self.mixture_names, self.mixture_wins, strict=True), key=lambda pair: -pair[1])

    def best_fixed(self) -> MeanRow | None:
        """Return the explainer that is best for all images."""
        alone = [row for row in self.faithfulness if row.name not in (CHOICE, AVERAGE) and not math.isnan(row.mean)]
        return max(alone, key=lambda row: row.mean, default=None)


def mean_rows(compared: Any) -> tuple[MeanRow, ...]:
    """Turn the comparison of a mixture into rows."""
    return tuple(
        MeanRow(
            name=str(name),
            n=int(row["n"]),
            **{
                column: float(row[column])
                for column in ("mean", "low", "high", "difference", "difference_low", "difference_high")
            },
        )
        for name, row in compared.iterrows()
    )
