"""Streaming evaluation of a concept model: one backbone pass an image, every variant of CEM, CLM and CGIM."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from captum_concepts.checks import check_binary, check_choice, check_finite, check_range, check_shape, to_numpy
from captum_concepts.progress import progress
from captum_concepts.running import evaluation_mode, to_model
from quantus_concepts.datasets.base import ConceptSample
from quantus_concepts.functional import ClassMeans, cgim, clm, point_hits, rank_concepts
from quantus_concepts.metrics.inference import IMPORTANCES, concept_importance, linear_weights
from quantus_concepts.metrics.protocols import ConceptModel, shares_features
from quantus_concepts.studies.concepts.baselines import EarlierPoints, GaussianRegion
from quantus_concepts.studies.concepts.growing import GrowingRows
from quantus_concepts.studies.concepts.results import GAUSSIAN, OTHER_IMAGE
from quantus_concepts.studies.concepts.scores import ConceptScores
from quantus_concepts.studies.loading import batch_labels

#: A column of scores: metric, what ranked (or which baseline), l, alpha.
Key = tuple[str, str, int, float]


def collect(
    model: ConceptModel,
    loader: Iterable[ConceptSample],
    part_of_concept: Tensor | Sequence[int],
    class_concepts: Tensor,
    *,
    tops: Sequence[int] = (1, 3, 5),
    alphas: Sequence[float] = (1.0, 3.0, 6.0),
    importances: Sequence[str] = IMPORTANCES,
    value_threshold: float | None = None,
    seed: int = 0,
    display_progressbar: bool = False,
) -> ConceptScores:
    """Score a concept model on images, every variant of the three metrics at once (Aysel et al. 2025)."""
    # The backbone runs once an image where the model shares its features (`FeatureSharing`); otherwise a second
    # time for the maps. The class explained is the *predicted* one. Only maps of concepts that some importance
    # ranks first are made, each once. The model runs on its own device and in eval mode, and is left as it was.
    # Memory does not grow with the images except by the scores (N,) and the part points (N, P, Q, 2).
    return collect_all(
        [ScoredModel(model, value_threshold)],
        loader,
        part_of_concept,
        class_concepts,
        tops=tops,
        alphas=alphas,
        importances=importances,
        seed=seed,
        display_progressbar=display_progressbar,
    )[0]


class ScoredModel(NamedTuple):
    """A model to score, and how: the value above which its concepts count as present, and what is wanted of CLM."""

    model: ConceptModel
    value_threshold: float | None = None
    baselines: bool = True
    maps_every: int = 1


def collect_all(
    models: Sequence[ScoredModel],
    loader: Iterable[ConceptSample],
    part_of_concept: Tensor | Sequence[int],
    class_concepts: Tensor,
    *,
    tops: Sequence[int] = (1, 3, 5),
    alphas: Sequence[float] = (1.0, 3.0, 6.0),
    importances: Sequence[str] = IMPORTANCES,
    seed: int = 0,
    display_progressbar: bool = False,
) -> list[ConceptScores]:
    """Score models as `collect` does, in one pass over the images: models of one backbone share its features."""
    scorers = [
        _Scorer(part_of_concept, class_concepts, tops, alphas, importances, seed, number, scored)
        for number, scored in enumerate(models)
    ]
    rows = [GrowingRows() for _ in models]
    with ExitStack() as stack, torch.no_grad():
        for scored in models:
            stack.enter_context(_evaluation_mode(scored.model))
        for batch in progress(loader, "evaluating", unit="batch", show=display_progressbar):
            scorers[0].check_batch(batch)
            shared: dict[int, tuple[nn.Module, Tensor, Tensor]] = {}
            for (model, *_), scorer, kept in zip(models, scorers, rows, strict=True):
                known = None
                if shares_features(model):
                    # The module is held, or another one could get its id.
                    module = model.features
                    if id(module) not in shared:
                        inputs = to_model(module, batch.image)
                        shared[id(module)] = module, inputs, module(inputs)
                    known = shared[id(module)][1:]
                # One transfer from the device for each batch and model.
                kept.add(scorer.score(model, batch, known).cpu())
    if any(not len(kept) for kept in rows):
        raise ValueError("Expected argument `loader` to give at least one batch but it is empty.")
    return [scorer.scores(to_numpy(kept.rows)) for scorer, kept in zip(scorers, rows, strict=True)]


@contextmanager
def _evaluation_mode(model: ConceptModel) -> Iterator[None]:
    modules = [model] if isinstance(model, nn.Module) else [model.features, model.concept_predictor, model.head]
    with ExitStack() as stack:
        for module in modules:
            stack.enter_context(evaluation_mode(module))
        yield


class _Scorer:
    """Turns batches into rows of scores; keeps only class sums and the points seen so far."""

    def __init__(
        self,
        part_of_concept: Tensor | Sequence[int],
        class_concepts: Tensor,
        tops: Sequence[int],
        alphas: Sequence[float],
        importances: Sequence[str],
        seed: int,
        number: int,
        scored: ScoredModel,
    ) -> None:
        check_shape("class_concepts", class_concepts, ("K", "L"), (None, None))
        check_finite("class_concepts", class_concepts)
        self.class_concepts = torch.as_tensor(class_concepts)
        self.n_classes, self.n_concepts = self.class_concepts.shape
        self.parts = torch.as_tensor(part_of_concept)
        check_shape("part_of_concept", self.parts, ("L",), (self.n_concepts,))
        for importance in importances:
            check_choice("importances", importance, IMPORTANCES)
        for alpha in alphas:
            check_range("alphas", alpha, 0, 12, open_low=True)
        for top in tops:
            check_range("tops", top, 1, self.n_concepts)
        if not tops or not importances or not alphas:
            raise ValueError("Expected arguments `tops`, `alphas` and `importances` to hold something.")
        self.tops, self.alphas, self.importances = tuple(tops), tuple(alphas), tuple(importances)
        n_localisable = int((self.parts >= 0).sum())
        self.clm_tops = tuple(top for top in self.tops if top <= n_localisable)
        self.value_threshold = scored.value_threshold
        self.baselines, self.maps_every, self.number = scored.baselines, scored.maps_every, number
        self.theta: Tensor | None = None
        self.earlier = EarlierPoints(seed)
        self.region = GaussianRegion(self.alphas)
        self.means: dict[str, ClassMeans] = {}
        self.n_seen = 0
        self.columns: list[Key] = []

    def score(self, model: ConceptModel, batch: ConceptSample, shared: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """Return one row of scores an image, in the order of `self.columns`; `shared` is the input and its features."""
        features = None
        if shared is not None and shares_features(model):
            inputs, features = shared
            values = model.values_from_features(features)
        else:
            inputs = to_model(model if isinstance(model, nn.Module) else model.features, batch.image)
            values = model.concept_predictor(inputs)
        logits = model.head(values)
        self._check_outputs(values, logits)
        if self.n_seen == 0:
            self.theta = linear_weights(model.head)
        labels = batch_labels(batch).to(values.device)
        present = batch.concepts.to(values.device)
        predicted = logits.argmax(1)
        importance = self._importance(model, values, predicted)
        self._update_means(importance, labels, labels == predicted)

        columns: dict[Key, Tensor] = {
            ("label", "", 0, 0.0): labels,
            ("predicted", "", 0, 0.0): predicted,
            ("density", "", 0, 0.0): present.mean(1, dtype=torch.float32),
        }
        if self.value_threshold is not None:
            right = (values > self.value_threshold) == (present > 0.5)
            columns["concept accuracy", "", 0, 0.0] = right.float().mean(1)
        if "contribution" in importance:
            first = rank_concepts(importance["contribution"], 1)
            columns["negative first", "", 0, 0.0] = values.gather(1, first)[:, 0] < 0
        for name, scored in importance.items():
            # As `functional.cem`, ranked once for all l.
            hits = present.gather(1, rank_concepts(scored, max(self.tops))).to(values.dtype)
            for top in self.tops:
                columns["cem", name, top, 0.0] = hits[:, :top].mean(1)
        if self.clm_tops:
            columns |= self._some_locations(model, inputs, features, importance, batch.points)
        self.n_seen += len(labels)
        self.columns = list(columns)
        return torch.stack([column.to(torch.float32) for column in columns.values()], 1)

    def scores(self, rows: np.ndarray) -> ConceptScores:
        """Make the result of all rows (N, columns)."""
        table = {key: rows[:, index].astype(np.float64) for index, key in enumerate(self.columns)}

        def pick(metric: str) -> dict[Key, np.ndarray]:
            return {key: column for key, column in table.items() if key[0] == metric}

        by_importance = {name: means.compute() for name, means in self.means.items()}
        if "weight" in by_importance and self.theta is not None:
            # Eqs. 3 and 6 take all of theta: a linear head's weights need no image of their class.
            by_importance["weight"] = self.theta.to(by_importance["weight"])
        truth = self.class_concepts
        graded = {
            per: {
                name: to_numpy(cgim(mean, truth.to(mean.device, mean.dtype), per))
                for name, mean in by_importance.items()
            }
            for per in ("concept", "class")
        }
        labels = table["label", "", 0, 0.0]
        return ConceptScores(
            labels=labels.astype(np.int64),
            predicted=table["predicted", "", 0, 0.0].astype(np.int64),
            density=table["density", "", 0, 0.0],
            concept_accuracy=table.get(("concept accuracy", "", 0, 0.0), np.full(len(labels), np.nan)),
            negative_first=table.get(("negative first", "", 0, 0.0), np.full(len(labels), np.nan)),
            cem={key[1:3]: column for key, column in pick("cem").items()},
            clm={key[1:]: column for key, column in pick("clm").items()},
            clm_baselines={key[1:]: column for key, column in pick("baseline").items()},
            class_importance={name: to_numpy(mean) for name, mean in by_importance.items()},
            cgim_concept=graded["concept"],
            cgim_class=graded["class"],
        )

    def _importance(self, model: ConceptModel, values: Tensor, predicted: Tensor) -> dict[str, Tensor]:
        if self.importances == ("value",):
            return {"value": values}
        weight = concept_importance(model, values, predicted, "weight")
        every = {"weight": weight, "value": values, "contribution": weight * values}
        return {name: every[name] for name in self.importances}

    def _update_means(self, importance: dict[str, Tensor], labels: Tensor, correct: Tensor) -> None:
        for name, values in importance.items():
            if name not in self.means:
                self.means[name] = ClassMeans(self.n_classes, self.n_concepts, device=values.device)
            self.means[name].update(values, labels, correct)

    def _some_locations(
        self,
        model: ConceptModel,
        inputs: Tensor,
        features: Tensor | None,
        importance: dict[str, Tensor],
        points: Tensor,
    ) -> dict[Key, Tensor]:
        """Return `_locations`, where asked for of some images only: other ones for each model."""
        if self.maps_every == 1:
            return self._locations(model, inputs, features, importance, points)
        place = torch.arange(self.n_seen + self.number, self.n_seen + self.number + len(inputs), device=inputs.device)
        asked = place % self.maps_every == 0
        # With none asked for, one is scored for its columns.
        rows = asked.nonzero()[:, 0] if asked.any() else place.new_zeros(1)
        chosen = {name: values[rows] for name, values in importance.items()}
        some = None if features is None else features[rows]
        found = self._locations(model, inputs[rows], some, chosen, points[rows.to(points.device)])
        empty = next(iter(found.values())).new_full((len(inputs),), torch.nan)
        return {key: empty.index_copy(0, rows, column).where(asked, empty) for key, column in found.items()}

    def _locations(
        self,
        model: ConceptModel,
        inputs: Tensor,
        features: Tensor | None,
        importance: dict[str, Tensor],
        points: Tensor,
    ) -> dict[Key, Tensor]:
        device = next(iter(importance.values())).device
        baselines: dict[str, Tensor] = {}
        parts = self.parts.to(device)
        ranked = torch.stack(
            [rank_concepts(importance[name], max(self.clm_tops), eligible=parts >= 0) for name in self.importances],
            1,
        )
        # Each (image, concept) once, however many importances rank it.
        image, concept, place = _distinct(ranked.flatten(1), self.n_concepts)
        maps = self._maps(model, inputs, features, image, concept)
        size = (int(inputs.shape[-2]), int(inputs.shape[-1]))
        points = points.to(device=device, dtype=maps.dtype)
        own = point_hits(maps, points[image, parts[concept]], size, self.alphas)
        # Ranked by (B, importances, count), hits by (..., alphas).
        hits = own[place].unflatten(1, ranked.shape[1:])

        if self.baselines:
            last = ranked[:, -1]
            chosen, back = torch.unique(place.unflatten(1, ranked.shape[1:])[:, -1], return_inverse=True)
            others = self.earlier.draw(points)
            there = point_hits(maps[chosen], others[image[chosen], parts[concept[chosen]]], size, self.alphas)
            rows = torch.arange(len(points), device=device)[:, None]
            baselines = {OTHER_IMAGE: there[back], GAUSSIAN: self.region.hits(points[rows, parts[last]], size)}

        columns: dict[Key, Tensor] = {}
        for top in self.clm_tops:
            for a, alpha in enumerate(self.alphas):
                for index, name in enumerate(self.importances):
                    columns["clm", name, top, float(alpha)] = clm(hits[:, index, :, a], top)
                for name, baseline in baselines.items():
                    columns["baseline", name, top, float(alpha)] = clm(baseline[..., a], top)
        return columns

    def _maps(
        self, model: ConceptModel, inputs: Tensor, features: Tensor | None, image: Tensor, concept: Tensor
    ) -> Tensor:
        """Return the maps (U, h, w) of U pairs of image and concept, the images in ascending order."""
        counts = torch.bincount(image, minlength=len(inputs))
        slot = torch.arange(len(image), device=image.device) - (counts.cumsum(0) - counts)[image]
        wanted = concept.new_zeros(len(inputs), int(counts.max()))
        wanted[image, slot] = concept
        if features is not None and shares_features(model):
            maps = model.maps_from_features(features, wanted)
        else:
            maps = model.concept_maps(inputs, wanted)
        chosen = maps[image, slot]
        finite = chosen.flatten(1).isfinite().all(1)
        if not finite.all():
            self._refuse("a concept map", image[~finite])
        return chosen

    def check_batch(self, batch: ConceptSample) -> None:
        images, labels = batch.image, batch_labels(batch)
        check_shape("images", images, ("B", "C", "H", "W"), (None, None, None, None))
        check_shape("concepts", batch.concepts, ("B", "L"), (len(images), self.n_concepts))
        check_binary("concepts", batch.concepts)
        # Summing is four times faster than looking at every number, and the look is needed only rarely.
        finite = images.flatten(1).isfinite().all(1) if not images.sum().isfinite() else torch.ones(1, dtype=torch.bool)
        if not finite.all():
            self._refuse("an image", (~finite).nonzero()[:, 0])
        outside = (labels < 0) | (labels >= self.n_classes)
        if outside.any():
            raise ValueError(
                f"Expected labels in 0..{self.n_classes - 1}, as `class_concepts` has K = {self.n_classes} rows, "
                f"but got {int(labels[outside][0])}."
            )
        if self.clm_tops:
            check_shape("points", batch.points, ("B", "P", "Q", "2"), (len(images), None, None, 2))
            if int(self.parts.max()) >= batch.points.shape[1]:
                raise ValueError(
                    f"Expected argument `part_of_concept` to name parts below P = {batch.points.shape[1]} but got "
                    f"{int(self.parts.max())}."
                )

    def _check_outputs(self, values: Tensor, logits: Tensor) -> None:
        check_shape("values of the model", values, ("B", "L"), (None, self.n_concepts))
        check_shape("logits of the model", logits, ("B", "K"), (None, self.n_classes))
        finite = values.isfinite().all(1) & logits.isfinite().all(1)
        if not finite.all():
            self._refuse("a concept value or logit", (~finite).nonzero()[:, 0])

    def _refuse(self, what: str, images: Tensor) -> None:
        raise ValueError(
            f"Expected only finite numbers but {what} of image {self.n_seen + int(images[0])} (from 0) holds NaN "
            "or infinity. Repair the image or the model's weights."
        )


def _distinct(ranked: Tensor, n_concepts: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the distinct pairs of image and concept of (B, R) ranked ones, (U,) each, and which each entry is."""
    rows = torch.arange(len(ranked), device=ranked.device)[:, None]
    pairs, place = torch.unique(rows * n_concepts + ranked, return_inverse=True)
    return pairs // n_concepts, pairs % n_concepts, place
