"""Concept models and controls scored together on substitutions: on batches, or from ranges scored elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from captum_concepts.progress import progress
from captum_concepts.running import evaluation_mode
from quantus_concepts.metrics.concept_batches import ConceptBatches
from quantus_concepts.metrics.concept_scoring import named_controls, named_models, names_of, threshold_of
from quantus_concepts.metrics.inference import backbone_features
from quantus_concepts.metrics.protocols import ConceptModel, shares_features
from quantus_concepts.metrics.score_rows import Row, control_table, score_table
from quantus_concepts.metrics.substitution_rows import LABEL_COLUMN, PREDICTED_COLUMN, AboutImages, summed
from quantus_concepts.metrics.substitution_scorer import SeenScorer, SubstitutionScorer
from quantus_concepts.metrics.truth import checked_class_concepts

CHANCE = 0.5
#: Of the rows of `SubstitutionScoring`: which model, and how many classes and concepts it has.
_SHAPE = ("classes", "concepts")


class SubstitutionScoring:
    """Concept models and their scores of the images so far; arguments as `score_substitutions`."""

    def __init__(
        self,
        model: ConceptModel | Mapping[str, ConceptModel],
        *,
        class_concepts: Any = None,
        threshold: float | Mapping[str, float] = 0.5,
        controls: Sequence[ConceptModel] | Mapping[str, Sequence[ConceptModel]] = (),
    ) -> None:
        models, drawn = named_models(model), named_controls(controls)
        self._truth = None if class_concepts is None else checked_class_concepts(class_concepts)
        self._names, self._n_models = [name for name, _ in [*models, *drawn]], len(models)
        self._scorers = [
            SubstitutionScorer(each, threshold_of(threshold, name, "threshold", 0.5), self._truth)
            for name, each in [*models, *drawn]
        ]

    def run(self, loader: Iterable[Any], bound: dict[str, np.ndarray | None], display_progressbar: bool) -> None:
        """Score every batch; models of one backbone share its features."""
        self._run(self._scorers, loader, bound, display_progressbar)

    def rows(self) -> pd.DataFrame:
        """Return a row for each model and image, of all that scores are made of."""
        tables = [
            pd.DataFrame(scorer.columns()).assign(model=number, **dict(zip(_SHAPE, scorer.shape, strict=True)))
            for number, scorer in enumerate(self._scorers)
        ]
        return pd.concat(tables, ignore_index=True)

    def take(self, rows: pd.DataFrame) -> None:
        """Take rows of all images over as if they had been scored here."""
        for number, scorer in enumerate(self._scorers):
            own = rows[rows["model"] == number]
            n_classes, n_concepts = (int(own[name].iloc[0]) for name in _SHAPE)
            scorer.take(own.drop(columns=["model", *_SHAPE]), (n_classes, n_concepts))

    def about(
        self, pairs: np.ndarray | None, class_names: Sequence[str] | None, concept_names: Sequence[str] | None
    ) -> AboutImages:
        """Tell what the images are about."""
        given = {"class_names": class_names, "concept_names": concept_names}
        scorer = self._scorers[0]
        named = [names_of(name, each, count) for (name, each), count in zip(given.items(), scorer.shape, strict=True)]
        return AboutImages(scorer.columns(), pairs, *named)

    def images(self, about: AboutImages) -> pd.DataFrame:
        """Return a row for each image and score of the models."""
        tables = []
        for name, scorer in zip(self._names[: self._n_models], self._scorers, strict=False):
            predicted = about.class_names[scorer.columns()[PREDICTED_COLUMN].astype(np.int64)]
            tables.append(about.images(scorer.scores(), name, predicted))
        return pd.concat(tables, ignore_index=True)

    def table(self, about: AboutImages, seen: Iterable[Any] | None, display_progressbar: bool) -> pd.DataFrame:
        """Return a row for each number, those of images without substitution too, models in order and controls last."""
        accuracies = [SeenScorer(each.model, each.threshold, about.put_in) for each in self._scorers]
        if seen is not None:
            self._run(accuracies, seen, {}, display_progressbar)
        half = dict.fromkeys(("S+", "S-"), np.full(len(about.labels), CHANCE))
        found: list[list[Row]] = []
        for place, (name, scorer, accuracy) in enumerate(zip(self._names, self._scorers, accuracies, strict=True)):
            # What lies between controls is told by the controls.
            alone = place < self._n_models
            rows = about.rows(scorer.scores(), half, alone)
            if seen is not None:
                columns = accuracy.columns()
                clusters = columns.pop(LABEL_COLUMN)
                chances = np.full(len(clusters), CHANCE)
                rows += [summed(metric, column, clusters, chances, alone) for metric, column in columns.items()]
            found.append([row | {"model": name} for row in rows])
        tables = [score_table(rows) for rows in found[: self._n_models]]
        drawn = found[self._n_models :]
        return pd.concat([*tables, *([control_table(drawn)] if drawn else [])], ignore_index=True)

    def _run(
        self,
        scorers: Sequence[SubstitutionScorer | SeenScorer],
        loader: Iterable[Any],
        bound: dict[str, np.ndarray | None],
        show: bool,
    ) -> None:
        n_classes, n_concepts = (None, None) if self._truth is None else self._truth.shape
        of = {"n_classes": n_classes, "n_concepts": n_concepts}
        batches = ConceptBatches(loader, bound, **of, last_part=-1, elsewhere=None)
        models = [scorer.model for scorer in scorers]
        with ExitStack() as stack, torch.no_grad():
            for model in models:
                stack.enter_context(evaluation_mode(model, model.features, model.concept_predictor, model.head))
            for batch in progress(batches, "evaluating", unit="batch", show=show):
                after, before = _features(models, batch.images), _features(models, batch.before)
                for scorer, *features in zip(scorers, after, before, strict=True):
                    scorer.add(batch, *features)


def _features(models: Sequence[ConceptModel], images: Tensor | None) -> Iterator[Tensor | None]:
    """Yield what the backbone of each model gives, made once a backbone; None where a model takes no features."""
    shared: dict[int, tuple[nn.Module, Tensor]] = {}
    for model in models:
        if images is None or not shares_features(model):
            yield None
            continue
        # The module is held, or another one could get its id.
        module = model.features
        if id(module) not in shared:
            shared[id(module)] = module, backbone_features(model, images)
        yield shared[id(module)][1]
