"""Which metrics observe a stream: those of the user, or the usual ones, and their baselines."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar

from captum_concepts.support.checks import check_keywords
from quantus_concepts.metrics import bottleneck, concepts
from quantus_concepts.metrics.bottleneck.concept_auc import ConceptAUC
from quantus_concepts.metrics.concepts.accuracy import Accuracy, ConceptAccuracy, Density, NegativeFirst
from quantus_concepts.metrics.concepts.cem import CEM
from quantus_concepts.metrics.concepts.cgim import CGIM
from quantus_concepts.metrics.concepts.clm import CLM
from quantus_concepts.metrics.concepts.substitution import Recital, SubstitutionScore
from quantus_concepts.metrics.host.observing import Known, Observer, UsualMetrics

P = ParamSpec("P")
R = TypeVar("R")

#: Metrics of a stream: several or one, by name where the table should call them so; all whose truth is known.
Metrics = Sequence[Observer | UsualMetrics] | Mapping[str, Observer] | Observer | UsualMetrics | str | None
ALL = "all"
#: The metrics of the papers, in the order of their rows.
USUAL: tuple[type[Observer], ...] = (
    *(Accuracy, ConceptAccuracy, ConceptAUC, NegativeFirst, Density, SubstitutionScore, Recital),
    *(CEM, CLM, CGIM),
)

#: How arguments that `score_concepts` once had are given now.
_IN_TRUTH = "truth={{{0!r}: ...}}, or let the batches or the data set of the loader have it under this name"
_IN_METRICS = "metrics=UsualMetrics({0}=...), or the metrics themselves: metrics=[CEM(top_l=3), CLM(alpha=1)]"
_ANSWERS = "metrics=[UsualMetrics(), InterventionAccuracy({0}=...)]"
MOVED = {
    **dict.fromkeys(("concept_labels", "labels", "points", "added", "removed", "part_of_concept"), _IN_TRUTH),
    **dict.fromkeys(("concept_names", "class_names"), _IN_TRUTH),
    **dict.fromkeys(("explanations", "top_l", "alphas"), _IN_METRICS),
    "interventions": _ANSWERS.format("counts"),
    "levels": _ANSWERS.format("levels"),
}


def refusing_moved(function: Callable[P, R]) -> Callable[P, R]:
    """Let a function name the new form of an argument that it no longer has."""

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        for name in kwargs:
            if name in MOVED:
                raise TypeError(
                    f"{function.__name__} has no argument `{name}` any more: pass {MOVED[name].format(name)}."
                )
        return function(*args, **kwargs)

    return checked


def chosen_metrics(metrics: Metrics, known: Callable[[UsualMetrics], Known]) -> list[Observer]:
    """Return what observes a stream, baselines included; `known` is what the stream knows for the usual variants."""
    usual = known(UsualMetrics())
    if metrics is None:
        return _usual_metrics(usual)
    if isinstance(metrics, str):
        check_keywords("metrics", [] if metrics == ALL else [metrics], [ALL], "It takes metrics, or 'all'.")
        others = [_optional(each) for kind in observers() if kind not in USUAL for each in kind.usual(usual)]
        return _usual_metrics(usual) + others
    if isinstance(metrics, Observer | UsualMetrics):
        metrics = [metrics]
    named = metrics.items() if isinstance(metrics, Mapping) else (("", metric) for metric in metrics)
    chosen: list[Observer] = []
    for title, metric in named:
        if isinstance(metric, UsualMetrics):
            chosen += _usual_metrics(known(metric))
        elif isinstance(metric, Observer):
            own = metric.with_truth(usual).vary(title=title)
            chosen += [own, *map(_optional, own.baselines(usual))]
        else:
            raise TypeError(
                "Expected argument `metrics` to hold metrics of concept models, as CEM(top_l=3), but got "
                f"{metric.__name__ if isinstance(metric, type) else type(metric).__name__}. Make one: CEM()."
            )
    if not chosen:
        raise ValueError("Expected argument `metrics` to hold at least one metric but it is empty.")
    return [*_distinct(chosen)]


def _usual_metrics(known: Known) -> list[Observer]:
    # Asked for by name, effects of a model without their level are an error.
    by_default = known.variants.explanations == UsualMetrics.explanations
    usual = (metric for kind in USUAL for metric in kind.usual(known))
    return [_optional(metric).vary(level_optional=by_default) for metric in usual]


def _optional(metric: Observer) -> Observer:
    return metric.vary(optional=True)


def _distinct(metrics: Sequence[Observer]) -> Iterator[Observer]:
    """Yield metrics, baselines that several have once; raise for metrics whose rows would have the same name."""
    rows: dict[Any, Observer] = {}
    for metric in metrics:
        key = type(metric).__qualname__, *sorted(metric.fields().items())
        if key not in rows:
            rows[key] = metric
            yield metric
        elif not metric.optional:
            raise ValueError(
                f"Expected argument `metrics` to hold metrics that the columns of the table tell apart but two are "
                f"{metric.fields()}. Pass a dict, whose keys are their names."
            )


@functools.cache
def observers() -> list[type[Observer]]:
    """Return what observes concept models: the usual ones, and what else is in the files of these two packages."""
    found = list(USUAL)
    for package in (concepts, bottleneck):
        for module in pkgutil.iter_modules(package.__path__):
            members = vars(importlib.import_module(f"{package.__name__}.{module.name}")).values()
            kinds = [kind for kind in members if isinstance(kind, type) and issubclass(kind, Observer)]
            found += [kind for kind in kinds if kind.__module__.endswith(f".{module.name}") and kind not in found]
    return found
