"""ROAD's imputation: missing pixels from their neighbours."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import torch
from scipy import sparse
from scipy.sparse.linalg import splu
from torch import Tensor
from torch.nn import functional

#: Weights of the neighbours beside and above, and of those at the corners.
EDGE, CORNER = 1 / 6, 1 / 12
#: Norm of what is left of the equations, as a share of their right side, at which an image is done.
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-6}
#: Steps between two looks at whether all images are done, each of which waits for the device.
BETWEEN_LOOKS = 16


def imputed(images: Tensor, masks: Tensor) -> Tensor:
    """Fill the masked pixels (n, H, W) of images (n, C, H, W) in from the others, on the images' device."""
    # Rong et al. (2022), "ROAD": each missing pixel is the weighted mean of its eight neighbours, missing ones
    # included, which is a system of linear equations for each image. They are those of Quantus's
    # `noisy_linear_imputation` without its noise, which is of the global generator and left to the caller.
    if images.device.type == "cpu":
        return solved(images, masks)
    return descended(images, masks)


def solved(images: Tensor, masks: Tensor) -> Tensor:
    """Solve each image's equations by elimination, on the CPU; several times as fast there as iterating."""
    equations = _equations(*images.shape[2:])
    found = [_eliminated(equations, *pair) for pair in zip(images.double().numpy(), masks.numpy(), strict=True)]
    return torch.as_tensor(np.stack(found)).to(images)


@lru_cache(maxsize=4)
def _equations(height: int, width: int) -> Any:
    """Return (P, P): the weights a pixel's neighbours have in all, and minus that of each."""
    places = np.arange(height * width).reshape(height, width)
    rows, columns, weights = [], [], []
    for down in (-1, 0, 1):
        for right in (-1, 0, 1):
            if down or right:
                here = places[max(0, -down) : height - max(0, down), max(0, -right) : width - max(0, right)]
                there = places[max(0, down) : height + min(0, down), max(0, right) : width + min(0, right)]
                rows.append(here.ravel())
                columns.append(there.ravel())
                weights.append(np.full(here.size, CORNER if down and right else EDGE))
    joined = [np.concatenate(parts) for parts in (weights, rows, columns)]
    neighbours = sparse.csr_matrix((joined[0], (joined[1], joined[2])), shape=(places.size, places.size))
    return (sparse.diags(np.asarray(neighbours.sum(1)).ravel()) - neighbours).tocsr()


def _eliminated(equations: Any, image: np.ndarray, mask: np.ndarray) -> np.ndarray:
    missing = np.flatnonzero(mask)
    pixels = image.reshape(len(image), -1).T.copy()
    if missing.size:
        pixels[missing] = 0
        own = equations[missing]
        # Symmetric and dominated by its diagonal, so that no pivot is needed.
        factors = splu(
            own[:, missing].tocsc(),
            permc_spec="MMD_AT_PLUS_A",
            diag_pivot_thresh=0.0,
            options={"SymmetricMode": True},
        )
        pixels[missing] = factors.solve(-(own @ pixels))
    return pixels.T.reshape(image.shape)


def descended(images: Tensor, masks: Tensor) -> Tensor:
    """Solve the equations of all images together by conjugate gradients, on their device."""
    # In double precision where the device has it. An image that is done stays as it is, whatever others are with it.
    exact = torch.float32 if images.device.type == "mps" else torch.float64
    missing = masks[:, None].to(exact)
    known = images.to(exact) * (1 - missing)
    own = _neighbours(torch.ones_like(missing))
    right = _neighbours(known) * missing
    share = (1 - missing).mean((2, 3), keepdim=True)
    values = known.mean((2, 3), keepdim=True) / share * missing

    def left(pixels: Tensor) -> Tensor:
        return (own * pixels - _neighbours(pixels)) * missing

    def product(first: Tensor, second: Tensor) -> Tensor:
        return (first * second).sum((2, 3), keepdim=True)

    rest = right - left(values)
    direction, size = rest, product(rest, rest)
    # Not of the right side alone, which is 0 where all the neighbours are.
    enough = TOLERANCE[exact] ** 2 * (product(right, right) + size)
    # As many as there are unknowns suffice in exact arithmetic; a few times the image's side do.
    for step in range(16 * (images.shape[2] + images.shape[3])):
        going = size > enough
        if step % BETWEEN_LOOKS == 0 and not bool(going.any()):
            break
        image = left(direction)
        along = torch.where(going, size / product(direction, image), 0)
        values = values + along * direction
        rest = rest - along * image
        before, size = size, torch.where(going, product(rest, rest), size)
        direction = rest + torch.where(going, size / before, 0) * direction
    return torch.where(masks[:, None], values, images.to(exact)).to(images)


def _neighbours(pixels: Tensor) -> Tensor:
    """Return the weighted sum of each pixel's eight neighbours; there are none beyond the edge."""
    # (1, 2, 1) down and across has weights 1 and 2, and 4 in the middle.
    padded = functional.pad(pixels, (1, 1, 1, 1))
    down = padded[..., :-2, :] + 2 * padded[..., 1:-1, :] + padded[..., 2:, :]
    across = down[..., :-2] + 2 * down[..., 1:-1] + down[..., 2:]
    return across * CORNER - pixels * (4 * CORNER)
