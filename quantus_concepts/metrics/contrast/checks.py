"""Checks of two versions of the same images."""

from __future__ import annotations

import numpy as np

from quantus_concepts.metrics.host.checks import join_numbers

#: Distance of the pixels that show for most images that they differ.
FEW = 8


def check_same_shape(name: str, images: np.ndarray, x_batch: np.ndarray) -> None:
    """Raise unless images have the shape and the units of ``x_batch``."""
    if images.shape != x_batch.shape:
        raise ValueError(
            f"Expected argument `{name}` to have the shape of `x_batch`, (N, C, H, W) = {x_batch.shape}, but got "
            f"{images.shape}. It is taken channel first, in the units the model takes."
        )
    if (images.dtype == np.uint8) != (x_batch.dtype == np.uint8):
        raise ValueError(
            f"Expected argument `{name}` to be in the units of `x_batch`, {x_batch.dtype}, but got {images.dtype}: "
            "levels of uint8 are divided by 255, other numbers are not."
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
