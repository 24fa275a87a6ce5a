"""All concept metrics in one pass over a loader: the backbone runs once for all models and baselines."""

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

from captum_concepts._support.checks import as_list
from captum_concepts._support.progress import progress
from captum_concepts._support.running import device_of, evaluation_mode
from captum_concepts.models.interventions import Levels, check_levels
from quantus_concepts.metrics.host.checks import check_concept_order, concepts_of
from quantus_concepts.metrics.host.model import (
    IMPORTANCES,
    ConceptModel,
    FeatureSharing,
    backbone_features,
    shares_features,
)
from quantus_concepts.metrics.streaming.batches import ConceptBatch, ConceptBatches, EarlierPoints
from quantus_concepts.metrics.streaming.columns import Interventions, ModelColumns, Variants
from quantus_concepts.metrics.streaming.names import CHANCE, CONCEPT_ACCURACY, Score

#: Names of a model and of controls that are passed without a name.
MODEL, CONTROL = "model", "control"

#: A model's columns with the batch it scores, its features, and those of the images before a substitution.
Work = tuple[ModelColumns, ConceptBatch, Tensor | None, Tensor | None]


class ConceptStream:
    """Concept models, and their columns of the images so far."""

    # Models come first, in the order of their names; after them the controls, all of one name.

    def __init__(self, columns: Sequence[ModelColumns], names: Sequence[str], control: str = "") -> None:
        self.columns, self.names, self.control = list(columns), list(names), control

    @property
    def models(self) -> list[tuple[str, ModelColumns]]:
        """The names and columns of the models, without controls."""
        return list(zip(self.names, self.columns, strict=False))

    @property
    def controls(self) -> list[ModelColumns]:
        """The columns of the controls."""
        return self.columns[len(self.names) :]

    @property
    def variants(self) -> Variants:
        """The variants that are scored; their truth is the same for all models."""
        return self.columns[0].variants

    def with_variants(self, variants: Variants) -> ConceptStream:
        """Return a stream of the same models with other columns."""
        changed = [ModelColumns(columns.model, variants, columns.threshold) for columns in self.columns]
        return ConceptStream(changed, self.names, self.control)

    def run(
        self,
        loader: Iterable[Any],
        bound: Mapping[str, np.ndarray | None],
        elsewhere: EarlierPoints | None = None,
        *,
        required: Mapping[str, str] | None = None,
        n_threads: int = 1,
        display_progressbar: bool = False,
    ) -> None:
        """Add every batch; models of one backbone share its features."""
        batches = ConceptBatches(
            loader,
            dict(bound),
            n_classes=self.variants.n_classes,
            n_concepts=self.variants.n_concepts,
            last_part=int(self.variants.parts.max(initial=-1)),
            elsewhere=elsewhere,
            required=required,
        )
        # CUDA streams and other device state are thread-local.
        models = [columns.model for columns in self.columns]
        if any(device_of(model).type != "cpu" for model in models):
            n_threads = 1
        with ExitStack() as stack, torch.no_grad():
            for model in models:
                stack.enter_context(evaluation_mode(model, model.features, model.concept_predictor, model.head))
            pool = stack.enter_context(ThreadPoolExecutor(n_threads))
            for batch in progress(batches, "evaluating", unit="batch", show=display_progressbar):
                waiting = iter(self._work(batch))
                helpers = [pool.submit(_add, waiting) for _ in range(n_threads - 1)]
                _add(waiting)
                for helper in helpers:
                    helper.result()

    def _work(self, batch: ConceptBatch) -> list[Work]:
        """Run each backbone once, and return what is left to do; models that take no features are done."""
        features, before = _Features(batch.images), _Features(batch.before if self.variants.moves else None)
        work = []
        for columns in self.columns:
            if shares_features(columns.model):
                work.append((columns, batch, features.of(columns.model), before.of(columns.model)))
            else:
                # In the calling thread, under its settings such as autocast.
                columns.add(batch)
        return work

    def rows(self) -> pd.DataFrame:
        """Return a row for each model and image, of all that scores are made of."""
        tables = []
        for number, columns in enumerate(self.columns):
            packed = {name: _pack(values) for name, values in columns.recording().items()}
            table = pd.DataFrame({"model": number} | packed)
            tables.append(table.assign(columns=json.dumps(columns.scores), shape=json.dumps(columns.shape)))
        return pd.concat(tables, ignore_index=True)

    def load(self, rows: pd.DataFrame, batch_size: int) -> None:
        """Add rows of all images as if they had been scored here, in batches of this size."""
        for number, columns in enumerate(self.columns):
            model_rows = rows[rows["model"] == number]
            names = [name for name in model_rows.columns if name not in ("model", "columns", "shape")]
            parts = {name: _unpack(model_rows[name]).split(batch_size) for name in names}
            scores = [Score(*fields) for fields in json.loads(model_rows["columns"].iloc[0])]
            for values in zip(*parts.values(), strict=True):
                columns.load(dict(zip(parts, values, strict=True)), scores, json.loads(model_rows["shape"].iloc[0]))


class _Features:
    """The features of one batch, computed once by each backbone."""

    def __init__(self, images: Tensor | None) -> None:
        self._images = images
        # Backbones are kept as well: another one could get the id of a freed one.
        self._features: dict[int, tuple[nn.Module, Tensor]] = {}

    def of(self, model: FeatureSharing) -> Tensor | None:
        """Return the features of a model's backbone; None without images."""
        if self._images is None:
            return None
        module = model.features
        if id(module) not in self._features:
            self._features[id(module)] = module, backbone_features(model, self._images)
        return self._features[id(module)][1]


@torch.no_grad()
def _add(waiting: Iterator[Work]) -> None:
    """Add a batch to the columns of one model after another that no other thread has taken."""
    for columns, batch, features, before in waiting:
        columns.add(batch, features, before)


def concept_stream(
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
) -> ConceptStream:
    """Return the stream of CGIM, CEM, CLM and interventions; arguments as `score_concepts`, checked."""
    # With `start` the first image is that of a larger data set; with `record` what `rows` returns is kept.
    models, named_controls = _named_models(model), _named_controls(controls)
    variants = Variants(
        tuple(explanations),
        tuple(top_l),
        tuple(alphas),
        None if class_concepts is None else np.array(class_concepts, dtype=float),
        np.empty(0, int) if part_of_concept is None else part_of_concept,
        accuracies={CONCEPT_ACCURACY: None},
    )
    for _, concept_model in models:
        check_concept_order("class_concepts", concepts_of(class_concepts), concept_model)
    models_levels = [None if interventions is None else _levels(levels, *named) for named in models]
    all_levels = [*models_levels, *_control_levels(levels, named_controls)]
    columns = []
    for place, (name, concept_model) in enumerate([*models, *named_controls]):
        is_control, own_levels = place >= len(models), all_levels[place]
        intervened = interventions
        if is_control and interventions is not None:
            intervened = None if own_levels is None else interventions.of_controls()
        columns.append(
            ModelColumns(
                concept_model,
                replace(variants, interventions=intervened),
                _threshold_of(value_threshold, name),
                control_stride if is_control else 1,
                place,
                start,
                levels=own_levels,
                baselines=not is_control,
                record=record,
            )
        )
    return ConceptStream(columns, [name for name, _ in models], named_controls[0][0] if named_controls else "")


def substitution_stream(
    model: ConceptModel | Mapping[str, ConceptModel],
    *,
    class_concepts: Any = None,
    threshold: float | Mapping[str, float] = CHANCE,
    controls: Sequence[ConceptModel] | Mapping[str, Sequence[ConceptModel]] = (),
) -> ConceptStream:
    """Return the stream of S+, S-, recital and movements; arguments as `score_substitutions`, checked."""
    models, named_controls = _named_models(model), _named_controls(controls)
    truth = None if class_concepts is None else np.array(class_concepts, dtype=float)
    variants = Variants(class_concepts=truth, moves=True)
    columns = [
        ModelColumns(concept_model, variants, _threshold_of(threshold, name, CHANCE))
        for name, concept_model in [*models, *named_controls]
    ]
    return ConceptStream(columns, [name for name, _ in models], named_controls[0][0] if named_controls else "")


def _named_models(model: Any) -> list[tuple[str, ConceptModel]]:
    named = model if isinstance(model, Mapping) else {MODEL: model}
    return [(str(name), concept_model) for name, concept_model in named.items()]


def _named_controls(controls: Any) -> list[tuple[str, ConceptModel]]:
    """Return control models, all under one name."""
    named = controls if isinstance(controls, Mapping) else {CONTROL: controls}
    return [(str(name), concept_model) for name, models in named.items() for concept_model in models]


def _threshold_of(threshold: Any, name: str, default: float | None = None) -> Any:
    """Return the threshold of a model: one for all models, or its own of a mapping."""
    return threshold.get(name, default) if isinstance(threshold, Mapping) else threshold


def _levels(levels: Any, name: str, model: ConceptModel) -> Levels | None:
    model_levels = levels.get(name) if isinstance(levels, Mapping) else levels
    if model_levels is not None:
        return check_levels(model_levels, None)
    if not getattr(model, "bounded", True):
        raise ValueError(
            f"Expected argument `levels` to give the values of an absent and a present concept of {name!r}, since its "
            "values are not bounded: `model.value_levels(loader)` of the training images does."
        )
    return None


def _control_levels(levels: Any, named_controls: Sequence[tuple[str, ConceptModel]]) -> list[Levels | None]:
    """Return the levels of each control; None if a control has no levels (it is not intervened on)."""
    n, name = len(named_controls), named_controls[0][0] if named_controls else ""
    control_levels = levels.get(name) if n and isinstance(levels, Mapping) else None
    if control_levels is None:
        return [None] * n
    if isinstance(control_levels, Levels) or len(as_list("levels", control_levels, "levels of controls")) != n:
        raise ValueError(
            f"Expected argument `levels` to hold a list of levels for {name!r}, one for each of its {n} models."
        )
    return [check_levels(model_levels, None) for model_levels in control_levels]


def _pack(values: Tensor) -> list[bytes]:
    """Return rows (N, ...) as bytes, all of which begin with the name of their dtype."""
    array = values.numpy()
    return [array.dtype.str.encode() + row.tobytes() for row in array]


def _unpack(rows: pd.Series) -> Tensor:
    content = b"".join(row[3:] for row in rows)
    return torch.from_numpy(np.frombuffer(content, dtype=rows.iloc[0][:3].decode()).reshape(len(rows), -1).copy())
