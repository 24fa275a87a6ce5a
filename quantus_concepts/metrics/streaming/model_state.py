"""What is kept of the images that one concept model is scored on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from captum_concepts._support.checks import to_numpy
from quantus_concepts.functional.cgim import ClassSums, agreement
from quantus_concepts.metrics.concepts import names as col
from quantus_concepts.metrics.concepts.cem import count_labels, existence, gains
from quantus_concepts.metrics.concepts.cgim import global_importance
from quantus_concepts.metrics.concepts.names import Score


@dataclass
class ModelState:
    """The columns (N, n) of one model, and its sums by class, on the host."""

    scores: list[Score]
    rows: Tensor
    #: K and L.
    shape: tuple[int, int]
    explanations: tuple[str, ...] = ()
    top_l: tuple[int, ...] = ()
    #: Whether baselines stand beside the scores.
    baselines: bool = False
    class_concepts: Tensor | None = None
    sums: ClassSums | None = None
    theta: Tensor | None = None
    #: As of `label_counts`, where there are concept labels.
    label_counts: Tensor | None = None

    def columns(self) -> dict[Score, np.ndarray]:
        """Return the numbers (N,) of all images, in float64."""
        rows = to_numpy(self.rows)
        columns = {
            score: rows[:, index].astype(np.float64)
            for index, score in enumerate(self.scores)
            if score != col.FINITE_MAPS and score.metric not in (col.PRESENCE, col.ORDER)
        }
        if self.label_counts is None:
            return columns
        shares = existence(self._ranked(col.PRESENCE), self.top_l)
        return columns | self._by_variant(col.CEM, shares.double())

    def gains(self, correct: np.ndarray | None = None) -> dict[Score, np.ndarray]:
        """Return the gains (N,) over the prevalence in all images, or in the correct ones (N,), NaN in the others."""
        if self.label_counts is None:
            return {}
        presence, order = self._ranked(col.PRESENCE), self._ranked(col.ORDER)
        if correct is not None:
            presence = presence.masked_fill(~torch.as_tensor(correct)[:, None, None], torch.nan)
        counts = self.label_counts[0 if correct is None else 1]
        of_explanations = [
            gains(presence[:, place], order[:, place], counts[place], self.top_l)
            for place in range(len(self.explanations))
        ]
        return self._by_variant(col.CEM_GAIN, torch.stack(of_explanations, 1))

    def agreement(self, per: str, *, centred: bool = False) -> dict[str, np.ndarray]:
        """Return CGIM of each concept or class, by explanation."""
        means = self.class_importance()
        if means is None or self.class_concepts is None:
            return {}
        scores = agreement(means, self.class_concepts, per, centred)
        return dict(zip(self.explanations, scores.numpy(), strict=True))

    def class_importance(self) -> Tensor | None:
        """Return the importances (E, K, L) that CGIM compares; None without `class_concepts`."""
        return None if self.sums is None else global_importance(self.sums, self.theta, self.explanations)

    def merge(self, other: ModelState) -> None:
        """Add the images of another state of the same model."""
        self.rows = torch.cat([self.rows, other.rows])
        if self.sums is not None and other.sums is not None:
            self.sums.add_sums(other.sums)
        if self.label_counts is not None and other.label_counts is not None:
            self.label_counts = self.label_counts + other.label_counts

    def tensors(self) -> dict[str, Tensor]:
        """Return what `merge` adds and tables need, by name."""
        sums = {} if self.sums is None else {"sums": self.sums.sums, "counts": self.sums.counts}
        more = {"theta": self.theta, "labels": self.label_counts}
        return {"rows": self.rows, **sums, **{name: part for name, part in more.items() if part is not None}}

    def _ranked(self, metric: str) -> Tensor:
        """Return the columns (N, E, T) of the ranked concepts."""
        first = next(place for place, score in enumerate(self.scores) if score.metric == metric)
        n, top = len(self.explanations), max(self.top_l)
        return self.rows[:, first : first + n * top].unflatten(1, (n, top))

    def _by_variant(self, metric: str, numbers: Tensor) -> dict[Score, np.ndarray]:
        """Return numbers (N, E, len(top_l)) under their names."""
        names = [Score(metric, explanation, top) for explanation in self.explanations for top in self.top_l]
        return dict(zip(names, numbers.flatten(1).T.numpy(), strict=True))


def label_counts(scores: Sequence[Score], rows: Tensor, concept_labels: Tensor) -> Tensor | None:
    """Return how many images show each concept, and how many they are: (2, E + 1, L + 1), of all and of correct ones.

    The columns are those of a model. For each explanation only the images count that it ranks concepts of, and last
    all of them. None if the columns have no ranked concepts.
    """
    first = [place for place, score in enumerate(scores) if score.metric == col.PRESENCE and score.l == 1]
    if not first:
        return None
    scored = torch.cat([~rows[:, first].isnan(), torch.ones_like(rows[:, :1], dtype=torch.bool)], 1).T
    correct = rows[:, scores.index(col.LABEL)] == rows[:, scores.index(col.PREDICTED)]
    chosen = torch.stack([scored, scored & correct])
    # In parts, since this is a block for each image.
    parts = zip(concept_labels.split(1024), chosen.split(1024, -1), strict=True)
    return torch.stack([count_labels(*part) for part in parts]).sum(0)
