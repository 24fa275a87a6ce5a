"""Interventions on concept values: the order in which concepts are corrected, and the values after some corrections."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from captum_concepts.support.checks import check_axes, check_choice, check_range, check_shape, check_whole, to_array
from quantus_concepts.functional.arguments import Numbers, as_tensor, check_zero_one, to_floats

#: Orders in which the concepts of an image are corrected.
ORDERS = ("random", "uncertainty", "contribution")


def intervention_counts(n: int) -> tuple[int, ...]:
    """Return how many of n concepts, or groups of them, to intervene on: 0, 1, 2, 4, ... and n.

    Parameters
    ----------
    n : int
        How many there are.

    Returns
    -------
    tuple of int
        Ascending. The last power of two is left out where n is less than half as much again.

    Raises
    ------
    ValueError
        If `n` is below 1.

    Examples
    --------
    >>> from quantus_concepts.functional import intervention_counts
    >>> intervention_counts(112)
    (0, 1, 2, 4, 8, 16, 32, 64, 112)
    """
    n = check_whole("n", n, 1)
    powers = (2**power for power in range(n.bit_length()))
    return (0, *(power for power in powers if 3 * power <= 2 * n), n)


@torch.no_grad()
def intervention_ranks(
    order: str,
    values: Numbers,
    targets: Numbers,
    *,
    weights: Numbers | None = None,
    boundary: Numbers = 0.5,
    groups: Numbers | None = None,
    seed: int = 0,
    first: int = 0,
) -> Tensor:
    """Return the position of each concept in the order in which people correct an image.

    "random" is a permutation of its own for each image. "uncertainty" begins with the value nearest its boundary: the
    model knows this order before anyone answers. "contribution" begins with the largest ``|weight x (target -
    value)|``, the change of the explained logit: it needs the answers, and so shows how few answers could suffice, not
    how few will. A group counts by the mean over its concepts (Shin et al. 2023, "A Closer Look at the Intervention
    Procedure of Concept Bottleneck Models").

    Parameters
    ----------
    order : str
        One of `ORDERS`.
    values : array_like
        (N, L), of a floating-point dtype.
    targets : array_like
        (N, L), what an intervention sets them to.
    weights : array_like, optional
        (N, L), of the class predicted for each image; for "contribution".
    boundary : number or array_like
        Boundary of "uncertainty": the value, or (L,) values, at which a concept is as likely there as not.
    groups : array_like, optional
        (L,) of int from 0: concepts that are corrected together; each by itself if None.
    seed : int
        Random seed of "random".
    first : int
        Number of the first image, on which its permutation depends, so that batches give what all images give.

    Returns
    -------
    Tensor
        (N, L) of int64 from 0, on the device of `values`; the same for the concepts of a group. Equal scores keep the
        order of the concepts.

    Raises
    ------
    ValueError
        If `order` is unknown, a shape is wrong, `groups` are not 0, 1, 2, ..., or "contribution" has no weights.

    Examples
    --------
    >>> import torch
    >>> from quantus_concepts.functional import intervention_ranks
    >>> values, targets = torch.tensor([[0.9, 0.6, 0.1]]), torch.tensor([[1.0, 0.0, 0.0]])
    >>> intervention_ranks(
    ...     "uncertainty", values, targets
    ... )  # 0.6 is the nearest to the boundary 0.5
    tensor([[1, 0, 2]])
    """
    check_choice("order", order, ORDERS)
    values, targets = to_floats("values", values), to_floats("targets", targets)
    weights = None if weights is None else to_floats("weights", weights)
    check_axes(values=(values, "N L"), targets=(targets, "N L"), weights=(weights, "N L"))
    n, n_concepts = values.shape
    member = checked_groups(groups, n_concepts)
    # Counted before the move: reading a number from a GPU would synchronise in every batch.
    n_groups, member = int(member.max()) + 1, member.to(values.device)
    if order == "random":
        urgency = torch.as_tensor(_draws(seed, first, n, n_groups), dtype=torch.float32).to(values.device)
    else:
        urgency = _means(_urgency(order, values, targets.to(values), weights, boundary), member, n_groups)
    sequence = urgency.argsort(dim=1, descending=True, stable=True)
    positions = torch.arange(n_groups, device=sequence.device).expand(n, -1)
    places = torch.empty_like(sequence).scatter_(1, sequence, positions)
    return places[:, member]


@torch.no_grad()
def intervene_values(values: Numbers, targets: Numbers, ranks: Numbers, counts: Sequence[int]) -> Tensor:
    """Return the concept values after the first concepts of an order are set to their targets.

    Parameters
    ----------
    values : array_like
        (N, L), of a floating-point dtype.
    targets : array_like
        (N, L), what they are set to.
    ranks : array_like
        (N, L) of int, as `intervention_ranks` returns them.
    counts : sequence of int
        How many concepts, or groups, are set, one number after another; 0 for none.

    Returns
    -------
    Tensor
        (S, N, L), for each of the S counts.

    Raises
    ------
    ValueError
        If a shape is wrong.

    Examples
    --------
    >>> import torch
    >>> from quantus_concepts.functional import intervene_values
    >>> values, targets = torch.tensor([[0.2, 0.6]]), torch.tensor([[1.0, 0.0]])
    >>> intervene_values(
    ...     values, targets, ranks=torch.tensor([[1, 0]]), counts=[1]
    ... )  # the second concept first
    tensor([[[0.2000, 0.0000]]])
    """
    values, targets, ranks = to_floats("values", values), to_floats("targets", targets), as_tensor("ranks", ranks)
    check_axes(values=(values, "N L"), targets=(targets, "N L"), ranks=(ranks, "N L"))
    corrected = ranks.to(values.device) < torch.tensor(counts, device=values.device)[:, None, None]
    return torch.where(corrected, targets.to(values), values)


@torch.no_grad()
def simulate_answers(
    concepts: Numbers, error_rate: float = 0.0, abstention_rate: float = 0.0, *, seed: int = 0, first: int = 0
) -> Tensor:
    """Return what people who err, or do not know, answer about concepts.

    Each answer is withheld with one probability and, if given, wrong with the other, independently of all others. A
    larger rate adds errors to those of a smaller one, so that rates can be compared on the same images.

    Parameters
    ----------
    concepts : array_like
        (N, L) of 0/1, the true concepts.
    error_rate : float
        Probability that an answer is wrong, in [0, 1]. At 1/2 answers say nothing.
    abstention_rate : float
        Probability that there is no answer, in [0, 1].
    seed : int
        Random seed.
    first : int
        Number of the first image, on which its answers depend, so that batches give what all images give.

    Returns
    -------
    Tensor
        (N, L) of 0, 1, and NaN for no answer, on the device of `concepts`.

    Raises
    ------
    ValueError
        If concepts are not 0/1, or a rate is out of its range.

    Examples
    --------
    >>> from quantus_concepts.functional import simulate_answers
    >>> simulate_answers([[0, 1, 1]], error_rate=1.0)
    tensor([[1., 0., 0.]])
    """
    truth = as_tensor("concepts", concepts)
    check_axes(concepts=(truth, "N L"))
    check_zero_one("concepts", truth)
    check_range("error_rate", error_rate, 0, 1)
    check_range("abstention_rate", abstention_rate, 0, 1)
    n, n_concepts = truth.shape
    if not error_rate and not abstention_rate:
        return truth.float()
    draws = torch.from_numpy(_draws(seed, first, n, 2 * n_concepts, "answers"))
    is_wrong, is_withheld = draws[:, :n_concepts] < error_rate, draws[:, n_concepts:] < abstention_rate
    answers = torch.where(is_wrong.to(truth.device), 1 - truth.float(), truth.float())
    return answers.masked_fill(is_withheld.to(truth.device), torch.nan)


@torch.no_grad()
def spent_ranks(ranks: Tensor, costs: Numbers, groups: Numbers | None) -> Tensor:
    """Return ranks (N, L) in units of cost: those below a budget are of the first answers that it pays for."""
    member, prices = (
        checked_groups(groups, ranks.shape[1]),
        torch.from_numpy(checked_costs(costs, groups, ranks.shape[1])),
    )
    concept_of = torch.zeros_like(prices).scatter_(0, member, torch.arange(len(member)))
    sequence = ranks[:, concept_of.to(ranks.device)].argsort(1)
    spent = prices.to(ranks.device)[sequence].cumsum(1)
    return torch.empty_like(spent).scatter_(1, sequence, spent)[:, member.to(ranks.device)] - 1


def checked_costs(costs: Numbers | None, groups: Numbers | None, n_concepts: int) -> np.ndarray:
    """Return the cost of each group of concepts (G,), whole numbers from 1, or raise."""
    n_groups = int(checked_groups(groups, n_concepts).max()) + 1
    if costs is None:
        return np.ones(n_groups, dtype=np.int64)
    numbers = to_array("costs", costs)
    check_shape("costs", numbers, ("G",), (n_groups,))
    if numbers.dtype.kind not in "iu" or (numbers < 1).any():
        raise ValueError(
            f"Expected argument `costs` to hold whole numbers from 1, one for each group, but got {numbers[:8]}. "
            "Choose a smaller unit."
        )
    return numbers.astype(np.int64)


def checked_groups(groups: Numbers | None, n_concepts: int) -> Tensor:
    """Return the group of each concept, (L,) of int64 from 0 without a gap, or raise."""
    if groups is None:
        return torch.arange(n_concepts)
    member = to_array("groups", groups)
    check_shape("groups", member, ("L",), (n_concepts,))
    if member.dtype.kind not in "iu" or not np.array_equal(np.unique(member), np.arange(member.max(initial=-1) + 1)):
        raise ValueError(f"Expected argument `groups` to hold the numbers 0, 1, 2, ... of groups but got {member[:8]}.")
    return torch.as_tensor(member, dtype=torch.int64)


@lru_cache(maxsize=4)
def _draws(seed: int, first: int, n: int, size: int, what: str = "") -> np.ndarray:
    # A generator for each image takes its time, and models that are scored together ask for the same.
    stream = [*what.encode()]
    draws = [np.random.default_rng([seed, first + image, *stream]).random(size) for image in range(n)]
    return np.array(draws).reshape(n, size)


def _urgency(order: str, values: Tensor, targets: Tensor, weights: Tensor | None, boundary: Numbers) -> Tensor:
    if order == "uncertainty":
        limit = as_tensor("boundary", boundary).to(values)
        if tuple(limit.shape) not in ((), values.shape[1:]):
            raise ValueError(
                f"Expected argument `boundary` to be one number or to have shape (L,) = ({values.shape[1]},) but got "
                f"{tuple(limit.shape)}."
            )
        return -(values - limit).abs()
    if weights is None:
        raise ValueError("Expected argument `weights` (N, L) with the order 'contribution' but it is None.")
    return (weights.to(values) * (targets - values)).abs()


def _means(scores: Tensor, member: Tensor, n_groups: int) -> Tensor:
    sums = scores.new_zeros(len(scores), n_groups).index_add_(1, member, scores)
    # `bincount` would synchronise: the size of its output depends on the data.
    return sums / scores.new_zeros(n_groups).index_add_(0, member, scores.new_ones(len(member)))
