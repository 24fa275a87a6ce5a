"""Quantus metrics for models that name concepts.

Are the concepts real, are they in this picture, are they in the right place (`CGIM`, `CEM`, `CLM`)? Does an attribution
give importance to what provably does not matter (`MCS`, `IDR`, `IIR`)? All go into the `metrics` of an existing
``quantus.evaluate`` call.
"""

from importlib.metadata import PackageNotFoundError, version

from quantus_concepts.evaluation import Evaluation, evaluate
from quantus_concepts.functional import positive_percentile
from quantus_concepts.metrics import (
    CEM,
    CGIM,
    CLM,
    IDR,
    IIR,
    MCS,
    Faithfulness,
    PASTAScore,
    Patch,
    PatchResult,
    optimise_patch,
    score_concepts,
)
from quantus_concepts.summary import plot_summary, summarise

try:
    __version__ = version("quantus-concepts")
except PackageNotFoundError:  # a checkout that was never installed
    __version__ = "0.0.0"

# The shape of quantus.AVAILABLE_METRICS, under a category Quantus does not have, so that the two merge with `|`.
AVAILABLE_METRICS = {
    "Concepts": {
        "CGIM": CGIM,
        "CEM": CEM,
        "CLM": CLM,
        "MCS": MCS,
        "IDR": IDR,
        "IIR": IIR,
        "Faithfulness": Faithfulness,
        "PASTA-score": PASTAScore,
    }
}

__all__ = [
    "AVAILABLE_METRICS",
    "CEM",
    "CGIM",
    "CLM",
    "IDR",
    "IIR",
    "MCS",
    "Evaluation",
    "Faithfulness",
    "PASTAScore",
    "Patch",
    "PatchResult",
    "__version__",
    "evaluate",
    "optimise_patch",
    "plot_summary",
    "positive_percentile",
    "score_concepts",
    "summarise",
]
