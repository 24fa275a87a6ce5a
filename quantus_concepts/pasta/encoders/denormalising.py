"""From a model's input back to an image as people see it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from captum_concepts._support.checks import check_finite, check_numbers, check_shape
from captum_concepts._support.running import to_host

#: How far rounding may carry a pixel out of [0, 1].
ROUNDING = 1e-3
_REMEDY = (
    "The encoder wants to see what a person sees: undo the model's normalisation with mean= and std=, the numbers it "
    "was normalised by, or with denormalise=, a function of the images"
)


def check_unit(name: str, low: Tensor, high: Tensor, remedy: str = _REMEDY) -> None:
    """Raise unless the least and the largest value of some images lie in [0, 1]."""
    low, high = to_host(low, high)
    if not (low >= -ROUNDING and high <= 1 + ROUNDING):
        raise ValueError(
            f"Expected argument `{name}` to hold images in [0, 1] but got values from {low:.3g} to {high:.3g}. "
            f"{remedy}."
        )


@dataclass(frozen=True)
class Denormalisation:
    """How to turn a model's input into images with values in [0, 1], where wanted by cutting off what is outside."""

    mean: Sequence[float] | None = None
    std: Sequence[float] | None = None
    function: Callable[[Tensor], Tensor] | None = None
    clip: bool = False

    def __post_init__(self) -> None:
        if (self.mean is None) != (self.std is None):
            given, lacks = ("mean", "std") if self.std is None else ("std", "mean")
            raise ValueError(f"Expected arguments `mean` and `std` together but got `{given}` without `{lacks}`.")
        if self.mean is not None and self.function is not None:
            raise ValueError("Expected either `mean` and `std` or argument `denormalise` but got all of them.")
        if self.mean is not None and self.std is not None:
            for name in ("mean", "std"):
                numbers = check_numbers(name, getattr(self, name))
                check_shape(name, numbers, ("C",), (None,))
                check_finite(name, numbers)
            if len(self.mean) != len(self.std):
                raise ValueError(
                    f"Expected arguments `mean` and `std` to have a number for each channel but got {len(self.mean)} "
                    f"and {len(self.std)}."
                )
            if not all(value > 0 for value in self.std):
                raise ValueError(f"Expected argument `std` to be positive but got {tuple(self.std)}.")

    def __call__(self, images: Tensor, name: str = "x_batch") -> Tensor:
        """Return images in [0, 1] with three channels."""
        images = self._undone(images, name)
        check_unit(name, *torch.aminmax(images))
        return _shown(images)

    def of_checked(self, images: Tensor, name: str = "x_batch") -> Tensor:
        """Return what a call does, of images that `check` has seen."""
        return _shown(self._undone(images, name))

    def check(self, images: Tensor, name: str = "x_batch") -> None:
        """Raise as a call does, without making the images where their extremes suffice."""
        if self.function is None and images.ndim == 4 and images.shape[1] in (1, 3):
            low, high = images.amin((0, 2, 3), keepdim=True), images.amax((0, 2, 3), keepdim=True)
            images = torch.cat([low, high])
        check_unit(name, *torch.aminmax(self._undone(images, name)))

    def redone(self, images: Tensor) -> Tensor:
        """Return images in [0, 1] as the model takes them; with neither `mean` nor `std` as they are."""
        if self.mean is None or self.std is None:
            return images
        mean, std = (torch.as_tensor(value).to(images)[:, None, None] for value in (self.mean, self.std))
        return (images - mean) / std

    def _undone(self, images: Tensor, name: str) -> Tensor:
        """Return images (N, C, H, W) without the normalisation."""
        images = images.float()
        if self.function is not None:
            images = self.function(images)
            if not isinstance(images, Tensor) or images.ndim != 4:
                raise ValueError("Expected argument `denormalise` to return images (N, C, H, W) as a tensor.")
        if images.ndim != 4 or images.shape[1] not in (1, 3):
            raise ValueError(
                f"Expected argument `{name}` to have shape (N, 3, H, W) or (N, 1, H, W) but got {tuple(images.shape)}."
            )
        if self.mean is not None:
            if len(self.mean) != images.shape[1]:
                raise ValueError(
                    f"Expected argument `mean` to have {images.shape[1]} numbers, one for each channel of `{name}`, "
                    f"but got {len(self.mean)}."
                )
            mean, std = (torch.as_tensor(value, device=images.device).float() for value in (self.mean, self.std))
            images = images * std[:, None, None] + mean[:, None, None]
        return images.clamp(0, 1) if self.clip else images


def _shown(images: Tensor) -> Tensor:
    return images.clamp(0, 1).expand(-1, 3, -1, -1)
