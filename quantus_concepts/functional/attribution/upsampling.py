"""Resizing of many maps to the size of the image, exact where maps are constant."""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from captum_concepts.support.checks import check_axes, check_size
from captum_concepts.support.running import at_least_float32, widest_float
from quantus_concepts.functional.arguments import Numbers, check_filled, to_floats


class Axis(NamedTuple):
    """Positions of the pixels of one image axis among the cells of the map."""

    lower: Tensor
    upper: Tensor
    weight: Tensor


class Resizer:
    """Resizes maps of one size to one image size."""

    # Interpolation is separable: first along x, where the maps are still few rows high, then along y. It is written
    # as ``a + w * (b - a)``, not as a product with weights that sum to one up to rounding only: pixels between
    # equal cells get exactly these cells' value, so that plateaus stay plateaus and ties stay ties. And unlike a
    # matrix product it is not rounded to TF32 or to the dtype of autocast.

    def __init__(self, maps: Tensor, size: tuple[int, int]) -> None:
        self.size = size
        self.identity = tuple(maps.shape[1:]) == size
        self.rows, self.columns = (
            _axis(cells, pixels, maps.device, maps.dtype) for cells, pixels in zip(maps.shape[1:], size, strict=True)
        )

    def __call__(self, maps: Tensor, out: Tensor, work: Tensor) -> Tensor:
        """Resize some of the maps."""
        if self.identity:
            return maps
        x = self.columns
        wide = torch.lerp(maps.index_select(2, x.lower), maps.index_select(2, x.upper), x.weight)
        torch.index_select(wide, 1, self.rows.lower, out=out)
        torch.index_select(wide, 1, self.rows.upper, out=work)
        return out.lerp_(work, self.rows.weight[:, None])

    def at(self, maps: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Values of the resized maps at some pixels only."""
        sample = torch.arange(len(maps), device=maps.device)[:, None]
        left, right, across = self.columns.lower[x], self.columns.upper[x], self.columns.weight[x]
        top, bottom, down = self.rows.lower[y], self.rows.upper[y], self.rows.weight[y]
        above = torch.lerp(maps[sample, top, left], maps[sample, top, right], across)
        below = torch.lerp(maps[sample, bottom, left], maps[sample, bottom, right], across)
        return torch.lerp(above, below, down)


# All batches have the same, and on an accelerator each transfer synchronises.
@functools.lru_cache(maxsize=64)
def _axis(length: int, target: int, device: torch.device, dtype: torch.dtype) -> Axis:
    """Return cells and weights along one axis, as ``align_corners=False`` has them."""
    # In float32 a position on a long axis is off in the fifth digit. Torch's own float32 result is, and by another
    # amount for each of its kernels, which it chooses by the number of threads.
    source = ((np.arange(target) + 0.5) * (length / target) - 0.5).clip(0)
    lower = np.floor(source).astype(np.int64).clip(max=length - 1)
    upper = (lower + 1).clip(max=length - 1)
    return Axis(
        torch.as_tensor(lower, device=device),
        torch.as_tensor(upper, device=device),
        torch.as_tensor(source - lower, dtype=dtype, device=device),
    )


@torch.no_grad()
def upsample(maps: Numbers, size: tuple[int, int]) -> Tensor:
    """Resize maps to the size of the image (the paper's F-bar, from F of Equation 2).

    Bilinear, as ``torch.nn.functional.interpolate(maps, size, mode="bilinear", align_corners=False)``. Along an axis
    on which the map is larger than the image its cells are averaged instead, as by ``adaptive_avg_pool2d``. Positions
    are computed in float64, so that float32 maps come out as torch's float64 to rounding. No gradient flows through.

    Parameters
    ----------
    maps : array_like
        (B, h, w), of a floating-point dtype.
    size : tuple of int
        (M1, M2), height and width of the image in pixels.

    Returns
    -------
    Tensor
        (B, M1, M2), of the dtype of `maps` (float32 for narrower ones).

    Raises
    ------
    ValueError
        If a shape is wrong or empty.

    Examples
    --------
    >>> import torch
    >>> from quantus_concepts.functional import upsample
    >>> upsample(torch.tensor([[[0.0, 1.0]]]), (1, 4))
    tensor([[[0.0000, 0.2500, 0.7500, 1.0000]]])
    """
    size = check_size("size", size)
    maps = prepared_maps(checked_maps(maps), size)
    out = maps.new_empty(len(maps), *size)
    return Resizer(maps, size)(maps, out, torch.empty_like(out))


def checked_maps(maps: Numbers) -> Tensor:
    """Return maps (B, h, w) as a floating-point tensor, or raise."""
    maps = to_floats("maps", maps)
    check_axes(maps=(maps, "B h w"))
    check_filled("maps", maps)
    return maps


def prepared_maps(maps: Tensor, size: tuple[int, int]) -> Tensor:
    """Return maps in float32 or wider, averaged down where they are larger than the image."""
    maps = at_least_float32(maps.detach())
    smaller = (min(maps.shape[1], size[0]), min(maps.shape[2], size[1]))
    if smaller == tuple(maps.shape[1:]) or not len(maps):
        return maps if len(maps) else maps.new_empty(0, *smaller)
    means = F.adaptive_avg_pool2d(maps.to(widest_float(maps.device)), smaller).to(maps.dtype)
    # Not past the window's own values: the mean of a plateau is the plateau, and ties stay ties.
    return means.clamp(-F.adaptive_max_pool2d(-maps, smaller), F.adaptive_max_pool2d(maps, smaller))
