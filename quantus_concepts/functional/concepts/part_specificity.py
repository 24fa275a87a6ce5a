"""Part specificity: is a map strongest at its own part, or at any part of the object?"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from captum_concepts.support.checks import check_axes, check_finite
from quantus_concepts.functional.arguments import Numbers, check_within, to_class_tensor, to_floats


class PartHits(NamedTuple):
    """Hits of maps at the part of their concept, and at the other parts.

    Attributes
    ----------
    own : Tensor
        (N, ...): the hit at the map's own part, NaN where it is not visible.
    others : Tensor
        (N, ...): weighted mean of the hits at the other visible parts, NaN where the own part or all others are not
        visible.
    """

    own: Tensor
    others: Tensor

    @property
    def difference(self) -> Tensor:
        """The part specificity, in [-1, 1]: `own` less `others`."""
        return self.own - self.others


@torch.no_grad()
def part_specificity(hits: Numbers, parts: Numbers, weights: Numbers | None = None) -> PartHits:
    """Compare the hit of each map at its own part with its hits at the other visible parts of the same image.

    Map, image and object are the same; only the part differs. 0 is *not* what a map without knowledge scores: one fixed
    map scores -.24 to .29 on painted birds, by the part that its concept is about. Compare with random banks. The other
    parts are weighted by the number of concepts about them, so that a map that knows no concept has an expected
    difference near 0 if its concept is any of them with equal probability.

    Parameters
    ----------
    hits : array_like
        (N, P, ...) in [0, 1]: hits of each map at every part of its image, NaN where not visible; `point_hits`.
    parts : array_like
        (N,) of int: the part that the concept of each map is about.
    weights : array_like, optional
        (P,): number of concepts about each part; equal by default.

    Returns
    -------
    PartHits
        ``own`` and ``others``, each (N, ...), and their ``difference``.

    Raises
    ------
    ValueError
        If a shape is wrong, or numbers on the CPU are out of range.

    Examples
    --------
    >>> import torch
    >>> from quantus_concepts.functional import part_specificity
    >>> hits, parts = torch.tensor([[1.0, 0.0, 0.5]]), torch.tensor([0])
    >>> result = part_specificity(hits, parts)
    >>> result.others, result.difference
    (tensor([0.2500]), tensor([0.7500]))
    """
    hits, parts = to_floats("hits", hits), to_class_tensor("parts", parts)
    weights = torch.ones(hits.shape[1:2]) if weights is None else to_floats("weights", weights)
    sizes = check_axes(hits=(hits, "N P ..."), parts=(parts, "N"), weights=(weights, "P"))
    # Elsewhere than on the CPU, looking at the values would wait for the device.
    if hits.device.type == "cpu":
        check_within("hits", hits, 0, 1, nan=True, remedy="Pass NaN where a part is not visible.")
    if parts.device.type == "cpu":
        check_within("parts", parts, 0, sizes["P"] - 1)
    if weights.device.type == "cpu":
        check_finite("weights", weights)
        check_within("weights", weights, 0, math.inf)
    flat = hits.flatten(2) if hits.ndim > 2 else hits[..., None]
    place = parts.to(hits.device)[:, None, None].expand(-1, 1, flat.shape[2])
    own = flat.gather(1, place)[:, 0]
    counted = weights.to(hits)[None, :, None].masked_fill(flat.isnan(), 0).scatter(1, place, 0)
    # 0 / 0 where no other part is visible.
    others = ((flat.nan_to_num(0) * counted).sum(1) / counted.sum(1)).masked_fill(own.isnan(), torch.nan)
    rest = (len(hits), *hits.shape[2:])
    return PartHits(own.view(rest), others.view(rest))
