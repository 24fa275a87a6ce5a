"""Quantus metrics for models that name concepts.

Are the concepts real, are they in this picture, are they in the right place (`CGIM`, `CEM`, `CLM`)? Does an attribution
give importance to what provably does not matter (`MCS`, `IDR`, `IIR`)? All go into the `metrics` of an existing
``quantus.evaluate`` call.
"""

from importlib.metadata import PackageNotFoundError, version

from captum_concepts.lazy import attach_stub

try:
    __version__ = version("quantus-concepts")
except PackageNotFoundError:  # a checkout that was never installed
    __version__ = "0.0.0"

__getattr__, __dir__, _names = attach_stub(__name__)
__all__ = [*_names, "__version__"]
