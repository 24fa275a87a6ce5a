"""What explanation methods give, made into numbers a metric can use; never an exception."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from torch import Tensor

from captum_concepts.checks import to_numpy


def missing(n_samples: int) -> np.ndarray:
    """Return explanations that are not there, (n_samples, 0): without a single value for a sample."""
    return np.empty((n_samples, 0))


def as_attributions(value: Any, n_samples: int) -> tuple[np.ndarray, str]:
    """Return attributions in float32 or float64, a row for each sample, and ""."""
    # What cannot be used, whatever it is, comes back as `missing`, with what is wrong with it.
    try:
        if isinstance(value, list | tuple):
            value = [to_numpy(row) if isinstance(row, Tensor) else row for row in value]
        if isinstance(value, np.ma.MaskedArray):
            value = np.ma.filled(value.astype(float), np.nan)
        array = to_numpy(value)
    except Exception as error:
        return missing(n_samples), f"gave no array but {type(value).__name__} ({type(error).__name__}: {error})"
    if array.ndim == 0 or len(array) != n_samples:
        return missing(n_samples), f"gave an array of shape {array.shape} for {n_samples} samples"
    if array.dtype.kind not in "fiub":
        return missing(n_samples), f"gave attributions that are not numeric but {array.dtype}"
    if not array.size:
        return missing(n_samples), f"gave an array of shape {array.shape}, without a value"
    # Torch takes neither half precision of every kind, nor 80 bits, nor the other order of bytes.
    short = array.dtype.kind == "f" and array.dtype.itemsize <= 4
    return array.astype(np.float32 if short else np.float64, copy=False), ""


def normalised(a_batch: np.ndarray, normalise_func: Callable[..., np.ndarray]) -> np.ndarray:
    """Return attributions normalised each by itself; NaN where they were not finite."""
    finite = np.isfinite(a_batch.reshape(len(a_batch), -1)).all(1)
    with np.errstate(invalid="ignore", divide="ignore"):
        result = np.concatenate([normalise_func(row[None]) for row in a_batch])
    # Some normalisations make zeros of NaN.
    return result if finite.all() else np.where(finite.reshape(-1, *[1] * (result.ndim - 1)), result, np.nan)
