"""Perturbed pixels: black, uniform, Gaussian, or imputed as in ROAD."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from scipy import sparse
from scipy.sparse.linalg import splu
from torch import Tensor
from torch.nn import functional

from captum_concepts._support.checks import check_normalisation

#: Kinds of perturbation, with how strong their noise is by default, as a share of the range from black to white.
NOISE = {"black": 0.0, "uniform": 0.2, "gaussian": 0.2, "road": 0.01}
PERTURBATIONS = tuple(NOISE)


@dataclass(frozen=True)
class Prepared:
    """Images, and all that is needed to perturb any of their pixels."""

    images: Tensor
    replacements: Tensor
    order: Tensor
    imputing: bool

    def perturb(self, row: int, masks: Tensor, out: Tensor) -> None:
        """Perturb some pixels of an image, in several ways."""
        image, other = self.images[row], self.replacements[row]
        if self.imputing:
            other = impute_pixels(image.expand_as(out), masks) + other
        # With weights of 0 and 1 exactly one of the two, and several times as fast as torch.where on a CPU.
        torch.lerp(image, other, masks[:, None].view(torch.uint8).to(image.dtype), out=out)


@dataclass(frozen=True)
class PixelPerturbation:
    """A kind of perturbation, in the units of a model's images."""

    # The noise of an image depends on `seed` and on the image only: neither on the batch it is in nor on its
    # explanation, so that methods are compared under the same noise.

    kind: str
    noise: float | None = None
    mean: Sequence[float] | None = None
    std: Sequence[float] | None = None
    pixel_range: tuple[float, float] | None = None
    seed: int = 0
    level: float = field(init=False)

    def __post_init__(self) -> None:
        if self.noise is not None and self.kind == "black":
            raise ValueError("Expected no argument `noise` with perturbation 'black', which has none.")
        if self.noise == 0 and self.kind != "road":
            raise ValueError(f"Expected argument `noise` to lie above 0 but got {self.noise}.")
        object.__setattr__(self, "level", NOISE[self.kind] if self.noise is None else float(self.noise))
        check_normalisation(self.mean, self.std)
        if self.mean is not None and self.pixel_range is not None:
            raise ValueError("Expected either `mean` and `std` or argument `pixel_range` but got all of them.")

    def check_images(self, images: np.ndarray) -> None:
        """Raise where images contradict the normalisation."""
        if self.mean is not None and len(self.mean) != images.shape[1]:
            raise ValueError(
                f"Expected argument `mean` to have {images.shape[1]} numbers, one for each channel of `x_batch`, but "
                f"got {len(self.mean)}."
            )

    def prepare(self, images: np.ndarray, like: Tensor) -> Prepared:
        """Draw what the perturbations of some images need."""
        orders, noises = zip(*(self._draw_noise(image) for image in images), strict=True)
        black, scale = self._range(like)
        if self.kind == "black":
            replacements = black.expand_as(like)
        else:
            noise = torch.as_tensor(np.stack(noises)).to(like) * (self.level * scale)
            replacements = noise if self.kind == "road" else like + noise
        order = torch.as_tensor(np.stack(orders), device=like.device)
        return Prepared(like, replacements, order, imputing=self.kind == "road")

    def _draw_noise(self, image: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Draw an order (P,) of an image's pixels, and noise (C, H, W) of unit strength."""
        rng = generator_of(image, self.seed)
        order = rng.permutation(image.shape[1] * image.shape[2])
        if self.kind == "black":
            return order, np.empty(0)
        if self.kind == "uniform":
            return order, rng.uniform(-1, 1, image.shape).astype(np.float32)
        return order, rng.standard_normal(image.shape, dtype=np.float32)

    def _range(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return what black is in images, and how far white is from it; both broadcast to (N, C, H, W)."""

        def tensor(value: Any) -> Tensor:
            return torch.as_tensor(np.asarray(value, dtype=float)).to(images)[..., None, None]

        if self.mean is not None and self.std is not None:
            mean, std = np.asarray(self.mean, dtype=float), np.asarray(self.std, dtype=float)
            return tensor(-mean / std), tensor(1 / std)
        if self.pixel_range is not None:
            low, high = self.pixel_range
            return tensor([low]), tensor([high - low])
        black = images.amin((1, 2, 3), keepdim=True).clamp(max=0)
        return black, images.amax((1, 2, 3), keepdim=True).clamp(min=1) - black


def generator_of(image: np.ndarray, *seeds: int) -> np.random.Generator:
    """Return a generator that depends on an image's content, and so not on the batch it comes in."""
    digest = hashlib.blake2b(image.astype(np.float32).tobytes(), digest_size=8).digest()
    return np.random.default_rng([*seeds, int.from_bytes(digest, "little")])


#: Weights of the neighbours beside and above, and of those at the corners.
EDGE, CORNER = 1 / 6, 1 / 12
#: Norm of what is left of the equations, as a share of their right side, at which an image is done.
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-6}
#: Steps between two looks at whether all images are done, each of which waits for the device.
BETWEEN_LOOKS = 16


def impute_pixels(images: Tensor, masks: Tensor) -> Tensor:
    """Fill the masked pixels (n, H, W) of images (n, C, H, W) in from the others, on the images' device."""
    # Rong et al. (2022), "ROAD": each missing pixel is the weighted mean of its eight neighbours, missing ones
    # included, which is a system of linear equations for each image. They are those of Quantus's
    # `noisy_linear_imputation` without its noise, which is of the global generator and left to the caller.
    if images.device.type == "cpu":
        return solve_system(images, masks)
    return descend(images, masks)


def solve_system(images: Tensor, masks: Tensor) -> Tensor:
    """Solve each image's equations by elimination, on the CPU; several times as fast there as iterating."""
    equations = _equations(*images.shape[2:])
    imputed = [_eliminate(equations, *pair) for pair in zip(images.double().numpy(), masks.numpy(), strict=True)]
    return torch.as_tensor(np.stack(imputed)).to(images)


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


def _eliminate(equations: Any, image: np.ndarray, mask: np.ndarray) -> np.ndarray:
    missing = np.flatnonzero(mask)
    pixels = image.reshape(len(image), -1).T.copy()
    if missing.size:
        pixels[missing] = 0
        rows_of_missing = equations[missing]
        # Symmetric and dominated by its diagonal, so that no pivot is needed.
        factors = splu(
            rows_of_missing[:, missing].tocsc(),
            permc_spec="MMD_AT_PLUS_A",
            diag_pivot_thresh=0.0,
            options={"SymmetricMode": True},
        )
        pixels[missing] = factors.solve(-(rows_of_missing @ pixels))
    return pixels.T.reshape(image.shape)


def descend(images: Tensor, masks: Tensor) -> Tensor:
    """Solve the equations of all images together by conjugate gradients, on their device."""
    # In double precision where the device has it. An image that is done stays as it is, whatever is in the batch.
    exact = torch.float32 if images.device.type == "mps" else torch.float64
    missing = masks[:, None].to(exact)
    known_pixels = images.to(exact) * (1 - missing)
    total_weights = _neighbours(torch.ones_like(missing))
    right_side = _neighbours(known_pixels) * missing
    share = (1 - missing).mean((2, 3), keepdim=True)
    values = known_pixels.mean((2, 3), keepdim=True) / share * missing

    def left_side(pixels: Tensor) -> Tensor:
        return (total_weights * pixels - _neighbours(pixels)) * missing

    def product(first: Tensor, second: Tensor) -> Tensor:
        return (first * second).sum((2, 3), keepdim=True)

    residual = right_side - left_side(values)
    direction, size = residual, product(residual, residual)
    # Not of the right side alone, which is 0 where all the neighbours are.
    enough = TOLERANCE[exact] ** 2 * (product(right_side, right_side) + size)
    # In exact arithmetic the number of unknowns suffices; in practice a few times the image's side does.
    for step in range(16 * (images.shape[2] + images.shape[3])):
        going = size > enough
        if step % BETWEEN_LOOKS == 0 and not bool(going.any()):
            break
        image = left_side(direction)
        along = torch.where(going, size / product(direction, image), 0)
        values = values + along * direction
        residual = residual - along * image
        before, size = size, torch.where(going, product(residual, residual), size)
        direction = residual + torch.where(going, size / before, 0) * direction
    return torch.where(masks[:, None], values, images.to(exact)).to(images)


def _neighbours(pixels: Tensor) -> Tensor:
    """Return the weighted sum of each pixel's eight neighbours; there are none beyond the edge."""
    # (1, 2, 1) down and across has weights 1 and 2, and 4 in the middle.
    padded = functional.pad(pixels, (1, 1, 1, 1))
    down = padded[..., :-2, :] + 2 * padded[..., 1:-1, :] + padded[..., 2:, :]
    across = down[..., :-2] + 2 * down[..., 1:-1] + down[..., 2:]
    return across * CORNER - pixels * (4 * CORNER)
