"""The models that are watched and their baselines, each with its threshold and levels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from captum_concepts.models.interventions import Levels, check_levels
from captum_concepts.support.checks import as_list
from quantus_concepts.metrics.concepts.interventions import InterventionAccuracy
from quantus_concepts.metrics.host.model import ConceptModel
from quantus_concepts.metrics.host.observing import Observer
from quantus_concepts.metrics.streaming.engine import Watched

#: Of all models, or by name: values of an absent and a present concept, of controls a list; a value from which on one
#: is present.
ModelLevels = Levels | Mapping[str, Levels | Sequence[Levels] | None]
Thresholds = float | Mapping[str, float | None] | None


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


def watched_models(
    models: Mapping[str, ConceptModel],
    controls: tuple[str, Sequence[ConceptModel]],
    metrics: Sequence[Observer],
    threshold: Thresholds,
    *,
    default: float | None = None,
    stride: int = 1,
    levels: ModelLevels | None = None,
    insists: bool = False,
) -> list[Watched]:
    """Return what is watched: models and, after them, baseline models of one name, of which there are no baselines."""
    control, control_models = controls
    intervenes = any(isinstance(metric, InterventionAccuracy) for metric in metrics)
    watched = []
    for name, model in models.items():
        own_levels = model_levels(levels, name, model) if intervenes else None
        watched.append(Watched(model, metrics, threshold_of(threshold, name, default), own_levels, insists=insists))
    plain = [metric for metric in metrics if metric.in_table and not metric.baseline]
    others = [metric for metric in plain if not isinstance(metric, InterventionAccuracy)]
    answered = [metric.of_controls() if isinstance(metric, InterventionAccuracy) else metric for metric in plain]
    for place, (model, own_levels) in enumerate(
        zip(control_models, control_levels(levels, control, len(control_models)), strict=True), len(models)
    ):
        of_control = others if own_levels is None else answered
        number = threshold_of(threshold, control, default)
        watched.append(Watched(model, of_control, number, own_levels, stride, place, insists))
    return watched
