"""Part specificity: is a map strongest at its own part, or at any part of the object?"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from captum_concepts.support.checks import check_axes, check_finite
from quantus_concepts.functional.arguments import Numbers, check_within, to_classes, to_floats


@torch.no_grad()
def part_specificity(hits: Numbers, parts: Numbers, weights: Numbers | None = None) -> tuple[Tensor, Tensor]:
    """Compare the hit of each map at its own part with its hits at the other visible parts of the same image.

    Map, image and object are the same; only the part differs. If objects are in the middle of the images, any map on
    the object has high hits (`clm`), but a difference of 0. The other parts are weighted by the number of concepts
    about them, so that a map that knows no concept, whose concept may be any of them, has an expected difference near
    0; with equal weights, a part that is often hit and that many concepts are about would raise it.

    Parameters
    ----------
    hits : array_like
        (N, P) in [0, 1]: hits of each map at every part of its image, NaN where not visible; `point_hits`.
    parts : array_like
        (N,) of int: the part that the concept of each map is about.
    weights : array_like, optional
        (P,): number of concepts about each part; equal by default.

    Returns
    -------
    others : Tensor
        (N,): weighted mean of the hits at the other visible parts.
    difference : Tensor
        (N,) in [-1, 1]: the hit at the map's own part less `others`. Both are NaN where the own part or all others are
        not visible.

    Raises
    ------
    ValueError
        If a shape or a number is out of range.

    Examples
    --------
    >>> import torch
    >>> from quantus_concepts.functional import part_specificity
    >>> hits, parts = torch.tensor([[1.0, 0.0, 0.5]]), torch.tensor([0])
    >>> others, difference = part_specificity(hits, parts)
    >>> others, difference
    (tensor([0.2500]), tensor([0.7500]))
    """
    hits, parts = to_floats("hits", hits), to_classes("parts", parts)
    weights = torch.ones(hits.shape[1:]) if weights is None else to_floats("weights", weights)
    sizes = check_axes(hits=(hits, "N P"), parts=(parts, "N"), weights=(weights, "P"))
    check_within("hits", hits, 0, 1, nan=True, remedy="Pass NaN where a part is not visible.")
    check_within("parts", parts, 0, sizes["P"] - 1)
    check_finite("weights", weights)
    check_within("weights", weights, 0, math.inf)
    own_hits, other_hits = own_and_other_hits(hits[..., None], parts, weights)
    return other_hits[:, 0], (own_hits - other_hits)[:, 0]


def own_and_other_hits(hits: Tensor, parts: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Return hits (N, P, A) at the own part and the mean at the others, (N, A) each, of arguments that are checked."""
    place = parts.to(hits.device)[:, None, None].expand(-1, 1, hits.shape[2])
    own_hits = hits.gather(1, place)[:, 0]
    counted = weights.to(hits)[None, :, None].masked_fill(hits.isnan(), 0).scatter(1, place, 0)
    # 0 / 0 where no other part is visible.
    other_hits = (hits.nan_to_num(0) * counted).sum(1) / counted.sum(1)
    return own_hits, other_hits.masked_fill(own_hits.isnan(), torch.nan)
