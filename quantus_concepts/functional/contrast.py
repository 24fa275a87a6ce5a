"""Model contrast, input dependence and input independence, from concept attributions to scores."""

from __future__ import annotations

import torch
from torch import Tensor

from captum_concepts._support.constraints import Floats, Number, check_arguments


@check_arguments(g_first=Floats("N"), g_second=Floats("N"))
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

    Examples
    --------
    >>> import torch
    >>> from quantus_concepts.functional import mcs
    >>> mcs(torch.tensor([0.75, 0.5]), torch.tensor([0.25, 0.5])).tolist()
    [0.5, 0.0]
    """
    return g_first - g_second.to(g_first.device)


@check_arguments(g_with=Floats("N"), g_without=Floats("N"))
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

    Examples
    --------
    >>> import torch
    >>> from quantus_concepts.functional import idr
    >>> idr(g_with=torch.tensor([0.2, 0.5]), g_without=torch.tensor([0.4, 0.5])).tolist()
    [1.0, 0.0]
    """
    other = g_without.to(g_with.device)
    return (g_with < other).to(g_with.dtype).masked_fill(g_with.isnan() | other.isnan(), torch.nan)


@check_arguments(g_original=Floats("N"), g_patched=Floats("N"))
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

    Examples
    --------
    >>> import torch
    >>> from quantus_concepts.functional import perturbation
    >>> perturbation(torch.tensor([2.0, 2.0, 0.0]), torch.tensor([2.0, 3.0, 1.0]))
    tensor([0.0000, 0.5000,    nan])
    """
    change = (g_patched.to(g_original.device) - g_original).abs() / g_original
    return change.masked_fill(g_original == 0, torch.nan)


@check_arguments(g_original=Floats("N"), g_patched=Floats("N"), threshold=Number(0, open_low=True))
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

    Examples
    --------
    >>> import torch
    >>> from quantus_concepts.functional import iir
    >>> iir(torch.tensor([0.5, 0.5]), torch.tensor([0.5, 1.0]), threshold=0.1).tolist()
    [1.0, 0.0]
    """
    change = perturbation(g_original, g_patched)
    return (change < threshold).to(change.dtype).masked_fill(change.isnan(), torch.nan)
