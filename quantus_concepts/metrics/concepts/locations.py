"""CLM of several explanations and of its baselines, from one set of concept maps."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from captum_concepts.support.checks import to_numpy
from captum_concepts.support.running import widest_float
from quantus_concepts.functional.attribution.regions import pixel_hits, pixel_threshold_hits, pixels_of
from quantus_concepts.functional.concepts.clm import clm
from quantus_concepts.functional.concepts.part_specificity import PartHits, part_specificity
from quantus_concepts.functional.concepts.ranking import rank_concepts
from quantus_concepts.metrics.concepts import names as col
from quantus_concepts.metrics.host.looks import Looking
from quantus_concepts.metrics.host.model import check_concept_count, feature_norms


def first_with_part(importance: Tensor, parts: np.ndarray, top: int) -> Tensor:
    """Return the first concepts (..., top) that have a part (L,), by importances (..., L)."""
    return rank_concepts(importance, top, parts >= 0)


def concepts_by_part(parts: np.ndarray, n_parts: int) -> Tensor:
    """Return the number of concepts about each part, (P,)."""
    return torch.as_tensor(np.bincount(parts[parts >= 0], minlength=n_parts))


def chance_at_places(hidden: Tensor, alphas: Sequence[float]) -> Tensor:
    """Return (..., A): how often white noise hits the best of places (..., Q) that are not hidden; NaN for none."""
    count = (~hidden).sum(-1, keepdim=True)
    shares = torch.tensor([*alphas], dtype=widest_float(hidden.device), device=hidden.device) / 12
    chance = 1 - (1 - shares) ** count
    return chance.masked_fill(count == 0, torch.nan)


def hits_of_concepts(hits: Tensor, part: Tensor, parts: np.ndarray) -> PartHits:
    """Return the hits of maps about parts (B, ...), of their hits (B, ..., P, A) at every part; `parts` are (L,)."""
    counts = concepts_by_part(parts, hits.shape[-2])
    found = part_specificity(hits.flatten(0, -3), part.flatten(), counts)
    return PartHits(*(hits_of_maps.view(*part.shape, -1) for hits_of_maps in found))


#: Baselines of the same maps as those of the concepts have no part specificity.
NOT_SPECIFIC = (col.OTHER_IMAGE, col.OTHER_PARTS)


#: The baselines of a table.
BASELINES = (*NOT_SPECIFIC, col.FEATURE_NORM, col.GAUSSIAN, col.MEAN_PLACE)


def locate(
    looking: Looking,
    kinds: Sequence[str],
    tops: Sequence[int],
    alphas: Sequence[float],
    parts: np.ndarray,
    *,
    baselines: Sequence[str] = (),
    specific_tops: Sequence[int] = (),
    threshold: float | None = None,
) -> dict[str, Tensor]:
    """Return the hits of the maps of the first concepts by E kinds of importance; without synchronising the device.

    They are means of hits (n, R, tops, A) of the explanations and, after them, of baselines of the last one, in
    float32; part specificity, likewise, for its own tops; chances, likewise, where parts have several places; whether
    the part of a concept is hidden (n, E, T), and the largest importance (n, E). Samples whose `norms` rank no concept
    have means without meaning. For the baseline by the mean place: places (n, P, Q, 2) and, of the last explanation,
    first parts (n, T).
    """
    size, n, top = looking.size, len(looking), max(tops)
    importance = torch.stack([looking.rows.naming(kind) for kind in kinds])
    check_concept_count("part_of_concept", "(L,)", parts, importance.shape[2])
    device, by_place = importance.device, col.MEAN_PLACE in baselines
    # It is known when all images are: `mean_place_hits`.
    baselines = [name for name in baselines if name != col.MEAN_PLACE]
    # (n, E T): the concepts; (n, E, T): the parts that they are about; (n, E, T, Q): the pixels of these.
    ranked = first_with_part(importance, parts, top).transpose(0, 1).flatten(1)
    part = torch.as_tensor(parts, device=device)[ranked].unflatten(1, (len(kinds), top))
    points = to_numpy(looking.truth["points"])
    pixels = pixels_of(points, size).to(device)
    places = _at(pixels, part)
    hidden = places < 0
    maps = looking.maps(ranked).flatten(0, 1)
    # Explanations agree on many concepts. On a CPU each of U maps is compared once, and `place` (n E T,) is its
    # index; on an accelerator this would synchronise, and there is a map for each place.
    place: Tensor | None = None
    if device.type == "cpu":
        image = torch.arange(n).repeat_interleave(len(kinds) * top)
        place = torch.unique(image * len(parts) + ranked.flatten(), return_inverse=True)[1]
        first = torch.empty(int(place.max()) + 1, dtype=torch.int64)
        first[place] = torch.arange(len(place))

    def once(of_places: Tensor) -> Tensor:
        """Return a row for each map (U, ...) of an array (n, E, T, ...) whose rows are equal at all places of a map."""
        return of_places.flatten(0, 2) if place is None else of_places.flatten(0, 2)[first]

    maps = once(maps.unflatten(0, tuple(part.shape)))
    # Hits (n, R, T, A) of each explanation, and behind them of baselines of the last one.
    n_maps, n_parts, last = len(maps), pixels.shape[1], part[:, -1:]
    fixed = [name for name in baselines if name not in NOT_SPECIFIC]
    if threshold is not None:
        hits = pixel_threshold_hits(maps, once(places), size, threshold)[:, None, None]
    elif baselines or specific_tops:
        # Maps are compared at other parts only for metrics that need it: each takes as long as the own part.
        left_out = _left_out(len(kinds), top, max(specific_tops, default=0), col.OTHER_PARTS in baselines, device)
        no_others, not_last = (_of_maps(each, place, n) for each in left_out)
        is_other = torch.arange(n_parts, device=device) != part[..., None]
        compared = [once(pixels[:, None, None].masked_fill((is_other & no_others[..., None])[..., None], -1))]
        # Last comes the place of its part in another image.
        if col.OTHER_IMAGE in baselines:
            elsewhere = _at(pixels_of(to_numpy(looking.truth["elsewhere"]), size).to(device), part)
            compared.append(once(elsewhere.masked_fill(not_last[..., None], -1))[:, None])
        everywhere = torch.cat(compared, 1)
        norms = _norms_like(maps, looking) if col.FEATURE_NORM in fixed else None
        if norms is not None:
            # They come after the concepts' maps, and are compared in no other image.
            n_more = everywhere.shape[1] - n_parts
            own = nn.functional.pad(pixels, (0, 0, 0, n_more), value=-1)
            everywhere, maps = torch.cat([everywhere, own]), torch.cat([maps, norms])
        hits = pixel_hits(maps, everywhere, size, alphas)
    else:
        hits = pixel_hits(maps, once(places)[:, None], size, alphas)
    # Of maps, and of places: these have the shape (n, E, T, P, A).
    of_norms, hits = hits[n_maps:, :n_parts], hits[:n_maps]
    hits = (hits if place is None else hits[place]).unflatten(0, tuple(part.shape))
    rows, specific = [hits[..., 0, :]], []
    if baselines or specific_tops:
        maps_of = []
        for name in fixed:
            if name == col.GAUSSIAN:
                maps_of.append(torch.as_tensor(_region(tuple(alphas)).hits(points, size)).to(hits))
            else:
                # A backbone without such maps of its channels has no baseline by their norm.
                unknown = hits.new_full((n, n_parts, len(alphas)), torch.nan)
                maps_of.append(of_norms if len(of_norms) else unknown)
        at_parts = [hits[..., :n_parts, :], *(each[:, None, None].expand(-1, 1, top, -1, -1) for each in maps_of)]
        every = hits_of_concepts(torch.cat(at_parts, 1), torch.cat([part, *[last] * len(fixed)], 1), parts)
        rows, specific = [every.own[:, : len(kinds)]], [every.difference]
    several = pixels.shape[2] > 1 and threshold is None
    chances = [chance_at_places(hidden, alphas)] if several else []
    for name in baselines:
        if name == col.OTHER_IMAGE:
            rows.append(hits[:, -1:, :, -1])
        elif name == col.OTHER_PARTS:
            rows.append(every.others[:, len(kinds) - 1 : len(kinds)])
        else:
            row = len(kinds) + fixed.index(name)
            rows.append(every.own[:, row : row + 1])
        if several and name == col.OTHER_PARTS:
            of_parts = chance_at_places(pixels < 0, alphas)[:, None, None].expand(-1, 1, top, -1, -1)
            chances.append(hits_of_concepts(of_parts, last, parts).others)
        elif several:
            hides = elsewhere[:, -1:] < 0 if name == col.OTHER_IMAGE else hidden[:, -1:]
            chances.append(chance_at_places(hides, alphas))

    def means(parts: list[Tensor], tops: Sequence[int]) -> Tensor:
        table = torch.cat(parts, 1) if len(parts) > 1 else parts[0]
        if [*tops] == [1]:
            return table[:, :, :1]
        return clm(table.movedim(-2, -1), tops).movedim(-1, -2)

    columns = {
        "means": means(rows, tops).float(),
        "hidden": hidden.all(-1) if pixels.shape[2] > 1 else hidden[..., 0],
        "norms": torch.linalg.vector_norm(importance, torch.inf, 2).T,
    }
    columns |= {"specific": means(specific, specific_tops).float()} if specific_tops else {}
    if by_place:
        places_of_parts = torch.as_tensor(points, dtype=torch.float32)
        columns |= {"points": places_of_parts, "first_parts": part[:, -1].to(torch.int16)}
    return columns | ({"chance": means(chances, tops).float()} if chances else {})


def mean_place_hits(points: np.ndarray, size: tuple[int, int], alphas: Sequence[float]) -> np.ndarray:
    """Return the hits (n, P, P, A) at every part of maps about every part: the pixels nearest its mean place.

    The mean is that of the *other* images; NaN for a part of the image that is hidden, or a map about a part that is
    seen in no other image. `points` are (n, P, Q, 2), with NaN for hidden places.
    """
    n, n_parts = points.shape[:2]
    hits = np.full((n, n_parts, n_parts, len(alphas)), np.nan)
    there = ~np.isnan(points).any(-1)
    for part in range(n_parts):
        seen = there[:, part].any(1)
        if seen.sum() < 2:
            continue
        own = (
            np.where(there[:, part, :, None], points[:, part], 0).sum(1) / np.maximum(there[:, part].sum(1), 1)[:, None]
        )
        mean = own[seen].mean(0)
        # Without this image the mean lies a little further from its own place; the region moves along.
        moved = np.where(seen[:, None], (mean - own) / (seen.sum() - 1), 0)
        region = GaussianRegion(alphas, (float(mean[0]), float(mean[1])))
        hits[:, part] = region.hits(points - moved[:, None, None], size)
    return hits


@functools.lru_cache(maxsize=8)
def _left_out(n_kinds: int, top: int, specific: int, other_parts: bool, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return masks (E, T) of the places whose maps are compared at no other part, and in no other image."""
    no_others, not_last = torch.ones(2, n_kinds, top, dtype=torch.bool)
    no_others[:, :specific] = False
    no_others[-1] &= not other_parts
    not_last[-1] = False
    # Cached: each transfer to an accelerator synchronises.
    return no_others.to(device), not_last.to(device)


def _of_maps(left_out: Tensor, place: Tensor | None, n: int) -> Tensor:
    """Return the mask (n, E, T) of the places to skip; a map with several places is skipped only if all of them are."""
    every = left_out.expand(n, -1, -1)
    if place is None:
        return every
    of_maps = torch.ones(int(place.max()) + 1, dtype=torch.bool)
    of_maps[place[~every.flatten()]] = False
    return of_maps[place].view(every.shape)


def _norms_like(maps: Tensor, looking: Looking) -> Tensor | None:
    """Return the norm (n, h, w) of the backbone's maps; None where it gives none of the concepts' resolution."""
    norms = feature_norms(looking.model, looking.features)
    return None if norms is None or norms.shape[1:] != maps.shape[1:] else norms.to(maps)


def _at(places: Tensor, part: Tensor) -> Tensor:
    """Return the places (n, E, T, Q) of parts (n, E, T), of those (n, P, Q) of all parts of the images."""
    index = part.flatten(1)[..., None].expand(-1, -1, places.shape[2])
    return places.gather(1, index).view(*part.shape, -1)


@functools.lru_cache(maxsize=8)
def _region(alphas: tuple[float, ...]) -> GaussianRegion:
    return GaussianRegion(alphas)


class GaussianRegion:
    """Hits of points in the regions of one Gaussian map, as wide as high relative to the image.

    It is centred in the image, or at a place (x, y).
    """

    # The map is the same for all images, so each pixel's hit is looked up. Regions hold the nearest pixels whatever
    # the width of the Gaussian, which therefore needs none.

    def __init__(self, alphas: Sequence[float], centre: tuple[float, float] | None = None) -> None:
        self._alphas, self._centre = tuple(alphas), centre
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
        # Whole numbers in the middle of the image, so that pixels at the same distance tie exactly.
        middle = (width - 1, height - 1) if self._centre is None else (2 * self._centre[0], 2 * self._centre[1])
        y = (2 * np.arange(height) - middle[1]) * width
        x = (2 * np.arange(width) - middle[0]) * height
        distance = (y[:, None] ** 2 + x[None, :] ** 2).ravel()
        _, place, ties = np.unique(distance, return_inverse=True, return_counts=True)
        nearer = ties.cumsum() - ties
        region_sizes = np.array(self._alphas) * (height * width) / 12
        shares = ((region_sizes - nearer[:, None]) / ties[:, None]).clip(0, 1)
        return shares[place]
