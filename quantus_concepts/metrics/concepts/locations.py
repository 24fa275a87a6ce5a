"""CLM of several explanations and of its baselines, from one set of concept maps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from quantus_concepts.functional.clm import running_means
from quantus_concepts.functional.normalisation import finite_rows
from quantus_concepts.functional.part_specificity import own_and_other_hits
from quantus_concepts.functional.ranking import first_concepts, ranks_concepts
from quantus_concepts.functional.regions import hits_of_parts, pixels_of
from quantus_concepts.metrics.concepts import names as col
from quantus_concepts.metrics.concepts.names import Block, Score
from quantus_concepts.metrics.host.model import ConceptModel, concept_maps, feature_norms


def first_with_part(importance: Tensor, parts: np.ndarray, top: int) -> Tensor:
    """Return the first concepts (..., top) that have a part (L,), by importances (..., L)."""
    with_part = torch.as_tensor(np.flatnonzero(parts >= 0), device=importance.device)
    return with_part[first_concepts(importance[..., with_part], top)]


def concepts_by_part(parts: np.ndarray, n_parts: int) -> Tensor:
    """Return the number of concepts about each part, (P,)."""
    return torch.as_tensor(np.bincount(parts[parts >= 0], minlength=n_parts))


def chance_at_places(hidden: np.ndarray, alphas: Sequence[float]) -> np.ndarray:
    """Return (..., A): how often white noise hits the best of places (..., Q) that are not hidden; NaN for none."""
    count = (~hidden).sum(-1, keepdims=True)
    return np.where(count > 0, 1 - (1 - np.asarray(alphas) / 12) ** count, np.nan)


class Locations:
    """CLM for explanations, numbers of concepts and sizes of the region.

    Arrays of the host (ranks, points) say which maps and pixels are wanted; they go to the device once a batch.
    """

    def __init__(
        self, explanations: Sequence[str], tops: Sequence[int], alphas: Sequence[float], parts: np.ndarray
    ) -> None:
        self._explanations, self._tops, self._alphas, self._parts = explanations, tops, tuple(alphas), parts
        self._region = GaussianRegion(self._alphas)
        #: The number of concepts whose part specificity is computed.
        self._first = min(tops, default=1)

    def rank(self, importance: Tensor) -> Tensor:
        """Return the first concepts that have a part, and last whether the importance ranks any: (B, E, T + 1)."""
        first = first_with_part(importance, self._parts, max(self._tops))
        return torch.cat([first, ranks_concepts(importance)[..., None]], -1).transpose(0, 1)

    def scores(self, *, baselines: bool, several: bool) -> list[Score]:
        """Return the names of the columns; `several` if parts have several places."""
        scores, specific = self._row_names(baselines=baselines)
        if several:
            scores += [score._replace(metric=col.LOCATION_CHANCE) for score in scores]
        return [
            score._replace(l=top, alpha=float(alpha))
            for tops, named in ((self._tops, scores), ([self._first], specific))
            for top in tops
            for alpha in self._alphas
            for score in named
        ]

    def _row_names(self, *, baselines: bool) -> tuple[list[Score], list[Score]]:
        """Return the names, without l and alpha, of CLM and of part specificity."""
        scores = [Score(col.CLM, name) for name in self._explanations]
        specific = [score._replace(metric=col.PART_SPECIFICITY) for score in scores]
        if baselines:
            # The last explanation ranks the concepts that the baselines look for.
            names = (col.OTHER_IMAGE, col.OTHER_PARTS, col.FEATURE_NORM, col.GAUSSIAN)
            scores += [scores[-1]._replace(baseline=name) for name in names]
            specific += [specific[-1]._replace(baseline=name) for name in names[-2:]]
        return scores, specific

    def columns(
        self,
        model: ConceptModel,
        images: Tensor,
        features: Tensor | None,
        ranks: np.ndarray,
        points: np.ndarray,
        elsewhere: np.ndarray | None,
    ) -> list[Block]:
        """Return the columns of a batch: ranks as of `rank`, and places (B, P, Q, 2) of its parts and of another's."""
        size = (int(images.shape[-2]), int(images.shape[-1]))
        device = images.device if features is None else features.device
        pairs = _Pairs(ranks[..., :-1], ranks[..., -1] > 0, self._parts)
        if elsewhere is None:
            finite, hits = self._hits(model, images, features, device, pairs, points, size)
        else:
            finite, hits = self._hits_with_baselines(model, images, features, device, pairs, points, elsewhere, size)
        if several := points.shape[2] > 1:
            hits = torch.cat([hits, self._all_chances(pairs, points, elsewhere).to(hits)], 1)
        # (B, rows, tops, A): the rows of CLM, those of part specificity, and those of chance.
        means = running_means(hits, self._tops)
        scores, specific = (len(named) for named in self._row_names(baselines=elsewhere is not None))
        located = torch.cat([means[:, :scores], means[:, scores + specific :]], 1) if several else means[:, :scores]
        specific_means = means[:, scores : scores + specific, self._tops.index(self._first)]
        columns = torch.cat([located.permute(0, 2, 3, 1).flatten(1), specific_means.transpose(1, 2).flatten(1)], 1)
        names = self.scores(baselines=elsewhere is not None, several=several)
        return [([col.FINITE_MAPS], finite.view(len(ranks), -1).all(1, keepdim=True)), (names, columns)]

    def _hits(
        self,
        model: ConceptModel,
        images: Tensor,
        features: Tensor | None,
        device: torch.device,
        pairs: _Pairs,
        points: np.ndarray,
        size: tuple[int, int],
    ) -> tuple[Tensor, Tensor]:
        """Return which maps are finite, and hits (B, 2 E, T, A): at the own part, and less those at the other parts."""
        where = self._places(pairs, pixels_of(points, size).numpy(), pairs.place[:, :, : self._first])
        slots, chosen, lookup, parts, places = _to_device(
            device,
            *(pairs.slots, pairs.flat, pairs.look_up([pairs.place, len(pairs.image) + pairs.place])),
            *(pairs.part, where),
        )
        maps = concept_maps(model, features, images, slots).flatten(0, 1)
        finite = finite_rows(maps)
        hits = hits_of_parts(maps[chosen], places, size, self._alphas, finite[chosen])
        here, there = own_and_other_hits(hits, parts, concepts_by_part(self._parts, points.shape[1]))
        return finite, _with_undefined(here, here - there)[lookup]

    def _hits_with_baselines(
        self,
        model: ConceptModel,
        images: Tensor,
        features: Tensor | None,
        device: torch.device,
        pairs: _Pairs,
        points: np.ndarray,
        elsewhere: np.ndarray,
        size: tuple[int, int],
    ) -> tuple[Tensor, Tensor]:
        """Return which maps are finite, and hits (B, rows, T, A) of the rows of CLM and of part specificity."""
        n_pairs, n_parts, last = len(pairs.image), points.shape[1], pairs.place[:, -1:]
        pixels = pixels_of(points, size).numpy()
        where = self._places(pairs, pixels, pairs.place[:, :, : self._first], last)
        # The last column is the own part of another image, the last rows are the maps of norms.
        other = np.full_like(where[:, :1], -1)
        other[last, 0] = pixels_of(elsewhere[pairs.image, pairs.part], size).numpy()[last]
        none = np.full_like(pixels[:, :1], -1)
        where = np.concatenate([np.concatenate([where, other], 1), np.concatenate([pixels, none], 1)])
        # Below, hits are in blocks of a row for each pair: at the own part by map (block 0), norm and centre, at the
        # other parts likewise (3 to 5), elsewhere (6), and the differences of own and other parts (7 to 9).
        by_norm, by_centre, at_others, elsewhere_hits, difference = (n_pairs * np.array([1, 2, 3, 6, 7])).tolist()
        rows = [pairs.place, elsewhere_hits + last, at_others + last, by_norm + last, by_centre + last]
        rows += [difference + pairs.place, difference + by_norm + last, difference + by_centre + last]
        slots, chosen, lookup, whose, parts, places = _to_device(
            device,
            *(pairs.slots, np.concatenate([pairs.flat, pairs.slots.size + np.arange(len(points))])),
            *(pairs.look_up(rows), pairs.image, np.tile(pairs.part, 3), where),
        )
        maps = concept_maps(model, features, images, slots).flatten(0, 1)
        norms = feature_norms(model, features)
        if norms is None or norms.shape[1:] != maps.shape[1:]:
            # Without such maps of its channels, a backbone has no baseline by norm.
            norms = torch.full_like(maps[: len(points)], torch.nan)
        maps = torch.cat([maps, norms.to(maps)])
        finite = finite_rows(maps)
        hits = hits_of_parts(maps[chosen], places, size, self._alphas, finite[chosen])
        centre = torch.as_tensor(self._region.hits(points, size)).to(hits)
        at_parts = torch.cat([hits[:n_pairs, :n_parts], hits[n_pairs:, :n_parts][whose], centre[whose]])
        here, other_hits = own_and_other_hits(at_parts, parts, concepts_by_part(self._parts, n_parts))
        blocks = _with_undefined(here, other_hits, hits[:n_pairs, n_parts], here - other_hits)
        return finite[: pairs.slots.size], blocks[lookup]

    @staticmethod
    def _places(pairs: _Pairs, pixels: np.ndarray, *at_all_parts: np.ndarray) -> np.ndarray:
        """Return the pixels (U, P, Q) at which the maps of pairs are looked up, of those (B, P, Q) of their images."""
        # At the own part alone, but for some pairs: each further part takes as long as the own one.
        looked_up = np.eye(pixels.shape[1], dtype=bool)[pairs.part]
        for pairs_at_all_parts in at_all_parts:
            looked_up[pairs_at_all_parts] = True
        return np.where(looked_up[..., None], pixels[pairs.image], -1)

    def _all_chances(self, pairs: _Pairs, points: np.ndarray, elsewhere: np.ndarray | None) -> Tensor:
        """Return the chances (B, rows, T, A) of the rows of CLM, where parts have several places."""
        own_chances = self._chances(points[pairs.image, pairs.part])[pairs.place]
        if elsewhere is None:
            return torch.as_tensor(own_chances)
        last = pairs.place[:, -1:]
        every = torch.as_tensor(self._chances(points[pairs.image]))
        _, other_chances = own_and_other_hits(
            every, torch.as_tensor(pairs.part), concepts_by_part(self._parts, points.shape[1])
        )
        there = self._chances(elsewhere[pairs.image, pairs.part])
        rows = [own_chances, there[last], other_chances.numpy()[last], own_chances[:, -1:], own_chances[:, -1:]]
        return torch.as_tensor(np.concatenate(rows, 1))

    def _chances(self, places: np.ndarray) -> np.ndarray:
        return chance_at_places(np.isnan(places).any(-1), self._alphas)


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


class _Pairs:
    """Each pair of image and concept once, however many explanations rank it: it has one map."""

    def __init__(self, ranks: np.ndarray, is_ranked: np.ndarray, parts: np.ndarray) -> None:
        n, n_concepts = len(ranks), len(parts)
        #: (B, E): whether the importance ranks any concept.
        self._is_ranked = is_ranked
        pairs, place = np.unique(np.arange(n)[:, None, None] * n_concepts + ranks, return_inverse=True)
        #: (B, E, T): the pair of each rank; (U,): image and part of each pair.
        self.place: np.ndarray = place.reshape(ranks.shape)
        self.image, concept = pairs // n_concepts, pairs % n_concepts
        self.part = parts[concept]
        counts = np.bincount(self.image, minlength=n)
        starts = counts.cumsum() - counts
        slot = np.arange(len(pairs)) - np.repeat(starts, counts)
        #: (B, k): the concepts whose maps are made; images with fewer concepts repeat their first one.
        self.slots = np.repeat(concept[starts][:, None], counts.max(), 1)
        self.slots[self.image, slot] = concept
        #: (U,): where the map of each pair is among all maps.
        self.flat = self.image * counts.max() + slot

    def look_up(self, places: Sequence[np.ndarray]) -> np.ndarray:
        """Return places (B, E or 1, T) among hits one after another; of what ranks no concept the last, undefined."""
        # Rows of one explanation are those of the last one.
        rows = [np.where(self._is_ranked[:, -part.shape[1] :, None], part, -1) for part in places]
        return np.concatenate(rows, 1)


def _with_undefined(*hits: Tensor) -> Tensor:
    """Return hits (U, A) one after another, and last a row of NaN."""
    return torch.cat([*hits, hits[0].new_full((1, hits[0].shape[1]), torch.nan)])


def _to_device(device: torch.device, *arrays: np.ndarray) -> list[Tensor]:
    """Return arrays of whole numbers as tensors on a device, in one transfer."""
    packed = torch.from_numpy(np.concatenate([array.ravel() for array in arrays])).to(device)
    parts = packed.split([array.size for array in arrays])
    return [part.view(array.shape) for part, array in zip(parts, arrays, strict=True)]
