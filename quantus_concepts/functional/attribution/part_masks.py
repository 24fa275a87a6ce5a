"""Marked pixels of a part: their centres, their share of a map's most active region, and how well a map covers them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from scipy import ndimage
from torch import Tensor

from captum_concepts.support.checks import check_axes, to_array, to_masks
from captum_concepts.support.running import widest_float
from captum_concepts.texts import in_one_line
from quantus_concepts.functional.arguments import Numbers, as_tensor, check_zero_one
from quantus_concepts.functional.attribution.regions import checked_alphas, checked_threshold, chunks
from quantus_concepts.functional.attribution.upsampling import Resizer, checked_maps, prepared_maps

# Pixels that touch at a corner are of one part: thin parts that run aslant would fall into many.
_TOUCHING = np.ones((3, 3), dtype=bool)


def mask_centres(masks: Numbers) -> Tensor:
    """Return the places that stand for masks in `point_hits`: of each connected part its middle pixel.

    The middle is the marked pixel nearest the centroid of the connected part, the first in reading order of several,
    so that it lies on the part also where that is bent. That *any* marked pixel lies in the most active region says
    more of the grain of a map than of its place: white noise reaches .83 at alpha = 1 on the part masks of painted
    birds, and 1 from alpha = 3.

    Parameters
    ----------
    masks : array_like
        (B, M1, M2) of 0 and 1, on any device; the centres are found on the CPU.

    Returns
    -------
    Tensor
        (B, Q, 2) of float32 on the CPU: (x, y) in pixels of the mask, NaN past a mask's own number of connected parts.
        Q is the largest such number, at least 1. Pixels that share a corner are connected.

    Raises
    ------
    ValueError
        If the shape is another, or an entry is neither 0 nor 1.

    Examples
    --------
    >>> import torch
    >>> from quantus_concepts.functional import mask_centres
    >>> masks = torch.zeros(1, 8, 8)
    >>> masks[0, 2:5, 3:6] = 1
    >>> mask_centres(masks).tolist()  # x and y
    [[[4.0, 3.0]]]
    """
    check_axes(masks=(to_array("masks", masks), "B M1 M2"))
    by_mask = [_middles(mask) for mask in to_masks("masks", masks)[:, 0]]
    centres = np.full((len(by_mask), max([1, *map(len, by_mask)]), 2), np.nan, dtype=np.float32)
    for row, middles in zip(centres, by_mask, strict=True):
        row[: len(middles)] = middles
    return torch.from_numpy(centres)


def _middles(mask: np.ndarray) -> np.ndarray:
    labels, count = ndimage.label(mask, _TOUCHING)
    y, x = np.nonzero(labels)
    part = labels[y, x] - 1
    size = np.bincount(part, minlength=count)
    away = (x - (np.bincount(part, x, count) / size)[part]) ** 2 + (y - (np.bincount(part, y, count) / size)[part]) ** 2
    # Stable, so that of pixels equally near the first in reading order comes first.
    order = np.lexsort((away, part))
    first = order[np.searchsorted(part[order], np.arange(count))]
    return np.stack([x[first], y[first]], axis=1)


@torch.no_grad()
def mask_shares(maps: Numbers, masks: Numbers, alphas: Sequence[float] = (1.0,)) -> Tensor:
    """Tell which share of the most active region of maps is marked, fairly under ties.

    The region is that of `point_hits`: n = alpha M1 M2 / 12 pixels, n not rounded. Pixels of equal value at its border
    count by the share of them that belongs to it. An uninformative map, such as a constant one, scores the share of the
    image that is marked.

    Parameters
    ----------
    maps : array_like
        (B, h, w), resized to the masks as by `upsample`.
    masks : array_like
        (B, M1, M2) of bool, or of 0 and 1: the annotated pixels.
    alphas : sequence of float
        As in `point_hits`.

    Returns
    -------
    Tensor
        (B, len(alphas)) in [0, 1], of the dtype of `maps` (float32 for narrower ones); NaN where nothing is marked or
        the map is not finite.

    Raises
    ------
    ValueError
        If a shape is wrong or empty, an entry is neither 0 nor 1, or an alpha is out of range.

    Examples
    --------
    >>> import torch
    >>> from quantus_concepts.functional import mask_shares
    >>> maps = torch.zeros(1, 12, 12)
    >>> maps[0, :, 0] = 1  # the first column, a twelfth of the image
    >>> masks = torch.zeros(1, 12, 12, dtype=torch.bool)
    >>> masks[0, :6] = True
    >>> mask_shares(maps, masks, alphas=(1, 12))
    tensor([[0.5000, 0.5000]])
    """
    alphas = checked_alphas(alphas)
    maps, masks, size = _maps_and_masks(maps, masks)
    resize = Resizer(maps, size)
    n_pixels, exact = size[0] * size[1], widest_float(maps.device)
    shares = maps.new_empty(len(maps), len(alphas))
    for rows, out, work in chunks(maps, size):
        values, marked = resize(maps[rows], out, work).flatten(1), masks[rows].flatten(1)
        for column, alpha in enumerate(alphas):
            n = alpha * n_pixels / 12
            border = values.kthvalue(n_pixels - min(math.ceil(n), n_pixels) + 1, dim=1, keepdim=True).values
            larger, same = values > border, values == border
            tied = (n - larger.sum(1).to(exact)) / same.sum(1)
            inside = (larger & marked).sum(1) + tied * (same & marked).sum(1)
            shares[rows, column] = (inside / n).clamp(0, 1).to(shares.dtype)
    return shares.masked_fill(~_is_defined(maps, masks)[:, None], torch.nan)


@torch.no_grad()
def mask_threshold_shares(maps: Numbers, masks: Numbers, threshold: float) -> Tensor:
    """Tell which share of the pixels where maps reach a threshold is marked.

    Parameters
    ----------
    maps : array_like
        (B, h, w), as in `mask_shares`.
    masks : array_like
        (B, M1, M2) of bool, or of 0 and 1: the annotated pixels.
    threshold : float
        In units of the maps; a value equal to it is in the region.

    Returns
    -------
    Tensor
        (B,) in [0, 1]; NaN where nothing is marked, no pixel reaches the threshold, or the map is not finite.

    Raises
    ------
    ValueError
        If a shape is wrong or empty, an entry is neither 0 nor 1, or `threshold` is NaN.

    Examples
    --------
    >>> import torch
    >>> from quantus_concepts.functional import mask_threshold_shares
    >>> maps = torch.tensor([[[0.9, 0.5], [0.5, 0.1]]])
    >>> masks = torch.tensor([[[True, True], [False, False]]])
    >>> mask_threshold_shares(maps, masks, threshold=0.5)
    tensor([0.6667])
    """
    checked_threshold(threshold)
    maps, masks, size = _maps_and_masks(maps, masks)
    resize = Resizer(maps, size)
    shares = maps.new_empty(len(maps))
    for rows, out, work in chunks(maps, size):
        reached = resize(maps[rows], out, work) >= threshold
        inside = (reached & masks[rows]).sum((1, 2)).to(widest_float(maps.device))
        shares[rows] = (inside / reached.sum((1, 2))).to(shares.dtype)
    return shares.masked_fill(~_is_defined(maps, masks), torch.nan)


@in_one_line
class RegionScores(NamedTuple):
    """How well maps cover marked regions, each (B,) in [0, 1].

    Attributes
    ----------
    iou : Tensor
        Intersection over union of the region with as many pixels of largest value.
    energy : Tensor
        Share of the map's sum inside the region.
    hit : Tensor
        Whether the pixel of largest value lies in the region; of several, the share of them.
    """

    iou: Tensor
    energy: Tensor
    hit: Tensor


@torch.no_grad()
def region_scores(maps: Numbers, masks: Numbers) -> RegionScores:
    """Compare maps with marked regions: intersection over union, energy inside, and pointing game.

    Of a map its smallest value is subtracted, so that a constant added to it changes nothing; pixels of the smallest
    value name nothing. *IoU*: the pixels that the map names, as many as are marked, with all that have the same value
    as the last of them, against those that are marked: no threshold is chosen. *Energy* is the energy-based pointing
    game of Score-CAM (Wang et al. 2020), *hit* the pointing game (Zhang et al. 2018). A map that is the same everywhere
    scores the share of the image that is marked in all three, and so does white noise on average in energy and hit; its
    IoU is about a / (2 - a) for a marked share a.

    Parameters
    ----------
    maps : array_like
        (B, h, w), resized to the masks as by `upsample`.
    masks : array_like
        (B, M1, M2) of bool, or of 0 and 1: the region of each map.

    Returns
    -------
    RegionScores
        Of the dtype of `maps` (float32 for narrower ones); NaN where nothing is marked or the map is not finite.

    Raises
    ------
    ValueError
        If a shape is wrong or empty, or an entry is neither 0 nor 1.

    Examples
    --------
    >>> import torch
    >>> from quantus_concepts.functional import region_scores
    >>> maps = torch.tensor([[[4.0, 2.0], [2.0, 0.0]]])
    >>> masks = torch.tensor([[[1, 0], [1, 0]]])
    >>> scores = region_scores(maps, masks)  # two pixels have the value of the second
    >>> scores.iou, scores.energy, scores.hit
    (tensor([0.6667]), tensor([0.7500]), tensor([1.]))
    """
    maps, masks, size = _maps_and_masks(maps, masks)
    resize, exact = Resizer(maps, size), widest_float(maps.device)
    found = maps.new_empty(3, len(maps))
    for rows, out, work in chunks(maps, size):
        values, marked = resize(maps[rows], out, work).flatten(1), masks[rows].flatten(1)
        n_marked = marked.sum(1, keepdim=True).clamp(min=1)
        values = values - values.amin(1, keepdim=True)
        # A map that is the same everywhere names every pixel alike.
        values = values.masked_fill(~values.any(1, keepdim=True), 1)
        last = values.sort(1, descending=True).values.gather(1, n_marked - 1)
        named, largest = (values >= last) & (values > 0), values == values.amax(1, keepdim=True)
        inside = marked.to(exact)
        found[0, rows] = ((named & marked).sum(1).to(exact) / (named | marked).sum(1)).to(found.dtype)
        found[1, rows] = ((values.to(exact) * inside).sum(1) / values.sum(1, dtype=exact)).to(found.dtype)
        found[2, rows] = ((largest & marked).sum(1).to(exact) / largest.sum(1)).to(found.dtype)
    return RegionScores(*found.masked_fill(~_is_defined(maps, masks), torch.nan))


def _maps_and_masks(maps: Numbers, masks: Numbers) -> tuple[Tensor, Tensor, tuple[int, int]]:
    maps, masks = checked_maps(maps), as_tensor("masks", masks)
    check_axes(maps=(maps, "B h w"), masks=(masks, "B M1 M2"))
    check_zero_one("masks", masks)
    size = (int(masks.shape[1]), int(masks.shape[2]))
    maps = prepared_maps(maps, size)
    return maps, masks.to(maps.device, torch.bool), size


def _is_defined(maps: Tensor, masks: Tensor) -> Tensor:
    return masks.flatten(1).any(1) & maps.isfinite().flatten(1).all(1)
