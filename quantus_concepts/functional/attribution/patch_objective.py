"""The objective whose descent makes a patch that a model does not see."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from captum_concepts.support.checks import check_axes, check_range
from quantus_concepts.functional.arguments import Numbers, to_floats


def patch_objective(
    logits_patched: Numbers,
    logits: Numbers,
    images: Numbers,
    delta: Numbers,
    pixel_range: tuple[float, float],
    eta1: float = 0.01,
    eta2: float = 0.01,
    squared: bool = False,
) -> Tensor:
    """Objective of each image's patch, to be minimised over `delta`.

    ||f(x + d) - f(x)|| - eta1 ||d|| + eta2 sum[(x + d - p_max)^+ + (p_min - x - d)^+]: Yang and Kim (2019), "BIM",
    Section 4.3 and Appendix A, as the release computes it, with norms that are not squared. The paper prints
    squared norms, with which its step size makes d grow elevenfold a step, and a penalty outside the mask, in
    place of which d is kept zero there. The range penalty has the paper's sign; the release's is the opposite.

    Parameters
    ----------
    logits_patched : array_like
        (N, K), f(x + d).
    logits : array_like
        (N, K), f(x).
    images : array_like
        (N, C, H, W), x in image space.
    delta : array_like
        (N, C, H, W), d in the same units.
    pixel_range : tuple of float
        p_min and p_max.
    eta1 : float
        Weight of the patch's size, which keeps it from vanishing.
    eta2 : float
        Weight of pixels out of range.
    squared : bool
        Whether the two norms are squared.

    Returns
    -------
    Tensor
        (N,), differentiable.

    Raises
    ------
    ValueError
        If shapes do not fit, or a number is out of its range.

    Examples
    --------
    >>> import torch
    >>> from quantus_concepts.functional import patch_objective
    >>> images, delta = torch.zeros(1, 1, 2, 2), torch.full((1, 1, 2, 2), 0.5)
    >>> logits = torch.tensor([[1.0, 0.0]])
    >>> # The logits stay as they are: only the reward for the size of the patch is left, -0.01 x ||delta||.
    >>> patch_objective(logits, logits, images, delta, pixel_range=(0, 1))
    tensor([-0.0100])
    """
    logits_patched, logits = to_floats("logits_patched", logits_patched), to_floats("logits", logits)
    images, delta = to_floats("images", images), to_floats("delta", delta)
    check_axes(
        logits=(logits, "N K"),
        logits_patched=(logits_patched, "N K"),
        images=(images, "N C H W"),
        delta=(delta, "N C H W"),
    )
    low, high = pixel_range
    if not -math.inf < low < high < math.inf:
        raise ValueError(
            f"Expected argument `pixel_range` to be two finite numbers (low, high) with low < high but got "
            f"{pixel_range}."
        )
    check_range("eta1", eta1, 0, math.inf, open_high=True)
    check_range("eta2", eta2, 0, math.inf, open_high=True)
    distance = torch.linalg.vector_norm(logits_patched - logits, dim=1)
    size = torch.linalg.vector_norm(delta.flatten(1), dim=1)
    if squared:
        distance, size = distance.square(), size.square()
    pixels = images + delta
    # Not `clamp`, whose gradient at the limit itself depends on the version of torch.
    outside = torch.relu(pixels - high) + torch.relu(low - pixels)
    return distance - eta1 * size + eta2 * outside.flatten(1).sum(1)
