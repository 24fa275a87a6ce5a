"""Entanglement: do directions of concepts lean on each other more, or less, than their labels do?"""

from __future__ import annotations

import torch
from torch import Tensor

from captum_concepts.support.checks import check_axes
from captum_concepts.support.running import widest_float
from quantus_concepts.functional.arguments import Numbers, as_tensor, check_zero_one, to_floats


@torch.no_grad()
def entanglement(directions: Numbers, concepts: Numbers) -> Tensor:
    r"""Return how far cosines of concept directions are from the correlations of their labels.

    The score of a concept is the mean over the others of :math:`|\cos(v_j, v_k) - \mathrm{corr}(c_j, c_k)|`. 0 is best:
    directions lean on each other as labels do, so that orthogonal directions of independent concepts have 0, too.
    Copies of one direction for independent concepts have 1. Chance is the range of random banks:
    ``[entanglement(bank.cavs, concepts).nanmean() for bank in model.random_banks]``. After Nicolson et al. (2024),
    "Explaining Explainability: Recommendations for Effective Use of Concept Activation Vectors", section 4.2.

    Parameters
    ----------
    directions : array_like
        (L, d), such as ``bank.cavs``. Their lengths do not matter.
    concepts : array_like
        (N, L) of 0/1, the labels of the images, of the data that the question is about.

    Returns
    -------
    Tensor
        (L,) in [0, 2], on the device of `directions`. NaN for a concept that all images show or none, and for a
        direction of length 0; the scores of the others leave it out.

    Raises
    ------
    ValueError
        If shapes do not match, or concepts are not 0/1.

    Examples
    --------
    >>> from quantus_concepts.functional import entanglement
    >>> concepts = [[0, 0], [0, 1], [1, 0], [1, 1]]
    >>> entanglement([[1.0, 0.0], [0.0, 2.0]], concepts).tolist()
    [0.0, 0.0]
    >>> entanglement([[1.0, 0.0], [2.0, 0.0]], concepts).tolist()
    [1.0, 1.0]
    """
    vectors, labels = to_floats("directions", directions), as_tensor("concepts", concepts)
    check_axes(directions=(vectors, "L d"), concepts=(labels, "N L"))
    check_zero_one("concepts", labels)
    wide = widest_float(vectors.device)
    rows, seen = vectors.to(wide), labels.to(vectors.device, wide)
    varies = (seen != seen[:1]).any(0)
    centred = torch.where(varies, seen - seen.mean(0), 0.0).T
    # A vector of length 0 is NaN in every pair.
    units = [
        part / torch.where((norm := part.norm(dim=1, keepdim=True)) > 0, norm, torch.nan) for part in (rows, centred)
    ]
    cosines, correlations = (part @ part.T for part in units)
    return (cosines - correlations).abs().fill_diagonal_(torch.nan).nanmean(1)
