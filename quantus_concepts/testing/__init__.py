"""Tests that a metric or an explainer of your own has to pass, in your own test file."""

from typing import TYPE_CHECKING

from captum_concepts.lazy import lazily

if TYPE_CHECKING:
    from quantus_concepts.testing.damages import DAMAGES, KNOW_NOTHINGS, UNCHANGED, Damage
    from quantus_concepts.testing.expected import EXPECTED
    from quantus_concepts.testing.scores import trial_metrics
    from quantus_concepts.testing.trial import meta_evaluate, noticed, trial_table
    from quantus_concepts.testing.trial_plot import plot_trial
    from quantus_concepts.testing.worlds import predict_world, right_world, trained_world
else:
    __getattr__, __dir__ = lazily(__name__, __file__)

__all__ = [
    "DAMAGES",
    "EXPECTED",
    "KNOW_NOTHINGS",
    "UNCHANGED",
    "Damage",
    "meta_evaluate",
    "noticed",
    "plot_trial",
    "predict_world",
    "right_world",
    "trained_world",
    "trial_metrics",
    "trial_table",
]
