"""Reconstruction by concepts: the share of the variance of activations in the span of their directions."""

from __future__ import annotations

import torch
from torch import Tensor

from captum_concepts.support.checks import check_axes, check_finite
from captum_concepts.support.running import at_least_float32
from quantus_concepts.functional.arguments import Numbers, to_floats


@torch.no_grad()
def explained_variance(activations: Numbers, directions: Numbers) -> Tensor:
    """Share of the variance of activations that lies in the span of concept directions.

    It is R^2 of the best reconstruction of each activation by the mean activation plus a weighted sum of the
    directions: 1 if nothing is lost. L random directions of the sphere have L / d on average, the first L principal
    components the most that is possible.

    Parameters
    ----------
    activations : array_like
        (n, d): embeddings of images, or the places of their maps.
    directions : array_like
        (L, d), of any length; directions that depend on others add nothing.

    Returns
    -------
    Tensor
        A number in [0, 1]. NaN where the activations do not vary.

    Raises
    ------
    ValueError
        If the widths differ, or a number is not finite.

    Examples
    --------
    >>> import torch
    >>> from quantus_concepts.functional import explained_variance
    >>> activations = torch.tensor([[2.0, 0.0], [-2.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    >>> explained_variance(activations, [[1.0, 0.0]])
    tensor(0.8000)
    """
    activations = at_least_float32(to_floats("activations", activations))
    directions = to_floats("directions", directions)
    check_axes(activations=(activations, "n d"), directions=(directions, "L d"))
    check_finite("activations", activations)
    check_finite("directions", directions)
    centred = activations - activations.mean(0)
    inside = centred @ orthonormal_basis(directions.to(centred))
    total = centred.square().sum()
    # Of activations that are all the same, the rounding of their mean is left.
    rounding = (8 * torch.finfo(activations.dtype).eps) ** 2 * activations.square().sum()
    return torch.where(total > rounding, inside.square().sum() / total, torch.nan)


def orthonormal_basis(directions: Tensor) -> Tensor:
    """Return an orthonormal basis (d, r) of the span of directions (L, d), which may depend on each other."""
    basis, sizes, _ = torch.linalg.svd(unit_rows(directions).T, full_matrices=False)
    return basis[:, sizes > tolerance(sizes.dtype)]


def unit_rows(directions: Tensor) -> Tensor:
    """Return directions (L, d) at length 1; those of length 0 as they are."""
    lengths = directions.norm(dim=1, keepdim=True)
    return directions / torch.where(lengths > 0, lengths, 1)


def tolerance(dtype: torch.dtype) -> float:
    """Return the length below which a part of a direction of length 1 is rounding."""
    return float(torch.finfo(dtype).eps) ** 0.5
