"""The columns of numbers that one concept model gives for each image, and sums over its classes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from captum_concepts._support.checks import check_shape, check_whole, to_numpy
from captum_concepts._support.running import to_model
from captum_concepts.models.interventions import Levels
from quantus_concepts.functional.cem import ranked_presence
from quantus_concepts.functional.cgim import ClassSums, agreement
from quantus_concepts.functional.clm import running_means
from quantus_concepts.functional.interventions import (
    ORDERS,
    checked_groups,
    intervene_values,
    intervention_counts,
    intervention_ranks,
)
from quantus_concepts.functional.ranking import first_concepts
from quantus_concepts.functional.substitution import MAJORITY, movement, recital, substitution
from quantus_concepts.metrics.concepts.locations import Locations
from quantus_concepts.metrics.host.model import (
    ConceptModel,
    class_logits,
    concept_importances,
    concept_outputs,
    linear_weights,
    shares_features,
)
from quantus_concepts.metrics.host.rows import RowBuffer
from quantus_concepts.metrics.streaming import names as col
from quantus_concepts.metrics.streaming.batches import ConceptBatch
from quantus_concepts.metrics.streaming.names import Block, Score

#: The name of the rows among what is recorded.
ROWS = "rows"


def interventions_after(counts: Sequence[int], seed: int) -> Interventions | None:
    """Return interventions in every order after these numbers of answers; None if there are none."""
    return Interventions(tuple(counts), ORDERS, None, seed) if counts else None


@dataclass(frozen=True)
class Interventions:
    """After how many answers, in which orders, about which concepts together; the doubling numbers without `counts`."""

    counts: tuple[int, ...] | None
    orders: tuple[str, ...]
    groups: Any
    seed: int
    answers: tuple[str, ...] = ("", col.WRONG_LABELS)

    def of_controls(self) -> Interventions:
        """Return the interventions on baseline models, of which there are many: one order, and right answers."""
        return replace(self, orders=self.orders[:1], answers=("",))

    def counts_of(self, n_concepts: int) -> tuple[int, ...]:
        """Return after how many answers, or raise where there are not as many to give."""
        n_groups = int(checked_groups(self.groups, n_concepts).max()) + 1
        if self.counts is None:
            return intervention_counts(n_groups)
        for count in self.counts:
            check_whole("counts", count, 0, n_groups)
        return self.counts

    def predictions(
        self,
        model: ConceptModel,
        values: Tensor,
        predicted: Tensor,
        present: Tensor,
        levels: Levels | None,
        boundary: float | None,
        first: int,
    ) -> Iterator[tuple[tuple[str, int, None, str], Tensor]]:
        """Yield the classes (N,) predicted by the head, with order, number of answers and "" or "wrong labels"."""
        low, high = levels or (torch.zeros(values.shape[1]), torch.ones(values.shape[1]))
        check_shape("levels", low, ("L",), (values.shape[1],))
        low, high = low.to(values), high.to(values)
        options: dict[str, Any] = {"groups": self.groups, "seed": self.seed, "first": first}
        options["boundary"] = (low + high) / 2 if boundary is None else boundary
        if "contribution" in self.orders:
            options["weights"] = concept_importances(model, values, predicted, ("weight",))["weight"]
        counts, ranks = self.counts_of(values.shape[1]), dict[str, Tensor]()
        for answer in self.answers:
            targets = torch.where(~present if answer else present, high, low)
            for order in self.orders:
                if order not in ranks or order == "contribution":
                    # The others do not depend on the answers.
                    ranks[order] = intervention_ranks(order, values, targets, **options)
                after = intervene_values(values, targets, ranks[order], counts)
                # One call for all counts: a call of a head costs more than its product.
                classes = class_logits(model, after.flatten(0, 1)).argmax(1).view(len(counts), -1)
                yield from (((order, count, None, answer), row) for count, row in zip(counts, classes, strict=True))


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
        self._theta: Tensor | None = None
        #: Sums (K, E * L) of the importances by the E explanations.
        self._sums: ClassSums | None = None
        #: Rows and importances (N, E, L) of all images, on the model's device.
        self._rows, self._importance = RowBuffer(), RowBuffer() if record else None
        self._locations = Locations(variants.explanations, variants.located_tops, variants.alphas, variants.parts)

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
        labels, predicted = batch.labels.to(values.device), logits.argmax(1)
        concepts = None if batch.concepts is None else batch.concepts.to(values.device)
        importances = concept_importances(self.model, values, predicted, self.variants.explanations)
        # (E, B, L): what is done for one explanation is done for all of them together.
        importance = torch.stack([*importances.values()]) if importances else values.new_empty(0, *values.shape)
        order = None if not importances else first_concepts(importance, max(self.variants.top_l))

        located = self._located_images(batch)
        ranked = None if located is None else self._locations.rank(importance[:, _on_device(located, values.device)])
        ranks = self._to_host(torch.cat([values, logits], 1), ranked)
        self._add_to_sums(importance, labels, labels == predicted)
        blocks: list[Block] = [([col.LABEL, col.PREDICTED], torch.stack([labels, predicted], 1))]
        blocks += self._existence_blocks(values, importance, order, concepts)
        blocks += self._intervention_blocks(values, predicted, labels, concepts)
        blocks += self._substitution_blocks(values, batch)
        if self.variants.moves and batch.before is not None:
            blocks += self._movement_blocks(values, predicted, batch, before)
        if order is not None and "contribution" in importances:
            first = order[list(importances).index("contribution"), :, :1]
            blocks.append(([col.NEGATIVE_FIRST], values.gather(1, first) < 0))
        if located is not None:
            blocks += self._location_blocks(images, outputs.features, batch, located, ranks)
        self.scores = [score for scores, _ in blocks for score in scores]
        self._rows.add(torch.cat([block.to(values.device) for _, block in blocks], 1).to(torch.float32))

    def recording(self) -> dict[str, Tensor]:
        """Return what `load` loads: the numbers (N, columns) of all images, and importance (N, L) by explanation."""
        recorded = {ROWS: self._finite_rows()}
        if self._importance is not None and len(self._importance):
            importance = self._importance.rows.cpu()
            recorded |= {name: importance[:, index] for index, name in enumerate(self.variants.explanations)}
        return recorded

    def load(self, recorded: Mapping[str, Tensor], scores: list[Score], shape: Sequence[int]) -> None:
        """Add what another stream recorded of the next batch."""
        self._theta = linear_weights(self.model.head)
        self.scores, self.shape = scores, (shape[0], shape[1])
        rows = recorded[ROWS]
        labels, predicted = (rows[:, scores.index(score)].long() for score in (col.LABEL, col.PREDICTED))
        if by_explanation := [importances for name, importances in recorded.items() if name != ROWS]:
            self._add_to_sums(torch.stack(by_explanation), labels, labels == predicted)
        self._rows.add(rows)

    def columns(self) -> dict[Score, np.ndarray]:
        """Return the numbers (N,) of all images, in float64."""
        rows = to_numpy(self._finite_rows())
        return {
            score: rows[:, index].astype(np.float64)
            for index, score in enumerate(self.scores)
            if score != col.FINITE_MAPS
        }

    def _finite_rows(self) -> Tensor:
        """Return the rows (N, columns) of all images on the CPU; raise where a concept map is not finite."""
        # Looked at here and not in each batch, where the device would be waited for.
        rows = self._rows.rows.cpu()
        if col.FINITE_MAPS in self.scores:
            self._check_finite("a concept map", rows[:, self.scores.index(col.FINITE_MAPS)].numpy(), self._first)
        return rows

    def agreement(self, per: str) -> dict[str, np.ndarray]:
        """Return CGIM of each concept or class, by explanation."""
        if self._sums is None:
            return {}
        names = self.variants.explanations
        # (E, K, L), on the host.
        means = self._sums.on_host().compute().unflatten(1, (len(names), -1)).transpose(0, 1)
        if "weight" in names and self._theta is not None:
            # Eqs. 3 and 6 take all of theta: a linear head's weights need no image of their class.
            means = means.contiguous()
            means[names.index("weight")] = self._theta
        scores = agreement(means, torch.as_tensor(self.variants.class_concepts), per).numpy()
        return dict(zip(names, scores, strict=True))

    def _to_host(self, numbers: Tensor, ranked: Tensor | None) -> np.ndarray:
        """Return ranks (b, E, T) on the host; raise where values and logits (B, L + K) are not finite."""
        # The largest absolute number is not finite if any is not.
        largest = torch.linalg.vector_norm(numbers, torch.inf, 1)
        # The one transfer from the device for each batch and model.
        host_numbers = (largest if ranked is None else torch.cat([largest, ranked.flatten()])).cpu().numpy()
        finite = np.isfinite(host_numbers[: len(numbers)])
        self._check_finite("a concept value or logit", finite, self._first + self.n_images)
        shape = (0, 0, 0) if ranked is None else tuple(ranked.shape)
        return host_numbers[len(numbers) :].reshape(shape).astype(np.int64)

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
            present = concepts.expand(importance.shape)
            presence = ranked_presence(importance, present, order)
            # For every l the mean over the first l.
            shares = running_means(presence[..., None], variants.top_l)[..., 0]
            scores = [Score(col.CEM, name, top) for name in variants.explanations for top in variants.top_l]
            blocks.append((scores, shares.transpose(0, 1).flatten(1)))
        return blocks

    def _intervention_blocks(
        self, values: Tensor, predicted: Tensor, labels: Tensor, concepts: Tensor | None
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
            self.model, values, predicted, concepts > 0.5, self._levels, self.threshold, self._first + self.n_images
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
        self, values: Tensor, predicted: Tensor, batch: ConceptBatch, features: Tensor | None
    ) -> list[Block]:
        earlier = concept_outputs(self.model, batch.before, features)
        moved = movement(earlier.values, values, torch.as_tensor(batch.added), torch.as_tensor(batch.removed))
        # Whatever the threshold.
        rises = (moved.added > 0).float().masked_fill(moved.added.isnan(), torch.nan)
        class_kept = (predicted == earlier.logits.argmax(1)).to(rises)
        columns = (moved.added, moved.removed, moved.others, rises, moved.selectivity, class_kept)
        return [([*col.MOVES], torch.stack(columns, 1))]

    def _add_to_sums(self, importance: Tensor, labels: Tensor, correct: Tensor) -> None:
        """Add importances (E, B, L) of samples to the sums of their classes."""
        if self.variants.class_concepts is None or not len(importance):
            return
        by_image = importance.transpose(0, 1)
        if self._sums is None:
            n_classes, n_concepts = self.variants.class_concepts.shape
            self._sums = ClassSums(n_classes, len(importance) * n_concepts, importance.device)
        self._sums.add(by_image.flatten(1), labels, correct)
        if self._importance is not None:
            self._importance.add(by_image)

    def _located_images(self, batch: ConceptBatch) -> np.ndarray | slice | None:
        """Return which images of a batch have their CLM computed; None if CLM is not."""
        if not self.variants.located_tops or batch.points is None:
            return None
        if self._stride == 1:
            return slice(None)
        place = np.arange(len(batch.images)) + self._first + self.n_images + self._offset
        return np.flatnonzero(place % self._stride == 0)

    def _location_blocks(
        self,
        images: Tensor,
        features: Tensor | None,
        batch: ConceptBatch,
        located: np.ndarray | slice,
        ranks: np.ndarray,
    ) -> list[Block]:
        points = to_numpy(batch.points)
        elsewhere = to_numpy(batch.elsewhere) if self._baselines and batch.elsewhere is not None else None
        if isinstance(located, slice):
            return self._locations.columns(self.model, images, features, ranks, points, elsewhere)
        # The other images have NaN.
        scores = self._locations.scores(baselines=elsewhere is not None, several=points.shape[2] > 1)
        empty = torch.full((len(images), 1 + len(scores)), torch.nan)
        if not len(located):
            return [([col.FINITE_MAPS, *scores], empty)]
        rows = torch.as_tensor(located)
        located_features = None if features is None else features[rows.to(features.device)]
        other_points = None if elsewhere is None else elsewhere[located]
        blocks = self._locations.columns(
            self.model, images[rows.to(images.device)], located_features, ranks, points[located], other_points
        )
        block = torch.cat([block_columns.to(torch.float32) for _, block_columns in blocks], 1)
        empty = empty.to(block.device).index_copy(0, rows.to(block.device), block)
        return [([col.FINITE_MAPS, *scores], empty)]

    def _check_shapes(self, values: Tensor, logits: Tensor, batch: ConceptBatch) -> None:
        check_shape("values of the model", values, ("B", "L"), (None, self.variants.n_concepts))
        check_shape("logits of the model", logits, ("B", "K"), (None, self.variants.n_classes))
        if self.n_images == 0:
            self.variants.check_tops(values.shape[1])
            self.shape = (logits.shape[1], values.shape[1])
        if batch.concepts is not None:
            check_shape("concepts", batch.concepts, ("B", "L"), tuple(values.shape))

    def _check_finite(self, what: str, finite: np.ndarray, first: int) -> None:
        """Raise where an image, the first of which has a number, gave something that is not finite."""
        bad = np.flatnonzero(finite == 0)
        if len(bad):
            raise ValueError(
                f"Expected only finite numbers but {what} of image {first + int(bad[0])} (from 0) "
                "holds NaN or infinity. Repair the image or the model's weights."
            )


def _on_device(rows: np.ndarray | slice, device: torch.device) -> Any:
    return rows if isinstance(rows, slice) else torch.as_tensor(rows, device=device)
