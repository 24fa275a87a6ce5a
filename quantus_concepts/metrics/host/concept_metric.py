"""The base of the metrics of concept models: rows of predictions, and one method that scores them."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Self

import torch
from torch import Tensor

from captum_concepts.support.checks import to_numpy
from quantus_concepts.metrics.host.explanations import Call, Explanations
from quantus_concepts.metrics.host.looks import Look, Looking, see_all
from quantus_concepts.metrics.host.metric import QuantusMetric
from quantus_concepts.metrics.host.model import RANDOM_BANKS, no_level, shared_features
from quantus_concepts.metrics.host.predictions import (
    ConceptPredictions,
    Rows,
    frozen_head,
    is_same_head,
    predict_batch,
    predict_head,
    sees_concepts,
)
from quantus_concepts.metrics.host.scores import MetricScores, counted, nanmean


class ConceptMetric(QuantusMetric):
    """Base of the metrics of concept models: a subclass has `score_rows`, which gives the scores of all rows.

    Quantus's call, `update` and `compute`, `score_concepts` and `score_predictions` all call it, and nothing else.
    A metric that an explanation enters has a setting `importance`. One that looks at the model again has `look`.
    """

    asks_concept_models = True
    #: In a table: whether it is left out where its truth is unknown, and its name there.
    optional: bool = False
    title: str = ""

    def score_rows(self, rows: Any) -> MetricScores:
        """Return the scores of all rows: a column for each variant, of which a call has the first (or `path`)."""
        raise NotImplementedError

    def table_scores(self, rows: ConceptPredictions) -> Sequence[MetricScores]:
        """Return the scores of a table, in the order of its rows."""
        return [self.score_rows(rows)]

    def baselines(self, rows: ConceptPredictions) -> Sequence[MetricScores]:
        """Return the scores of baselines that stand beside this metric in a table."""
        return ()

    def look(self) -> Look | None:
        """Return what has to be seen of the model while it is there."""
        return None

    @classmethod
    def usual(cls, tables: Mapping[str, Any]) -> Sequence[ConceptMetric]:
        """Return the variants of a table of all metrics: by default one, with the tables that its constructor needs."""
        parameters = inspect.signature(cls).parameters.values()
        required = [each.name for each in parameters if each.default is each.empty and each.kind != each.VAR_KEYWORD]
        known: dict[str, Any] = {name: tables.get(name) for name in required}
        return [] if any(value is None for value in known.values()) else [cls(**known)]

    def with_tables(self, tables: Mapping[str, Any]) -> Self:
        """Return the metric with the tables that a call knows and the metric was not given."""
        return self

    def for_model(self, name: str, rows: ConceptPredictions, control: int | None) -> ConceptMetric | None:
        """Return what scores a model of this name, or the control of this number of it; None for nothing."""
        if getattr(self, "importance", "") == "effect" and not rows.convention("effect") and rows.given is None:
            if control is not None:
                return None
            raise ValueError(no_level(rows.about["kind"]))
        return self

    def missing(self, rows: ConceptPredictions) -> str:
        """Return the name of what rows have to have and lack, "" for nothing."""
        if lacks := next((name for name in self.needed if name not in rows.truth), ""):
            return lacks
        look = self.look()
        return "" if look is None or look.name in rows.looks else (*look.reads, look.name)[0]

    def concepts_of(self, x_batch: Any, truth: Mapping[str, Any]) -> tuple[int, str]:
        """Return how many concepts an explanation is about, and the name of the truth that says so."""
        if "concept_labels" in truth:
            return truth["concept_labels"].shape[1], "concept_labels"
        return x_batch.shape[1], "x_batch"

    def rows_of(
        self,
        model: Any,
        x_batch: Any,
        y_batch: Any,
        explain: Explanations,
        truth: Mapping[str, Any],
        *,
        banks: Sequence[Any] = (),
    ) -> Rows:
        """Return the rows of a batch: of a concept model, or of a head with concept values or explanations of it."""
        look, kind = self.look(), getattr(self, "importance", "")
        unseen = ("s_batch", *(() if look is None else look.reads))
        kept = {name: torch.as_tensor(value) for name, value in truth.items() if name not in unseen}
        if not sees_concepts(model, x_batch):
            concepts = self.concepts_of(x_batch, truth) if kind else None
            return predict_head(model, x_batch, y_batch, kept, explain, concepts, predicts=self.reads_correctness)
        features = None if look is None and not banks else shared_features(model, x_batch)
        settings: dict[str, Any] = {"kinds": (kind,), "features": features, "embedding": bool(banks)}
        rows = predict_batch(model, x_batch, y_batch, kept, **settings)
        if kind == "effect" and not rows.convention(kind):
            raise ValueError(no_level(rows.about["kind"]))
        if look is not None:
            seen = {name: torch.as_tensor(value) for name, value in truth.items()}
            looking = Looking(model, rows, x_batch, features, seen)
            rows = rows.knowing(looks=see_all({look.name: replace(look, bound={})}, looking, banks))
        return rows.knowing(banks=tuple(banks)) if banks else rows

    def kept_rows(self, rows: Any) -> Rows:
        """Return rows of an update as they are kept until `compute`."""
        if isinstance(rows, ConceptPredictions):
            last = self._updates[-1] if self._updates else None
            # One copy of a head that stays the same.
            same = isinstance(last, ConceptPredictions) and is_same_head(last.head, rows.head)
            rows = rows.knowing(head=last.head if same else frozen_head(rows.head))  # type: ignore[union-attr]
        kept: Rows = rows.kept()
        return kept

    def bank_values(self, **call: Any) -> Iterator[float]:
        """Yield the mean score that each random bank of a concept model has, without a further pass of the model."""
        banks = getattr(call["model"], "random_banks", ())
        known = ("model", "x_batch", "y_batch", "a_batch", "s_batch", "channel_first")
        of_call: dict[str, Any] = {name: call.get(name) for name in known}
        of_call |= {"batch_size": call.get("batch_size") or 64, "custom_batch": call.get("custom_batch") or {}}
        self._check_passed(of_call["custom_batch"])
        parts: Any = self._score(Call(**of_call), rows_of=partial(self.rows_of, banks=banks))
        for number, rows in enumerate(ConceptPredictions.join(parts).kept().of_banks()):
            own = self.for_model(RANDOM_BANKS, rows, number)
            if own is not None:
                yield nanmean(own.score_rows(rows).of_call)

    def scored(
        self,
        rows: ConceptPredictions,
        values: Tensor,
        *,
        chance: Tensor | float = math.nan,
        reasons: Mapping[str, Tensor] | None = None,
        clusters: Tensor | None = None,
    ) -> MetricScores:
        """Return scores (N,) of samples, NaN where masks (N,) of `reasons` say why; of one class they are a cluster."""
        n, scores = len(rows), values.double().cpu().numpy()[:, None]
        kind = getattr(self, "importance", "")
        chances = chance.double().cpu().numpy()[:, None] if isinstance(chance, Tensor) else chance
        masks = {why: to_numpy(mask) for why, mask in (reasons or {}).items()}
        of_rows = to_numpy(rows.classes if clusters is None else clusters)
        fields: dict[str, Any] = {"metric": self.name}
        fields |= {"explanation": kind, "convention": rows.convention(kind)} if kind else {}
        return MetricScores([fields], scores, chances, of_rows, self.bounds, lambda _: counted(masks, n, rows.reason))
