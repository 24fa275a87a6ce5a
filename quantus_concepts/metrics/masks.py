"""Masks of the region that a metric asks about, given in `s_batch` or bound to the metric."""

from __future__ import annotations

from typing import Any

import numpy as np

from captum_concepts.checks import check_binary, to_array

SHOWN = 5


def binary_masks(name: str, value: Any) -> np.ndarray:
    """Return masks (N, 1, H, W) or (N, H, W) of 0 and 1 as (N, 1, H, W) of bool, or raise and name the first other."""
    masks = to_array(name, value)
    if masks.ndim == 3:
        masks = masks[:, None]
    if masks.ndim != 4 or masks.shape[1] != 1:
        raise ValueError(
            f"Expected argument `{name}` to have shape (N, 1, H, W) or (N, H, W), one mask for each image, but got "
            f"{np.shape(value)}."
        )
    check_binary(name, masks)
    return masks.astype(bool)


def region_masks(name: str, value: Any) -> np.ndarray:
    """Return masks as `binary_masks` does; raise too where all of them are empty or full."""
    masks = binary_masks(name, value)
    if len(masks) and unusable_masks(masks).all():
        kind = "full" if masks.all() else "empty" if not masks.any() else "empty or full"
        raise ValueError(
            f"Expected argument `{name}` to mark the pixels of the region the metric asks about but all {len(masks)} "
            f"masks are {kind}."
        )
    return masks


def check_mask_size(name: str, masks: np.ndarray, x_batch: np.ndarray) -> None:
    """Raise unless there is one mask for each image, of the same size."""
    if len(masks) != len(x_batch):
        raise ValueError(
            f"Expected argument `{name}` to have {len(x_batch)} masks, one for each image, but got {len(masks)}."
        )
    if masks.shape[2:] != x_batch.shape[2:]:
        raise ValueError(
            f"Expected argument `{name}` to have the size of the images, (H, W) = {x_batch.shape[2:]}, but got "
            f"{masks.shape[2:]}. Resize the masks with nearest-neighbour interpolation."
        )


def unusable_masks(masks: np.ndarray) -> np.ndarray:
    """Return (N,) of bool: which masks mark no pixel, or every one."""
    flat = masks.reshape(len(masks), -1)
    return np.logical_or(~flat.any(1), flat.all(1))


def listed(indices: np.ndarray) -> str:
    """Write indices for a message, the first few by number."""
    shown = ", ".join(str(index) for index in indices[:SHOWN])
    return f"{shown} and {len(indices) - SHOWN} more" if len(indices) > SHOWN else shown
