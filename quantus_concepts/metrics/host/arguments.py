"""The constructor arguments that every metric takes from Quantus."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypedDict

import numpy as np

from captum_concepts._support.checks import check_callable, check_flag, check_mapping
from quantus_concepts.functional.normalisation import positive_percentile


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


#: What they are where a metric has no defaults of its own.
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
#: Of the metrics that average attributions over a region.
OF_REGIONS: QuantusArguments = {**DEFAULTS, "normalise": True, "normalise_func": positive_percentile}


def _check_argument(name: str, value: Any) -> None:
    if value is None:
        return
    if name.endswith("_func"):
        check_callable(name, value)
    elif name == "normalise_func_kwargs":
        check_mapping(name, value)
    else:
        check_flag(name, value)


def check_keywords(metric: type, given: Mapping[str, Any]) -> None:
    """Raise for a keyword of the wrong kind, or that a metric does not take, naming the nearest of those it does."""
    unknown = [name for name in given if name not in DEFAULTS]
    if not unknown:
        for name, value in given.items():
            _check_argument(name, value)
        return
    own = [name for name, each in inspect.signature(metric).parameters.items() if each.kind is not each.VAR_KEYWORD]
    near = difflib.get_close_matches(unknown[0], [*own, *DEFAULTS], n=1)
    hint = f"Did you mean `{near[0]}`?" if near else f"It takes {', '.join([*own, *DEFAULTS])}."
    raise TypeError(f"{metric.__name__} has no argument `{unknown[0]}`. {hint}")
