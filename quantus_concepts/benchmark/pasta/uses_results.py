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
    """A mean over images.

    Attributes
    ----------
    name : str
        What it is of.
    mean : float
        The mean; NaN where it is not defined.
    low, high : float
        Ends of its 95 % interval; NaN where there is none.
    n : int
        Number of images.
    difference, difference_low, difference_high : float
        The mixture's mean minus this one, over the same images, with its paired interval; NaN for the mixture itself.
    """

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
    """One image explained with growing weight of the score.

    Attributes
    ----------
    label : str
        What is explained; may have several lines.
    image : array
        (H, W, 3) in [0, 1].
    maps : sequence of array
        (h, w) in [0, 1], or pictures (h, w, 3), one for each weight.
    scores : sequence of float
        Score of each of them; NaN where there is none.
    """

    label: str
    image: np.ndarray
    maps: Sequence[np.ndarray]
    scores: Sequence[float]


@dataclass(frozen=True)
class PerturbedRow:
    """An image and its explanation, before and after a perturbation.

    Attributes
    ----------
    name : str
        The perturbation.
    magnitude : float
        How strong it is.
    image, perturbed : array
        (H, W, 3) in [0, 1].
    map, perturbed_map : array
        (h, w) in [0, 1], or pictures (h, w, 3).
    score : float
        Predicted answer to the question about change; NaN where there is none.
    """

    name: str
    magnitude: float
    image: np.ndarray
    perturbed: np.ndarray
    map: np.ndarray
    perturbed_map: np.ndarray
    score: float = math.nan


@dataclass(frozen=True)
class RankedRow:
    """One explanation with its score.

    Attributes
    ----------
    explainer : str
        Which explainer.
    image : array or None
        (H, W, 3) in [0, 1]; None where it is not known, as for lists of concepts.
    shown : array or sequence of str
        The overlay (h, w, 3) in [0, 1], or the concepts, the most important first.
    score : float
        The scorer's.
    vote : float
        The joined vote; NaN where there is none.
    """

    explainer: str
    image: np.ndarray | None
    shown: np.ndarray | Sequence[str]
    score: float
    vote: float = math.nan


@dataclass(frozen=True)
class Uses:
    """Everything the score was used for; what is left empty has no section.

    Attributes
    ----------
    mixture_names : tuple of str
        The explainers to choose from.
    mixture_wins : tuple of int
        For how many images each alone has the best score.
    mixture_tied : int
        Images whose best score several share; counted for none.
    mixture_question : str
        Whose predicted answer decides.
    faithfulness : tuple of MeanRow
        Of `CHOICE`, `AVERAGE`, and each explainer alone; `mean_rows` makes them of a mixture's comparison.
    faithfulness_name : str
        The metric, of which more is better.
    steering_weights : tuple of float
        The weights of the score, 0 being RISE itself.
    steering : tuple of SteeredRow
        Images explained with each of them.
    steering_scores : tuple of MeanRow
        Mean score of the explanations by weight.
    steering_faithfulness : tuple of MeanRow
        Mean faithfulness by weight, in the same order.
    steering_metric : str
        The metric of faithfulness, of which more is better.
    light : tuple of PerturbedRow
        The light perturbations (Q5).
    strong : tuple of PerturbedRow
        The strong ones (Q6).
    ranked : tuple of RankedRow
        Explanations in any order.
    ranked_question : str
        Whose predicted answer they are sorted by.
    correlations : tuple of RatingCorrelation
        Of the votes with metrics, as `rating_correlations` gives them.
    notes : tuple of str
        What the reader must know besides.
    """

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
        """Return the explainers by how often they alone are best.

        Returns
        -------
        list of tuple
            Name and number of images, the most frequent first.
        """
        return sorted(zip(self.mixture_names, self.mixture_wins, strict=True), key=lambda pair: -pair[1])

    def best_fixed(self) -> MeanRow | None:
        """Return the explainer that is best for all images.

        Returns
        -------
        MeanRow or None
            That of the largest mean among the explainers alone; None without one.
        """
        alone = [row for row in self.faithfulness if row.name not in (CHOICE, AVERAGE) and not math.isnan(row.mean)]
        return max(alone, key=lambda row: row.mean, default=None)


def mean_rows(compared: Any) -> tuple[MeanRow, ...]:
    """Turn the comparison of a mixture into rows.

    Parameters
    ----------
    compared : pandas.DataFrame
        Of `Mixture.compare`.

    Returns
    -------
    tuple of MeanRow
        In its order.
    """
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
