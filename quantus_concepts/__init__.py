"""Quantus metrics for models that name concepts.

Are the concepts real, are they in this picture, are they in the right place (`CGIM`, `CEM`, `CLM`)? Does an attribution
give importance to what provably does not matter (`MCS`, `IDR`, `IIR`)? All go into the `metrics` of an existing
``quantus.evaluate`` call.
"""

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from captum_concepts.lazy import lazily

try:
    __version__ = version("quantus-concepts")
except PackageNotFoundError:  # a checkout that was never installed
    __version__ = "0.0.0"

if TYPE_CHECKING:
    from quantus_concepts import datasets, functional, metrics, pasta
    from quantus_concepts.available import AVAILABLE_METRICS
    from quantus_concepts.evaluation import evaluate
    from quantus_concepts.explorer.explore import Explorer, explore
    from quantus_concepts.functional import positive_percentile
    from quantus_concepts.metrics import *  # noqa: F403 - a new metric is named there alone
    from quantus_concepts.painted.subject import PaintedSubject, painted_subject
    from quantus_concepts.results.comparison import compare, plot_comparison
    from quantus_concepts.results.over_seeds import reliability
    from quantus_concepts.results.summary import Evaluation, summarise
    from quantus_concepts.results.summary_plot import plot_summary
    from quantus_concepts.results.tables import headline, to_latex, to_markdown
else:
    from quantus_concepts import metrics

    __getattr__, __dir__ = lazily(__name__, __file__)

__all__ = [
    "AVAILABLE_METRICS",
    "Evaluation",
    "Explorer",
    "PaintedSubject",
    "__version__",
    "compare",
    "datasets",
    "evaluate",
    "explore",
    "functional",
    "headline",
    "metrics",
    "painted_subject",
    "pasta",
    "plot_comparison",
    "plot_summary",
    "positive_percentile",
    "reliability",
    "summarise",
    "to_latex",
    "to_markdown",
]
__all__ += metrics.__all__
