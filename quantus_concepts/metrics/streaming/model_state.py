"""What is kept of the images that one concept model is scored on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from captum_concepts._support.checks import to_numpy
from quantus_concepts.functional.cgim import ClassSums, agreement
from quantus_concepts.metrics.concepts import names as col
from quantus_concepts.metrics.concepts.cgim import global_importance
from quantus_concepts.metrics.concepts.names import Score


@dataclass
class ModelState:
    """The columns (N, n) of one model, and the sums of its importances by class, on the host."""

    scores: list[Score]
    rows: Tensor
    #: K and L.
    shape: tuple[int, int]
    explanations: tuple[str, ...] = ()
    class_concepts: Tensor | None = None
    sums: ClassSums | None = None
    theta: Tensor | None = None

    def columns(self) -> dict[Score, np.ndarray]:
        """Return the numbers (N,) of all images, in float64."""
        rows = to_numpy(self.rows)
        return {
            score: rows[:, index].astype(np.float64)
            for index, score in enumerate(self.scores)
            if score != col.FINITE_MAPS
        }

    def agreement(self, per: str) -> dict[str, np.ndarray]:
        """Return CGIM of each concept or class, by explanation."""
        if self.sums is None or self.class_concepts is None:
            return {}
        means = global_importance(self.sums, self.theta, self.explanations)
        return dict(zip(self.explanations, agreement(means, self.class_concepts, per).numpy(), strict=True))

    def merge(self, other: ModelState) -> None:
        """Add the images of another state of the same model."""
        self.rows = torch.cat([self.rows, other.rows])
        if self.sums is not None and other.sums is not None:
            self.sums.add_sums(other.sums)

    def tensors(self) -> dict[str, Tensor]:
        """Return what `merge` adds and tables need, by name."""
        sums = {} if self.sums is None else {"sums": self.sums.sums, "counts": self.sums.counts}
        return {"rows": self.rows, **sums} | ({} if self.theta is None else {"theta": self.theta})
