"""Whether a place lies among the largest values of a map."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from captum_concepts._support.constraints import ImageSize, Items, Number, Reals, check_arguments
from quantus_concepts.functional.upsampling import MAPS, Resizer, prepared_maps

#: Constraints of places on maps, and of the sizes of the region.
_POINTS = Reals("B, Q, 2", filled=True, remedy="Give NaN where nothing is visible.")
ALPHAS = Items(Number(0, 12, open_low=True), "sizes of the region", least=1)

# Pixels of upsampled maps held at a time: on a CPU as many as each thread's own cache holds twice, which is eight times
# as fast as memory, and enough for threads to be worth waking.
_CHUNK_OF_THREAD = 2**17
_CHUNK_ON_ACCELERATOR = 2**25


class _Places(NamedTuple):
    """Places as pixels of the image, each (B, Q)."""

    x: Tensor
    y: Tensor
    visible: Tensor


@check_arguments(maps=MAPS, points=_POINTS, size=ImageSize(), alphas=ALPHAS)
@torch.no_grad()
def point_hits(maps: Tensor, points: Tensor, size: tuple[int, int], alphas: Sequence[float] = (1.0,)) -> Tensor:
    """Tell how far places lie in the most active region of upsampled maps, exactly and fairly under ties.

    The region Omega of Aysel et al. (2025), section 4.4.2: the n = alpha M1 M2 / 12 pixels of largest value, n
    not rounded. With G pixels of larger value than the one at the place and T of the same value, itself
    included, the hit is clip((n - G) / T, 0, 1): 1 inside, 0 outside, a share where the border of the region runs
    through a plateau. So a constant map scores exactly alpha / 12 wherever the place is. The paper does not say
    how ties are broken.

    Parameters
    ----------
    maps : Tensor
        (B, h, w), of any resolution; resized as by `upsample`, a few at a time.
    points : Tensor
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
    TypeError
        If `maps` is not a tensor of a floating-point dtype, or `points` not a tensor.
    ValueError
        If a shape is wrong, a place lies outside the image, or an alpha is out of range.
    """
    check_places(points, size, ("map", "place"))
    return hits_of_places(maps, points, size, alphas)


def hits_of_places(maps: Tensor, points: Tensor, size: tuple[int, int], alphas: Sequence[float]) -> Tensor:
    """Do what `point_hits` does, of places that were checked; nothing waits for the device."""
    maps, places = prepared_maps(maps, size), _places(maps, points, size)
    resize = Resizer(maps, size)
    pixel = places.y * size[1] + places.x
    hidden = ~places.visible
    # What is done for each chunk is no more than what takes room: maps are small, and calls are many.
    n = size[0] * size[1]
    larger, same = maps.new_empty(2, len(maps), dtype=torch.float32 if n <= 2**24 else torch.float64)
    for rows, out, work in chunks(maps, size):
        upsampled = resize(maps[rows], out, work)
        # Read where it will be compared: computed a second time, it might differ in the last bit.
        values = upsampled.flatten(1).gather(1, pixel[rows])
        # Of several places the one of largest value has the best hit, whatever the size of the region.
        best = values.masked_fill_(hidden[rows], -torch.inf).amax(1)[:, None, None]
        # Comparing into a floating-point array and summing it is several times faster than counting bools.
        torch.sum(torch.gt(upsampled, best, out=work), (1, 2), dtype=larger.dtype, out=larger[rows])
        torch.sum(torch.eq(upsampled, best, out=work), (1, 2), dtype=same.dtype, out=same[rows])
    wanted = n * torch.tensor(alphas, device=maps.device, dtype=torch.float64) / 12
    hits = ((wanted - larger.double()[:, None]) / same.double()[:, None]).clamp(0, 1)
    # A place's own value is none of the map's where that is NaN: by numbers too large to be interpolated.
    defined = places.visible.any(1) & maps.isfinite().flatten(1).all(1) & (same > 0)
    return hits.masked_fill(~defined[:, None], torch.nan).to(maps.dtype)


@check_arguments(maps=MAPS, points=_POINTS, size=ImageSize(), threshold=Number())
@torch.no_grad()
def threshold_hits(maps: Tensor, points: Tensor, size: tuple[int, int], threshold: float) -> Tensor:
    """Tell whether upsampled maps reach a threshold at a place, the paper's other region (section 3.4).

    Parameters
    ----------
    maps : Tensor
        (B, h, w), as in `point_hits`.
    points : Tensor
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
    TypeError
        If `maps` is not a tensor of a floating-point dtype, or `points` not a tensor.
    ValueError
        If a shape is wrong, a place lies outside the image, or `threshold` is NaN.
    """
    check_places(points, size, ("map", "place"))
    return threshold_hits_of_places(maps, points, size, threshold)


def threshold_hits_of_places(maps: Tensor, points: Tensor, size: tuple[int, int], threshold: float) -> Tensor:
    """Do what `threshold_hits` does, of places that were checked; nothing waits for the device."""
    maps, places = prepared_maps(maps, size), _places(maps, points, size)
    values = Resizer(maps, size).at(maps, places.x, places.y)
    best = _best_of(values, places.visible, maps)
    return (best >= threshold).to(best.dtype).masked_fill(best.isnan(), torch.nan)


def _places(maps: Tensor, points: Tensor, size: tuple[int, int]) -> _Places:
    """Return the pixels of points, on the device of the maps."""
    points = points.to(maps.device)
    nearest = torch.floor(points.nan_to_num(0.0, 0.0, 0.0) + 0.5)
    x = nearest[..., 0].clamp(0, size[1] - 1).long()
    y = nearest[..., 1].clamp(0, size[0] - 1).long()
    return _Places(x, y, points.isfinite().all(2))


def check_places(points: Tensor, size: tuple[int, int], axes: Sequence[str]) -> None:
    """Raise for a place outside the image, named by its index in axes of these names."""
    limits = torch.tensor([size[1], size[0]], dtype=points.dtype, device=points.device)
    outside = ((points < -1) | (points > limits)).any(-1) & ~points.isnan().any(-1)
    if not outside.any():
        return
    first = outside.nonzero()[0].tolist()
    x, y = points[tuple(first)].tolist()
    swapped = " It would be inside as (y, x): swap the two." if 0 <= y < size[1] and 0 <= x < size[0] else ""
    raise ValueError(
        f"Expected argument `points` to lie in the images, of (M1, M2) = {size} pixels, but {int(outside.sum())} of "
        f"them are outside, the first at {', '.join(f'{axis} {i}' for axis, i in zip(axes, first, strict=False))} with "
        f"(x, y) = ({x:g}, {y:g}).{swapped} Give (x, y) in pixels of the images passed, not of the photographs they "
        "were made from, and NaN where nothing is visible."
    )


def _best_of(values: Tensor, usable: Tensor, maps: Tensor) -> Tensor:
    """Return the largest usable value (B,) of (B, Q); NaN where there is none or the map is not finite."""
    best = values.masked_fill(~usable, -torch.inf).amax(1)
    defined = usable.any(1) & maps.isfinite().flatten(1).all(1)
    return best.masked_fill(~defined, torch.nan)


def chunks(maps: Tensor, size: tuple[int, int]) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Yield the rows of one chunk of maps after another, and two arrays of its size to work in."""
    pixels = _CHUNK_OF_THREAD * torch.get_num_threads() if maps.device.type == "cpu" else _CHUNK_ON_ACCELERATOR
    length = max(1, min(len(maps), pixels // (size[0] * size[1])))
    # Allocated once: fresh memory for each chunk costs more than the arithmetic.
    out, work = maps.new_empty(2, length, *size)
    for start in range(0, len(maps), length):
        stop = min(start + length, len(maps))
        yield slice(start, stop), out[: stop - start], work[: stop - start]
