"""The scores of one concept model on a set of images."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class ConceptScores:
    """What `collect` returns.

    Attributes
    ----------
    labels, predicted : np.ndarray
        (N,) of int64, the true and the predicted class.
    density : np.ndarray
        (N,), share of the concepts that are labelled present: what a random ranking scores in CEM.
    concept_accuracy : np.ndarray
        (N,), share of the concepts whose value is on the right side of the threshold; NaN without one.
    negative_first : np.ndarray
        (N,) of 0 and 1: whether the concept ranked first by contribution has a negative value, so that it speaks for
        the class by being absent; NaN where contributions are not among the importances.
    cem : dict
        (importance, l) to (N,) scores.
    clm : dict
        (importance, l, alpha) to (N,) scores, NaN where no part is visible; empty where no concept has a part.
    clm_baselines : dict
        (baseline, l, alpha) to (N,) scores of the last importance's ranking.
    class_importance : dict
        importance to (K, L), its mean over the correctly classified images of each class.
    cgim_concept, cgim_class : dict
        importance to (L,) and (K,) scores.
    """

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
