"""The normalisation of attribution maps that the metrics with known ground truth share."""

from __future__ import annotations

import math
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from captum_concepts.support.checks import check_axes, check_range
from quantus_concepts.functional.arguments import as_tensor

Array = TypeVar("Array", np.ndarray, Tensor)


#: Values of the few rows that are sorted together, so that memory is reused.
_CACHED = 2**14


def finite_rows(values: Tensor) -> Tensor:
    """Tell which samples hold neither NaN nor infinity."""
    flat = values.flatten(1)
    if not flat.shape[1]:
        return torch.ones(len(flat), dtype=torch.bool, device=flat.device)
    # The largest absolute value and both extremes are NaN if a value is. On a CPU extremes are 15 times as fast.
    if flat.device.type != "cpu":
        return torch.linalg.vector_norm(flat, torch.inf, 1) < torch.inf
    return (flat.amax(1) < torch.inf) & (flat.amin(1) > -torch.inf)


def positive_percentile(a: Array, percentile: float = 99.0) -> Array:
    """Scale the positive part of each explanation to [0, 1], extremes cut off.

    The released code of Yang and Kim (2019), "BIM", before it averages attributions over a region: the positive
    part of each channel, summed over channels, cut at the 99th percentile of the image (at its maximum where the
    percentile equals the minimum), lowest value to 0 and highest to 1; a constant map becomes zero. Works on each
    image by itself, so that nothing depends on the batch. It can be the `normalise_func` of any Quantus metric.

    Parameters
    ----------
    a : np.ndarray or Tensor
        (N, C, H, W) attributions, or (N, ...) without channels. Where channels matter, explain without summing
        over them: ``reduce_axes=()`` in `quantus.explain`, ``channels="keep"`` in `captum_concepts.explain_func`.
    percentile : float
        Percentile at which extremes are cut, in (0, 100]; 100 cuts nothing.

    Returns
    -------
    np.ndarray or Tensor
        (N, 1, H, W), or the shape given where there are no channels; of the dtype given, floating at least.
        NaN throughout where an image's attributions hold NaN or infinity.

    Raises
    ------
    ValueError
        If there is no axis after that of the samples, or `percentile` is out of its range.

    Examples
    --------
    >>> import numpy as np
    >>> from quantus_concepts.functional import positive_percentile
    >>> maps = np.array([[[-3.0, 0.0], [2.0, 4.0]]])
    >>> positive_percentile(maps, percentile=100).tolist()
    [[[0.0, 0.0], [0.5, 1.0]]]
    """
    maps = as_tensor("a", a)
    check_axes(a=(maps, "N L ..."))
    check_range("percentile", percentile, 0, 100, open_low=True)
    if not maps.is_floating_point():
        maps = maps.float()
    broken = ~finite_rows(maps)[:, None]
    maps = maps.clamp(min=0)
    if maps.ndim == 4 and maps.shape[1] != 1:
        maps = maps.sum(1, keepdim=True)
    flat = maps.flatten(1)
    if flat.numel():
        low = flat.amin(1, keepdim=True)
        high, most = _percentile(flat, percentile)
        high = torch.where(high == low, most, high)
        span = high - low
        span = span.masked_fill(span == 0, 1)
        if flat.requires_grad:
            flat = (torch.minimum(flat, high) - low) / span
        else:
            # In place: fresh memory for each step costs more than the steps.
            torch.minimum(flat, high, out=flat).sub_(low).div_(span)
        # On a CPU looking is faster than filling; elsewhere it would wait for the device.
        if flat.device.type != "cpu" or broken.any():
            flat = flat.masked_fill(broken, torch.nan)
    maps = flat.view(maps.shape)
    return maps if isinstance(a, Tensor) else maps.numpy()


def _percentile(flat: Tensor, percentile: float) -> tuple[Tensor, Tensor]:
    """Return a percentile (N, 1) of each row, between neighbours as `numpy.percentile` does, and its maximum."""
    # `torch.quantile` sorts whole rows and refuses large ones.
    position = (flat.shape[1] - 1) * percentile / 100
    below = math.floor(position)
    if flat.device.type == "cpu" and flat.dtype in (torch.float32, torch.float64):
        # NumPy's selection is several times faster than a partial sort. A few rows at a time stay in the cache.
        rows = flat.detach().split(max(1, _CACHED // flat.shape[1]))
        ordered = torch.from_numpy(
            np.concatenate([np.partition(few.numpy(), below, axis=1)[:, below:] for few in rows])
        )
        lower = ordered[:, :1]
        upper = ordered[:, 1:].amin(1, keepdim=True) if position > below else lower
        most = ordered.amax(1, keepdim=True)
    else:
        largest = flat.topk(flat.shape[1] - below, 1).values
        lower = largest[:, -1:]
        upper = largest[:, -2:-1] if position > below else lower
        most = largest[:, :1]
    return lower + (upper - lower) * (position - below), most
