"""The scores of one concept model on a set of images."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class ConceptScores:
    """What `collect` returns."""

    labels: np.ndarray
    predicted: np.ndarray
    density: np.ndarray
    concept_accuracy: np.ndarray
    negative_first: np.ndarray
    cem: dict[tuple[str, int], np.ndarray]
    clm: dict[tuple[str, int, float], np.ndarray]
    clm_baselines: dict[tuple[str, int, float], np.ndarray]
    class_importance: dict[str, np.ndarray]
    cgim_concept: dict[str, np.ndarray]
    cgim_class: dict[str, np.ndarray]

    @property
    def correct(self) -> np.ndarray:
        """(N,) of bool: which images are classified correctly."""
        return self.labels == self.predicted
