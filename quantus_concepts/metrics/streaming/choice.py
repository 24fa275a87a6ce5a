"""Which metrics a table has: those of the user, or the usual ones, and their baselines."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from captum_concepts.support.checks import check_keywords
from quantus_concepts.metrics import bottleneck, concepts
from quantus_concepts.metrics.bottleneck.concept_auc import ConceptAUC
from quantus_concepts.metrics.concepts.cem import CEM
from quantus_concepts.metrics.concepts.cgim import CGIM
from quantus_concepts.metrics.concepts.clm import CLM
from quantus_concepts.metrics.concepts.substitution import SubstitutionScore
from quantus_concepts.metrics.host.alignment import ModelNames
from quantus_concepts.metrics.host.concept_metric import ConceptMetric
from quantus_concepts.metrics.host.looks import Look
from quantus_concepts.metrics.host.predictions import ConceptPredictions
from quantus_concepts.metrics.host.scores import MetricScores
from quantus_concepts.metrics.streaming.table import KEYS, SCORE_COLUMNS
from quantus_concepts.metrics.streaming.usual import UsualMetrics

#: Metrics of a table: several or one, by name where the table should call them so; all whose truth is known.
Metrics = (
    Sequence[ConceptMetric | UsualMetrics] | Mapping[str, ConceptMetric] | ConceptMetric | UsualMetrics | str | None
)
ALL = "all"
#: Metrics whose variants are those of `UsualMetrics`, and the truth that these read.
USUAL: tuple[type[ConceptMetric], ...] = (SubstitutionScore, CEM, CLM, CGIM, ConceptAUC)
USUAL_TRUTH = ("concept_labels", "points", "added", "removed", "pairs")
#: How what is missing is given.
GIVE = (
    "give it to the metric, to the call in `truth`, or with the batches or the data set of the loader under this name"
)
THRESHOLDS = {
    "value_threshold": "give it to the call",
    "threshold": "its values are not bounded, so give `threshold=` to the metric or `value_threshold=` to the call",
}
HEAD = "a head that is not linear is not in a file: score rows that `predict_concepts` has just made"
LOOK = "name the metric in `metrics=` of `predict_concepts`, where it has to see the model"


@dataclass(frozen=True)
class Chosen:
    """Metrics of a table: the usual variants of the papers, or one of the user."""

    metric: ConceptMetric | UsualMetrics

    @property
    def sample_truth(self) -> tuple[str, ...]:
        """Ground truth with a row for each sample that it reads."""
        return USUAL_TRUTH if isinstance(self.metric, UsualMetrics) else self.metric.sample_truth

    @property
    def bound_truth(self) -> dict[str, Any]:
        """Ground truth of samples that is bound, by name."""
        return {} if isinstance(self.metric, UsualMetrics) else self.metric.bound_truth

    @property
    def kinds(self) -> tuple[str, ...]:
        """The importances that it reads."""
        if isinstance(self.metric, UsualMetrics):
            return tuple(self.metric.explanations)
        kind = getattr(self.metric, "importance", "")
        needs_weights = "contribution" in getattr(self.metric, "orders", ())
        return (kind,) if kind else ("weight",) if needs_weights else ()

    def look(self, tables: Mapping[str, Any]) -> Look | None:
        """Return what has to be seen of a model while it is there."""
        if isinstance(self.metric, UsualMetrics):
            return self.metric.look(tables.get("part_of_concept"))
        return self.metric.look()

    def scores(
        self, name: str, rows: ConceptPredictions, *, baselines: bool, control: int | None, dry: bool = False
    ) -> Iterator[tuple[MetricScores, bool]]:
        """Yield scores in the order of a table, and whether they may be left out; raise where truth is missing."""
        metric = self.metric
        if isinstance(metric, UsualMetrics):
            yield from ((scores, True) for scores in metric.scores(rows, baselines=baselines))
            return
        bound = {
            key: torch.as_tensor(value[: len(rows)] if dry else value) for key, value in metric.bound_truth.items()
        }
        look = metric.look()
        unseen = () if look is None else look.reads
        bound = {key: value for key, value in bound.items() if key not in unseen}
        for key, value in bound.items():
            if len(value) != len(rows):
                raise ValueError(
                    f"Expected argument `{key}` of {metric.name} to have a row for each of {len(rows)} images but got "
                    f"{len(value)}."
                )
        rows = rows.knowing(truth={**rows.truth, **bound}) if bound else rows
        if metric.optional and metric.missing(rows):
            return
        own = metric.for_model(name, rows, control)
        if own is None:
            return
        if lacks := own.missing(rows):
            # A baseline model may have shown no image to a look.
            unseen = () if look is None else (*unseen, look.name)
            if metric.optional or (control is not None and lacks in unseen):
                return
            of_model = f" for model {name!r}" if lacks in THRESHOLDS else ""
            known = {"head": HEAD} | ({} if dry else dict.fromkeys(unseen, LOOK)) | THRESHOLDS
            raise ValueError(f"{metric.name} needs `{lacks}`{of_model}: {known.get(lacks, GIVE)}.")
        title = metric.title
        found = own.table_scores(rows)
        first = found[0].fields[0]["metric"] if found else ""
        for scores in found:
            # Rows of another name, as those of p, are no reason to refuse.
            yield _titled(scores, first, title), metric.optional or scores.fields[0]["metric"] != first
        for scores in own.baselines(rows) if baselines else ():
            yield _titled(scores, first, title), True


def _titled(scores: MetricScores, name: str, title: str) -> MetricScores:
    if not title:
        return scores
    fields = [row | {"metric": title} if row["metric"] == name else row for row in scores.fields]
    return replace(scores, fields=fields)


def chosen_metrics(metrics: Metrics, tables: Mapping[str, Any], names: ModelNames) -> list[Chosen]:
    """Return the metrics of a table: by default the usual ones, with "all" every one whose truth is known."""
    if metrics is None:
        metrics = [UsualMetrics()]
    if isinstance(metrics, str):
        check_keywords("metrics", [] if metrics == ALL else [metrics], [ALL], "It takes metrics, or 'all'.")
        others = (each.vary(optional=True) for kind in metric_classes() for each in kind.usual(tables))
        metrics = [UsualMetrics(), *others]
    if isinstance(metrics, ConceptMetric | UsualMetrics):
        metrics = [metrics]
    chosen = []
    for title, metric in metrics.items() if isinstance(metrics, Mapping) else (("", metric) for metric in metrics):
        if isinstance(metric, ConceptMetric):
            # A copy: what is the user's stays as it is.
            own = metric.with_tables(tables).vary(title=title)
            own.match_names(names)
            chosen.append(Chosen(own))
        elif isinstance(metric, UsualMetrics):
            chosen.append(Chosen(metric))
        else:
            raise TypeError(
                "Expected argument `metrics` to hold metrics of concept models, as CEM(top_l=3), but got "
                f"{metric.__name__ if isinstance(metric, type) else type(metric).__name__}. Make one: CEM()."
            )
    if not chosen:
        raise ValueError("Expected argument `metrics` to hold at least one metric but it is empty.")
    return chosen


def looks_of(chosen: Sequence[Chosen], tables: Mapping[str, Any]) -> dict[str, Look]:
    """Return what has to be seen of models, for all metrics together, by name."""
    found: dict[str, Look] = {}
    for look in (each.look(tables) for each in chosen):
        if look is not None:
            found[look.name] = found[look.name] + look if look.name in found else look
    return found


def scores_of(
    name: str,
    rows: ConceptPredictions,
    chosen: Sequence[Chosen],
    *,
    baselines: bool,
    control: int | None = None,
    dry: bool = False,
) -> list[MetricScores]:
    """Return the scores of all metrics; baselines of several once; raise for two that a table cannot tell apart."""
    settings: dict[str, Any] = {"baselines": baselines, "control": control, "dry": dry}
    return _told_apart(found for each in chosen for found in each.scores(name, rows, **settings))


def scores_of_banks(
    name: str, rows: ConceptPredictions, chosen: Sequence[Chosen], first: int
) -> Iterator[list[MetricScores]]:
    """Yield the scores of each random bank, the first of this number: usual metrics score several in one call."""
    for stack in rows.stacked_banks():
        found: list[list[tuple[MetricScores, bool]]] = [[] for _ in stack.models]
        for each in chosen:
            if isinstance(each.metric, UsualMetrics):
                for scores in each.metric.scores(stack, baselines=False):
                    for of_bank, own in zip(found, scores.of_models(len(found), len(rows)), strict=True):
                        of_bank.append((own, True))
                continue
            for number, (of_bank, bank) in enumerate(zip(found, stack.models, strict=True), first):
                of_bank += each.scores(name, bank, baselines=False, control=number)
        first += len(found)
        # Of one metric the model's own table has told the rows apart.
        yield from (
            [scores for scores, _ in of_bank] if len(chosen) == 1 else _told_apart(of_bank) for of_bank in found
        )


def _told_apart(every: Iterable[tuple[MetricScores, bool]]) -> list[MetricScores]:
    """Return scores without variants that a table has already; raise where they may not be left out."""
    found, known = list[MetricScores](), set[str]()
    for scores, optional in every:
        fresh = []
        for place, fields in enumerate(scores.fields):
            row = SCORE_COLUMNS | fields
            key = str([row[column] for column in KEYS])
            if key not in known:
                known.add(key)
                fresh.append(place)
            elif not optional:
                raise ValueError(
                    f"Expected argument `metrics` to hold metrics that the columns of the table tell apart but two "
                    f"are {fields}. Pass a dict, whose keys are their names."
                )
        if fresh:
            found.append(scores if len(fresh) == len(scores.fields) else scores.take(fresh))
    return found


@functools.cache
def metric_classes() -> list[type[ConceptMetric]]:
    """Return the metrics of concept models in the files of these two packages that are not among the usual ones."""
    found: list[type[ConceptMetric]] = []
    for package in (concepts, bottleneck):
        for module in pkgutil.iter_modules(package.__path__):
            members = vars(importlib.import_module(f"{package.__name__}.{module.name}")).values()
            kinds = [kind for kind in members if isinstance(kind, type) and issubclass(kind, ConceptMetric)]
            own = [kind for kind in kinds if kind.__module__.endswith(f".{module.name}") and "name" in vars(kind)]
            found += [kind for kind in own if kind not in (*found, *USUAL)]
    return found
