"""The losses of `rating_losses` with their derivatives in closed form, for the training's inner loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from quantus_concepts.functional.rating_losses import neighbour_signs, ordered_pulls

#: Norms are at least this, as in PyTorch's cosine similarity.
EPS = 1e-8


@torch.no_grad()
def pasta_slopes(
    predicted: Tensor, target: Tensor, mask: Tensor | None, weights: Sequence[float], form: str
) -> tuple[Tensor, Tensor]:
    """Return what `pasta_loss` gives for right arguments, (Q,), and its derivatives by the predictions, (Q, N)."""
    # Targets are 0 where the mask is. Recording a graph of so many small steps takes longer than the network.
    n_known: Any
    n_pairs: Any
    if mask is None:
        outputs, n_known, n_pairs = predicted, predicted.shape[-1], max(predicted.shape[-1] - 1, 1)
        known = predicted.new_ones(())
    else:
        known = mask.to(predicted.dtype)
        outputs = predicted.masked_fill(~mask, 0)
        n_known = known.sum(-1, keepdim=True).clamp_min_(1)
        n_pairs = (known[..., 1:] * known[..., :-1]).sum(-1, keepdim=True).clamp_min_(1)
    loss, slope = outputs.new_zeros(len(outputs)), torch.zeros_like(outputs)
    if weights[0] and form == "paper":
        cosine, away = _cosine(outputs, target)
        loss += weights[0] * (1 - cosine[..., 0]) * (1 if mask is None else mask.any(-1))
        slope.add_(away, alpha=-weights[0])
    elif weights[0]:
        cosine, away = _cosine(outputs[..., None], target[..., None])
        loss += (weights[0] * (1 - cosine[..., 0]) * known / n_known).sum(-1)
        slope -= weights[0] * away[..., 0] * known / n_known
    if weights[1]:
        gaps = outputs - target
        loss += weights[1] * (gaps.square().sum(-1, keepdim=True) / n_known)[..., 0]
        slope += (2 * weights[1] / n_known) * gaps
    if weights[2] and form == "paper":
        pull, n_ordered = ordered_pulls(outputs, target, mask)
        towards = pull * (2 * weights[2] / n_ordered.clamp_min(1))[..., None]
        loss += (outputs * towards).sum(-1)
        slope += towards
    elif weights[2]:
        signs = neighbour_signs(outputs, target, mask) * (weights[2] / n_pairs)
        loss -= (outputs.diff(dim=-1) * signs).sum(-1)
        slope[..., :-1] += signs
        slope[..., 1:] -= signs
    return loss, slope


def _cosine(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """Return the cosine (..., 1) of vectors, and its derivative by the first."""
    length, other = (torch.linalg.vector_norm(each, dim=-1, keepdim=True) for each in (first, second))
    first, second = first / length.clamp_min(EPS), second / other.clamp_min(EPS)
    cosine = (first * second).sum(-1, keepdim=True)
    # So short that its length counts as fixed, a vector turns no further.
    turned = torch.where(length > EPS, cosine, 0)
    return cosine, (second - turned * first) / length.clamp_min(EPS)
