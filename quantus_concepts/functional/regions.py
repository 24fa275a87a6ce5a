"""Maps at the size of the image, and whether a place lies among their largest values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from quantus_concepts.checks import check_range, check_shape

# Upsampled values held at a time: on a CPU a chunk should stay in the second-level cache.
_CHUNK_ON_CPU = 400_000
_CHUNK_ON_ACCELERATOR = 2**26


def upsample(maps: Tensor, size: tuple[int, int]) -> Tensor:
    """Resize maps bilinearly (``align_corners=False``), as two small matrix products.

    Parameters
    ----------
    maps : Tensor
        (B, h, w).
    size : tuple of int
        (M1, M2), height and width of the image.

    Returns
    -------
    Tensor
        (B, M1, M2). The smallest value of a map is kept exactly, so a constant map stays constant.

    Raises
    ------
    ValueError
        If `maps` is not (B, h, w).
    """
    check_shape("maps", maps, ("B", "h", "w"), (None, None, None))
    low = maps.amin((1, 2), keepdim=True)
    return _resize(maps - low, *_weights(maps, size)) + low


def point_hits(
    maps: Tensor, points: Tensor, size: tuple[int, int], alphas: Sequence[float] = (1.0,)
) -> Tensor:
    """Tell how far places lie in the most active region of upsampled maps, exactly and fairly under ties.

    With n = alpha M1 M2 / 12 pixels in the region (not rounded), G pixels of larger value than the one at the
    point and T of the same value, the hit is clip((n - G) / T, 0, 1): 1 inside, 0 outside, a share where the
    border of the region runs through a plateau.

    Parameters
    ----------
    maps : Tensor
        (B, h, w), any device and resolution.
    points : Tensor
        (B, Q, 2): up to Q places (x, y) in pixels of the image, NaN where not visible; of several the best
        counts. A place is rounded to the nearest pixel and clipped to the image.
    size : tuple of int
        (M1, M2), height and width of the image.
    alphas : sequence of float
        Sizes of the region in twelfths of the image, each in (0, 12].

    Returns
    -------
    Tensor
        (B, len(alphas)) in [0, 1]; NaN where no place is visible or the map is not finite.

    Raises
    ------
    ValueError
        If a shape is wrong or an alpha out of range.
    """
    shares = _shares(alphas, maps)
    hits = maps.new_empty(len(maps), len(shares))
    for rows, upsampled, best in _upsampled_with_best(maps, points, size):
        hits[rows] = _hits(upsampled, best, shares)
    return hits


def threshold_hits(maps: Tensor, points: Tensor, size: tuple[int, int], threshold: float) -> Tensor:
    """Tell whether upsampled maps reach a threshold at a place.

    Parameters
    ----------
    maps : Tensor
        (B, h, w).
    points : Tensor
        (B, Q, 2), as in `point_hits`.
    size : tuple of int
        (M1, M2).
    threshold : float
        In units of the maps.

    Returns
    -------
    Tensor
        (B,) of 0, 1 and NaN.
    """
    hits = maps.new_empty(len(maps))
    low = maps.amin((1, 2))
    for rows, _, best in _upsampled_with_best(maps, points, size):
        value = best + low[rows]
        hits[rows] = (value >= threshold).to(maps.dtype).masked_fill(value.isnan(), torch.nan)
    return hits


def mask_hits(maps: Tensor, masks: Tensor, alphas: Sequence[float] = (1.0,)) -> Tensor:
    """Tell how far the marked pixel of largest value lies in the most active region of a map.

    Parameters
    ----------
    maps : Tensor
        (B, M1, M2), at the size of the image.
    masks : Tensor
        (B, M1, M2) of bool: the annotated pixels.
    alphas : sequence of float
        As in `point_hits`.

    Returns
    -------
    Tensor
        (B, len(alphas)) in [0, 1]; NaN where nothing is marked or the map is not finite.

    Raises
    ------
    ValueError
        If a shape is wrong or an alpha out of range.
    """
    shares = _shares(alphas, maps)
    return _hits(maps, _best_marked(maps, masks), shares)


def mask_threshold_hits(maps: Tensor, masks: Tensor, threshold: float) -> Tensor:
    """Tell whether a map reaches a threshold at a marked pixel.

    Parameters
    ----------
    maps : Tensor
        (B, M1, M2).
    masks : Tensor
        (B, M1, M2) of bool.
    threshold : float
        In units of the maps.

    Returns
    -------
    Tensor
        (B,) of 0, 1 and NaN.
    """
    best = _best_marked(maps, masks)
    return (best >= threshold).to(maps.dtype).masked_fill(best.isnan(), torch.nan)


def _shares(alphas: Sequence[float], maps: Tensor) -> Tensor:
    for alpha in alphas:
        check_range("alpha", alpha, 0, 12, open_low=True)
    if not maps.is_floating_point():
        raise TypeError(f"Expected argument `maps` to be floating point but got {maps.dtype}.")
    return torch.tensor(list(alphas), device=maps.device, dtype=torch.float64) / 12


def _weights(maps: Tensor, size: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Matrices (M1, h) and (M2, w) that interpolate columns and rows; torch's own, applied to unit vectors."""

    def along(source: int, target: int) -> Tensor:
        unit = torch.eye(source, device=maps.device, dtype=maps.dtype)[None]
        return F.interpolate(unit, size=target, mode="linear", align_corners=False)[0].T.contiguous()

    return along(maps.shape[1], size[0]), along(maps.shape[2], size[1])


def _resize(maps: Tensor, vertical: Tensor, horizontal: Tensor) -> Tensor:
    return vertical @ (maps @ horizontal.T)


def _upsampled_with_best(
    maps: Tensor, points: Tensor, size: tuple[int, int]
) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Yield chunks of upsampled maps less their minimum, each with the largest value at its places."""
    check_shape("maps", maps, ("B", "h", "w"), (None, None, None))
    check_shape("points", points, ("B", "Q", "2"), (len(maps), None, 2))
    height, width = size
    visible = points.isfinite().all(2)
    nearest = torch.floor(points.nan_to_num(0.0, 0.0, 0.0) + 0.5)
    x = nearest[..., 0].clamp(0, width - 1).long()
    y = nearest[..., 1].clamp(0, height - 1).long()
    # Interpolation weights do not sum to one exactly; above a floor of zero, plateaus stay ties all the same.
    above = maps - maps.amin((1, 2), keepdim=True)
    weights = _weights(maps, size)
    at_a_time = max(
        1, (_CHUNK_ON_CPU if maps.device.type == "cpu" else _CHUNK_ON_ACCELERATOR) // (height * width)
    )
    for start in range(0, len(maps), at_a_time):
        rows = slice(start, min(start + at_a_time, len(maps)))
        upsampled = _resize(above[rows], *weights)
        values = upsampled.flatten(1).gather(1, y[rows] * width + x[rows])
        best = values.masked_fill(~visible[rows], -torch.inf).amax(1)
        yield rows, upsampled, best.masked_fill(~visible[rows].any(1), torch.nan)


def _best_marked(maps: Tensor, masks: Tensor) -> Tensor:
    check_shape("maps", maps, ("B", "M1", "M2"), (None, None, None))
    check_shape("masks", masks, ("B", "M1", "M2"), tuple(maps.shape))
    best = maps.masked_fill(~masks.to(maps.device, torch.bool), -torch.inf).amax((1, 2))
    undefined = best.isinf() | ~maps.isfinite().all(2).all(1)
    return best.masked_fill(undefined, torch.nan)


def _hits(maps: Tensor, best: Tensor, shares: Tensor) -> Tensor:
    reference = best[:, None, None]
    # Comparing into a floating-point buffer and summing it is ten times faster than counting bools.
    buffer = torch.empty_like(maps, dtype=torch.float32)
    total = torch.float32 if maps[0].numel() <= 2**24 else torch.float64
    larger = torch.gt(maps, reference, out=buffer).flatten(1).sum(1, dtype=total).double()
    same = torch.eq(maps, reference, out=buffer).flatten(1).sum(1, dtype=total).double()
    n = shares * maps[0].numel()
    hits = ((n - larger[:, None]) / same[:, None]).clamp(0, 1)
    return hits.masked_fill(best.isnan()[:, None], torch.nan).to(maps.dtype)
