"""CLM of several explanations and of its baselines, from one set of concept maps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from quantus_concepts.functional.clm import running_means
from quantus_concepts.functional.normalisation import finite_rows
from quantus_concepts.functional.ranking import first_concepts
from quantus_concepts.functional.regions import hits_of_pixels, pixels_of
from quantus_concepts.metrics.host.model import ConceptModel, concept_maps
from quantus_concepts.metrics.streaming import names as col
from quantus_concepts.metrics.streaming.baselines import GaussianRegion
from quantus_concepts.metrics.streaming.names import Block, Score


class Locations:
    """CLM for explanations, numbers of concepts and sizes of the region.

    Arrays of the host (ranks, points) say which maps and pixels are wanted; they go to the device once a batch.
    """

    def __init__(
        self, explanations: Sequence[str], tops: Sequence[int], alphas: Sequence[float], parts: np.ndarray
    ) -> None:
        self._explanations, self._tops, self._alphas, self._parts = explanations, tops, tuple(alphas), parts
        self._with_part = torch.as_tensor(np.flatnonzero(parts >= 0))
        self._region = GaussianRegion(self._alphas)

    def rank(self, importance: Tensor) -> Tensor:
        """Return the first concepts (B, E, T) that have a part, by the importances (E, B, L)."""
        if self._with_part.device != importance.device:
            self._with_part = self._with_part.to(importance.device)
        ranked = first_concepts(importance[..., self._with_part], max(self._tops))
        return self._with_part[ranked].transpose(0, 1)

    def scores(self, *, baselines: bool, several: bool) -> list[Score]:
        """Return the names of the columns, for each l and alpha; `several` if parts have several places."""
        scores = [Score(col.CLM, name) for name in self._explanations]
        if baselines:
            # The last explanation ranks the concepts that the baselines look for.
            scores += [scores[-1]._replace(baseline=name) for name in (col.OTHER_IMAGE, col.GAUSSIAN)]
        if several:
            scores += [score._replace(metric=col.LOCATION_CHANCE) for score in scores]
        return [
            score._replace(l=top, alpha=float(alpha))
            for top in self._tops
            for alpha in self._alphas
            for score in scores
        ]

    def columns(
        self,
        model: ConceptModel,
        images: Tensor,
        features: Tensor | None,
        ranks: np.ndarray,
        points: np.ndarray,
        elsewhere: np.ndarray | None,
    ) -> list[Block]:
        """Return the columns of a batch: `ranks` (B, E, T), and places (B, P, Q, 2) of its parts and of another's."""
        n, size = len(ranks), (int(images.shape[-2]), int(images.shape[-1]))
        image, concept, place, n_last = _distinct(ranks, len(self._parts))
        part = self._parts[concept]
        slots, flat = _slots(image, concept, n)
        places = [points[image, part]]
        lookup = [place]
        if elsewhere is not None:
            places.append(elsewhere[image[:n_last], part[:n_last]])
            lookup.append(len(image) + place[:, -1:])
        pixels = [pixels_of(each, size).numpy() for each in places]
        wanted, chosen, looked_up, *sets = _to_device(
            self._with_part.device, slots, flat, np.concatenate(lookup, 1), *pixels
        )
        maps = concept_maps(model, features, images, wanted)
        hits = hits_of_pixels(maps.flatten(0, 1)[chosen], sets, size, self._alphas)[looked_up]
        known = self._known(ranks, points, place, places, size, baselines=elsewhere is not None)
        if known is not None:
            hits = torch.cat([hits, torch.as_tensor(known, dtype=hits.dtype, device=hits.device)], 1)
        means = running_means(hits, self._tops).permute(0, 2, 3, 1).flatten(1)
        scores = self.scores(baselines=elsewhere is not None, several=points.shape[2] > 1)
        return [([col.FINITE_MAPS], finite_rows(maps.flatten(1))[:, None]), (scores, means)]

    def _known(
        self,
        ranks: np.ndarray,
        points: np.ndarray,
        place: np.ndarray,
        places: Sequence[np.ndarray],
        size: tuple[int, int],
        *,
        baselines: bool,
    ) -> np.ndarray | None:
        """Return what needs no map (B, any, T, A): hits of the centred Gaussian, and chances of several places."""
        found = []
        if baselines:
            rows = np.arange(len(ranks))[:, None]
            found.append(self._region.hits(points[rows, self._parts[ranks[:, -1]]], size)[:, None])
        if points.shape[2] > 1:
            chances = self._chances(places[0])[place]
            found.append(chances)
            if baselines:
                found.append(self._chances(places[1])[place[:, -1:]])
                found.append(chances[:, -1:])
        return np.concatenate(found, 1) if found else None

    def _chances(self, places: np.ndarray) -> np.ndarray:
        """Return (U, A): how often white noise hits the best of places (U, Q, 2)."""
        count = (~np.isnan(places).any(-1)).sum(-1, keepdims=True)
        missed = 1 - np.asarray(self._alphas) / 12
        return np.where(count > 0, 1 - missed**count, np.nan)


def _distinct(ranks: np.ndarray, n_concepts: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Return each pair of image and concept once, (U,) each, which pair each rank is, and how many the last one ranks.

    However many explanations rank a concept, it has one map. The pairs that the last explanation ranks come first.
    """
    pairs, place = np.unique(np.arange(len(ranks))[:, None, None] * n_concepts + ranks, return_inverse=True)
    place = place.reshape(ranks.shape)
    by_last = np.zeros(len(pairs), bool)
    by_last[place[:, -1]] = True
    order = np.argsort(~by_last, kind="stable")
    return pairs[order] // n_concepts, pairs[order] % n_concepts, np.argsort(order)[place], int(by_last.sum())


def _slots(image: np.ndarray, concept: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the concepts (n, k) wanted of each image, and where (U,) each pair is among them."""
    counts = np.bincount(image, minlength=n)
    by_image = np.argsort(image, kind="stable")
    slot = np.empty_like(image)
    slot[by_image] = np.arange(len(image)) - np.repeat(counts.cumsum() - counts, counts)
    # Images with fewer concepts repeat their first one.
    wanted = np.repeat(concept[by_image][counts.cumsum() - counts][:, None], counts.max(), 1)
    wanted[image, slot] = concept
    return wanted, image * counts.max() + slot


def _to_device(device: torch.device, *arrays: np.ndarray) -> list[Tensor]:
    """Return arrays of whole numbers as tensors on a device, in one transfer."""
    packed = torch.from_numpy(np.concatenate([each.ravel() for each in arrays])).to(device)
    parts = packed.split([each.size for each in arrays])
    return [part.view(each.shape) for part, each in zip(parts, arrays, strict=True)]
