"""Losses between predicted and given ratings of a batch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

#: Weights of cosine, squared and ranking loss.
LOSS_WEIGHTS = {"paper": (1.0, 0.001, 0.01), "release": (0.01, 10.0, 0.01)}


def cosine_loss(predicted: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
    """One minus the cosine between all predictions of a batch and all targets."""
    # Kazmierczak et al., PASTA, Eq. 10. It looks at the direction of the batch, not at its scale.
    target = _known_targets(target, mask)
    if mask is None:
        return 1 - functional.cosine_similarity(predicted, target, dim=-1)
    cosine = functional.cosine_similarity(predicted.masked_fill(~mask, 0), target, dim=-1)
    return (1 - cosine) * mask.any(-1)


def squared_loss(predicted: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
    """Mean squared difference."""
    # Kazmierczak et al., PASTA, Eq. 11.
    target = _known_targets(target, mask)
    if mask is None:
        return (predicted - target).square().mean(-1)
    return (predicted - target).masked_fill(~mask, 0).square().sum(-1) / mask.sum(-1).clamp_min(1)


def ranking_loss(predicted: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
    """Mean, over pairs of unequal target, of how far a pair is predicted in the wrong order."""
    # Kazmierczak et al., PASTA, Eq. 12: max(0, -(p_i - p_j) (t_i - t_j)). The paper does not say which pairs are
    # counted; here each unordered pair whose targets differ, once. Two equal predictions have no gradient.
    target = _known_targets(target, mask)
    # Both halves of the table of pairs differ in sign only, so half the double sum over wrong pairs is one sum over
    # items, and the gradient need not go through a table of N x N.
    pull, n_ordered = ordered_pulls(predicted, target, mask)
    return 2 * (predicted * pull).sum(-1) / n_ordered.clamp_min(1)


@torch.no_grad()
def ordered_pulls(predicted: Tensor, target: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the sum of each item's gaps to those it is wrongly ordered with, and how many pairs have an order."""
    gaps = target[..., :, None] - target[..., None, :]
    if mask is not None:
        gaps.masked_fill_(~(mask[..., :, None] & mask[..., None, :]), 0)
    # Signs rather than counts and comparisons: sums of floats are several times as fast on a CPU.
    n_ordered = gaps.sign().square_().sum((-2, -1))
    wrong = (predicted[..., :, None] - predicted[..., None, :]).mul_(gaps).sign_().clamp_(max=0)
    return gaps.mul_(wrong).sum(-1), n_ordered


def neighbour_loss(predicted: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
    """Mean, over pairs of neighbours in the batch, of how far a pair is predicted in the wrong order."""
    # The authors' released trainer implements Eq. 12 as a margin ranking loss (margin 0) of the items i and i +
    # 1; pairs of equal target count as 0.
    target = _known_targets(target, mask)
    wrong = functional.relu(-predicted.diff(dim=-1) * target.diff(dim=-1).sign())
    if mask is None:
        return wrong.sum(-1) / max(wrong.shape[-1], 1)
    both = mask[..., 1:] & mask[..., :-1]
    return wrong.masked_fill(~both, 0).sum(-1) / both.sum(-1).clamp_min(1)


def single_cosine_loss(predicted: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
    """One minus the cosine between single numbers, averaged: 0 for any two positive numbers."""
    # The authors' released trainer implements Eq. 10 so. It has hardly any gradient, and is here only so
    # that the released loss can be had.
    target = _known_targets(target, mask)
    loss = 1 - functional.cosine_similarity(predicted[..., None], target[..., None], dim=-1)
    if mask is None:
        return loss.mean(-1)
    return loss.masked_fill(~mask, 0).sum(-1) / mask.sum(-1).clamp_min(1)


def pasta_loss(
    predicted: Tensor,
    target: Tensor,
    mask: Tensor | None = None,
    *,
    weights: Sequence[float] | None = None,
    form: str = "paper",
) -> Tensor:
    """Weighted sum of a cosine, a squared and a ranking loss."""
    # Kazmierczak et al., PASTA, Eq. 3. The authors' released trainer differs in all three weights, in the cosine
    # (`single_cosine_loss`) and in the ranking (`neighbour_loss`); the paper's formula is the default.
    factors = check_weights(LOSS_WEIGHTS[form] if weights is None else weights)
    parts = (
        (cosine_loss, squared_loss, ranking_loss)
        if form == "paper"
        else (single_cosine_loss, squared_loss, neighbour_loss)
    )
    terms = [factor * part(predicted, target, mask) for factor, part in zip(factors, parts, strict=True) if factor != 0]
    return torch.stack(terms).sum(0) if terms else (predicted * 0).sum(-1)


def check_weights(weights: Sequence[float]) -> tuple[float, ...]:
    """Return three weights, or raise."""
    listed = tuple(float(weight) for weight in weights)
    if len(listed) != 3 or not all(0 <= weight < float("inf") for weight in listed):
        raise ValueError(
            "Expected argument `weights` to hold three numbers of at least 0 (of cosine, squared and ranking loss) "
            f"but got {tuple(weights)}."
        )
    return listed


def _known_targets(target: Tensor, mask: Tensor | None) -> Tensor:
    """Return targets that are 0 outside the mask: a NaN there would come through every product."""
    return target if mask is None else target.masked_fill(~mask, 0)
