"""What a batch of images gives for a concept model: a column of numbers for each variant, and sums over its classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from captum_concepts._support.checks import check_shape, to_numpy
from captum_concepts._support.running import to_model
from captum_concepts.models.interventions import Levels
from quantus_concepts.functional.cem import ranked_presence
from quantus_concepts.functional.cem_gain import class_recital
from quantus_concepts.functional.cgim import ClassSums
from quantus_concepts.functional.ranking import first_concepts
from quantus_concepts.functional.substitution import MAJORITY, movement, recital, substitution
from quantus_concepts.metrics.concepts import names as col
from quantus_concepts.metrics.concepts.cem import existence
from quantus_concepts.metrics.concepts.cgim import class_sums
from quantus_concepts.metrics.concepts.interventions import Interventions
from quantus_concepts.metrics.concepts.locations import Locations
from quantus_concepts.metrics.concepts.names import Block, Score
from quantus_concepts.metrics.host.model import (
    ConceptModel,
    ConceptOutputs,
    concept_importances,
    concept_outputs,
    shares_features,
)


class ConceptBatch(NamedTuple):
    """Images (B, C, H, W) or rows (B, F), classes (B,), and where known concept labels (B, L), points (B, P, Q, 2)."""

    images: Tensor
    labels: Tensor
    concepts: Tensor | None
    points: Tensor | None
    #: Part points of other images, for a baseline.
    elsewhere: Tensor | None = None
    #: The images without their substitution (B, C, H, W), and the concepts put in and taken out (B,), -1 for none.
    before: Tensor | None = None
    added: Tensor | None = None
    removed: Tensor | None = None


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
        most = max(self.top_l, default=1)
        if n_concepts is not None and most > n_concepts:
            fitting = [top for top in self.top_l if top <= n_concepts] or [n_concepts]
            raise ValueError(
                f"Expected argument `top_l` to lie in [1, {n_concepts}] but got {most}. Pass top_l={fitting}: left out "
                "it is (1, 3, 5)."
            )


class Columns(NamedTuple):
    """What a batch gives: names of the columns, their numbers (B, n), and sums (K, E L) of importances by class."""

    scores: list[Score]
    rows: Tensor
    sums: ClassSums | None
    #: K and L.
    shape: tuple[int, int]


@dataclass(frozen=True)
class ModelScorer:
    """A concept model with the variants that it is scored by."""

    model: ConceptModel
    variants: Variants
    threshold: float | None = None
    #: CLM is that of every `stride`-th image only, other ones for each `offset`.
    stride: int = 1
    offset: int = 0
    levels: Levels | None = None
    baselines: bool = True

    @cached_property
    def locations(self) -> Locations:
        """CLM by the variants."""
        variants = self.variants
        return Locations(variants.explanations, variants.located_tops, variants.alphas, variants.parts)

    def score(
        self, batch: ConceptBatch, number: int, features: Tensor | None = None, before: Tensor | None = None
    ) -> Columns:
        """Score a batch, the first image of which has a number.

        With the features of its images and of those before a substitution, if the backbone has run.
        """
        images = batch.images
        if features is None:
            sharing = shares_features(self.model)
            images = to_model(self.model.features if sharing else self.model.concept_predictor, images)
        outputs = concept_outputs(self.model, images, features)
        values, logits = outputs.values, outputs.logits
        self._check_shapes(values, logits, batch)
        labels, predicted = batch.labels.to(values.device), logits.argmax(1)
        concepts = None if batch.concepts is None else batch.concepts.to(values.device)
        importances = concept_importances(self.model, values, predicted, self.variants.explanations)
        # (E, B, L): what is done for one explanation is done for all of them together.
        importance = torch.stack([*importances.values()]) if importances else values.new_empty(0, *values.shape)
        order = None if not importances else first_concepts(importance, max(self.variants.top_l))

        located = self._located_images(batch, number)
        ranked = None if located is None else self.locations.rank(importance[:, _on_device(located, values.device)])
        ranks = _to_host(torch.cat([values, logits], 1), ranked, number)
        blocks: list[Block] = [([col.LABEL, col.PREDICTED], torch.stack([labels, predicted], 1))]
        blocks += self._existence_blocks(values, importance, order, concepts)
        blocks += self._recital_blocks(batch)
        blocks += self._intervention_blocks(values, predicted, labels, concepts, number)
        blocks += self._substitution_blocks(values, batch)
        if self.variants.moves and batch.before is not None:
            earlier = concept_outputs(self.model, batch.before, before)
            blocks += self._movement_blocks(values, predicted, batch, earlier)
        if order is not None and "contribution" in importances:
            first = order[list(importances).index("contribution"), :, :1]
            blocks.append(([col.NEGATIVE_FIRST], values.gather(1, first) < 0))
        if located is not None:
            blocks += self._location_blocks(images, outputs.features, batch, located, ranks)
        sums = None
        if self.variants.class_concepts is not None and importances:
            sums = class_sums(importance, labels, labels == predicted, len(self.variants.class_concepts))
        return Columns(
            [score for scores, _ in blocks for score in scores],
            torch.cat([block.to(values.device) for _, block in blocks], 1).to(torch.float32),
            sums,
            (logits.shape[1], values.shape[1]),
        )

    def _existence_blocks(
        self, values: Tensor, importance: Tensor, order: Tensor | None, concepts: Tensor | None
    ) -> list[Block]:
        if concepts is None:
            return []
        variants, blocks = self.variants, list[Block]()
        if order is not None:
            blocks.append(([col.DENSITY], concepts.mean(1, keepdim=True, dtype=torch.float32)))
        if variants.accuracies and self.threshold is not None:
            right = ((values >= self.threshold) == (concepts > 0.5)).float()
            for score, chosen in variants.accuracies.items():
                of_columns = right if chosen is None else right[:, chosen.to(right.device)]
                blocks.append(([score], of_columns.mean(1, keepdim=True)))
        if order is not None:
            presence = ranked_presence(importance, concepts.expand(importance.shape), order)
            for metric, numbers in ((col.PRESENCE, presence), (col.ORDER, order)):
                ranks = range(1, order.shape[2] + 1)
                scores = [Score(metric, name, rank) for name in variants.explanations for rank in ranks]
                blocks.append((scores, numbers.transpose(0, 1).flatten(1)))
        return blocks

    def _recital_blocks(self, batch: ConceptBatch) -> list[Block]:
        """Return CEM of the commonest concepts of each true class, on the host, where labels come from."""
        variants = self.variants
        if not self.baselines or batch.concepts is None or variants.class_concepts is None or not variants.explanations:
            return []
        importance = class_recital(torch.as_tensor(variants.class_concepts), batch.labels.cpu())
        presence = ranked_presence(importance, batch.concepts.cpu(), first_concepts(importance, max(variants.top_l)))
        scores = [Score(col.CEM, l=top, baseline=col.CLASS_RECITAL) for top in variants.top_l]
        return [(scores, existence(presence, variants.top_l))]

    def _intervention_blocks(
        self, values: Tensor, predicted: Tensor, labels: Tensor, concepts: Tensor | None, number: int
    ) -> list[Block]:
        interventions = self.variants.interventions
        if interventions is None:
            return []
        if concepts is None:
            raise ValueError(
                "Interventions need concept labels: give argument `concept_labels`, or a `loader` of (images, labels, "
                "concept labels)."
            )
        answered = interventions.predictions(
            self.model, values, predicted, concepts > 0.5, self.levels, self.threshold, number
        )
        return [([Score(col.INTERVENED, *name)], (classes == labels)[:, None]) for name, classes in answered]

    def _substitution_blocks(self, values: Tensor, batch: ConceptBatch) -> list[Block]:
        if batch.added is None or batch.removed is None or self.threshold is None:
            return []
        scores = substitution(values, batch.added, batch.removed, self.threshold)
        blocks: list[Block] = [
            ([col.ADDED, col.REMOVED], torch.stack([batch.added, batch.removed], 1)),
            ([col.PLUS, col.MINUS], torch.stack([scores.added, scores.removed], 1)),
        ]
        if self.variants.class_concepts is not None:
            class_truth = torch.as_tensor(self.variants.class_concepts >= MAJORITY)[batch.labels.cpu()]
            blocks.append(([col.RECITAL], recital(values, class_truth, self.threshold)[:, None]))
        return blocks

    def _movement_blocks(
        self, values: Tensor, predicted: Tensor, batch: ConceptBatch, earlier: ConceptOutputs
    ) -> list[Block]:
        moved = movement(earlier.values, values, torch.as_tensor(batch.added), torch.as_tensor(batch.removed))
        # Whatever the threshold.
        rises = (moved.added > 0).float().masked_fill(moved.added.isnan(), torch.nan)
        class_kept = (predicted == earlier.logits.argmax(1)).to(rises)
        columns = (moved.added, moved.removed, moved.others, rises, moved.selectivity, class_kept)
        return [([*col.MOVES], torch.stack(columns, 1))]

    def _located_images(self, batch: ConceptBatch, number: int) -> np.ndarray | slice | None:
        """Return which images of a batch have their CLM computed; None if CLM is not."""
        if not self.variants.located_tops or batch.points is None:
            return None
        if self.stride == 1:
            return slice(None)
        place = np.arange(len(batch.images)) + number + self.offset
        return np.flatnonzero(place % self.stride == 0)

    def _location_blocks(
        self,
        images: Tensor,
        features: Tensor | None,
        batch: ConceptBatch,
        located: np.ndarray | slice,
        ranks: np.ndarray,
    ) -> list[Block]:
        points = to_numpy(batch.points)
        elsewhere = to_numpy(batch.elsewhere) if self.baselines and batch.elsewhere is not None else None
        if isinstance(located, slice):
            return self.locations.columns(self.model, images, features, ranks, points, elsewhere)
        # The other images have NaN.
        scores = self.locations.scores(baselines=elsewhere is not None, several=points.shape[2] > 1)
        empty = torch.full((len(images), 1 + len(scores)), torch.nan)
        if not len(located):
            return [([col.FINITE_MAPS, *scores], empty)]
        rows = torch.as_tensor(located)
        located_features = None if features is None else features[rows.to(features.device)]
        other_points = None if elsewhere is None else elsewhere[located]
        blocks = self.locations.columns(
            self.model, images[rows.to(images.device)], located_features, ranks, points[located], other_points
        )
        block = torch.cat([block_columns.to(torch.float32) for _, block_columns in blocks], 1)
        empty = empty.to(block.device).index_copy(0, rows.to(block.device), block)
        return [([col.FINITE_MAPS, *scores], empty)]

    def _check_shapes(self, values: Tensor, logits: Tensor, batch: ConceptBatch) -> None:
        check_shape("values of the model", values, ("B", "L"), (None, self.variants.n_concepts))
        check_shape("logits of the model", logits, ("B", "K"), (None, self.variants.n_classes))
        self.variants.check_tops(values.shape[1])
        if batch.concepts is not None:
            check_shape("concepts", batch.concepts, ("B", "L"), tuple(values.shape))


def _to_host(numbers: Tensor, ranked: Tensor | None, number: int) -> np.ndarray:
    """Return ranks (b, E, T + 1) on the host; raise where values and logits (B, L + K) are not finite."""
    # The largest absolute number is not finite if any is not.
    largest = torch.linalg.vector_norm(numbers, torch.inf, 1)
    # The one transfer from the device for each batch and model.
    host_numbers = (largest if ranked is None else torch.cat([largest, ranked.flatten()])).cpu().numpy()
    check_finite("a concept value or logit", np.isfinite(host_numbers[: len(numbers)]), number)
    shape = (0, 0, 0) if ranked is None else tuple(ranked.shape)
    return host_numbers[len(numbers) :].reshape(shape).astype(np.int64)


def check_finite(what: str, finite: np.ndarray, number: int) -> None:
    """Raise where an image, the first of which has a number, gave something that is not finite."""
    bad = np.flatnonzero(finite == 0)
    if len(bad):
        raise ValueError(
            f"Expected only finite numbers but {what} of image {number + int(bad[0])} (from 0) holds NaN or infinity. "
            "Repair the image or the model's weights."
        )


def _on_device(rows: np.ndarray | slice, device: torch.device) -> slice | Tensor:
    return rows if isinstance(rows, slice) else torch.as_tensor(rows, device=device)
