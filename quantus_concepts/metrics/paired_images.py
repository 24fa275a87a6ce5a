"""Second versions of the images: without a feature, or with a patch."""

from __future__ import annotations

from typing import Any

import numpy as np

from captum_concepts.checks import check_finite, to_array
from quantus_concepts.metrics.masks import listed

#: Pixels of a side that are compared to see whether images are aligned.
COMPARED = 32
#: Distance of the pixels by which most images are seen to differ.
FEW = 8


def image_batch(name: str, value: Any) -> np.ndarray:
    """Return images as an array, or raise for what cannot be any."""
    # Torch knows no negative strides.
    images = np.ascontiguousarray(to_array(name, value))
    if images.ndim != 4:
        raise ValueError(f"Expected argument `{name}` to have shape (N, C, H, W) but got {images.shape}.")
    check_finite(name, images)
    return images


def check_same_shape(name: str, images: np.ndarray, x_batch: np.ndarray) -> None:
    """Raise unless images have the shape of ``x_batch``."""
    if images.shape != x_batch.shape:
        raise ValueError(
            f"Expected argument `{name}` to have the shape of `x_batch`, (N, C, H, W) = {x_batch.shape}, but got "
            f"{images.shape}. It is taken channel first, in the units the model takes."
        )


def check_aligned(name: str, images: np.ndarray, x_batch: np.ndarray, masks: np.ndarray) -> None:
    """Raise where images are other pictures than those of ``x_batch``: the order of the samples differs."""
    # Outside the mask the two show the same. They are not aligned where on average they differ there at least half
    # as much as neighbours do, or where one resembles a neighbour at least twice as much as its own. Differences
    # below 5 % of the pixels' standard deviation (compression, for instance) do not count.
    if len(images) < 2:
        return
    # Of large images every few pixels tell as much.
    step = max(1, min(x_batch.shape[2:]) // COMPARED)
    images, x_batch, masks = (array[:, :, ::step, ::step] for array in (images, x_batch, masks))
    # As where the second versions are composed of the first: nothing to measure.
    if not ((images != x_batch) & ~masks).any():
        return
    n_outside = np.maximum((~masks).sum((1, 2, 3)), 1) * x_batch.shape[1]

    def difference(shift: int) -> np.ndarray:
        # One image at a time: the whole difference would be as large as the images.
        others = (images[(i + shift) % len(images)] for i in range(len(images)))
        pairs = zip(x_batch, others, masks, strict=True)
        return np.array([(np.abs(x.astype(float) - other) * ~mask).sum() for x, other, mask in pairs]) / n_outside

    marked = masks.any((1, 2, 3))
    if not marked.any():
        return
    # Without a mask nothing says what may differ.
    own = difference(0) * marked
    noticeable = 0.05 * float(x_batch.std(dtype=float))
    if not (own > noticeable).any():
        return
    after, before = (difference(shift) * marked for shift in (1, -1))
    other = (own > noticeable) & (np.minimum(after, before) < own / 2)
    if other.any() or own.mean() > max(after.mean() / 2, noticeable):
        shown = listed(np.flatnonzero(other if other.any() else own > noticeable))
        raise ValueError(
            f"Expected argument `{name}` to show the images of `x_batch`, in their order, but outside the masks image "
            f"{shown} is another picture. Align it with `x_batch`; if it is aligned, the masks are too small."
        )


def check_differs(name: str, images: np.ndarray, x_batch: np.ndarray, masks: np.ndarray, meaning: str) -> None:
    """Raise where images with a mask are those of ``x_batch`` to the bit; `meaning` says what is wrong with them."""
    # A few pixels show that most differ; the others are compared whole.
    few = np.s_[:, :, ::FEW, ::FEW]
    alike = np.flatnonzero(masks.any((1, 2, 3)) & (images[few] == x_batch[few]).all((1, 2, 3)))
    same = np.array([row for row in alike if np.array_equal(images[row], x_batch[row])], dtype=int)
    if same.size:
        raise ValueError(
            f"Expected argument `{name}` to differ from `x_batch` but image {listed(same)} is identical: {meaning}."
        )
