"""Importance that an attribution map gives to a region."""

from __future__ import annotations

import torch
from torch import Tensor

from captum_concepts.support.checks import check_axes
from quantus_concepts.functional.arguments import Numbers, as_tensor, check_zero_one, to_floats
from quantus_concepts.functional.attribution.normalisation import finite_rows


@torch.no_grad()
def concept_attribution(maps: Numbers, masks: Numbers) -> Tensor:
    """Mean positive attribution inside a mask: g_c of Yang and Kim (2019), "BIM", Section 4.

    Only positive attributions count, per channel, and channels are summed: a false positive is importance *for* a
    class. Maps from `positive_percentile` are taken as they are, since they are neither negative nor of several
    channels.

    Parameters
    ----------
    maps : array_like
        (N, C, H, W) attributions.
    masks : array_like
        (N, 1, H, W) of 0 and 1 or of bool: I_c.

    Returns
    -------
    Tensor
        (N,), of the dtype of `maps` (float32 for narrower ones); NaN where the mask is empty or the map holds NaN
        or infinity.

    Raises
    ------
    ValueError
        If a shape is wrong or a mask holds something else than 0 and 1.

    Examples
    --------
    >>> import torch
    >>> from quantus_concepts.functional import concept_attribution
    >>> maps = torch.tensor([[1.0, -4.0], [0.0, 9.0]]).view(1, 1, 2, 2)
    >>> masks = torch.tensor([[1, 1], [0, 0]]).view(1, 1, 2, 2)
    >>> concept_attribution(maps, masks).tolist()  # negative values count as 0
    [0.5]
    """
    maps, masks = to_floats("maps", maps), as_tensor("masks", masks)
    check_axes(maps=(maps, "N C H W"), masks=(masks, "N 1 H W"))
    check_zero_one("masks", masks)
    maps = maps.to(torch.promote_types(maps.dtype, torch.float32))
    # Several times as fast as from bool, which is the same byte.
    inside = (masks.view(torch.uint8) if masks.dtype == torch.bool else masks).to(maps.device, maps.dtype)
    positive = maps.clamp(min=0)
    if positive.shape[1] != 1:
        positive = positive.sum(1, keepdim=True)
    # In place: fresh memory costs more than the product.
    attributed = positive.mul_(inside).sum((1, 2, 3))
    size = inside.sum((1, 2, 3))
    return (attributed / size).masked_fill(~finite_rows(maps) | (size == 0), torch.nan)


def random_masks(masks: Numbers, generator: torch.Generator) -> Tensor:
    """Move each mask to a random place: the chance baseline of the model contrast score.

    Yang and Kim (2019), Appendix G, measure the baseline with a random mask. Here it is the same mask, moved
    cyclically over the borders by a uniformly drawn distance: its size stays, and each pixel of the image is in
    it equally often.

    Parameters
    ----------
    masks : array_like
        (N, 1, H, W).
    generator : torch.Generator
        On the CPU; the only source of randomness.

    Returns
    -------
    Tensor
        (N, 1, H, W), of the dtype and on the device of `masks`.

    Raises
    ------
    ValueError
        If the shape is wrong.

    Examples
    --------
    >>> import torch
    >>> from quantus_concepts.functional import random_masks
    >>> masks = torch.zeros(1, 1, 8, 8, dtype=torch.bool)
    >>> masks[..., :2, :2] = True
    >>> random_masks(masks, torch.Generator().manual_seed(0)).sum()  # moved, of the same size
    tensor(4)
    """
    masks = as_tensor("masks", masks)
    check_axes(masks=(masks, "N 1 H W"))
    height, width = masks.shape[2:]
    down = torch.randint(height, (len(masks),), generator=generator).tolist()
    across = torch.randint(width, (len(masks),), generator=generator).tolist()
    moved = [mask.roll((y, x), (1, 2)) for mask, y, x in zip(masks, down, across, strict=True)]
    return torch.stack(moved) if moved else masks.clone()
