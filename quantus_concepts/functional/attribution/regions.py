"""Hits: whether a place lies among the largest values of a map."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from captum_concepts.support.checks import check_axes, check_range, check_size, to_numpy
from captum_concepts.support.running import warn_user, widest_float
from quantus_concepts.functional.arguments import Numbers, as_tensor, check_filled
from quantus_concepts.functional.attribution.normalisation import finite_rows
from quantus_concepts.functional.attribution.upsampling import Resizer, checked_maps, prepared_maps

# Pixels held at a time, and of each thread's maps on a CPU: its own cache, eight times as fast as memory, holds twice
# as many.
_CHUNK = 2**25
_CHUNK_OF_THREAD = 2**17


@torch.no_grad()
def point_hits(maps: Numbers, points: Numbers, size: tuple[int, int], alphas: Sequence[float] = (1.0,)) -> Tensor:
    """Tell how far places lie in the most active region of upsampled maps, exactly and fairly under ties.

    The region Omega of Aysel et al. (2025), section 4.4.2: the n = alpha M1 M2 / 12 pixels of largest value, n
    not rounded. With G pixels of larger value than the one at the place and T of the same value, itself
    included, the hit is clip((n - G) / T, 0, 1): 1 inside, 0 outside, a share where the border of the region runs
    through a plateau. So a constant map scores exactly alpha / 12 wherever the place is. The paper does not say
    how ties are broken.

    Parameters
    ----------
    maps : array_like
        (B, h, w), of any resolution; resized as by `upsample`, a few at a time.
    points : array_like
        (B, Q, 2): up to Q places (x, y) in pixels of the image, (0, 0) the centre of the first, NaN where not visible;
        of several the best counts. A place is rounded to the nearest pixel, floor(x + 0.5); one that is up to half a
        pixel beyond the border of the image, x from -1 to M2 and y from -1 to M1, counts as on it.
    size : tuple of int
        (M1, M2), height and width of the image in pixels.
    alphas : sequence of float
        Sizes of the region in twelfths of the image, each in (0, 12]; the paper's are 1, 3 and 6.

    Returns
    -------
    Tensor
        (B, len(alphas)) in [0, 1], of the dtype of `maps` (float32 for narrower ones); NaN where no place is
        visible or the map is not finite.

    Raises
    ------
    ValueError
        If a shape is wrong or empty, a place lies outside the image, or there is no alpha or one out of range.

    Examples
    --------
    >>> import torch
    >>> from quantus_concepts.functional import point_hits
    >>> maps = torch.zeros(1, 12, 12)
    >>> maps[0, :, 0] = 1  # the first column, a twelfth of the image
    >>> point_hits(maps, torch.tensor([[[0.0, 5.0]]]), size=(12, 12))
    tensor([[1.]])
    >>> point_hits(torch.ones(1, 12, 12), torch.tensor([[[0.0, 5.0]]]), size=(12, 12))  # chance
    tensor([[0.0833]])
    """
    pixels, size = _checked_pixels(points, size)
    return pixel_hits(maps, pixels[:, None], size, alphas)[:, 0]


def _checked_pixels(points: Numbers, size: tuple[int, int]) -> tuple[Tensor, tuple[int, int]]:
    """Return places (B, Q, 2) as pixels, and the size, or raise."""
    size, points = check_size("size", size), as_tensor("points", points)
    check_axes(points=(points, "B Q 2"))
    check_filled("points", points)
    check_places(points, size, ("map", "place"))
    return pixels_of(points, size), size


def checked_alphas(alphas: Sequence[float]) -> list[float]:
    """Return the sizes of the region, or raise."""
    for alpha in alphas:
        check_range("alphas", alpha, 0, 12, open_low=True)
    if not len(alphas):
        raise ValueError("Expected argument `alphas` to hold at least one size of the region but it is empty.")
    return list(alphas)


def checked_threshold(threshold: float) -> None:
    """Raise for NaN, which no map reaches."""
    check_range("threshold", threshold, -math.inf, math.inf)


@torch.no_grad()
def pixel_hits(maps: Numbers, pixels: Numbers, size: tuple[int, int], alphas: Sequence[float]) -> Tensor:
    """Return the hits (B, P, A) of each map at several parts, whose places are pixels (B, P, Q) as of `pixels_of`.

    NaN where all places of a part are -1. Nothing waits for the device.
    """
    alphas, maps, pixels = checked_alphas(alphas), checked_maps(maps), as_tensor("pixels", pixels)
    check_axes(maps=(maps, "B h w"), pixels=(pixels, "B P Q"))
    maps, pixels = prepared_maps(maps, size), pixels.to(maps.device)
    resize = Resizer(maps, size)
    finite = finite_rows(maps)
    hidden = pixels < 0
    n_parts = [pixels.shape[1]] * len(maps)
    on_cpu = maps.device.type == "cpu"
    if on_cpu:
        # Parts without a place go last and are not counted. Elsewhere, looking for them would wait for the device.
        visible = ~hidden.all(2)
        order = visible.byte().argsort(dim=1, descending=True, stable=True)
        pixels, hidden = (array.take_along_dim(order[..., None], 1) for array in (pixels, hidden))
        # All maps of a chunk are counted at as many parts as one of them has.
        counted, by_parts = visible.sum(1).sort(stable=True)
        n_parts = counted.tolist()
        maps, pixels, hidden, finite = (array[by_parts] for array in (maps, pixels, hidden, finite))
    pixels = pixels.clamp(min=0)
    n = size[0] * size[1]
    # Both are exact; elsewhere than on a CPU a conversion is a launch, and every count is written.
    exact = widest_float(maps.device)
    dtype = torch.float32 if on_cpu and n <= 2**24 else exact
    larger, same = counts = (maps.new_zeros if on_cpu else maps.new_empty)(2, *pixels.shape[:2], dtype=dtype)
    for rows, out, work in chunks(maps, size, pixels.shape[1]):
        last = max(n_parts[rows])
        if not last:
            continue
        upsampled, work = resize(maps[rows], out, work[:, 0]), work[:, :last]
        # Read where it will be compared: computed a second time, it might differ in the last bit.
        values = upsampled.flatten(1).gather(1, pixels[rows, :last].flatten(1)).view(len(work), last, -1)
        values = values.masked_fill_(hidden[rows, :last], -torch.inf)
        # The place of largest value has the best hit, whatever the size of the region.
        best = (values.amax(2, keepdim=True) if values.shape[2] > 1 else values)[..., None]
        # Comparing into a floating-point array and summing it is several times faster than counting bools.
        for compare, count in ((torch.gt, larger), (torch.eq, same)):
            torch.sum(compare(upsampled[:, None], best, out=work), (2, 3), dtype=counts.dtype, out=count[rows, :last])
    n_larger, n_same = counts.to(exact)[..., None]
    hits = maps.new_empty(*pixels.shape[:2], len(alphas))
    torch.div(_region_sizes(n, tuple(alphas), maps.device, exact) - n_larger, n_same, out=hits).clamp_(0, 1)
    # Numbers too large to be interpolated give a NaN that equals no pixel.
    defined = finite[:, None] & (same > 0)
    hits = hits.masked_fill_(~defined[..., None], torch.nan)
    return hits[by_parts.argsort()].take_along_dim(order.argsort(1)[..., None], 1) if on_cpu else hits


# All batches have the same, and on an accelerator each transfer waits for all that was queued before.
@functools.lru_cache(maxsize=64)
def _region_sizes(n_pixels: int, alphas: tuple[float, ...], device: torch.device, dtype: torch.dtype) -> Tensor:
    """Return the number of pixels of each region."""
    return (n_pixels * torch.tensor(alphas, dtype=torch.float64) / 12).to(device, dtype)


@torch.no_grad()
def threshold_hits(maps: Numbers, points: Numbers, size: tuple[int, int], threshold: float) -> Tensor:
    """Tell whether upsampled maps reach a threshold at a place, the paper's other region (section 3.4).

    Parameters
    ----------
    maps : array_like
        (B, h, w), as in `point_hits`.
    points : array_like
        (B, Q, 2), as in `point_hits`.
    size : tuple of int
        (M1, M2), height and width of the image in pixels.
    threshold : float
        The paper's tau, in units of the maps; a value equal to it is in the region.

    Returns
    -------
    Tensor
        (B,) of 0 and 1; NaN where no place is visible or the map is not finite.

    Raises
    ------
    ValueError
        If a shape is wrong or empty, a place lies outside the image, or `threshold` is NaN.

    Examples
    --------
    >>> import torch
    >>> from quantus_concepts.functional import threshold_hits
    >>> maps = torch.tensor([[[0.9, 0.1], [0.1, 0.1]]])
    >>> threshold_hits(maps, torch.tensor([[[0.0, 0.0]]]), size=(2, 2), threshold=0.5)
    tensor([1.])
    """
    pixels, size = _checked_pixels(points, size)
    return pixel_threshold_hits(maps, pixels, size, threshold)


@torch.no_grad()
def pixel_threshold_hits(maps: Numbers, pixels: Numbers, size: tuple[int, int], threshold: float) -> Tensor:
    """Return `threshold_hits` at places that are pixels (B, Q) as of `pixels_of`; nothing waits for the device."""
    checked_threshold(threshold)
    maps, pixels = checked_maps(maps), as_tensor("pixels", pixels)
    check_axes(maps=(maps, "B h w"), pixels=(pixels, "B Q"))
    maps = prepared_maps(maps, size)
    pixels = pixels.to(maps.device)
    places = pixels.clamp(min=0)
    values = Resizer(maps, size).at(maps, places % size[1], places // size[1])
    best = values.masked_fill(pixels < 0, -torch.inf).amax(1)
    defined = (pixels >= 0).any(1) & finite_rows(maps)
    return (best >= threshold).to(best.dtype).masked_fill(~defined | best.isnan(), torch.nan)


def pixels_of(points: Numbers, size: tuple[int, int]) -> Tensor:
    """Return the pixels (...) of places (..., 2) on the CPU, numbered row by row; -1 where none is visible."""
    places = to_numpy(points)
    nearest = np.floor(np.nan_to_num(places, nan=0.0, posinf=0.0, neginf=0.0) + 0.5)
    x, y = (nearest[..., axis].clip(0, size[1 - axis] - 1).astype(np.int64) for axis in (0, 1))
    return torch.from_numpy(np.where(np.isfinite(places).all(-1), y * size[1] + x, -1))


def check_places(points: Numbers, size: tuple[int, int], axes: Sequence[str]) -> None:
    """Raise for a place outside the image, named by its index in axes of these names, or for shares of the image."""
    places = to_numpy(points)
    there = places[np.isfinite(places).all(-1)]
    # Places in pixels do not all lie in one pixel.
    if len(there) and min(size) > 2 and there.min() >= 0 and there.max() <= 1 and (there % 1 > 0).any():
        raise ValueError(
            f"Expected argument `points` to hold (x, y) in pixels of the images, of (M1, M2) = {size}, but all of "
            f"{len(there)} lie in [0, 1], {there[:2].tolist()} for instance, as shares of an image do. Multiply x by "
            f"{size[1]} and y by {size[0]}, and subtract 0.5: (0, 0) is the centre of the first pixel."
        )
    if (there == -1).all(-1).any() or (there == 0).all(-1).sum() > 1:
        warn_user(
            "Argument `points` holds places (-1, -1), or several (0, 0), which count as places at the corner of the "
            "image. If they mark parts that are not visible, put NaN in their place."
        )
    with np.errstate(invalid="ignore"):
        outside = ((places < -1) | (places > np.array(size)[::-1])).any(-1) & ~np.isnan(places).any(-1)
    if not outside.any():
        return
    first = tuple(np.argwhere(outside)[0].tolist())
    x, y = places[first].tolist()
    swapped = " It would be inside as (y, x): swap the two." if 0 <= y < size[1] and 0 <= x < size[0] else ""
    raise ValueError(
        f"Expected argument `points` to lie in the images, of (M1, M2) = {size} pixels, but {int(outside.sum())} of "
        f"them are outside, the first at {', '.join(f'{axis} {i}' for axis, i in zip(axes, first, strict=False))} with "
        f"(x, y) = ({x:g}, {y:g}).{swapped} Give (x, y) in pixels of the images passed, not of the photographs they "
        "were made from, and NaN where nothing is visible."
    )


def chunks(maps: Tensor, size: tuple[int, int], n_work: int = 0) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Yield the rows of one chunk of maps after another, and two arrays of its size to work in.

    With `n_work` the second has so many arrays for each map, along an axis of its own.
    """
    area = size[0] * size[1]
    most = _CHUNK // (area * max(n_work, 1))
    if maps.device.type == "cpu":
        # Whole maps for each thread, however many arrays there are: waking threads for less takes longer than the work.
        most = min(most, torch.get_num_threads() * max(1, _CHUNK_OF_THREAD // area))
    length = max(1, min(len(maps), most))
    # Allocated once: fresh memory for each chunk costs more than the arithmetic.
    out, work = maps.new_empty(length, *size), maps.new_empty(length, *([n_work] if n_work else []), *size)
    for start in range(0, len(maps), length):
        stop = min(start + length, len(maps))
        yield slice(start, stop), out[: stop - start], work[: stop - start]
