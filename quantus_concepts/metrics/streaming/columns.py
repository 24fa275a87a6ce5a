"""The columns of numbers that one concept model gives for each image, and sums over its classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from captum_concepts._support.checks import check_choice, check_range, check_shape, check_whole, to_numpy
from captum_concepts._support.running import to_model
from captum_concepts.models.interventions import Levels
from quantus_concepts.functional import rank_concepts
from quantus_concepts.functional.cem import ranked_presence
from quantus_concepts.functional.cgim import ClassSums, agreement
from quantus_concepts.functional.regions import check_places, hits_of_places
from quantus_concepts.functional.substitution import MAJORITY, movement, recital, substitution
from quantus_concepts.metrics.host.model import (
    IMPORTANCES,
    ConceptModel,
    concept_importances,
    concept_maps,
    concept_outputs,
    linear_weights,
    shares_features,
)
from quantus_concepts.metrics.host.row_buffer import RowBuffer
from quantus_concepts.metrics.streaming import names as col
from quantus_concepts.metrics.streaming.baselines import GaussianRegion
from quantus_concepts.metrics.streaming.batches import ConceptBatch
from quantus_concepts.metrics.streaming.interventions import Interventions
from quantus_concepts.metrics.streaming.names import Score

#: The name of the rows among what is recorded.
ROWS = "rows"


@dataclass(frozen=True)
class Variants:
    """Which columns there are: explanations, numbers of concepts, sizes of the region, and the truth of all images."""

    explanations: tuple[str, ...] = ()
    top_l: tuple[int, ...] = (1,)
    alphas: tuple[float, ...] = (1.0,)
    class_concepts: np.ndarray | None = None
    parts: np.ndarray = field(default_factory=lambda: np.empty(0, int))
    interventions: Interventions | None = None
    #: Concept accuracies by column: over which concepts (indices; None for all).
    accuracies: Mapping[Score, Tensor | None] = field(default_factory=dict)
    #: Whether to compare each image with the one before its substitution.
    moves: bool = False

    def __post_init__(self) -> None:
        for explanation in self.explanations:
            check_choice("explanations", explanation, IMPORTANCES)
        for alpha in self.alphas:
            check_range("alphas", alpha, 0, 12, open_low=True)
        if len(self.parts):
            check_shape("part_of_concept", self.parts, ("L",), (self.n_concepts,))
        self.check_tops(self.n_concepts)

    @property
    def n_classes(self) -> int | None:
        """K, where it follows from `class_concepts`."""
        return None if self.class_concepts is None else self.class_concepts.shape[0]

    @property
    def n_concepts(self) -> int | None:
        """L, where it follows from `class_concepts` or the parts."""
        if self.class_concepts is not None:
            return self.class_concepts.shape[1]
        return len(self.parts) or None

    @property
    def located_tops(self) -> tuple[int, ...]:
        """The l that enough concepts have a part for."""
        return tuple(top for top in self.top_l if top <= int((self.parts >= 0).sum()))

    def check_tops(self, n_concepts: int | None) -> None:
        """Raise for an l that is larger than the number of concepts."""
        for top in self.top_l:
            check_whole("top_l", top, 1)
        most = max(self.top_l, default=1)
        if n_concepts is not None and most > n_concepts:
            fitting = [top for top in self.top_l if top <= n_concepts] or [n_concepts]
            raise ValueError(
                f"Expected argument `top_l` to lie in [1, {n_concepts}] but got {most}. Pass top_l={fitting}: left out "
                "it is (1, 3, 5)."
            )


class ModelColumns:
    """The columns of one concept model; only its numbers for each image and sums over its classes are kept."""

    # CLM of every `stride`-th image only, other ones for each `offset`. `first` is the number of the first image. With
    # `record` what the sums are made of is kept as well, so that another stream can `load` it.

    def __init__(
        self,
        model: ConceptModel,
        variants: Variants,
        threshold: float | None = None,
        stride: int = 1,
        offset: int = 0,
        first: int = 0,
        *,
        levels: Levels | None = None,
        baselines: bool = True,
        record: bool = False,
    ) -> None:
        self.model, self.variants, self.threshold = model, variants, threshold
        #: K and L, known from the first batch on.
        self.shape = (0, 0)
        self.scores: list[Score] = []
        self._stride, self._offset, self._first = stride, offset, first
        self._levels, self._baselines = levels, baselines
        self._parts = torch.as_tensor(variants.parts)
        self._theta: Tensor | None = None
        self._sums: dict[str, ClassSums] = {}
        self._rows = RowBuffer()
        self._importance: dict[str, RowBuffer] | None = {} if record else None
        self._region = GaussianRegion(variants.alphas)

    @property
    def n_images(self) -> int:
        """How many images were scored so far."""
        return len(self._rows)

    def add(self, batch: ConceptBatch, features: Tensor | None = None, before: Tensor | None = None) -> None:
        """Add a batch; with the features of its images and of those before a substitution, if the backbone has run."""
        images = batch.images
        if features is None:
            sharing = shares_features(self.model)
            images = to_model(self.model.features if sharing else self.model.concept_predictor, images)
        outputs = concept_outputs(self.model, images, features)
        values, logits = outputs.values, outputs.logits
        self._check_shapes(values, logits, batch)
        if self.n_images == 0:
            self._theta = linear_weights(self.model.head)
        labels = batch.labels.to(values.device)
        predicted = logits.argmax(1)
        importance = concept_importances(self.model, values, predicted, self.variants.explanations)
        self._add_to_sums(importance, labels, labels == predicted)

        finite = values.isfinite().all(1) & logits.isfinite().all(1)
        columns: dict[Score, Tensor] = {col.LABEL: labels, col.PREDICTED: predicted, col.FINITE: finite}
        columns |= self._existence(values, importance, batch.concepts)
        columns |= self._intervened(values, predicted, labels, batch.concepts)
        columns |= self._substituted(values, batch)
        if self.variants.moves and batch.before is not None:
            columns |= self._moved(values, predicted, batch, before)
        if "contribution" in importance:
            first = rank_concepts(importance["contribution"], 1)
            columns[col.NEGATIVE_FIRST] = values.gather(1, first)[:, 0] < 0
        if self.variants.located_tops and batch.points is not None:
            elsewhere = batch.elsewhere if self._baselines else None
            columns |= self._some_locations(images, outputs.features, importance, batch.points, elsewhere)
        # Together with the ranks of the located concepts one of two transfers from the device for each batch and model.
        rows = torch.stack([column.to(values.device, torch.float32) for column in columns.values()], 1).cpu()
        self._check_finite(dict(zip(columns, rows.T, strict=True)))
        kept = [index for index, score in enumerate(columns) if score not in col.CHECKED]
        self.scores = [score for score in columns if score not in col.CHECKED]
        self._rows.add(rows[:, kept])

    def recorded(self) -> dict[str, Tensor]:
        """Return what `load` loads: the numbers (N, columns) of all images, and importance (N, L) by explanation."""
        return {ROWS: self._rows.rows} | {name: each.rows for name, each in (self._importance or {}).items()}

    def load(self, recorded: Mapping[str, Tensor], scores: list[Score], shape: Sequence[int]) -> None:
        """Add what another stream recorded of the next batch."""
        self._theta = linear_weights(self.model.head)
        self.scores, self.shape = scores, (shape[0], shape[1])
        rows = recorded[ROWS]
        labels, predicted = (rows[:, scores.index(score)].long() for score in (col.LABEL, col.PREDICTED))
        importance = {name: each for name, each in recorded.items() if name != ROWS}
        self._add_to_sums(importance, labels, labels == predicted)
        self._rows.add(rows)

    def columns(self) -> dict[Score, np.ndarray]:
        """Return the numbers (N,) of all images, in float64."""
        rows = to_numpy(self._rows.rows)
        return {score: rows[:, index].astype(np.float64) for index, score in enumerate(self.scores)}

    def class_importance(self) -> dict[str, Tensor]:
        """Return the mean importance (K, L) of the concepts for each class, by explanation."""
        found = {name: sums.compute() for name, sums in self._sums.items()}
        if "weight" in found and self._theta is not None:
            # Eqs. 3 and 6 take all of theta: a linear head's weights need no image of their class.
            found["weight"] = self._theta.to(found["weight"])
        return found

    def agreement(self, per: str) -> dict[str, np.ndarray]:
        """Return CGIM of each concept or class, by explanation."""
        truth = torch.as_tensor(self.variants.class_concepts)
        return {
            name: to_numpy(agreement(mean, truth.to(mean.device, mean.dtype), per))
            for name, mean in self.class_importance().items()
        }

    def _existence(self, values: Tensor, importance: dict[str, Tensor], concepts: Tensor | None) -> dict[Score, Tensor]:
        variants, columns = self.variants, dict[Score, Tensor]()
        if concepts is None:
            return columns
        present = concepts.to(values.device)
        if variants.explanations:
            columns[col.DENSITY] = present.mean(1, dtype=torch.float32)
        if variants.accuracies and self.threshold is not None:
            right = ((values >= self.threshold) == (present > 0.5)).float()
            for score, some in variants.accuracies.items():
                columns[score] = (right if some is None else right[:, some.to(right.device)]).mean(1)
        for name, scored in importance.items():
            hits = ranked_presence(scored, present, max(variants.top_l))
            columns |= {Score(col.CEM, name, top): hits[:, :top].mean(1) for top in variants.top_l}
        return columns

    def _intervened(
        self, values: Tensor, predicted: Tensor, labels: Tensor, concepts: Tensor | None
    ) -> dict[Score, Tensor]:
        interventions = self.variants.interventions
        if interventions is None:
            return {}
        if concepts is None:
            raise ValueError(
                "Interventions need concept labels: give argument `concept_labels`, or a `loader` of (images, labels, "
                "concept labels)."
            )
        present, first = concepts.to(values.device) > 0.5, self._first + self.n_images
        answered = interventions.predictions(
            self.model, values, predicted, present, self._levels, self.threshold, first
        )
        return {Score(col.INTERVENED, *name): classes == labels for name, classes in answered}

    def _substituted(self, values: Tensor, batch: ConceptBatch) -> dict[Score, Tensor]:
        if batch.added is None or batch.removed is None or self.threshold is None:
            return {}
        scores = substitution(values, batch.added, batch.removed, self.threshold)
        columns = {
            col.ADDED: batch.added,
            col.REMOVED: batch.removed,
            col.PLUS: scores.added,
            col.MINUS: scores.removed,
        }
        if self.variants.class_concepts is not None:
            own = torch.as_tensor(self.variants.class_concepts >= MAJORITY)[batch.labels.cpu()]
            columns[col.RECITAL] = recital(values, own, self.threshold)
        return columns

    def _moved(
        self, values: Tensor, predicted: Tensor, batch: ConceptBatch, features: Tensor | None
    ) -> dict[Score, Tensor]:
        earlier = concept_outputs(self.model, batch.before, features)
        moved = movement(earlier.values, values, *(torch.as_tensor(each) for each in (batch.added, batch.removed)))
        return {
            col.ADDED_MOVES: moved.added,
            col.REMOVED_MOVES: moved.removed,
            col.OTHERS_MOVE: moved.others,
            # Whatever the threshold.
            col.RISES: (moved.added > 0).float().masked_fill(moved.added.isnan(), torch.nan),
            col.SELECTIVITY: moved.selectivity,
            col.CLASS_KEPT: predicted == earlier.logits.argmax(1),
        }

    def _add_to_sums(self, importance: dict[str, Tensor], labels: Tensor, correct: Tensor) -> None:
        if self.variants.class_concepts is None:
            return
        n_classes, n_concepts = self.variants.class_concepts.shape
        for name, values in importance.items():
            if name not in self._sums:
                self._sums[name] = ClassSums(n_classes, n_concepts, device=values.device)
            self._sums[name].add(values, labels, correct)
            if self._importance is not None:
                self._importance.setdefault(name, RowBuffer()).add(values.cpu())

    def _some_locations(
        self,
        images: Tensor,
        features: Tensor | None,
        importance: dict[str, Tensor],
        points: Tensor,
        elsewhere: Tensor | None,
    ) -> dict[Score, Tensor]:
        """Return `_locations`, where asked for of some images only: other ones for each offset."""
        if self._stride == 1:
            return self._locations(images, features, importance, points, elsewhere)
        place = torch.arange(len(images)) + (self._first + self.n_images + self._offset)
        asked = place % self._stride == 0
        # With none asked for, one is scored for its columns.
        rows = asked.nonzero()[:, 0] if asked.any() else torch.zeros(1, dtype=torch.int64)
        chosen = {name: values[rows.to(values.device)] for name, values in importance.items()}
        some = None if features is None else features[rows.to(features.device)]
        others = None if elsewhere is None else elsewhere[rows]
        found = self._locations(images[rows.to(images.device)], some, chosen, points[rows], others)
        empty = next(iter(chosen.values())).new_full((len(images),), torch.nan)
        rows, asked = rows.to(empty.device), asked.to(empty.device)
        return {
            score: empty.index_copy(0, rows, column.to(empty)).where(asked, empty) for score, column in found.items()
        }

    def _locations(
        self,
        images: Tensor,
        features: Tensor | None,
        importance: dict[str, Tensor],
        points: Tensor,
        elsewhere: Tensor | None,
    ) -> dict[Score, Tensor]:
        # What is looked up by the ranks is looked up on the host, where points are and shapes may follow from values.
        tops, alphas, parts = self.variants.located_tops, self.variants.alphas, self._parts
        ranks = [rank_concepts(each, max(tops), parts >= 0) for each in importance.values()]
        ranked = torch.stack(ranks, 1).cpu()
        # Each (image, concept) once, however many explanations rank it.
        image, concept, place = _distinct(ranked.flatten(1), len(parts))
        maps, finite = self._maps(images, features, image, concept)
        size = (int(images.shape[-2]), int(images.shape[-1]))
        places = points[image, parts[concept]]
        own = self._hits(maps, places, size)
        # Ranked by (B, explanations, count), hits by (..., alphas).
        place = place.unflatten(1, ranked.shape[1:])
        hits = {Score(col.CLM, name): own[place[:, index].to(own.device)] for index, name in enumerate(importance)}
        chances = {score: self._chances(places)[place[:, index]] for index, score in enumerate(hits)}
        if elsewhere is not None:
            # The last explanation ranks the concepts whose parts the baselines are asked for.
            last = Score(col.CLM, list(importance)[-1])
            chosen, back = torch.unique(place[:, -1], return_inverse=True)
            places = elsewhere[image[chosen], parts[concept[chosen]]]
            there = self._hits(maps[chosen.to(maps.device)], places, size)
            hits[last._replace(baseline=col.OTHER_IMAGE)] = there[back.to(there.device)]
            chances[last._replace(baseline=col.OTHER_IMAGE)] = self._chances(places)[back]
            rows = torch.arange(len(points))[:, None]
            middle = self._region.hits(points[rows, parts[ranked[:, -1]]], size)
            hits[last._replace(baseline=col.GAUSSIAN)] = middle.to(maps.device)
            chances[last._replace(baseline=col.GAUSSIAN)] = chances[last]
        if points.shape[2] > 1:
            hits |= {
                score._replace(metric=col.LOCATION_CHANCE): each.to(maps.device) for score, each in chances.items()
            }
        return {col.FINITE_MAPS: finite} | {
            score._replace(l=top, alpha=float(alpha)): found[:, :top, a].nanmean(1)
            for top in tops
            for a, alpha in enumerate(alphas)
            for score, found in hits.items()
        }

    def _chances(self, places: Tensor) -> Tensor:
        """Return (U, alphas): how often white noise hits the best of places (U, Q, 2)."""
        count = (~places.isnan().any(-1)).sum(-1, keepdim=True)
        missed = 1 - torch.tensor(self.variants.alphas) / 12
        return (1 - missed**count).masked_fill(count == 0, torch.nan)

    def _hits(self, maps: Tensor, points: Tensor, size: tuple[int, int]) -> Tensor:
        check_places(points, size, ("map", "place"))
        return hits_of_places(maps, points, size, self.variants.alphas)

    def _maps(self, images: Tensor, features: Tensor | None, image: Tensor, concept: Tensor) -> tuple[Tensor, Tensor]:
        """Return the maps (U, h, w) of U pairs of image and concept, images ascending, and which images' are finite."""
        counts = torch.bincount(image, minlength=len(images))
        slot = torch.arange(len(image)) - (counts.cumsum(0) - counts)[image]
        wanted = concept.new_zeros(len(images), int(counts.max()))
        wanted[image, slot] = concept
        maps = concept_maps(self.model, features, images, wanted)
        image, slot = image.to(maps.device), slot.to(maps.device)
        chosen = maps[image, slot]
        broken = (~chosen.flatten(1).isfinite().all(1)).to(torch.float32)
        return chosen, broken.new_zeros(len(images)).index_add_(0, image, broken) == 0

    def _check_shapes(self, values: Tensor, logits: Tensor, batch: ConceptBatch) -> None:
        check_shape("values of the model", values, ("B", "L"), (None, self.variants.n_concepts))
        check_shape("logits of the model", logits, ("B", "K"), (None, self.variants.n_classes))
        if self.n_images == 0:
            self.variants.check_tops(values.shape[1])
            self.shape = (logits.shape[1], values.shape[1])
        if batch.concepts is not None:
            check_shape("concepts", batch.concepts, ("B", "L"), tuple(values.shape))

    def _check_finite(self, columns: dict[Score, Tensor]) -> None:
        """Raise where a batch gave something that is not finite, before it is kept."""
        for score, what in col.CHECKED.items():
            bad = (columns[score] == 0).nonzero() if score in columns else torch.empty(0)
            if len(bad):
                image = self._first + self.n_images + int(bad[0, 0])
                raise ValueError(
                    f"Expected only finite numbers but {what} of image {image} (from 0) "
                    "holds NaN or infinity. Repair the image or the model's weights."
                )


def _distinct(ranked: Tensor, n_concepts: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the distinct pairs of image and concept of (B, R) ranked ones, (U,) each, and which each entry is."""
    rows = torch.arange(len(ranked), device=ranked.device)[:, None]
    pairs, place = torch.unique(rows * n_concepts + ranked, return_inverse=True)
    return pairs // n_concepts, pairs % n_concepts, place
