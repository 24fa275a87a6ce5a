"""The concept location metric: are the most important concepts found where they are in the image?"""

from __future__ import annotations

import torch
from torch import Tensor

from captum_concepts._support.checks import check_shape
from quantus_concepts.functional.arguments import check_floating, check_top_l


@torch.no_grad()
def clm(hits: Tensor, top_l: int) -> Tensor:
    """Average the hits of the most important concepts whose part is visible, for each image.

    Aysel et al. (2025), "Concept-Based Explainable AI: Metrics and Benchmarks", Equation 11. Where parts are not
    visible the mean is over fewer than l, where the equation divides by l throughout.

    Parameters
    ----------
    hits : Tensor
        (N, l_max) in [0, 1]: hits of the ranked concepts of each image, the most important first, NaN where
        undefined; `point_hits` of the maps of `rank_concepts`, among the concepts that have a part.
    top_l : int
        How many of the ranked concepts count, 1 to l_max.

    Returns
    -------
    Tensor
        (N,) in [0, 1], of the dtype of `hits`; NaN where all of the first `top_l` are undefined.

    Raises
    ------
    TypeError
        If `hits` is not a tensor of a floating-point dtype, or `top_l` not an int.
    ValueError
        If `hits` is not (N, l_max), holds a number outside [0, 1], or `top_l` is outside [1, l_max].
    """
    check_floating("hits", hits)
    check_shape("hits", hits, ("N", "l_max"), (None, None))
    check_top_l("top_l", top_l, hits.shape[1], "ranked concepts")
    if ((hits < 0) | (hits > 1)).any():
        raise ValueError(
            "Expected argument `hits` to lie in [0, 1], with NaN where a part is not visible, but got values from "
            f"{hits.nan_to_num(1.0).min().item()} to {hits.nan_to_num(0.0).max().item()}."
        )
    return torch.nanmean(hits[:, :top_l], dim=1)
