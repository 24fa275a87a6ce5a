"""Sufficiency, necessity and their harmonic mean, from changes of a class's probability to scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from captum_concepts.support.checks import check_axes, check_shape, check_whole
from captum_concepts.texts import in_one_line
from quantus_concepts.functional.arguments import Numbers, as_tensor, to_floats

#: Steps of Algorithm 1: i = 1, 3, 5, ... percent.
FIRST, STEP = 1, 2


@in_one_line
class FaithfulnessScores(NamedTuple):
    """How faithful explanations are, each (N,) in [0, 1].

    Attributes
    ----------
    faithfulness : Tensor
        Harmonic mean of the other two; 0 where one is 0.
    sufficiency : Tensor
        How little the output changes with the pixels that are called irrelevant.
    necessity : Tensor
        How much it changes with those that are called relevant; below 1 - exp(-1) = 0.63 by its definition.
    """

    faithfulness: Tensor
    sufficiency: Tensor
    necessity: Tensor


def percentages(thresholds: Sequence[int]) -> range:
    """Return the shares of the pixels that are perturbed, i = 1, 3, ... below the largest threshold."""
    # Every smaller threshold has a beginning of them, so that each perturbed image serves all thresholds.
    return range(FIRST, max(thresholds), STEP)


def pixel_counts(n_pixels: int, thresholds: Sequence[int]) -> Tensor:
    """Return how many pixels each percentage is, rounded down, as in Quantus's ROAD."""
    return torch.tensor([n_pixels * share // 100 for share in percentages(thresholds)])


@torch.no_grad()
def relevance_ranks(maps: Numbers, order: Numbers | None = None) -> Tensor:
    """Return the place of each pixel in ascending relevance; P - 1 minus it is that in descending relevance.

    Parameters
    ----------
    maps : array_like
        (N, H, W), of a floating-point dtype; a map that holds NaN gets ranks without meaning.
    order : array_like, optional
        (N, P) of int64: a permutation of each image's P = H * W pixels that says which of two equally relevant
        pixels comes first in ascending, and last in descending relevance. Their position if None; that is
        biased, since maps with large plateaus then lose the image from its upper edge on.

    Returns
    -------
    Tensor
        (N, H, W) of int64, each of 0 to P - 1 once.

    Raises
    ------
    ValueError
        If a shape is wrong, or `order` on the CPU holds no permutations.

    Examples
    --------
    >>> import torch
    >>> from quantus_concepts.functional import relevance_ranks
    >>> relevance_ranks(torch.tensor([[[0.5, 0.1], [0.9, 0.3]]]))
    tensor([[[2, 0],
             [3, 1]]])
    """
    maps = to_floats("maps", maps)
    check_axes(maps=(maps, "N H W"))
    if order is not None:
        order = as_tensor("order", order)
        check_shape("order", order, ("N", "P"), (len(maps), maps.shape[1] * maps.shape[2]))
        order = order.long()
        # Elsewhere than on the CPU, looking at the values would wait for the device.
        if order.device.type == "cpu" and not _are_permutations(order):
            raise ValueError(
                f"Expected argument `order` to hold each of 0 to {order.shape[1] - 1} once for each image but it does "
                "not."
            )
    flat = maps.flatten(1)
    if order is None:
        places = flat.argsort(dim=1, stable=True)
    else:
        order = order.to(maps.device)
        places = order.gather(1, flat.gather(1, order).argsort(dim=1, stable=True))
    ascending = torch.arange(flat.shape[1], device=maps.device).expand_as(places)
    return torch.empty_like(places).scatter_(1, places, ascending).view_as(maps)


def _are_permutations(order: Tensor) -> bool:
    n = order.shape[1]
    inside = not order.numel() or (bool(order.min() >= 0) and bool(order.max() < n))
    return inside and bool(torch.zeros_like(order, dtype=torch.bool).scatter_(1, order, True).all())


@torch.no_grad()
def faithfulness(irrelevant: Numbers, relevant: Numbers, thresholds: Sequence[int]) -> FaithfulnessScores:
    """Compute sufficiency, necessity and faithfulness from how far perturbations move a class's probability.

    Kazmierczak et al., Appendix B.2, Eq. 5 and Algorithm 1, after Azzolin et al. (2025): the mean d of
    ``|p(y|x) - p(y|x')|`` over the percentages below a threshold gives exp(-d), or 1 - exp(-d), of which the best
    over the thresholds counts. The algorithm as printed returns the largest *change* rather than the largest value;
    its text and Eq. 5 mean the value, which is followed.

    Parameters
    ----------
    irrelevant : array_like
        (N, L): changes of the probability where the least relevant pixels are perturbed, for the L
        `percentages`.
    relevant : array_like
        (N, L): changes where the most relevant ones are.
    thresholds : sequence of int
        Percentages of the pixels, whole numbers in [2, 100].

    Returns
    -------
    FaithfulnessScores
        Each (N,), NaN where a change is; higher is better.

    Raises
    ------
    ValueError
        If a shape is wrong or a threshold is out of range.

    Examples
    --------
    >>> import torch
    >>> from quantus_concepts.functional import faithfulness
    >>> # The least relevant 2 and 4 % of the pixels change nothing, the most relevant ones .4 and .6.
    >>> scores = faithfulness(
    ...     torch.tensor([[0.0, 0.0]]), torch.tensor([[0.4, 0.6]]), thresholds=[5]
    ... )
    >>> scores.sufficiency, scores.necessity.round(decimals=2)  # exp(-0) and 1 - exp(-0.5)
    (tensor([1.]), tensor([0.3900]))
    """
    thresholds = [check_whole("thresholds", threshold, FIRST + 1, 100) for threshold in thresholds]
    irrelevant, relevant = to_floats("irrelevant", irrelevant), to_floats("relevant", relevant)
    axes = f"N {len(percentages(thresholds))}"
    check_axes(irrelevant=(irrelevant, axes), relevant=(relevant, axes))
    sufficiency = (-_means(irrelevant, thresholds)).exp().amax(1)
    necessity = (-torch.expm1(-_means(relevant.to(irrelevant.device), thresholds))).amax(1)
    harmonic = 2 * sufficiency * necessity / (sufficiency + necessity)
    return FaithfulnessScores(harmonic, sufficiency, necessity)


def _means(changes: Tensor, thresholds: Sequence[int]) -> Tensor:
    """Return (N, T): the mean change over the percentages below each threshold."""
    undefined = changes.isnan().any(1, keepdim=True)
    ends = [len(range(FIRST, threshold, STEP)) for threshold in sorted(set(thresholds))]
    lengths = torch.arange(1, changes.shape[1] + 1, device=changes.device)
    means = (changes.cumsum(1) / lengths)[:, [end - 1 for end in ends]]
    return means.masked_fill(undefined, torch.nan)
