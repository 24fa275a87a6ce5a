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

_PLACES = {
    "AVAILABLE_METRICS": "available",
    "CEM": "metrics",
    "CGIM": "metrics",
    "CLM": "metrics",
    "IDR": "metrics",
    "IIR": "metrics",
    "MCS": "metrics",
    "Evaluation": "evaluation",
    "Faithfulness": "metrics",
    "PASTAScore": "metrics",
    "Patch": "metrics",
    "PatchResult": "metrics",
    "evaluate": "evaluation",
    "optimise_patch": "metrics",
    "plot_summary": "summary",
    "positive_percentile": "functional",
    "summarise": "summary",
}
__all__ = ["__version__", *_PLACES]

if TYPE_CHECKING:
    from quantus_concepts import datasets as datasets
    from quantus_concepts import functional as functional
    from quantus_concepts import metrics as metrics
    from quantus_concepts import pasta as pasta
    from quantus_concepts.available import AVAILABLE_METRICS as AVAILABLE_METRICS
    from quantus_concepts.evaluation import Evaluation as Evaluation
    from quantus_concepts.evaluation import evaluate as evaluate
    from quantus_concepts.functional import positive_percentile as positive_percentile
    from quantus_concepts.metrics import CEM as CEM
    from quantus_concepts.metrics import CGIM as CGIM
    from quantus_concepts.metrics import CLM as CLM
    from quantus_concepts.metrics import IDR as IDR
    from quantus_concepts.metrics import IIR as IIR
    from quantus_concepts.metrics import MCS as MCS
    from quantus_concepts.metrics import Faithfulness as Faithfulness
    from quantus_concepts.metrics import PASTAScore as PASTAScore
    from quantus_concepts.metrics import Patch as Patch
    from quantus_concepts.metrics import PatchResult as PatchResult
    from quantus_concepts.metrics import optimise_patch as optimise_patch
    from quantus_concepts.summary import plot_summary as plot_summary
    from quantus_concepts.summary import summarise as summarise
else:
    __getattr__, __dir__ = lazily(__name__, _PLACES)
