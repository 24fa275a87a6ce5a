"""Directions of concepts from their own images and random ones, and whether they tell more than random sets do."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from captum_concepts.concept_folders import ConceptFolders
from captum_concepts.directions import Directions, drawn_of, fit_checked, tell_short, tell_weak
from captum_concepts.progress import progress
from captum_concepts.running import warn_user

#: Random sets below which the test of significance has almost no power: with three it passed a concept of held-out
#: accuracy .96 in one of six draws, with five in six of six.
LEAST_SETS = 5


class Fitting(NamedTuple):
    """How directions are drawn and fitted; without a number all images but those held back, as many without."""

    method: str
    n_pos: int | None
    n_neg: int | None
    C: float
    hold_back: float
    seed: int

    def numbers(self, n_with: int, n_without: int) -> tuple[int, int]:
        """Return how many images to draw of each side."""
        drawn = int(drawn_of(np.array(n_with), self.n_pos or n_with, self.hold_back))
        return drawn, self.n_neg or int(drawn_of(np.array(n_without), drawn, self.hold_back))

    def fit(self, shown: Tensor, others: Tensor) -> Directions:
        """Fit the direction from some embeddings to others."""
        present = np.arange(len(shown) + len(others))[:, None] < len(shown)
        n_pos, n_neg = self.numbers(len(shown), len(others))
        features = torch.cat([shown, others])
        return fit_checked(features, present, self.method, n_pos, n_neg, self.C, self.seed, self.hold_back)


class FolderDirections(NamedTuple):
    """Directions of L concepts, the p-value of each, and the mean accuracy of random sets against each other."""

    directions: Directions
    p_values: np.ndarray
    random_accuracy: float


def fit_folders(
    found: ConceptFolders, rows: Mapping[Path, Tensor], fitting: Fitting, display_progressbar: bool
) -> FolderDirections:
    """Fit each concept against its negatives or all random images, and compare with random sets as concepts."""

    def embedded(paths: list[Path]) -> Tensor:
        return torch.stack([rows[path] for path in paths])

    sets = [embedded(paths) for paths in found.random_sets.values()]
    names = [each.name for each in found.concepts]
    shown = [embedded(each.positive) for each in found.concepts]
    others = [torch.cat(sets) if each.negative is None else embedded(each.negative) for each in found.concepts]
    if fitting.n_pos is not None or fitting.n_neg is not None:
        n_with, n_without = (np.array([len(rows) for rows in side]) for side in (shown, others))
        tell_short(names, n_with, n_without, fitting.n_pos or 1, fitting.n_neg or 1, fitting.hold_back)
    pairs = list(zip(shown, others, strict=True))
    fitted = [fitting.fit(*pair) for pair in progress(pairs, "Concepts", show=display_progressbar, leave=True)]
    directions = Directions(*(torch.cat(parts) for parts in zip(*fitted, strict=True)))
    tell_weak(directions.test_accuracy, names)

    p_values, random_accuracy = np.full(len(names), math.nan), math.nan
    if 1 < len(sets) < LEAST_SETS:
        warn_few_sets(len(sets))
    if len(sets) > 1 and fitting.hold_back:
        among = _among(sets, fitting, display_progressbar)
        random_accuracy = float(np.nanmean(among))
        shared = [j for j, each in enumerate(found.concepts) if each.negative is None]
        accuracies = [
            [fitting.fit(shown[j], each).test_accuracy.item() for each in sets]
            for j in progress(shared, "Concepts against each random set", show=display_progressbar, leave=True)
        ]
        if len(sets) >= LEAST_SETS:
            p_values[shared] = set_p_values(np.array(accuracies), among)
    return FolderDirections(directions, p_values, random_accuracy)


def warn_few_sets(n_sets: int) -> None:
    """Warn that there are too few random sets for p-values."""
    warn_user(
        f"There are {n_sets} sets of random images, and p-values need at least {LEAST_SETS}: they are NaN, and no "
        "concept can pass. Add folders of random images."
    )


def _among(sets: list[Tensor], fitting: Fitting, display_progressbar: bool) -> np.ndarray:
    """Return the held-out accuracies (R, R) of random sets against each other, NaN on the diagonal."""
    table = np.full((len(sets), len(sets)), math.nan)
    pairs = list(combinations(range(len(sets)), 2))
    for i, j in progress(pairs, "Random sets against each other", show=display_progressbar, leave=True):
        table[i, j] = table[j, i] = fitting.fit(sets[i], sets[j]).test_accuracy.item()
    return table


def set_p_values(concepts: np.ndarray, among: np.ndarray, *, directed: bool = False) -> np.ndarray:
    """Return one-sided p-values (L,) of accuracies (L, R) against R random sets, given those (R, R) among the sets.

    Directed are scores of the direction from one set to another, as of TCAV; their p-values are two-sided.
    """
    # Each random set in turn takes the place of a concept. With a set's own part b_k in its accuracies, its mean over
    # the others varies by b_k (R - 2) / (R - 1), for b_k is also in theirs: undone, or p-values came out too small.
    # Of directed scores it enters theirs the other way round: b_k R / (R - 1).
    # A concept that is a random set itself is one more draw, hence the prediction interval's 1 + 1 / R.
    n_sets = len(among)
    if n_sets < 3:
        return np.full(len(concepts), math.nan)
    means = np.nanmean(among, axis=1)
    shared = (n_sets - 1) / (n_sets if directed else n_sets - 2)
    spread = means.std(ddof=1) * shared * math.sqrt(1 + 1 / n_sets)
    if not spread:
        return np.full(len(concepts), math.nan)
    distance = (concepts.mean(axis=1) - means.mean()) / spread
    return np.asarray(2 * stats.t.sf(abs(distance), n_sets - 1) if directed else stats.t.sf(distance, n_sets - 1))
