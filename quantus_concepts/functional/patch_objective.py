"""The objective whose descent makes a patch that a model does not see."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from captum_concepts._support.checks import as_list, check_number, check_shape, check_weight
from quantus_concepts.functional.arguments import check_floating


def check_values_range(pixel_range: Any) -> tuple[float, float]:
    """Return the lowest and the highest value of a pixel, two finite numbers in this order, or raise."""
    ends = [check_number("pixel_range", end) for end in as_list("pixel_range", pixel_range, "two numbers")]
    if len(ends) != 2 or not (ends[0] < ends[1] and all(map(math.isfinite, ends))):
        raise ValueError(
            f"Expected argument `pixel_range` to be two finite numbers (low, high) with low < high but got "
            f"{pixel_range}."
        )
    return ends[0], ends[1]


def patch_objective(
    logits_patched: Tensor,
    logits: Tensor,
    images: Tensor,
    delta: Tensor,
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
    logits_patched : Tensor
        (N, K), f(x + d).
    logits : Tensor
        (N, K), f(x).
    images : Tensor
        (N, C, H, W), x in image space.
    delta : Tensor
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
    TypeError
        If what should be a tensor of floating-point numbers is none.
    ValueError
        If shapes do not fit, or a number is out of its range.
    """
    for name, value in (
        ("logits_patched", logits_patched),
        ("logits", logits),
        ("images", images),
        ("delta", delta),
    ):
        check_floating(name, value)
    check_shape("logits", logits, ("N", "K"), (None, None))
    check_shape("logits_patched", logits_patched, ("N", "K"), tuple(logits.shape))
    check_shape("images", images, ("N", "C", "H", "W"), (len(logits), None, None, None))
    check_shape("delta", delta, ("N", "C", "H", "W"), tuple(images.shape))
    check_weight("eta1", eta1)
    check_weight("eta2", eta2)
    distance = torch.linalg.vector_norm(logits_patched - logits, dim=1)
    size = torch.linalg.vector_norm(delta.flatten(1), dim=1)
    if squared:
        distance, size = distance.square(), size.square()
    low, high = check_values_range(pixel_range)
    pixels = images + delta
    # Not `clamp`, whose gradient at the limit itself depends on the version of torch.
    outside = torch.relu(pixels - high) + torch.relu(low - pixels)
    return distance - eta1 * size + eta2 * outside.flatten(1).sum(1)
