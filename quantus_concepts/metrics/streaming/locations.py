"""CLM of several explanations and of its baselines, from one set of concept maps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from quantus_concepts.functional.clm import running_means
from quantus_concepts.functional.normalisation import finite_rows
from quantus_concepts.functional.part_specificity import own_and_others
from quantus_concepts.functional.ranking import first_concepts
from quantus_concepts.functional.regions import hits_of_parts, hits_of_pixels, pixels_of
from quantus_concepts.metrics.host.model import ConceptModel, concept_maps, feature_norms
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
        #: The number of concepts whose part specificity is computed.
        self._first = min(tops, default=1)

    def rank(self, importance: Tensor) -> Tensor:
        """Return the first concepts (B, E, T) that have a part, by the importances (E, B, L)."""
        if self._with_part.device != importance.device:
            self._with_part = self._with_part.to(importance.device)
        ranked = first_concepts(importance[..., self._with_part], max(self._tops))
        return self._with_part[ranked].transpose(0, 1)

    def scores(self, *, baselines: bool, several: bool) -> list[Score]:
        """Return the names of the columns, for each l and alpha; `several` if parts have several places."""
        scores = [Score(col.CLM, name) for name in self._explanations]
        specific = [score._replace(metric=col.PART_SPECIFICITY) for score in scores]
        if baselines:
            # The last explanation ranks the concepts that the baselines look for.
            names = (col.OTHER_IMAGE, col.OTHER_PARTS, col.FEATURE_NORM, col.GAUSSIAN)
            scores += [scores[-1]._replace(baseline=name) for name in names]
            specific += [specific[-1]._replace(baseline=name) for name in names[-2:]]
        if several:
            scores += [score._replace(metric=col.LOCATION_CHANCE) for score in scores]
        return [
            score._replace(l=top, alpha=float(alpha))
            for tops, named in ((self._tops, scores), ([self._first], specific))
            for top in tops
            for alpha in self._alphas
            for score in named
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
        baselines = elsewhere is not None
        image, concept, place, n_last = _distinct(ranks, len(self._parts))
        part = self._parts[concept]
        slots, flat = _slots(image, concept, n)
        places = [points[image, part]]
        lookup = [place]
        if elsewhere is not None:
            places.append(elsewhere[image[:n_last], part[:n_last]])
            lookup.append(len(image) + place[:, -1:])
        pixels = [pixels_of(each, size).numpy() for each in places]
        # A map is looked up at every part, which takes as many times as long: without baselines of the first l only.
        compared, back = np.unique(place if baselines else place[:, :, : self._first], return_inverse=True)
        back = back.reshape(n, len(self._explanations), -1)
        every = pixels_of(points, size).numpy()
        wanted, chosen, looked_up, selected, whose, own_part, first, rest, seen, *sets = _to_device(
            self._with_part.device,
            *(slots, flat, np.concatenate(lookup, 1), compared, image[compared], part[compared]),
            *(back[:, :, : self._first], back[:, -1], every, *pixels),
        )
        maps = concept_maps(model, features, images, wanted)
        finite = finite_rows(maps.flatten(0, 1))
        flat_maps = maps.flatten(0, 1)[chosen]
        hits = hits_of_pixels(flat_maps, sets, size, self._alphas, finite[chosen])[looked_up]

        def compare(found: Tensor) -> tuple[Tensor, Tensor]:
            return own_and_others(found, own_part.to(found.device), self._weights(points.shape[1]))

        own, others = compare(hits_of_parts(flat_maps[selected], seen[whose], size, self._alphas))
        specific = [(own - others)[first]]
        rows = [hits]
        if baselines:
            norms = feature_norms(model, features)
            unknown = torch.full((n, points.shape[1], len(self._alphas)), torch.nan).to(hits)
            by_norm = unknown if norms is None else hits_of_parts(norms, seen, size, self._alphas)
            by_centre = torch.as_tensor(self._region.hits(points, size)).to(hits)
            rows.append(others[rest][:, None])
            for found in (by_norm, by_centre):
                own, others = compare(found[whose])
                rows.append(own[rest][:, None])
                specific.append((own - others)[first[:, -1:]])
        if points.shape[2] > 1:
            rows.append(self._all_chances(points, places, place, compared, image, part, back[:, -1]).to(hits))
        means = running_means(torch.cat(rows, 1), self._tops).permute(0, 2, 3, 1).flatten(1)
        specific_means = running_means(torch.cat(specific, 1), [self._first]).permute(0, 2, 3, 1).flatten(1)
        scores = self.scores(baselines=baselines, several=points.shape[2] > 1)
        columns = torch.cat([means, specific_means], 1)
        return [([col.FINITE_MAPS], finite.view(n, -1).all(1, keepdim=True)), (scores, columns)]

    def _weights(self, n_parts: int) -> Tensor:
        """Return the number of concepts about each part, (P,)."""
        return torch.as_tensor(np.bincount(self._parts[self._parts >= 0], minlength=n_parts))

    def _all_chances(
        self,
        points: np.ndarray,
        places: Sequence[np.ndarray],
        place: np.ndarray,
        compared: np.ndarray,
        image: np.ndarray,
        part: np.ndarray,
        back: np.ndarray,
    ) -> Tensor:
        """Return the chances (B, any, T, A) of the rows of CLM, where parts have several places."""
        chances = self._chances(places[0])[place]
        found = [chances]
        if len(places) > 1:
            every = torch.as_tensor(self._chances(points[image[compared]]))
            _, others = own_and_others(every, torch.as_tensor(part[compared]), self._weights(points.shape[1]))
            found += [self._chances(places[1])[place[:, -1:]], others.numpy()[back][:, None]]
            found += [chances[:, -1:], chances[:, -1:]]
        return torch.as_tensor(np.concatenate(found, 1))

    def _chances(self, places: np.ndarray) -> np.ndarray:
        """Return (..., A): how often white noise hits the best of places (..., Q, 2)."""
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
