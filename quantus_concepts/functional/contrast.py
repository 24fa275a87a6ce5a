"""Model contrast, input dependence and input independence, from concept attributions to scores."""

from __future__ import annotations

import torch
from torch import Tensor

from captum_concepts._support.checks import check_range, check_shape
from quantus_concepts.functional.arguments import check_floating


@torch.no_grad()
def mcs(g_first: Tensor, g_second: Tensor) -> Tensor:
    """Model contrast score of each image: concept attribution under the first model minus under the second.

    Yang and Kim (2019), "BIM", Section 4.1; their score is the mean over the images both models classify
    correctly. Higher is better: the first model needs the concept, the second does not.

    Parameters
    ----------
    g_first : Tensor
        (N,), from `concept_attribution`, for the model to which the concept matters.
    g_second : Tensor
        (N,), for the model to which it does not.

    Returns
    -------
    Tensor
        (N,), in [-1, 1] for maps in [0, 1]; NaN where one is NaN.

    Raises
    ------
    TypeError
        If an argument is no floating-point tensor.
    ValueError
        If shapes differ.
    """
    _check_pair("g_first", g_first, "g_second", g_second)
    return g_first - g_second.to(g_first.device)


@torch.no_grad()
def idr(g_with: Tensor, g_without: Tensor) -> Tensor:
    """Input dependence of each image: whether a common feature gets less importance than what it covers.

    Yang and Kim (2019), "BIM", Section 4.2. The same mask on both images. Equal values (two maps that are zero
    there) are not a success. A random attribution scores 0.5 on average.

    Parameters
    ----------
    g_with : Tensor
        (N,), concept attribution in the image with the common feature.
    g_without : Tensor
        (N,), in the image without it.

    Returns
    -------
    Tensor
        (N,) of 0 and 1; NaN where one is NaN.

    Raises
    ------
    TypeError
        If an argument is no floating-point tensor.
    ValueError
        If shapes differ.
    """
    _check_pair("g_with", g_with, "g_without", g_without)
    other = g_without.to(g_with.device)
    return (g_with < other).to(g_with.dtype).masked_fill(g_with.isnan() | other.isnan(), torch.nan)


@torch.no_grad()
def perturbation(g_original: Tensor, g_patched: Tensor) -> Tensor:
    """Relative change of the concept attribution when a functionally irrelevant patch is added.

    Yang and Kim (2019), "BIM", Appendix C; lower is better.

    Parameters
    ----------
    g_original : Tensor
        (N,), concept attribution in the image.
    g_patched : Tensor
        (N,), in the image with the patch, under the same mask.

    Returns
    -------
    Tensor
        (N,), at least 0; NaN where `g_original` is 0 or one is NaN.

    Raises
    ------
    TypeError
        If an argument is no floating-point tensor.
    ValueError
        If shapes differ.
    """
    _check_pair("g_original", g_original, "g_patched", g_patched)
    change = (g_patched.to(g_original.device) - g_original).abs() / g_original
    return change.masked_fill(g_original == 0, torch.nan)


@torch.no_grad()
def iir(g_original: Tensor, g_patched: Tensor, threshold: float = 0.1) -> Tensor:
    """Input independence of each image: whether an irrelevant patch leaves the concept attribution as it was.

    Yang and Kim (2019), "BIM", Section 4.3: `perturbation` below a threshold. There is no chance value: how far
    a random map changes depends on its grain.

    Parameters
    ----------
    g_original : Tensor
        (N,), concept attribution in the image.
    g_patched : Tensor
        (N,), in the image with the patch, under the same mask.
    threshold : float
        t, above 0; the paper uses 0.1.

    Returns
    -------
    Tensor
        (N,) of 0 and 1; NaN where `perturbation` is.

    Raises
    ------
    TypeError
        If an argument is no floating-point tensor.
    ValueError
        If shapes differ or `threshold` is not above 0.
    """
    check_range("threshold", threshold, 0, float("inf"), open_low=True)
    change = perturbation(g_original, g_patched)
    return (change < threshold).to(change.dtype).masked_fill(change.isnan(), torch.nan)


def _check_pair(first_name: str, first: Tensor, second_name: str, second: Tensor) -> None:
    for name, value in ((first_name, first), (second_name, second)):
        check_floating(name, value)
    check_shape(first_name, first, ("N",), (None,))
    check_shape(second_name, second, ("N",), (len(first),))
