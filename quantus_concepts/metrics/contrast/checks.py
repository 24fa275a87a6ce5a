"""Checks of two versions of the same images."""

from __future__ import annotations

import numpy as np

from quantus_concepts.metrics.host.checks import join_numbers

#: Pixels of a side that are compared to check the alignment of images.
COMPARED = 32
#: Distance of the pixels that show for most images that they differ.
FEW = 8


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
    # Every few pixels suffice in large images.
    step = max(1, min(x_batch.shape[2:]) // COMPARED)
    images, x_batch, masks = (array[:, :, ::step, ::step] for array in (images, x_batch, masks))
    marked = masks.any((1, 2, 3))
    # Identical outside the masks, as in images that are composed: nothing to measure.
    if not marked.any() or not ((images != x_batch) & ~masks).any():
        return
    n_outside = np.maximum((~masks).sum((1, 2, 3)), 1) * x_batch.shape[1]

    def difference(shift: int) -> np.ndarray:
        # One image at a time: the whole difference would be as large as the images.
        shifted = (images[(i + shift) % len(images)] for i in range(len(images)))
        pairs = zip(x_batch, shifted, masks, strict=True)
        sums = np.array([(np.abs(x.astype(float) - other) * ~mask).sum() for x, other, mask in pairs])
        return sums / n_outside * marked

    at_own = difference(0)
    noticeable = 0.05 * float(x_batch.std(dtype=float))
    if not (at_own > noticeable).any():
        return
    after, before = difference(1), difference(-1)
    at_other = (at_own > noticeable) & (np.minimum(after, before) < at_own / 2)
    if at_other.any() or at_own.mean() > max(after.mean() / 2, noticeable):
        numbers = join_numbers(np.flatnonzero(at_other if at_other.any() else at_own > noticeable))
        raise ValueError(
            f"Expected argument `{name}` to show the images of `x_batch`, in their order, but outside the masks image "
            f"{numbers} is another picture. Align it with `x_batch`; if it is aligned, the masks are too small."
        )


def check_differs(name: str, images: np.ndarray, x_batch: np.ndarray, masks: np.ndarray, meaning: str) -> None:
    """Raise where images with a mask are those of ``x_batch`` to the bit; `meaning` says what is wrong with them."""
    # A few pixels show that most differ; the others are compared whole.
    few = np.s_[:, :, ::FEW, ::FEW]
    alike = np.flatnonzero(masks.any((1, 2, 3)) & (images[few] == x_batch[few]).all((1, 2, 3)))
    same = np.array([row for row in alike if np.array_equal(images[row], x_batch[row])], dtype=int)
    if same.size:
        raise ValueError(
            f"Expected argument `{name}` to differ from `x_batch` but image {join_numbers(same)} is identical: "
            f"{meaning}."
        )
