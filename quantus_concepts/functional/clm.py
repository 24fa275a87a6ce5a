"""Concept location metric, Equation 11 of Aysel et al. (2025)."""

from __future__ import annotations

import torch
from torch import Tensor

from quantus_concepts.checks import check_range, check_shape


def clm(hits: Tensor, top_l: int) -> Tensor:
    """Average the hits of the first concepts whose part is visible.

    Parameters
    ----------
    hits : Tensor
        (N, l_max): hits of the ranked concepts of each image, the most important first, NaN where the part is
        not visible; from `point_hits` of the maps of `rank_concepts`.
    top_l : int
        How many of the ranked concepts count, 1 to l_max.

    Returns
    -------
    Tensor
        (N,) in [0, 1]; NaN where none of the first `top_l` has a visible part.

    Raises
    ------
    ValueError
        If `hits` is not (N, l_max) or `top_l` out of range.
    """
    check_shape("hits", hits, ("N", "l"), (None, None))
    check_range("top_l", top_l, 1, hits.shape[1])
    return torch.nanmean(hits[:, :top_l], dim=1)
