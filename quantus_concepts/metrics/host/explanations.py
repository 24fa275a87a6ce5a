"""Attributions of samples for a metric: given or computed when it asks, and why some cannot be used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import numpy as np
from torch import Tensor, nn

from captum_concepts.support.checks import to_numpy
from quantus_concepts.functional.arguments import Numbers
from quantus_concepts.metrics.host.model import no_concept_model

#: How the reasons begin for which the explanation method is to blame.
FAILED = "the explanation method failed: "


def no_reasons(n: int) -> np.ndarray:
    """Return `why` (n,) of samples whose scores are defined."""
    return np.full(n, "", dtype=object)


def add_reason(why: np.ndarray, rows: np.ndarray | np.bool_, reason: str) -> np.ndarray:
    """Return `why` (n,) with a further reason in the rows (n,) of bool."""
    # A line each: errors of users' methods may have several.
    reason = " ".join(reason.split())
    return np.where(rows, np.where(why == "", reason, why + "\n" + reason), why) if rows.any() else why


class Attributed(NamedTuple):
    """Attributions (n, ...), NaN where they cannot be used, with the reasons (n,), and whether any is not zero."""

    values: np.ndarray
    reason: np.ndarray
    explained: bool


@dataclass(frozen=True)
class Call:
    """The arguments of a call of a metric, by Quantus's names; an update has some of them."""

    model: nn.Module | None
    x_batch: Numbers
    y_batch: Numbers
    a_batch: Numbers | None = None
    s_batch: Numbers | None = None
    channel_first: bool | None = None
    explain_func: Callable[..., object] | None = None
    explain_func_kwargs: Mapping[str, object] = field(default_factory=dict)
    model_predict_kwargs: Mapping[str, Any] = field(default_factory=dict)
    batch_size: int | None = None
    custom_batch: Mapping[str, Numbers] = field(default_factory=dict)


@dataclass(frozen=True)
class Explanations:
    """Gives the attributions of samples when it is called; nothing is explained for a metric that does not ask."""

    metric: Any
    call: Call
    x_batch: np.ndarray
    y_batch: np.ndarray
    #: Attributions given by the caller, and why they cannot be used.
    given: np.ndarray | None = None
    failure: str = ""

    def __call__(self) -> tuple[np.ndarray, str]:
        """Return the attributions, as the metric is set to treat them, and "" or why there are none."""
        attributions, failure = self.given, self.failure
        if attributions is None and self.call.explain_func is None:
            message = f"{self.metric.name} needs explanations here: pass `a_batch` or `explain_func`."
            if self.metric.asks_concept_models:
                wrong = no_concept_model(self.metric.name, self.call.model, self.x_batch)
                message += " With images and a concept model as `model` it computes what it needs by itself"
                message += f", but {wrong}." if wrong else "."
            raise ValueError(message)
        if attributions is None:
            attributions, failure = self.compute(self.call.model, self.x_batch, self.y_batch)
        attributions = self.metric.preprocess(attributions)
        # Torch takes neither negative strides nor, without a warning, what cannot be written.
        return np.require(attributions, requirements=("C", "W")), failure

    def compute(self, model: nn.Module | None, x_batch: np.ndarray, y_batch: np.ndarray) -> tuple[np.ndarray, str]:
        """Explain any model and inputs with the method; return the attributions untreated, and why there are none."""
        method = cast("Callable[..., object]", self.call.explain_func)
        return call_explain_func(method, model, x_batch, y_batch, **self.call.explain_func_kwargs)

    def of_concepts(self, n_concepts: int, truth: str) -> Attributed:
        """Return the attributions (n, L) of concepts, as many as the ground truth of this name has; else NaN."""
        if self.x_batch.ndim == 2 and self.x_batch.shape[1] != n_concepts:
            raise ValueError(
                f"Expected argument `x_batch` to hold the values of {n_concepts} concepts, as many as `{truth}` has, "
                f"but got shape {self.x_batch.shape}. Pass a head as `model` with the values, or a concept model "
                "(captum_concepts.BottleneckCBM) with its own inputs."
            )
        a_batch, failure = self()
        if self.x_batch.ndim == 4 and a_batch.shape[1:] not in ((n_concepts,), (0,)):
            wrong = f"{self.metric.name} needs concept values (N, L) as `x_batch` and a head as `model`, and got images"
            if self.metric.asks_concept_models:
                wrong = no_concept_model(self.metric.name, self.call.model, self.x_batch)
            if wrong:
                # Maps of an image are what every method gives for such a model: no method is to blame.
                n = len(a_batch)
                return Attributed(np.full((n, n_concepts), np.nan), np.full(n, wrong, object), explained=True)
        return usable(a_batch, failure, (n_concepts,), "the number of concepts (L,)")


def usable(a_batch: np.ndarray, failure: str, shape: tuple[int, ...], meaning: str) -> Attributed:
    """Return attributions (n, *shape), NaN where one cannot be used, and why."""
    n = len(a_batch)
    if a_batch.shape[1:] != shape:
        if not failure and a_batch.shape[1:] != (0,):
            failure = f"a sample's attributions have shape {a_batch.shape[1:]}, expected {meaning} = {shape}"
        why = add_reason(no_reasons(n), np.full(n, bool(failure)), FAILED + failure)
        return Attributed(np.full((n, *shape), np.nan), why, explained=False)
    finite = np.isfinite(a_batch.reshape(n, -1)).all(axis=1)
    why = np.where(finite, "", FAILED + "attributions hold NaN or infinity").astype(object)
    if not finite.all():
        a_batch = np.where(finite.reshape(n, *[1] * len(shape)), a_batch, np.nan)
    return Attributed(a_batch, why, explained=bool(a_batch.any()))


def usable_maps(explain: Explanations, size: tuple[int, int]) -> Attributed:
    """Return explanations of images of a size as maps (n, h, w), summed over channels, NaN where unusable, and why."""
    a_batch, failure = explain()
    if a_batch.ndim == 4:
        channel_last = a_batch.shape[1:3] == size != a_batch.shape[2:]
        a_batch = a_batch.sum(axis=3 if channel_last else 1)
    return usable(a_batch, failure, a_batch.shape[1:] if a_batch.ndim == 3 else size, "a map (H, W)")


def call_explain_func(
    func: Callable[..., object], model: nn.Module | None, x_batch: np.ndarray, y_batch: np.ndarray, **keywords: object
) -> tuple[np.ndarray, str]:
    """Explain samples; return the attributions, and "" or why there are none."""
    try:
        attributions = func(model=model, inputs=x_batch, targets=y_batch, **keywords)
    except Exception as error:
        # A method of the user's own may raise anything, and quantus.evaluate would lose all other results.
        return no_attributions(len(x_batch)), f"it raised {type(error).__name__}: {' '.join(str(error).split())}"
    return as_attributions(attributions, len(x_batch))


def no_attributions(n_samples: int) -> np.ndarray:
    """Return explanations that are not there, (n_samples, 0): without a single value for a sample."""
    return np.empty((n_samples, 0))


def as_attributions(value: object, n_samples: int) -> tuple[np.ndarray, str]:
    """Return attributions in float32 or float64, a row for each sample, and "" or why they cannot be used."""
    try:
        if isinstance(value, list | tuple):
            value = [to_numpy(row) if isinstance(row, Tensor) else row for row in value]
        if isinstance(value, np.ma.MaskedArray):
            value = np.ma.filled(value.astype(float), np.nan)
        array = value if isinstance(value, np.ndarray) else to_numpy(value)
    except Exception as error:
        wrong = f"gave no array but {type(value).__name__} ({type(error).__name__}: {error})"
        return no_attributions(n_samples), f"it {wrong}"
    wrong = ""
    if array.ndim == 0 or len(array) != n_samples:
        wrong = f"gave an array of shape {array.shape} for {n_samples} samples"
    elif array.dtype.kind not in "fiub":
        wrong = f"gave attributions that are not numeric but {array.dtype}"
    elif not array.size:
        wrong = f"gave an array of shape {array.shape}, without a value"
    if wrong:
        return no_attributions(n_samples), f"it {wrong}"
    # Torch takes neither half precision of every kind, nor 80 bits, nor the other order of bytes.
    short = array.dtype.kind == "f" and array.dtype.itemsize <= 4
    return array.astype(np.float32 if short else np.float64, copy=False), ""


def normalise_each(a_batch: np.ndarray, normalise_func: Callable[..., np.ndarray]) -> np.ndarray:
    """Return each sample's attributions normalised by themselves; NaN where they were not finite."""
    finite = np.isfinite(a_batch.reshape(len(a_batch), -1)).all(1)
    with np.errstate(invalid="ignore", divide="ignore"):
        result = np.concatenate([normalise_func(row[None]) for row in a_batch])
    # Some normalisations make zeros of NaN.
    return result if finite.all() else np.where(finite.reshape(-1, *[1] * (result.ndim - 1)), result, np.nan)
