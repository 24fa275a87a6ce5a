"""Losses between predicted and given ratings of a batch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

#: Weights of cosine, squared and ranking loss.
LOSS_WEIGHTS = {"paper": (1.0, 0.001, 0.01), "release": (0.01, 10.0, 0.01)}


# Predictions and targets (..., N) with a mask (..., N) of the votes that exist; both are 0 where there is none.


def cosine_loss(predicted: Tensor, target: Tensor, mask: Tensor) -> Tensor:
    """One minus the cosine between all predictions of a batch and all targets."""
    # Kazmierczak et al., PASTA, Eq. 10. It depends on the direction of the batch, not on its scale.
    cosine = functional.cosine_similarity(predicted, target, dim=-1)
    return (1 - cosine) * mask.any(-1)


def squared_loss(predicted: Tensor, target: Tensor, mask: Tensor) -> Tensor:
    """Mean squared difference."""
    # Kazmierczak et al., PASTA, Eq. 11.
    return (predicted - target).square().sum(-1) / mask.sum(-1).clamp_min(1)


def ranking_loss(predicted: Tensor, target: Tensor, mask: Tensor) -> Tensor:
    """Mean, over pairs of unequal target, of how far a pair is predicted in the wrong order."""
    # Kazmierczak et al., PASTA, Eq. 12: max(0, -(p_i - p_j) (t_i - t_j)). The paper does not say which pairs are
    # counted; here each unordered pair whose targets differ, once. Two equal predictions have no gradient.
    # Both halves of the table of pairs differ in sign only, so half the double sum over wrong pairs is one sum over
    # items, and the gradient need not go through a table of N x N.
    with torch.no_grad():
        gaps = target[..., :, None] - target[..., None, :]
        gaps.mul_(mask[..., :, None]).mul_(mask[..., None, :])
        # Signs rather than counts and comparisons: sums of floats are several times as fast on a CPU.
        n_ordered = gaps.sign().square_().sum((-2, -1))
        wrong = (predicted[..., :, None] - predicted[..., None, :]).mul_(gaps).sign_().clamp_(max=0)
        pull = gaps.mul_(wrong).sum(-1)
    return 2 * (predicted * pull).sum(-1) / n_ordered.clamp_min(1)


def neighbour_loss(predicted: Tensor, target: Tensor, mask: Tensor) -> Tensor:
    """Mean, over pairs of neighbours in the batch, of how far a pair is predicted in the wrong order."""
    # The authors' released trainer implements Eq. 12 as a margin ranking loss (margin 0) of the items i and i +
    # 1; pairs of equal target count as 0.
    wrong = functional.relu(-predicted.diff(dim=-1) * target.diff(dim=-1).sign())
    both = mask[..., 1:] & mask[..., :-1]
    return wrong.masked_fill(~both, 0).sum(-1) / both.sum(-1).clamp_min(1)


def single_cosine_loss(predicted: Tensor, target: Tensor, mask: Tensor) -> Tensor:
    """One minus the cosine between single numbers, averaged: 0 for any two positive numbers."""
    # The authors' released trainer implements Eq. 10 so. It has hardly any gradient, and is here only so
    # that the released loss can be had.
    loss = 1 - functional.cosine_similarity(predicted[..., None], target[..., None], dim=-1)
    return loss.masked_fill(~mask, 0).sum(-1) / mask.sum(-1).clamp_min(1)


#: Cosine, squared and ranking loss of the paper, and of the released trainer.
LOSSES = {
    "paper": (cosine_loss, squared_loss, ranking_loss),
    "release": (single_cosine_loss, squared_loss, neighbour_loss),
}


def pasta_loss(
    predicted: Tensor, target: Tensor, mask: Tensor, *, weights: Sequence[float], form: str = "paper"
) -> Tensor:
    """Weighted sum of a cosine, a squared and a ranking loss."""
    # Kazmierczak et al., PASTA, Eq. 3. The authors' released trainer differs in all three weights, in the cosine
    # (`single_cosine_loss`) and in the ranking (`neighbour_loss`); the paper's formula is the default.
    # A NaN among the targets would come through every product.
    predicted, target = predicted.masked_fill(~mask, 0), target.masked_fill(~mask, 0)
    terms = [weight * loss(predicted, target, mask) for weight, loss in zip(weights, LOSSES[form], strict=True)]
    return torch.stack(terms).sum(0)
