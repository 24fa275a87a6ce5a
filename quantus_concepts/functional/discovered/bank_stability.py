"""Stability of discovered concepts: whether a second discovery finds the same directions."""

from __future__ import annotations

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor
from torch.nn import functional

from captum_concepts.support.checks import check_axes, check_finite
from captum_concepts.support.running import at_least_float32
from quantus_concepts.functional.arguments import Numbers, to_floats


@torch.no_grad()
def bank_stability(directions: Numbers, first: Numbers, second: Numbers) -> Tensor:
    """Cosine between what two other discoveries have in place of each direction.

    The directions are matched with those of either discovery one to one, by the Hungarian assignment of the largest
    sum of cosines, as in Overcomplete. A bank whose concepts two disjoint halves of the images give again has 1.

    Parameters
    ----------
    directions : array_like
        (L, d), the concepts.
    first : array_like
        (L, d), the directions of one more discovery, in any order: on a half of the images for instance.
    second : array_like
        (L, d), of another one: on the other half. To compare with one discovery only, pass `directions` as `first`.

    Returns
    -------
    Tensor
        (L,) in [-1, 1]. NaN where a matched direction has length 0.

    Raises
    ------
    ValueError
        If the shapes differ, or a number is not finite.

    Notes
    -----
    Directions of activations after a ReLU have no negative entries, so that any two of them have a positive cosine.
    Compare with directions that are drawn from the activations.

    Examples
    --------
    >>> import torch
    >>> from quantus_concepts.functional import bank_stability
    >>> bank = torch.eye(3)
    >>> shuffled, turned = (
    ...     bank[[2, 0, 1]],
    ...     torch.tensor([[1.0, 0, 0], [0, 1, 0], [0, 0.6, 0.8]]),
    ... )
    >>> bank_stability(bank, shuffled, turned)
    tensor([1.0000, 1.0000, 0.8000])
    """
    banks = {"directions": to_floats("directions", directions)}
    banks |= {"first": to_floats("first", first), "second": to_floats("second", second)}
    check_axes(**{name: (bank, "L d") for name, bank in banks.items()})
    for name, bank in banks.items():
        check_finite(name, bank)
    own, one, two = (at_least_float32(bank) for bank in banks.values())
    matched = [other.to(own)[match_directions(own, other.to(own))] for other in (one, two)]
    cosines = (functional.normalize(matched[0], dim=1) * functional.normalize(matched[1], dim=1)).sum(1).clamp(-1, 1)
    empty = torch.stack([own, *matched]).norm(dim=2).amin(0) == 0
    return cosines.masked_fill(empty, torch.nan)


def match_directions(directions: Tensor, others: Tensor) -> Tensor:
    """Return which of the other directions (L, d) each direction (L, d) is matched with, (L,)."""
    cosines = functional.normalize(directions, dim=1) @ functional.normalize(others, dim=1).T
    _, columns = linear_sum_assignment(cosines.cpu().numpy(), maximize=True)
    return torch.as_tensor(columns, device=directions.device)
