"""The metrics by name."""

from __future__ import annotations

from quantus.metrics.base import Metric

from quantus_concepts import metrics

_EXPORTED = (getattr(metrics, name) for name in dir(metrics))

# The shape of quantus.AVAILABLE_METRICS, under a category Quantus does not have, so that the two merge with `|`.
AVAILABLE_METRICS = {
    "Concepts": {metric.name: metric for metric in _EXPORTED if isinstance(metric, type) and issubclass(metric, Metric)}
}
