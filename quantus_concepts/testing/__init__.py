"""Tests that a metric or an explainer of your own has to pass, and trials of metrics by planted damage."""

from typing import TYPE_CHECKING

from captum_concepts.lazy import lazily

if TYPE_CHECKING:
    from quantus_concepts.testing.cases import MetricCase
    from quantus_concepts.testing.contract import parametrize_with_metrics
    from quantus_concepts.testing.scores import trial_metrics
    from quantus_concepts.testing.trial import meta_evaluate, noticed, trial_table
    from quantus_concepts.testing.trial_plot import plot_trial
    from quantus_concepts.testing.worlds import predict_world
else:
    __getattr__, __dir__ = lazily(__name__, __file__)

__all__ = [
    "MetricCase",
    "meta_evaluate",
    "noticed",
    "parametrize_with_metrics",
    "plot_trial",
    "predict_world",
    "trial_metrics",
    "trial_table",
]
