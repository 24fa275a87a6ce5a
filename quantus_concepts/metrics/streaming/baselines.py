"""The two honest baselines of CLM: parts of another image, and a Gaussian at the centre of every image."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from quantus_concepts.functional.regions import pixels_of
from quantus_concepts.metrics.host.row_buffer import RowBuffer


class EarlierPoints:
    """Part points of another image for each image: of one drawn from all that came before it."""

    # Drawing from the earlier ones keeps the evaluation one pass over the images, whatever the size of the batches;
    # the first image has none and scores NaN. Kept are the points only, which take little room. Where the first image
    # is not that of the data set, those of the images before it are looked up.

    def __init__(self, seed: int, start: int = 0, look_up: Callable[[Sequence[int]], Tensor] | None = None) -> None:
        self._generator = np.random.default_rng(seed)
        self._generator.random(start)
        self._n_seen, self._look_up = start, look_up
        self._points = RowBuffer()

    def draw(self, points: Tensor) -> Tensor:
        """Return points of an earlier image for each image of a batch."""
        place = self._n_seen + np.arange(len(points))
        partner = np.floor(self._generator.random(len(points)) * place).astype(np.int64)
        if self._look_up is None:
            drawn = self._points.add(points)[torch.as_tensor(partner, device=points.device)]
        else:
            drawn = self._look_up(partner.tolist()).to(points).view_as(points)
        if self._n_seen == 0:
            drawn[0] = torch.nan
        self._n_seen += len(points)
        return drawn


class GaussianRegion:
    """Hits of points in the regions of one Gaussian map, centred, as wide as high relative to the image."""

    # The map is the same for all images, so each pixel's hit is looked up. Regions hold the nearest pixels whatever
    # the width of the Gaussian, which therefore needs none.

    def __init__(self, alphas: Sequence[float]) -> None:
        self._alphas = tuple(alphas)
        self._table = np.empty((0, len(self._alphas)))
        self._size = (0, 0)

    def hits(self, points: Any, size: tuple[int, int]) -> np.ndarray:
        """Return the hits (..., len(alphas)) of the best of the places (..., Q, 2) of parts; NaN for hidden ones."""
        if self._size != size:
            self._table, self._size = self._make(size), size
        pixels = pixels_of(points, size).numpy()
        found = np.where(pixels[..., None] < 0, -1.0, self._table[pixels]).max(-2)
        return np.where(found < 0, np.nan, found)

    def _make(self, size: tuple[int, int]) -> np.ndarray:
        """Return the hit (H W, len(alphas)) of every pixel: clip((n - G) / T, 0, 1), as `point_hits`."""
        height, width = size
        # Whole numbers, so that pixels at the same distance tie exactly.
        y = (2 * np.arange(height) - (height - 1)) * width
        x = (2 * np.arange(width) - (width - 1)) * height
        distance = (y[:, None] ** 2 + x[None, :] ** 2).ravel()
        _, place, ties = np.unique(distance, return_inverse=True, return_counts=True)
        nearer = ties.cumsum() - ties
        wanted = np.array(self._alphas) * (height * width) / 12
        shares = ((wanted - nearer[:, None]) / ties[:, None]).clip(0, 1)
        return shares[place]
