"""Two ways to compute CEM and CLM without this package, to measure it against.

`coam_as_printed` follows Algorithms 1 and 2 of Aysel et al. (2025): every concept, one map at a time, upsampled, and
its region by sorting. `ranked_maps_sorted` is what a careful programmer would write with NumPy and OpenCV (which
Quantus brings): a loop over images that upsamples only the maps of the ranked concepts, each once, and sorts them
for the region. Both return what the package returns wherever no two pixels of a map are equal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import cv2
import numpy as np

TOPS = (1, 3, 5)
ALPHAS = (1.0, 3.0, 6.0)


class Scores(dict[tuple[str, int, float], np.ndarray]):
    """CLM of each image, (N,), from importance, l and alpha; NaN where no part is visible.

    Attributes
    ----------
    cem : dict
        CEM of each image, (N,), from importance and l.
    """

    def __init__(self, names: Sequence[str], n: int, tops: Sequence[int], alphas: Sequence[float]) -> None:
        super().__init__({(name, top, alpha): np.full(n, np.nan) for name in names for top in tops for alpha in alphas})
        self.cem = {(name, top): np.full(n, np.nan) for name in names for top in tops}


def coam_as_printed(
    features: Any,
    cavs: Any,
    importances: Mapping[str, Any],
    points: Any,
    part_of_concept: Any,
    concept_labels: Any,
    size: int,
    tops: Sequence[int] = TOPS,
    alphas: Sequence[float] = ALPHAS,
) -> Scores:
    """Compute CEM and CLM as the paper's algorithms are printed: all L maps of every image, one by one.

    Of Algorithm 2 only the resizing is done; colouring and overlaying, which no score needs, would make it slower.

    Parameters
    ----------
    features : array_like
        (N, d, h, w): feature maps before pooling.
    cavs : array_like
        (L, d).
    importances : mapping
        From name to (N, L): importance of the concepts for the explained class.
    points : array_like
        (N, P, Q, 2): places (x, y) of the parts in pixels of the image, NaN where not visible.
    part_of_concept : array_like
        (L,) of int, -1 for none.
    concept_labels : array_like
        (N, L) of 0 and 1.
    size : int
        Height and width of the images in pixels.
    tops : sequence of int
        How many concepts count.
    alphas : sequence of float
        Sizes of the region, in twelfths of the image.

    Returns
    -------
    Scores
        CLM, with CEM as its attribute.
    """
    features, cavs, points = np.asarray(features), np.asarray(cavs), np.asarray(points)
    parts, labels = np.asarray(part_of_concept), np.asarray(concept_labels)
    importances = {name: np.asarray(values) for name, values in importances.items()}
    scores = Scores(list(importances), len(features), tops, alphas)
    for i in range(len(features)):
        regions = np.zeros((len(cavs), len(alphas), size, size), dtype=np.float32)
        for j in range(len(cavs)):
            heatmap = np.mean(cavs[j][:, None, None] * features[i], axis=0)
            resized = cv2.resize(heatmap, (size, size), interpolation=cv2.INTER_LINEAR)
            order = np.argsort(-resized.ravel())
            for a, alpha in enumerate(alphas):
                n = alpha * size * size / 12
                region = regions[j, a].reshape(-1)
                region[order[: math.floor(n)]] = 1
                # The region need not be a whole number of pixels.
                region[order[math.floor(n) : math.floor(n) + 1]] = n - math.floor(n)

        def hits(j: int, x: np.ndarray, y: np.ndarray, regions: np.ndarray = regions) -> np.ndarray:
            return regions[j][:, y, x].max(axis=1)

        orders = {name: np.argsort(-values[i], kind="stable") for name, values in importances.items()}
        _score_image(scores, i, orders, labels[i], points[i], parts, size, tops, alphas, hits)
    return scores


def ranked_maps_sorted(
    features: Any,
    cavs: Any,
    importances: Mapping[str, Any],
    points: Any,
    part_of_concept: Any,
    concept_labels: Any,
    size: int,
    tops: Sequence[int] = TOPS,
    alphas: Sequence[float] = ALPHAS,
) -> Scores:
    """Compute CEM and CLM in a loop over images, for the ranked concepts only.

    Rankings of all images, and the maps of one image's ranked concepts, are each one NumPy call; no map is resized
    or sorted twice, and none at all for a part that is not visible.

    Parameters
    ----------
    features : array_like
        (N, d, h, w): feature maps before pooling.
    cavs : array_like
        (L, d).
    importances : mapping
        From name to (N, L): importance of the concepts for the explained class.
    points : array_like
        (N, P, Q, 2): places (x, y) of the parts in pixels of the image, NaN where not visible.
    part_of_concept : array_like
        (L,) of int, -1 for none.
    concept_labels : array_like
        (N, L) of 0 and 1.
    size : int
        Height and width of the images in pixels.
    tops : sequence of int
        How many concepts count.
    alphas : sequence of float
        Sizes of the region, in twelfths of the image.

    Returns
    -------
    Scores
        CLM, with CEM as its attribute.
    """
    features, cavs, points = np.asarray(features), np.asarray(cavs), np.asarray(points)
    parts, labels = np.asarray(part_of_concept), np.asarray(concept_labels)
    ranked = {name: np.argsort(-np.asarray(values), axis=1, kind="stable") for name, values in importances.items()}
    scores = Scores(list(ranked), len(features), tops, alphas)
    _, d, h, w = features.shape
    visible = np.isfinite(points).all(axis=-1).any(axis=-1)
    region_sizes = np.array([alpha * size * size / 12 for alpha in alphas])
    rising = np.arange(size * size)
    for i in range(len(features)):
        orders = {name: order[i] for name, order in ranked.items()}
        wanted = {j for order in orders.values() for j in order[parts[order] >= 0][: max(tops)].tolist()}
        concepts = [j for j in sorted(wanted) if visible[i, parts[j]]]
        maps = (cavs[concepts] @ features[i].reshape(d, h * w) / d).reshape(-1, h, w)
        places: dict[int, np.ndarray] = {}
        for j, heatmap in zip(concepts, maps, strict=True):
            resized = cv2.resize(heatmap, (size, size), interpolation=cv2.INTER_LINEAR)
            # How many pixels come before each in descending order of value.
            places[j] = np.empty_like(rising)
            places[j][np.argsort(-resized.ravel())] = rising

        def hits(j: int, x: np.ndarray, y: np.ndarray, places: dict[int, np.ndarray] = places) -> np.ndarray:
            return np.clip(region_sizes - places[j][y * size + x].min(), 0, 1)

        _score_image(scores, i, orders, labels[i], points[i], parts, size, tops, alphas, hits)
    return scores


def _score_image(
    scores: Scores,
    i: int,
    orders: Mapping[str, np.ndarray],
    labels: np.ndarray,
    points: np.ndarray,
    parts: np.ndarray,
    size: int,
    tops: Sequence[int],
    alphas: Sequence[float],
    hits: Callable[[int, np.ndarray, np.ndarray], np.ndarray],
) -> None:
    """Enter one image, given a function from concept and visible pixels to the hit at each alpha."""
    for name, order in orders.items():
        for top in tops:
            scores.cem[name, top][i] = labels[order[:top]].mean()
        found = np.full((max(tops), len(alphas)), np.nan)
        for s, j in enumerate(order[parts[order] >= 0][: max(tops)]):
            seen = points[parts[j]][np.isfinite(points[parts[j]]).all(axis=1)]
            if len(seen):
                x, y = np.clip(np.floor(seen + 0.5), 0, size - 1).astype(int).T
                found[s] = hits(int(j), x, y)
        for top in tops:
            defined = found[:top][np.isfinite(found[:top, 0])]
            for a, alpha in enumerate(alphas):
                if len(defined):
                    scores[name, top, alpha][i] = defined[:, a].mean()
