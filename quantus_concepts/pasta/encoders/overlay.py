"""Relevance maps drawn over their images, for people and for encoders; sizes and levels of pictures."""

from __future__ import annotations

import difflib
from functools import lru_cache

import matplotlib as mpl
import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import interpolate

from captum_concepts.support.checks import check_axes, check_finite, check_range
from quantus_concepts.functional.arguments import Numbers, to_floats
from quantus_concepts.functional.attribution.normalisation import finite_rows
from quantus_concepts.functional.attribution.upsampling import checked_maps

NORMALISATIONS = ("min-max", "shap", "lime", "none")
N_COLOURS = 256
#: What 1 becomes in 8 bits, and a hair more: products that should be whole numbers must not be truncated to less.
_FULL = 255 + 1e-3


@lru_cache
def colour_table(name: str) -> Tensor:
    """Return matplotlib's table (256, 3) of a colour map, or raise where there is none."""
    if name not in mpl.colormaps:
        near = difflib.get_close_matches(str(name), sorted(mpl.colormaps), n=3)
        raise ValueError(
            f"Expected argument `colours` to be a colour map of matplotlib, 'bwr' for instance, but got {name!r}."
            + (f" Nearest: {', '.join(near)}." if near else "")
        )
    colours = mpl.colormaps[name].resampled(N_COLOURS)(np.arange(N_COLOURS))
    return torch.as_tensor(colours[:, :3], dtype=torch.float32)


# All batches have the same, and on an accelerator each transfer waits for all that was queued before.
@lru_cache
def _shares(name: str, weight: float, device: torch.device) -> Tensor:
    """Return what the colours of a map (3, entries) give to a picture in which the image has a weight."""
    return (colour_table(name) * (1 - weight)).T.contiguous().to(device)


@torch.no_grad()
def unit_maps(maps: Tensor, normalise: str = "min-max") -> Tensor:
    """Scale each map to [0, 1]."""
    # Kazmierczak et al. (PASTA), their released code: the least value to 0 and the largest to 1; for SHAP and LIME
    # as the alternatives do it. A constant map, which has nothing to scale, becomes 0 everywhere with "min-max".
    maps = maps.to(torch.promote_types(maps.dtype, torch.float32))
    if not len(maps):
        return maps.clone()
    low, high = (extreme.view(-1, 1, 1) for extreme in torch.aminmax(maps.flatten(1), dim=1))
    if normalise == "min-max":
        # Halves first: the range of numbers that are finite need not be.
        span = high / 2 - low / 2
        return ((maps / 2 - low / 2) / torch.where(span == 0, 1, span)).clamp_(0, 1)
    if normalise == "shap":
        largest = torch.maximum(high.abs(), low.abs())
        return (maps / torch.where(largest == 0, 1, largest)).clamp_(min=0)
    least = -1 if normalise == "lime" else 0
    if (low < least).any() or (high > 1).any():
        raise ValueError(
            f"Expected argument `maps` to lie in [{least}, 1], as normalise={normalise!r} has it, but got values from "
            f"{low.min():.3g} to {high.max():.3g}. Scale them with normalise='min-max'."
        )
    return (maps + 1) * 0.49 if normalise == "lime" else maps.clone()


@torch.no_grad()
def usable_maps(maps: Numbers) -> Tensor:
    """Tell which maps show anything: finite, and not the same everywhere."""
    maps = checked_maps(maps)
    flat = maps.flatten(1)
    return finite_rows(maps) & (flat.amax(1) > flat.amin(1))


@torch.no_grad()
def overlay_maps(images: Numbers, maps: Numbers, *, weight: float = 0.5, colours: str = "bwr") -> Tensor:
    """Lay maps (N, h, w) in [0, 1], in colours, over their images (N, 3, H, W): pictures in [0, 1] of 256 levels.

    Kazmierczak et al. (PASTA), Eq. 1, as their released code draws it: image and coloured map are averaged, the
    result is divided by its own largest value, so that it is as bright as can be, and truncated to 8 bits. Colours
    are those of matplotlib, with its rounding: value v in [0, 1] gets entry floor(256 v) of the table. An image that
    is black all over, with no share for the map, stays black.
    """
    check_range("weight", weight, 0, 1)
    images, maps = to_floats("images", images), checked_maps(maps)
    check_axes(images=(images, "N 3 H W"), maps=(maps, "N h w"))
    check_finite("maps", maps)
    return overlay_levels(images, maps, weight=weight, colours=colours).float().div_(255)


@torch.no_grad()
def overlay_levels(images: Tensor, maps: Tensor, *, weight: float = 0.5, colours: str = "bwr") -> Tensor:
    """Return `overlay_maps`, of what has been checked, as numbers of 8 bits, which takes a quarter of the memory."""
    maps = _resize_maps(images, maps)
    n, _, height, width = images.shape
    # Entry 256 is 1.0 itself, which gets the last colour.
    entries = (maps * N_COLOURS).int().clamp_(0, N_COLOURS - 1)
    # (N, 3, H, W), but in memory channel by channel.
    blended = _shares(colours, weight, images.device).index_select(1, entries.view(-1))
    blended = blended.view(3, n, height, width).transpose(0, 1)
    blended.add_(images.float(), alpha=weight)
    if blended.numel():
        brightest = blended.amax((1, 2, 3), keepdim=True)
        blended.mul_(_FULL / torch.where(brightest == 0, 1, brightest))
    return blended.to(torch.uint8, memory_format=torch.contiguous_format)


@torch.no_grad()
def masked_levels(images: Tensor, maps: Tensor) -> Tensor:
    """Multiply images by their maps, as numbers of 8 bits: what matters not is dark."""
    # Kazmierczak et al. (PASTA), Eq. 14, the alternative to `overlay_levels`.
    levels = images.float() * (_resize_maps(images, maps) * _FULL)[:, None]
    return levels.to(torch.uint8, memory_format=torch.contiguous_format)


@torch.no_grad()
def resize(pictures: Tensor, size: tuple[int, int]) -> Tensor:
    """Resize images or maps, bilinearly, smoothed before they shrink."""
    if tuple(pictures.shape[-2:]) == size:
        return pictures
    wide = pictures.to(torch.promote_types(pictures.dtype, torch.float32))
    if not len(wide):
        return wide.new_empty(0, wide.shape[1], *size)
    # Bilinear values lie between their neighbours but for rounding, which may carry them past 0 or 1.
    shrinks = size[0] < wide.shape[2] or size[1] < wide.shape[3]
    new = interpolate(wide, size, mode="bilinear", align_corners=False, antialias=shrinks)
    low, high = torch.aminmax(wide)
    return new.clamp_(low, high)


def to_levels(images: Tensor) -> Tensor:
    """Round images in [0, 1] to 8 bits."""
    return (images.float() * 255).round_().clamp_(0, 255).to(torch.uint8)


def resized_levels(levels: Tensor, size: tuple[int, int], interpolation: str = "bicubic") -> Tensor:
    """Resize numbers of 8 bits (N, C, H, W) as Pillow does; floating, with whole values, where not on the CPU."""
    if tuple(levels.shape[-2:]) == size:
        return levels
    if not len(levels):
        return levels.new_empty(0, levels.shape[1], *size)
    if levels.device.type != "cpu":
        return _two_passes(levels, size, interpolation)
    # Torch has a kernel for bytes there that does as Pillow, several times faster than with floats.
    return interpolate(levels, size, mode=interpolation, antialias=True)


def _two_passes(levels: Tensor, size: tuple[int, int], interpolation: str) -> Tensor:
    levels = levels.float()
    # The first pass is rounded to 8 bits, and what overshoots is cut off, before the second sees it.
    for step in ((levels.shape[-2], size[1]), size):
        if tuple(levels.shape[-2:]) != step:
            levels = interpolate(levels, step, mode=interpolation, antialias=True)
            # Halves go up, as in Pillow; a hair more, for they are not exact.
            levels = levels.add_(0.5 + 1e-4).floor_().clamp_(0, 255)
    return levels


def _resize_maps(images: Tensor, maps: Tensor) -> Tensor:
    """Return float32 maps in the size of the images, on their device."""
    size = (images.shape[2], images.shape[3])
    return resize(maps.to(images.device).float()[:, None], size)[:, 0]
