"""Concept models and their baselines in one pass over a loader: a backbone that models share runs once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn
from tqdm.auto import tqdm

from captum_concepts._support.checks import as_list
from captum_concepts._support.running import evaluation_mode
from captum_concepts.models.interventions import Levels, check_levels
from quantus_concepts.functional.cgim import ClassSums
from quantus_concepts.metrics.concepts import names as col
from quantus_concepts.metrics.concepts.columns import Columns, ModelScorer, Variants, check_finite
from quantus_concepts.metrics.concepts.interventions import Interventions
from quantus_concepts.metrics.host.model import ConceptModel, backbone_features, linear_weights, shares_features
from quantus_concepts.metrics.host.rows import RowBuffer
from quantus_concepts.metrics.streaming.loader import ConceptBatches, EarlierPoints
from quantus_concepts.metrics.streaming.model_state import ModelState, label_counts

#: Of all models, or by name: values of an absent and a present concept, of controls a list; a value from which on one
#: is present.
ModelLevels = Levels | Mapping[str, Levels | Sequence[Levels] | None]
Thresholds = float | Mapping[str, float | None] | None


def run_models(
    scorers: Sequence[ModelScorer],
    loader: Iterable[object],
    bound: Mapping[str, np.ndarray | None],
    elsewhere: EarlierPoints | None = None,
    *,
    required: Mapping[str, str] | None = None,
    start: int = 0,
    display_progressbar: bool = False,
) -> list[ModelState]:
    """Score every batch by every model; `start` is the number of the first image."""
    variants = scorers[0].variants
    batches = ConceptBatches(
        loader,
        dict(bound),
        n_classes=variants.n_classes,
        n_concepts=variants.n_concepts,
        last_part=int(variants.parts.max(initial=-1)),
        elsewhere=elsewhere,
        required=required,
    )
    totals = [_Total(scorer, start) for scorer in scorers]
    number, concept_labels = start, RowBuffer()
    with ExitStack() as stack, torch.no_grad():
        for model in (scorer.model for scorer in scorers):
            stack.enter_context(evaluation_mode(model, model.features, model.concept_predictor, model.head))
        # None: only in a terminal or a notebook.
        for batch in tqdm(batches, "evaluating", unit="batch", disable=None if display_progressbar else True):
            features, before = _Features(batch.images), _Features(batch.before if variants.moves else None)
            for scorer, total in zip(scorers, totals, strict=True):
                total.add(scorer.score(batch, number, features.of(scorer.model), before.of(scorer.model)))
            if batch.concepts is not None:
                concept_labels.add(batch.concepts > 0.5)
            number += len(batch.images)
    return [total.state(concept_labels.rows.cpu()) for total in totals]


class _Total:
    """The columns of one model over all batches so far."""

    def __init__(self, scorer: ModelScorer, start: int) -> None:
        self._scorer, self._start = scorer, start
        self._rows = RowBuffer()
        self._sums: ClassSums | None = None
        self._last: Columns | None = None

    def add(self, columns: Columns) -> None:
        self._rows.add(columns.rows)
        if self._sums is None:
            self._sums = columns.sums
        elif columns.sums is not None:
            self._sums.add_sums(columns.sums)
        self._last = columns

    def state(self, concept_labels: Tensor) -> ModelState:
        """Return everything on the host, with the labels (N, L) counted; raise where a concept map is not finite."""
        # A loader without a batch was refused.
        last = cast(Columns, self._last)
        variants, scores = self._scorer.variants, last.scores
        rows = self._rows.rows.cpu()
        # Looked at here and not in each batch, where the device would be waited for.
        if col.FINITE_MAPS in scores:
            check_finite("a concept map", rows[:, scores.index(col.FINITE_MAPS)].numpy(), self._start)
        table, theta = variants.class_concepts, None
        if table is not None and "weight" in variants.explanations:
            weights = linear_weights(self._scorer.model.head)
            theta = None if weights is None else weights.to("cpu", torch.float64, copy=True)
        return ModelState(
            *(scores, rows, last.shape, variants.explanations, variants.top_l, self._scorer.baselines),
            None if table is None else torch.as_tensor(table),
            None if self._sums is None else self._sums.on_host(),
            theta,
            label_counts(scores, rows, concept_labels),
        )


class _Features:
    """The features of one batch, computed once by each backbone."""

    def __init__(self, images: Tensor | None) -> None:
        self._images = images
        # Backbones are kept as well: another one could get the id of a freed one.
        self._features: dict[int, tuple[nn.Module, Tensor]] = {}

    def of(self, model: ConceptModel) -> Tensor | None:
        """Return the features of a model's backbone; None without images, and for a model that takes none."""
        if self._images is None or not shares_features(model):
            return None
        module = model.features
        if id(module) not in self._features:
            self._features[id(module)] = module, backbone_features(model, self._images)
        return self._features[id(module)][1]


def threshold_of(threshold: Thresholds, name: str, default: float | None = None) -> float | None:
    """Return the threshold of a model: one for all models, or its own of a mapping."""
    return threshold.get(name, default) if isinstance(threshold, Mapping) else threshold


def model_levels(levels: ModelLevels | None, name: str, model: ConceptModel) -> Levels | None:
    """Return the levels of a model, or raise where it needs some."""
    own_levels = levels.get(name) if isinstance(levels, Mapping) else levels
    if own_levels is not None:
        return check_levels(own_levels, None)  # type: ignore[arg-type]
    if not getattr(model, "bounded", True):
        raise ValueError(
            f"Expected argument `levels` to give the values of an absent and a present concept of {name!r}, since its "
            "values are not bounded: `model.value_levels(loader)` of the training images does."
        )
    return None


def control_levels(levels: ModelLevels | None, name: str, n: int) -> list[Levels | None]:
    """Return the levels of each control; None if a control has no levels (it is not intervened on)."""
    own_levels = levels.get(name) if n and isinstance(levels, Mapping) else None
    if own_levels is None:
        return [None] * n
    if isinstance(own_levels, Levels) or len(as_list("levels", own_levels, "levels of controls")) != n:
        raise ValueError(
            f"Expected argument `levels` to hold a list of levels for {name!r}, one for each of its {n} models."
        )
    return [check_levels(model_levels, None) for model_levels in own_levels]


def model_scorers(
    models: Mapping[str, ConceptModel],
    controls: tuple[str, Sequence[ConceptModel]],
    variants: Variants,
    threshold: Thresholds,
    *,
    default: float | None = None,
    stride: int = 1,
    interventions: Interventions | None = None,
    levels: ModelLevels | None = None,
    baselines: bool = False,
) -> list[ModelScorer]:
    """Return the scorers of models and, after them, of baseline models of one name."""
    control, control_models = controls
    scorers = []
    for name, model in models.items():
        own_levels = None if interventions is None else model_levels(levels, name, model)
        scorers.append(
            ModelScorer(
                *(model, replace(variants, interventions=interventions), threshold_of(threshold, name, default)),
                levels=own_levels,
                baselines=baselines,
            )
        )
    for place, (model, own_levels) in enumerate(
        zip(control_models, control_levels(levels, control, len(control_models)), strict=True), len(models)
    ):
        intervened = None if interventions is None or own_levels is None else interventions.of_controls()
        scorers.append(
            ModelScorer(
                *(model, replace(variants, interventions=intervened), threshold_of(threshold, control, default)),
                *(stride, place, own_levels),
                baselines=False,
            )
        )
    return scorers
