"""Checks of masks, classes and pairs of images."""

from __future__ import annotations

from typing import Any

import numpy as np

from captum_concepts._support.checks import check_binary, check_finite, check_shape, to_array

#: Indices named in a message.
SHOWN = 5
#: Pixels of a side that are compared to check the alignment of images.
COMPARED = 32
#: Distance of the pixels that show for most images that they differ.
FEW = 8


def as_images(name: str, value: Any) -> np.ndarray:
    """Return finite images (N, C, H, W), or raise."""
    images = to_array(name, value)
    check_shape(name, images, ("N", "C", "H", "W"), (None,) * 4)
    check_finite(name, images)
    return images


def as_classes(name: str, value: Any) -> np.ndarray:
    """Return class indices (N,) of int, or raise; floats that are whole are such."""
    labels = to_array(name, value)
    check_shape(name, labels, ("N",), (None,))
    with np.errstate(invalid="ignore"):
        indices = labels.astype(np.int64)
    if (indices != labels).any() or (indices < 0).any():
        raise ValueError(f"Expected argument `{name}` to hold class indices 0, 1, 2, ... but got {labels[:5]}...")
    return indices


def as_masks(name: str, value: Any) -> np.ndarray:
    """Return masks (N, 1, H, W) of bool of which not all are empty or full, or raise."""
    array = to_array(name, value)
    masks = array[:, None] if array.ndim == 3 else array
    if masks.ndim != 4 or masks.shape[1] != 1:
        raise ValueError(
            f"Expected argument `{name}` to have shape (N, 1, H, W) or (N, H, W), one mask for each image, but got "
            f"{array.shape}."
        )
    check_binary(name, masks)
    masks = masks.astype(bool)
    if len(masks) and unusable_masks(masks).all():
        kind = "full" if masks.all() else "empty" if not masks.any() else "empty or full"
        raise ValueError(
            f"Expected argument `{name}` to mark the pixels of the region the metric asks about but all {len(masks)} "
            f"masks are {kind}."
        )
    return masks


def unusable_masks(masks: np.ndarray) -> np.ndarray:
    """Return (N,) of bool: which masks mark no pixel, or every one."""
    flat = masks.reshape(len(masks), -1)
    return np.logical_or(~flat.any(1), flat.all(1))


def check_mask_size(name: str, masks: np.ndarray, size: tuple[int, ...]) -> None:
    """Raise unless masks have the size of the images."""
    if masks.shape[2:] != size:
        raise ValueError(
            f"Expected argument `{name}` to have the size of the images, (H, W) = {size}, but got {masks.shape[2:]}. "
            "Resize the masks with nearest-neighbour interpolation."
        )


def join_numbers(indices: np.ndarray) -> str:
    """Write indices for a message, the first few by number."""
    first = ", ".join(str(index) for index in indices[:SHOWN])
    return f"{first} and {len(indices) - SHOWN} more" if len(indices) > SHOWN else first


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
