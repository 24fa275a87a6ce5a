"""An image encoder's own preprocessing, as one operation on a batch."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from captum_concepts.support.checks import check_choice
from quantus_concepts.pasta.encoders.overlay import resized_levels, to_levels

RESIZE_MODES = ("squash", "shortest")
INTERPOLATIONS = ("bicubic", "bilinear")
#: open_clip's default for models without weights.
CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD = (0.26862954, 0.26130258, 0.27577711)


@dataclass(frozen=True)
class Preprocessing:
    """Resizing, centre crop and normalisation as open_clip does them with Pillow, for a batch on its device."""

    # Pillow resizes in 8 bits, first along x and then along y, and so is it done here: at most 2 of 255 levels away
    # from it, and nearly everywhere not at all. (Recent versions of Pillow begin with y where that is less work; of
    # square pictures, which `Embedder` makes, they do not.)

    size: tuple[int, int]
    resize_mode: str = "shortest"
    interpolation: str = "bicubic"
    mean: Sequence[float] = CLIP_MEAN
    std: Sequence[float] = CLIP_STD

    #: Marks a function of many images for `Encoder`.
    batched = True

    def __post_init__(self) -> None:
        check_choice("resize_mode", self.resize_mode, RESIZE_MODES)
        check_choice("interpolation", self.interpolation, INTERPOLATIONS)

    @torch.no_grad()
    def __call__(self, images: Tensor) -> Tensor:
        """Prepare images."""
        levels = images if images.dtype == torch.uint8 else to_levels(images)
        height, width = images.shape[-2:]
        if self.resize_mode == "squash":
            levels = resized_levels(levels, self.size, self.interpolation)
        else:
            # Imported only where it is needed, for it takes long.
            from torchvision.transforms.v2 import functional

            levels = resized_levels(levels, self._covering_size(height, width), self.interpolation)
            levels = functional.center_crop(levels, list(self.size))
        mean = _channels(tuple(255 * value for value in self.mean), images.device)
        scale = _channels(tuple(1 / (255 * value) for value in self.std), images.device)
        return levels.float().sub_(mean).mul_(scale)

    def _covering_size(self, height: int, width: int) -> tuple[int, int]:
        """Return the size, of the image's ratio, that just covers the encoder's."""
        tall, wide = self.size
        if tall == wide:
            # As torchvision's Resize does it, rounded down.
            return (tall, int(tall * width / height)) if height <= width else (int(wide * height / width), wide)
        ratio = min(height / tall, width / wide)
        return round(height / ratio), round(width / ratio)


# All batches have the same, and on an accelerator each transfer waits for all that was queued before.
@functools.lru_cache(maxsize=64)
def _channels(values: tuple[float, ...], device: torch.device) -> Tensor:
    """Return a number for each channel, (C, 1, 1)."""
    return torch.tensor(values, device=device)[:, None, None]


def batched_form(transform: object) -> Preprocessing | None:
    """Return the batched form of a preprocessing of open_clip."""
    # Each step as torchvision calls it; conversions to RGB and to a tensor are functions or classes of open_clip.
    steps = list(getattr(transform, "transforms", []))
    kinds = [type(step).__name__ for step in steps]
    cropped = kinds[1:2] == ["CenterCrop"]
    conversions = [getattr(step, "__name__", type(step).__name__) for step in steps[2 if cropped else 1 : -1]]
    if (
        kinds[:1] != ["Resize"]
        or kinds[-1] != "Normalize"
        or not set(conversions) <= {"_convert_to_rgb", "MaybeConvertMode", "MaybeToTensor", "ToTensor"}
    ):
        return None
    resize, crop, normalise = steps[0], steps[1], steps[-1]
    interpolation = getattr(resize.interpolation, "value", "")
    sides = [resize.size] * 2 if isinstance(resize.size, int) else list(resize.size)
    sides = sides * 2 if len(sides) == 1 else sides
    one_side = isinstance(resize.size, int) or len(resize.size) == 1
    if interpolation not in INTERPOLATIONS or resize.max_size is not None or one_side != cropped:
        return None
    if cropped and tuple(crop.size) != tuple(sides):
        return None
    mean, std = (tuple(map(float, values)) for values in (normalise.mean, normalise.std))
    size = (int(sides[0]), int(sides[1]))
    return Preprocessing(size, "shortest" if cropped else "squash", interpolation, mean, std)
