"""The arguments that metrics take from Quantus, and the record of a finished call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self, TypedDict

import numpy as np

from captum_concepts.texts import in_one_line
from quantus_concepts.functional.attribution.normalisation import positive_percentile


class QuantusArguments(TypedDict, total=False):
    """Keyword arguments of `quantus.metrics.base.Metric`, of the same names and meaning."""

    abs: bool
    normalise: bool
    normalise_func: Callable[..., np.ndarray] | None
    normalise_func_kwargs: dict[str, Any] | None
    return_aggregate: bool
    aggregate_func: Callable[..., Any] | None
    default_plot_func: Callable[..., Any] | None
    disable_warnings: bool
    # Quantus takes None for no; `IIR` for yes, where it takes long.
    display_progressbar: bool | None


#: Defaults, unless a metric sets others.
DEFAULTS: QuantusArguments = {
    "abs": False,
    "normalise": False,
    "normalise_func": None,
    "normalise_func_kwargs": None,
    "return_aggregate": False,
    "aggregate_func": None,
    "default_plot_func": None,
    "disable_warnings": False,
    "display_progressbar": False,
}
#: Defaults of the metrics that average attributions over a region.
OF_REGIONS: QuantusArguments = {**DEFAULTS, "normalise": True, "normalise_func": positive_percentile}


@in_one_line
@dataclass(frozen=True, repr=False)
class Record:
    """Record of a finished call of a metric."""

    #: The list that the call returned: `quantus.evaluate` hands it on, and so its record is found again.
    scores: list[float]
    values: np.ndarray
    chance: float
    reasons: dict[str, int]
    clusters: np.ndarray | None
    bounds: tuple[float, float]
    of_samples: bool
    #: Whether the scores would be others with another explanation method.
    uses_explanations: bool = True


class AsPrinted:
    """Base of metrics that can be made with the settings that their paper prints."""

    #: The paper's settings, in place of our defaults.
    printed: ClassVar[Mapping[str, Any]]

    @classmethod
    def as_printed(cls, **settings: Any) -> Self:
        """Make the metric with the settings that its paper prints, `printed`, in place of our defaults.

        Parameters
        ----------
        **settings
            Arguments of the constructor, by keyword. One that `printed` has too is taken from here.

        Returns
        -------
        Self
            The metric.

        Raises
        ------
        TypeError
            If an argument is of the wrong kind, or the constructor has none of this name.
        ValueError
            If a setting is out of its range.
        """
        return cls(**{**cls.printed, **settings})
