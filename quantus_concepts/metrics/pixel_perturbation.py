"""What is put in the place of an image's pixels to see whether a model needs them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from captum_concepts.checks import as_list, check_choice, check_finite, check_range, check_seed, to_array
from quantus_concepts.metrics.imputation import imputed

#: Kinds of perturbation, with how strong their noise is by default, as a share of the range from black to white.
NOISE = {"black": 0.0, "uniform": 0.2, "gaussian": 0.2, "road": 0.01}
PERTURBATIONS = tuple(NOISE)


@dataclass(frozen=True)
class Prepared:
    """Images, and all that is needed to perturb any of their pixels."""

    images: Tensor
    others: Tensor
    order: Tensor
    imputing: bool

    def perturb(self, row: int, masks: Tensor, out: Tensor) -> None:
        """Perturb some pixels of an image, in several ways."""
        image, other = self.images[row], self.others[row]
        if self.imputing:
            other = imputed(image.expand_as(out), masks) + other
        # With weights of 0 and 1 exactly one of the two, and several times as fast as torch.where on a CPU.
        torch.lerp(image, other, masks[:, None].view(torch.uint8).to(image.dtype), out=out)


@dataclass(frozen=True)
class PixelPerturbation:
    """A kind of perturbation, in the units of a model's images."""

    # What is drawn for an image depends on `seed` and on the image only: neither on the batch it is in nor on its
    # explanation, so that methods are compared under the same noise.

    kind: str
    noise: float | None = None
    mean: Sequence[float] | None = None
    std: Sequence[float] | None = None
    pixel_range: tuple[float, float] | None = None
    seed: int = 0
    level: float = field(init=False)

    def __post_init__(self) -> None:
        check_choice("perturbation", self.kind, PERTURBATIONS)
        check_seed(self.seed)
        if self.noise is not None:
            if self.kind == "black":
                raise ValueError("Expected no argument `noise` beside perturbation 'black', which has none.")
            check_range("noise", self.noise, 0, float("inf"), open_low=self.kind != "road")
            check_finite("noise", self.noise)
        object.__setattr__(self, "level", NOISE[self.kind] if self.noise is None else float(self.noise))
        if (self.mean is None) != (self.std is None):
            raise ValueError("Expected arguments `mean` and `std` together but got one of them only.")
        if self.mean is not None and self.pixel_range is not None:
            raise ValueError("Expected either `mean` and `std` or argument `pixel_range` but got all of them.")
        if self.mean is not None and self.std is not None:
            check_normalisation(to_array("mean", self.mean), to_array("std", self.std))
        if self.pixel_range is not None:
            ends = to_array("pixel_range", as_list("pixel_range", self.pixel_range, "two numbers"))
            low, high = ends if ends.shape == (2,) else (1.0, 0.0)
            if not low < high or not np.isfinite([low, high]).all():
                raise ValueError(
                    "Expected argument `pixel_range` to be (black, white), two finite numbers of which the second is "
                    f"the larger, but got {self.pixel_range!r}."
                )

    def check_images(self, images: np.ndarray) -> None:
        """Raise where images contradict the normalisation."""
        if self.mean is not None and len(self.mean) != images.shape[1]:
            raise ValueError(
                f"Expected argument `mean` to have {images.shape[1]} numbers, one for each channel of `x_batch`, but "
                f"got {len(self.mean)}."
            )

    def prepare(self, images: np.ndarray, like: Tensor) -> Prepared:
        """Draw what the perturbations of some images need."""
        orders, noises = zip(*(self._drawn(image) for image in images), strict=True)
        black, scale = self._range(like)
        if self.kind == "black":
            others = black.expand_as(like)
        else:
            noise = torch.as_tensor(np.stack(noises)).to(like) * (self.level * scale)
            others = noise if self.kind == "road" else like + noise
        order = torch.as_tensor(np.stack(orders), device=like.device)
        return Prepared(like, others, order, imputing=self.kind == "road")

    def _drawn(self, image: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
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


def check_normalisation(mean: np.ndarray, std: np.ndarray) -> None:
    """Raise unless `mean` and `std` are finite numbers, one for each channel, the second ones positive."""
    if mean.ndim != 1 or mean.shape != std.shape:
        raise ValueError(
            "Expected arguments `mean` and `std` to have a number for each channel but got shapes "
            f"{mean.shape} and {std.shape}."
        )
    if not (np.isfinite(mean).all() and np.isfinite(std).all() and (std > 0).all()):
        raise ValueError(
            f"Expected arguments `mean` and `std` to be finite, and `std` positive, but got {mean} and {std}."
        )


def generator_of(image: np.ndarray, *seeds: int) -> np.random.Generator:
    """Return a generator that depends on an image's content, and so not on the batch it comes in."""
    digest = hashlib.blake2b(image.astype(np.float32).tobytes(), digest_size=8).digest()
    return np.random.default_rng([*seeds, int.from_bytes(digest, "little")])
