"""Tests that a metric or an explainer of your own has to pass, in your own test file."""

from typing import TYPE_CHECKING

from captum_concepts.lazy import lazily

if TYPE_CHECKING:
    from quantus_concepts.testing.cases import MetricCase
    from quantus_concepts.testing.contract import parametrize_with_metrics
else:
    __getattr__, __dir__ = lazily(__name__, __file__)

__all__ = ["MetricCase", "parametrize_with_metrics"]
