"""CLM of several explanations and of its baselines, from one set of concept maps."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from captum_concepts.support.checks import to_numpy
from quantus_concepts.functional.attribution.normalisation import finite_rows
from quantus_concepts.functional.attribution.regions import pixel_hits, pixel_threshold_hits, pixels_of
from quantus_concepts.functional.concepts.clm import clm
from quantus_concepts.functional.concepts.part_specificity import PartHits, part_specificity
from quantus_concepts.functional.concepts.ranking import rank_concepts
from quantus_concepts.metrics.concepts import names as col
from quantus_concepts.metrics.host.batch import Batch
from quantus_concepts.metrics.host.model import check_concept_count, feature_norms
from quantus_concepts.metrics.host.observing import Observed, same


def first_with_part(importance: Tensor, parts: np.ndarray, top: int) -> Tensor:
    """Return the first concepts (..., top) that have a part (L,), by importances (..., L)."""
    return rank_concepts(importance, top, parts >= 0)


def concepts_by_part(parts: np.ndarray, n_parts: int) -> Tensor:
    """Return the number of concepts about each part, (P,)."""
    return torch.as_tensor(np.bincount(parts[parts >= 0], minlength=n_parts))


def chance_at_places(hidden: Tensor, alphas: Sequence[float]) -> Tensor:
    """Return (..., A): how often white noise hits the best of places (..., Q) that are not hidden; NaN for none."""
    count = (~hidden).sum(-1, keepdim=True)
    chance = 1 - (1 - torch.tensor([*alphas], dtype=torch.float64, device=hidden.device) / 12) ** count
    return chance.masked_fill(count == 0, torch.nan)


def hits_of_concepts(hits: Tensor, part: Tensor, parts: np.ndarray) -> PartHits:
    """Return the hits of maps about parts (B, ...), of their hits (B, ..., P, A) at every part; `parts` are (L,)."""
    counts = concepts_by_part(parts, hits.shape[-2])
    found = part_specificity(hits.flatten(0, -3), part.flatten(), counts)
    return PartHits(*(hits_of_maps.view(*part.shape, -1) for hits_of_maps in found))


#: Baselines of the same maps as those of the concepts have no part specificity.
NOT_SPECIFIC = (col.OTHER_IMAGE, col.OTHER_PARTS)


@dataclass(frozen=True, kw_only=True)
class Located(Observed):
    """Means of hits (n, R, tops, A) of E explanations and, after them, of baselines of the last one; in float32."""

    rows: tuple[str, ...] = same()
    tops: tuple[int, ...] = same()
    alphas: tuple[float, ...] = same()
    #: Part specificity, likewise, for its own tops; there are none where no metric asks for it.
    specific: Tensor | None
    specific_tops: tuple[int, ...] = same()
    means: Tensor
    #: Chances, likewise; None where parts have one place, and chance is the size of the region.
    chance: Tensor | None
    #: (n, E, T), whether the part of a concept is hidden; (n, E), the largest importance.
    hidden: Tensor
    norms: Tensor
    clusters: Tensor


def locate(
    batch: Batch,
    kinds: Sequence[str],
    tops: Sequence[int],
    alphas: Sequence[float],
    parts: np.ndarray,
    *,
    baselines: Sequence[str] = (),
    specific_tops: Sequence[int] = (),
    threshold: float | None = None,
) -> Located:
    """Return the hits of the maps of the first concepts by E kinds of importance; nothing waits for the device."""
    size, n, top, _ = batch.size, len(batch), max(tops), batch.features
    found = batch.importance(kinds, len(parts), "part_of_concept")
    importance = found.values
    check_concept_count("part_of_concept", "(L,)", parts, importance.shape[2])
    device = importance.device
    # (n, E, T): the concepts, and the parts that they are about.
    ranked = first_with_part(importance, parts, top).transpose(0, 1)
    part = torch.as_tensor(parts, device=device)[ranked]
    norms = found.norms.T
    points = to_numpy(batch.truth["points"])
    pixels = pixels_of(points, size).to(device)
    hidden = _at(pixels, part) < 0
    maps = batch.maps(ranked.flatten(1)).flatten(0, 1)
    # Maps (U,) of images, their parts, and where they come from. Explanations agree on many concepts: on a CPU each map
    # is looked at once; an accelerator would have to be waited for.
    image = torch.arange(n, device=device).repeat_interleave(len(kinds) * top)
    inverse = first = torch.arange(len(image), device=device)
    if device.type == "cpu":
        inverse = torch.unique(image * len(parts) + ranked.flatten(), return_inverse=True)[1]
        first = torch.empty(int(inverse.max()) + 1, dtype=torch.int64)
        first[inverse] = torch.arange(len(inverse))
    maps, image, part_of_map = maps[first], image[first], part.flatten()[first]
    finite = finite_rows(maps)

    def hits_at(maps: Tensor, pixels: Tensor, finite: Tensor | None = None) -> Tensor:
        return pixel_hits(maps, pixels, size, alphas, finite)

    own_place = pixels[image, part_of_map][:, None]
    # Hits (n, R, T, A) of each explanation, and behind them of baselines of the last one.
    if threshold is not None:
        hits = pixel_threshold_hits(maps, own_place[:, 0], size, threshold)[:, None, None]
    elif baselines or specific_tops:
        # A map is looked at in other parts only where that is asked for; each takes as long as its own part.
        asked, of_last = torch.zeros(2, len(kinds), top, dtype=torch.bool)
        asked[:, : max(specific_tops, default=0)] = True
        asked[-1] |= col.OTHER_PARTS in baselines
        of_last[-1] = True
        asks, of_last = (of_maps(each.to(device), inverse, len(maps), n) for each in (asked, of_last))
        is_own = torch.arange(pixels.shape[1], device=device) == part_of_map[:, None]
        everywhere = pixels[image].masked_fill(~(is_own | asks[:, None])[..., None], -1)
        # Last comes the place of its part in another image.
        elsewhere = (
            pixels_of(to_numpy(batch.truth["elsewhere"]), size).to(device) if col.OTHER_IMAGE in baselines else None
        )
        others = pixels[image, :0]
        if elsewhere is not None:
            others = elsewhere[image, part_of_map][:, None].masked_fill(~of_last[:, None, None], -1)
        hits = hits_at(maps, torch.cat([everywhere, others], 1), finite)
    else:
        hits = hits_at(maps, own_place, finite)
    # Hits have the shape (n, E, T, P, A).
    hits = hits[inverse].unflatten(0, (n, len(kinds), top))
    rows, specific = [hits[..., 0, :]], []
    last, fixed = part[:, -1:], [name for name in baselines if name not in NOT_SPECIFIC]
    if baselines or specific_tops:
        maps_of = [_fixed_hits(name, batch, maps, points, pixels, hits_at, alphas) for name in fixed]
        at_parts = [
            hits[..., : pixels.shape[1], :],
            *(each[:, None, None].expand(-1, 1, top, -1, -1) for each in maps_of),
        ]
        every = hits_of_concepts(torch.cat(at_parts, 1), torch.cat([part, *[last] * len(fixed)], 1), parts)
        rows, specific = [every.own[:, : len(kinds)]], [every.difference]
    several = pixels.shape[2] > 1 and threshold is None
    chances = [chance_at_places(hidden, alphas)] if several else []
    for name in baselines:
        if name == col.OTHER_IMAGE:
            rows.append(hits[:, -1:, :, -1])
            places = _at(cast(Tensor, elsewhere), last) < 0
        elif name == col.OTHER_PARTS:
            rows.append(every.others[:, len(kinds) - 1 : len(kinds)])
        else:
            place = len(kinds) + fixed.index(name)
            rows.append(every.own[:, place : place + 1])
            places = hidden[:, -1:]
        if several and name == col.OTHER_PARTS:
            of_parts = chance_at_places(pixels < 0, alphas)[:, None, None].expand(-1, 1, top, -1, -1)
            chances.append(hits_of_concepts(of_parts, last, parts).others)
        elif several:
            chances.append(chance_at_places(places, alphas))
    out = ~((norms > 0) & (norms < torch.inf))
    out = torch.cat([out, out[:, -1:].expand(-1, len(baselines))], 1)[..., None, None]

    def means(parts: list[Tensor], tops: Sequence[int]) -> Tensor:
        table = torch.cat(parts, 1)
        hits = table.masked_fill(out[:, : table.shape[1]], torch.nan)
        if [*tops] == [1]:
            return hits[:, :, :1]
        return clm(hits.movedim(-2, -1), tops).movedim(-1, -2)

    return Located(
        rows=(*kinds, *baselines),
        tops=tuple(tops),
        alphas=tuple(alphas),
        means=means(rows, tops).float(),
        specific=means(specific, specific_tops).float() if specific_tops else None,
        specific_tops=tuple(specific_tops),
        chance=means(chances, tops).float() if chances else None,
        hidden=hidden.all(-1),
        norms=norms,
        clusters=batch.clusters,
    )


def of_maps(pattern: Tensor, inverse: Tensor, n_maps: int, n: int) -> Tensor:
    """Return which maps (U,) a pattern (E, T), the same for n images, marks; `inverse` (n E T,) are its maps."""
    every = pattern.expand(n, -1, -1).flatten()
    if pattern.device.type != "cpu":
        return every  # each place has a map of its own
    found = torch.zeros(n_maps, dtype=torch.bool)
    found[inverse[every]] = True
    return found


def _fixed_hits(
    name: str, batch: Batch, maps: Tensor, points: np.ndarray, pixels: Tensor, hits_at: Any, alphas: Sequence[float]
) -> Tensor:
    """Return the hits (n, P, A) of one map for all concepts of an image, at every part."""
    if name == col.GAUSSIAN:
        return torch.as_tensor(_region(tuple(alphas)).hits(points, batch.size)).to(maps)
    norms = feature_norms(batch.model, batch.features)
    if norms is None or norms.shape[1:] != maps.shape[1:]:
        # Without such maps of its channels, a backbone has no baseline by norm.
        norms = maps.new_full((len(batch), *maps.shape[1:]), torch.nan)
    return hits_at(norms.to(maps), pixels)


def _at(places: Tensor, part: Tensor) -> Tensor:
    """Return the places (n, E, T, Q) of parts (n, E, T), of those (n, P, Q) of all parts of the images."""
    index = part.flatten(1)[..., None].expand(-1, -1, places.shape[2])
    return places.gather(1, index).view(*part.shape, -1)


@functools.lru_cache(maxsize=8)
def _region(alphas: tuple[float, ...]) -> GaussianRegion:
    return GaussianRegion(alphas)


class GaussianRegion:
    """Hits of points in the regions of one Gaussian map, centred, as wide as high relative to the image."""

    # The map is the same for all images, so each pixel's hit is looked up. Regions hold the nearest pixels whatever
    # the width of the Gaussian, which therefore needs none.

    def __init__(self, alphas: Sequence[float]) -> None:
        self._alphas = tuple(alphas)
        self._table = np.empty((0, len(self._alphas)))
        self._size = (0, 0)

    def hits(self, points: np.ndarray, size: tuple[int, int]) -> np.ndarray:
        """Return the hits (..., len(alphas)) of the best of the places (..., Q, 2) of parts; NaN for hidden ones."""
        if self._size != size:
            self._table, self._size = self._make(size), size
        pixels = pixels_of(points, size).numpy()
        best = np.where(pixels[..., None] < 0, -1.0, self._table[pixels]).max(-2)
        return np.where(best < 0, np.nan, best)

    def _make(self, size: tuple[int, int]) -> np.ndarray:
        """Return the hit (H W, len(alphas)) of every pixel: clip((n - G) / T, 0, 1), as `point_hits`."""
        height, width = size
        # Whole numbers, so that pixels at the same distance tie exactly.
        y = (2 * np.arange(height) - (height - 1)) * width
        x = (2 * np.arange(width) - (width - 1)) * height
        distance = (y[:, None] ** 2 + x[None, :] ** 2).ravel()
        _, place, ties = np.unique(distance, return_inverse=True, return_counts=True)
        nearer = ties.cumsum() - ties
        region_sizes = np.array(self._alphas) * (height * width) / 12
        shares = ((region_sizes - nearer[:, None]) / ties[:, None]).clip(0, 1)
        return shares[place]
