"""Quantus's faithfulness correlation of several explanations of the same images, as if of each alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from quantus.functions.perturb_func import batch_baseline_replacement_by_indices
from quantus.functions.similarity_func import correlation_pearson
from quantus.metrics.faithfulness.faithfulness_correlation import FaithfulnessCorrelation
from torch import nn

from captum_concepts._support.running import device_of, seeded_generators


def subset_correlations(
    model: nn.Module,
    images: np.ndarray,
    targets: np.ndarray,
    maps: Mapping[str, np.ndarray],
    *,
    subset_size: int,
    n_runs: int = 50,
    seed: int = 0,
) -> dict[str, np.ndarray]:
    """Return the correlation of each image (N,) under each explanation (N, C, H, W); NaN where Quantus refuses one."""
    # It refuses a whole batch for one constant map. Of the same images it draws the same subsets from the same seed,
    # so that they are drawn, and seen by the model, once for all explanations.
    device = device_of(model)
    found = {name: np.full(len(images), math.nan) for name in maps}
    alike: dict[tuple[int, ...], dict[str, np.ndarray]] = {}
    for name, each in maps.items():
        summed = each.sum(1, keepdims=True)
        rows = np.flatnonzero(np.ptp(summed.reshape(len(summed), -1), axis=1) > 0)
        if rows.size:
            alike.setdefault(tuple(rows.tolist()), {})[name] = summed[rows]
    for of, some in alike.items():
        rows = np.array(of)
        shared = _Shared(some, images.shape[1:])
        metric: Any = FaithfulnessCorrelation(
            similarity_func=shared.correlate,
            perturb_func=shared.perturb,
            nr_runs=n_runs,
            subset_size=subset_size,
            disable_warnings=True,
            return_aggregate=False,
        )
        shared.maps = {name: metric.normalise_func(each) for name, each in some.items()}
        # It draws from NumPy's global generator.
        with seeded_generators(device, seed):
            metric(model, images[rows], targets[rows], next(iter(some.values())), device=device)
        for name, values in shared.found.items():
            found[name][rows] = values
    return found


class _Shared:
    """What Quantus calls with the subsets of a batch, and then with what they change: correlations of all maps."""

    def __init__(self, maps: Mapping[str, np.ndarray], shape: tuple[int, ...]) -> None:
        self.maps, self.shape = dict(maps), shape
        self.subsets: list[np.ndarray] = []
        self.found: dict[str, list[float]] = {name: [] for name in maps}

    def perturb(self, arr: np.ndarray, indices: np.ndarray, **settings: Any) -> np.ndarray:
        self.subsets.append(indices)
        return batch_baseline_replacement_by_indices(arr, indices, **settings)

    def correlate(self, a: np.ndarray, b: np.ndarray, **settings: Any) -> np.ndarray:
        rows = np.arange(len(b))
        for name, maps in self.maps.items():
            some = maps[len(self.found[name]) :][: len(b)]
            spread = np.broadcast_to(some, (len(b), *self.shape)).reshape(len(b), -1)
            sums = np.stack([spread[rows[:, None], subset].sum(-1) for subset in self.subsets], axis=1)
            self.found[name] += np.asarray(correlation_pearson(sums, b, **settings)).tolist()
        self.subsets.clear()
        return np.asarray(correlation_pearson(a, b, **settings))
