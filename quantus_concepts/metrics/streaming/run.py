"""One pass over a loader: the backbone runs once for all models and baselines."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from captum_concepts._support.checks import as_list, check_finite, check_number, check_whole
from captum_concepts._support.progress import progress
from captum_concepts._support.running import device_of, evaluation_mode
from captum_concepts.models.interventions import Levels, check_levels
from quantus_concepts.metrics.host.checks import check_concept_order, checked_class_concepts, checked_parts, concepts_of
from quantus_concepts.metrics.host.model import IMPORTANCES, backbone_features
from quantus_concepts.metrics.host.protocols import REMEDY, ConceptModel, is_concept_model, lacking, shares_features
from quantus_concepts.metrics.host.rows import Row
from quantus_concepts.metrics.streaming.baselines import EarlierPoints
from quantus_concepts.metrics.streaming.batches import ConceptBatch, ConceptBatches
from quantus_concepts.metrics.streaming.columns import ConceptScorer, Score, Variants
from quantus_concepts.metrics.streaming.interventions import Interventions
from quantus_concepts.metrics.streaming.rows import (
    LABEL_COLUMN,
    PREDICTED_COLUMN,
    AboutImages,
    control_table,
    image_table,
    model_rows,
    model_table,
    score_table,
    summed,
)
from quantus_concepts.metrics.streaming.substitution_columns import SeenScorer, SubstitutionScorer

#: Of a model that is given without a name, and of controls that are.
MODEL, CONTROL = "model", "control"


class ConceptScoring:
    """Concept models, what is asked of them, and the scores of the images so far; arguments as `score_concepts`."""

    # With `start` the first image is that of a larger data set; with `record` what `rows` gives is kept.

    def __init__(
        self,
        model: ConceptModel | Mapping[str, ConceptModel],
        *,
        class_concepts: Any = None,
        part_of_concept: Any = None,
        explanations: Sequence[str] = IMPORTANCES,
        top_l: Sequence[int] = (1, 3, 5),
        alphas: Sequence[float] = (1.0, 3.0, 6.0),
        value_threshold: float | Mapping[str, float | None] | None = None,
        controls: Sequence[ConceptModel] | Mapping[str, Sequence[ConceptModel]] = (),
        control_stride: int = 1,
        interventions: Interventions | None = None,
        levels: Levels | Mapping[str, Any] | None = None,
        start: int = 0,
        record: bool = False,
    ) -> None:
        models, drawn = named_models(model), named_controls(controls)
        self.variants = variants = Variants(
            tuple(as_list("explanations", explanations, "names")),
            tuple(as_list("top_l", top_l, "whole numbers")),
            tuple(as_list("alphas", alphas, "sizes of the region")),
            None if class_concepts is None else checked_class_concepts(class_concepts),
            np.empty(0, int) if part_of_concept is None else checked_parts(part_of_concept),
        )
        for _, concept_model in models:
            check_concept_order("class_concepts", concepts_of(class_concepts), concept_model)
        check_whole("control_stride", control_stride, 1)
        intervened = replace(variants, interventions=interventions)
        asked: list[tuple[str, ConceptModel, int, Variants, Levels | None]] = [
            (*pair, 1, intervened, None if interventions is None else _levels(levels, *pair)) for pair in models
        ]
        for pair, each in zip(drawn, _control_levels(levels, drawn), strict=True):
            its_interventions = None if interventions is None or each is None else interventions.of_controls()
            asked.append((*pair, control_stride, replace(variants, interventions=its_interventions), each))
        self._scorers = [
            ConceptScorer(
                each,
                wanted,
                threshold_of(value_threshold, name),
                stride,
                offset,
                start,
                levels=its_levels,
                record=record,
            )
            for offset, (name, each, stride, wanted, its_levels) in enumerate(asked)
        ]
        self._names = [name for name, _ in models]
        self._control = drawn[0][0] if drawn else ""

    @property
    def n_models(self) -> int:
        """How many models there are, controls counted."""
        return len(self._scorers)

    def run(
        self,
        loader: Iterable[Any],
        bound: Mapping[str, np.ndarray | None],
        elsewhere: EarlierPoints | None,
        *,
        n_threads: int = 1,
        display_progressbar: bool = False,
    ) -> None:
        """Score every batch, with the models' baselines; models of one backbone share its features."""
        batches = ConceptBatches(
            loader,
            dict(bound),
            n_classes=self.variants.n_classes,
            n_concepts=self.variants.n_concepts,
            last_part=int(self.variants.parts.max(initial=-1)),
            elsewhere=elsewhere,
        )
        _run(self._scorers, batches, len(self._names), n_threads, display_progressbar)

    def rows(self) -> pd.DataFrame:
        """Return a row for each model and image, of all that scores are made of."""
        tables = [
            pd.DataFrame({"model": number} | {name: _packed(each) for name, each in scorer.recorded().items()}).assign(
                columns=json.dumps(scorer.scores), shape=json.dumps(scorer.shape)
            )
            for number, scorer in enumerate(self._scorers)
        ]
        return pd.concat(tables, ignore_index=True)

    def take(self, rows: pd.DataFrame, batch_size: int) -> None:
        """Take rows of all images over as if they had been scored here, in batches of this size."""
        for number, scorer in enumerate(self._scorers):
            own = rows[rows["model"] == number]
            names = [name for name in own.columns if name not in ("model", "columns", "shape")]
            parts = {name: _unpacked(own[name]).split(batch_size) for name in names}
            scores = [Score(*fields) for fields in json.loads(own["columns"].iloc[0])]
            for values in zip(*parts.values(), strict=True):
                scorer.take(dict(zip(parts, values, strict=True)), scores, json.loads(own["shape"].iloc[0]))

    def table(self, class_names: Sequence[str] | None, concept_names: Sequence[str] | None) -> pd.DataFrame:
        """Return a row for each number, models in their order and controls after them."""
        given = {"class_names": class_names, "concept_names": concept_names}
        names = [
            names_of(name, each, count)
            for (name, each), count in zip(given.items(), self._scorers[0].shape, strict=True)
        ]
        tables = [model_table(scorer, name, *names) for name, scorer in zip(self._names, self._scorers, strict=False)]
        if self._control:
            drawn = self._scorers[len(self._names) :]
            tables.append(control_table([model_rows(each, self._control, *names, intervals=False) for each in drawn]))
        return pd.concat(tables, ignore_index=True)

    def images(self) -> pd.DataFrame:
        """Return a row for each image and score of the models."""
        tables = [image_table(scorer, name) for name, scorer in zip(self._names, self._scorers, strict=False)]
        return pd.concat(tables, ignore_index=True)


def _run(
    scorers: Sequence[ConceptScorer],
    batches: ConceptBatches,
    n_models: int,
    n_threads: int,
    display_progressbar: bool,
) -> None:
    """Score every batch, with the first models' baselines; models of one backbone share its features."""
    # CUDA streams and other device state are thread-local.
    if any(device_of(scorer.model).type != "cpu" for scorer in scorers):
        n_threads = 1
    with ExitStack() as stack, torch.no_grad():
        for scorer in scorers:
            model = scorer.model
            stack.enter_context(evaluation_mode(model, model.features, model.concept_predictor, model.head))
        pool = stack.enter_context(ThreadPoolExecutor(n_threads))
        for batch in progress(batches, "evaluating", unit="batch", show=display_progressbar):
            shared: dict[int, tuple[nn.Module, Tensor]] = {}
            asked: list[tuple[ConceptScorer, ConceptBatch, Tensor]] = []
            for number, scorer in enumerate(scorers):
                model, own = scorer.model, batch if number < n_models else batch._replace(elsewhere=None)
                if not shares_features(model):
                    # Here and not beside others: it runs under what the caller set for this thread, autocast say.
                    scorer.add(own)
                    continue
                # The module is held, or another one could get its id.
                module = model.features
                if id(module) not in shared:
                    shared[id(module)] = module, backbone_features(model, batch.images)
                asked.append((scorer, own, shared[id(module)][1]))
            left = iter(asked)
            others = [pool.submit(_add, left) for _ in range(n_threads - 1)]
            _add(left)
            for other in others:
                other.result()


@torch.no_grad()
def _add(left: Iterator[tuple[ConceptScorer, ConceptBatch, Tensor]]) -> None:
    """Score a batch by one model after another of those that no other thread has taken."""
    for scorer, batch, features in left:
        scorer.add(batch, features)


def named_models(model: Any) -> list[tuple[str, ConceptModel]]:
    """Return concept models with their names."""
    named = list(model.items()) if isinstance(model, Mapping) else [(MODEL, model)]
    if not named:
        raise ValueError("Expected argument `model` to hold at least one model but it is empty.")
    return [(str(name), _concept_model("model", each)) for name, each in named]


def named_controls(controls: Any) -> list[tuple[str, ConceptModel]]:
    """Return concept models that know nothing, all under one name."""
    named = controls if isinstance(controls, Mapping) else {CONTROL: as_list("controls", controls, "concept models")}
    if len(named) > 1:
        raise ValueError(f"Expected argument `controls` to hold models of one name but got {list(named)}.")
    return [(str(name), _concept_model("controls", each)) for name, models in named.items() for each in models]


def _concept_model(argument: str, model: Any) -> ConceptModel:
    if not is_concept_model(model):
        raise TypeError(
            f"Expected argument `{argument}` to be a concept model, with modules `features`, `concept_predictor` and "
            f"`head`, and `concept_maps`, but got {type(model).__name__} {lacking(model)}. {REMEDY}."
        )
    return model


def threshold_of(threshold: Any, name: str, argument: str = "value_threshold", default: float | None = None) -> Any:
    """Return the threshold of a model: one for all models, or its own of a mapping."""
    found = threshold.get(name, default) if isinstance(threshold, Mapping) else threshold
    if found is not None or default is not None:
        check_finite(argument, check_number(argument, found))
    return found


def _levels(levels: Any, name: str, model: ConceptModel) -> Levels | None:
    found = levels.get(name) if isinstance(levels, Mapping) else levels
    if found is not None:
        return check_levels(found, None)
    if not getattr(model, "bounded", True):
        raise ValueError(
            f"Expected argument `levels` to say what stands for an absent and a present concept of {name!r}, since its "
            "values are not bounded: `model.value_levels(loader)` of the training images does."
        )
    return None


def _control_levels(levels: Any, drawn: Sequence[tuple[str, ConceptModel]]) -> list[Levels | None]:
    """Return the levels of each control; None of controls without any, which nobody is asked about."""
    found = levels.get(drawn[0][0]) if drawn and isinstance(levels, Mapping) else None
    if found is None:
        return [None] * len(drawn)
    if isinstance(found, Levels) or len(as_list("levels", found, "levels of controls")) != len(drawn):
        raise ValueError(
            f"Expected argument `levels` to hold a list of levels for {drawn[0][0]!r}, one for each of its "
            f"{len(drawn)} models."
        )
    return [check_levels(each, None) for each in found]


def names_of(argument: str, names: Sequence[str] | None, count: int) -> list[str]:
    """Return as many names as there are items; their numbers where none are given."""
    if names is not None and len(as_list(argument, names, "names")) != count:
        raise ValueError(f"Expected argument `{argument}` to hold {count} names but got {len(names)}.")
    return [str(number) for number in range(count)] if names is None else list(names)


def _packed(values: Tensor) -> list[bytes]:
    """Return rows (N, ...) as bytes, all of which begin with the name of their dtype."""
    array = values.numpy()
    return [array.dtype.str.encode() + row.tobytes() for row in array]


def _unpacked(rows: pd.Series) -> Tensor:
    content = b"".join(row[3:] for row in rows)
    return torch.from_numpy(np.frombuffer(content, dtype=rows.iloc[0][:3].decode()).reshape(len(rows), -1).copy())


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
            # Intervals of controls come from their spread, not from images.
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
