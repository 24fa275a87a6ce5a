"""Model contrast, input dependence and input independence, from concept attributions to scores."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from captum_concepts.support.checks import check_axes, check_range
from quantus_concepts.functional.arguments import Numbers, to_floats


@torch.no_grad()
def mcs(g_first: Numbers, g_second: Numbers) -> Tensor:
    """Model contrast score of each image: concept attribution under the first model minus under the second.

    Yang and Kim (2019), "BIM", Section 4.1; their score is the mean over the images both models classify
    correctly. Higher is better: the first model needs the concept, the second does not.

    Parameters
    ----------
    g_first : array_like
        (N,), from `concept_attribution`, for the model to which the concept matters.
    g_second : array_like
        (N,), for the model to which it does not.

    Returns
    -------
    Tensor
        (N,), in [-1, 1] for maps in [0, 1]; NaN where one is NaN.

    Raises
    ------
    ValueError
        If shapes differ.

    Examples
    --------
    >>> import torch
    >>> from quantus_concepts.functional import mcs
    >>> mcs(torch.tensor([0.75, 0.5]), torch.tensor([0.25, 0.5])).tolist()
    [0.5, 0.0]
    """
    first, second = _checked_pair(g_first=g_first, g_second=g_second)
    return first - second


@torch.no_grad()
def idr(g_with: Numbers, g_without: Numbers) -> Tensor:
    """Input dependence of each image: whether a common feature gets less importance than what it covers.

    Yang and Kim (2019), "BIM", Section 4.2. The same mask on both images. Equal values (two maps that are zero
    there) are not a success. A random attribution scores 0.5 on average.

    Parameters
    ----------
    g_with : array_like
        (N,), concept attribution in the image with the common feature.
    g_without : array_like
        (N,), in the image without it.

    Returns
    -------
    Tensor
        (N,) of 0 and 1; NaN where one is NaN.

    Raises
    ------
    ValueError
        If shapes differ.

    Examples
    --------
    >>> import torch
    >>> from quantus_concepts.functional import idr
    >>> idr(g_with=torch.tensor([0.2, 0.5]), g_without=torch.tensor([0.4, 0.5])).tolist()
    [1.0, 0.0]
    """
    ours, other = _checked_pair(g_with=g_with, g_without=g_without)
    return (ours < other).to(ours.dtype).masked_fill(ours.isnan() | other.isnan(), torch.nan)


@torch.no_grad()
def perturbation(g_original: Numbers, g_patched: Numbers) -> Tensor:
    """Relative change of the concept attribution when a functionally irrelevant patch is added.

    Yang and Kim (2019), "BIM", Appendix C; lower is better.

    Parameters
    ----------
    g_original : array_like
        (N,), concept attribution in the image.
    g_patched : array_like
        (N,), in the image with the patch, under the same mask.

    Returns
    -------
    Tensor
        (N,), at least 0; NaN where `g_original` is 0 or one is NaN.

    Raises
    ------
    ValueError
        If shapes differ.

    Examples
    --------
    >>> import torch
    >>> from quantus_concepts.functional import perturbation
    >>> perturbation(torch.tensor([2.0, 2.0, 0.0]), torch.tensor([2.0, 3.0, 1.0]))
    tensor([0.0000, 0.5000,    nan])
    """
    original, patched = _checked_pair(g_original=g_original, g_patched=g_patched)
    return ((patched - original).abs() / original).masked_fill(original == 0, torch.nan)


@torch.no_grad()
def iir(g_original: Numbers, g_patched: Numbers, threshold: float = 0.1) -> Tensor:
    """Input independence of each image: whether an irrelevant patch leaves the concept attribution as it was.

    Yang and Kim (2019), "BIM", Section 4.3: `perturbation` below a threshold. There is no chance value: how far
    a random map changes depends on its grain.

    Parameters
    ----------
    g_original : array_like
        (N,), concept attribution in the image.
    g_patched : array_like
        (N,), in the image with the patch, under the same mask.
    threshold : float
        t, above 0; the paper uses 0.1.

    Returns
    -------
    Tensor
        (N,) of 0 and 1; NaN where `perturbation` is.

    Raises
    ------
    ValueError
        If shapes differ or `threshold` is not above 0.

    Examples
    --------
    >>> import torch
    >>> from quantus_concepts.functional import iir
    >>> iir(torch.tensor([0.5, 0.5]), torch.tensor([0.5, 1.0]), threshold=0.1).tolist()
    [1.0, 0.0]
    """
    check_range("threshold", threshold, 0, math.inf, open_low=True)
    change = perturbation(g_original, g_patched)
    return (change < threshold).to(change.dtype).masked_fill(change.isnan(), torch.nan)


def _checked_pair(**pair: Numbers) -> tuple[Tensor, Tensor]:
    """Return two attributions (N,), by the names of their arguments, on the device of the first, or raise."""
    tensors = {name: to_floats(name, values) for name, values in pair.items()}
    check_axes(**{name: (values, "N") for name, values in tensors.items()})
    first, second = tensors.values()
    return first, second.to(first.device)
