"""Order of a sample's concepts by importance."""

from __future__ import annotations

import torch
from torch import Tensor

from captum_concepts.support.checks import check_axes, check_whole
from quantus_concepts.functional.arguments import Numbers, as_tensor, check_zero_one, to_floats


@torch.no_grad()
def rank_concepts(importance: Numbers, top: int, eligible: Numbers | None = None) -> Tensor:
    """Return the most important concepts of each sample, the first entries of the paper's q_i.

    Aysel et al. (2025), section 3.3. The order is descending and *signed*: the paper's word "magnitude"
    notwithstanding, a strong negative contribution is no reason for a class. Ties are broken by the
    concepts' index, the lower first.

    Parameters
    ----------
    importance : array_like
        (..., L), of a floating-point dtype. A row that holds NaN, or only zeros, gets an order without meaning; callers
        mask it (`is_ranked`).
    top : int
        How many to return, from 1 to L, or to the number of eligible concepts.
    eligible : array_like, optional
        (L,) of bool, or of 0 and 1: the concepts that take part; all if None. CLM leaves out those that have no part.

    Returns
    -------
    Tensor
        (..., top) of int64, indices into the L concepts, on the device of `importance`.

    Raises
    ------
    ValueError
        If a shape is wrong, `eligible` holds something else than 0 and 1, or `top` is not between 1 and the number of
        concepts that take part.

    Examples
    --------
    >>> import torch
    >>> from quantus_concepts.functional import rank_concepts
    >>> rank_concepts(torch.tensor([[0.1, -0.9, 0.5]]), top=2)  # signed: -0.9 comes last
    tensor([[2, 0]])
    """
    importance = to_floats("importance", importance)
    eligible = None if eligible is None else as_tensor("eligible", eligible)
    sizes = check_axes(importance=(importance, "... L"), eligible=(eligible, "L"))
    top = check_whole("top", top, 1, sizes["L"])
    if eligible is not None:
        check_zero_one("eligible", eligible)
    if eligible is None or bool(eligible.all()):
        return _first(importance, top)
    taking_part = eligible.nonzero().squeeze(1).to(importance.device)
    if top > len(taking_part):
        raise ValueError(
            f"Expected argument `top` to lie in [1, {len(taking_part)}], the number of eligible concepts, but got "
            f"{top}."
        )
    # Not by writing -inf over the others: an eligible concept may have that importance itself.
    return taking_part[rank_concepts(importance[..., taking_part], top)]


def _first(importance: Tensor, top: int) -> Tensor:
    """Return the first entries (..., top) of a stable descending order."""
    if importance.device.type != "cpu" or 4 * top >= importance.shape[-1]:
        return importance.argsort(dim=-1, descending=True, stable=True)[..., :top]
    # Sorting all takes three times as long, and of equal ones, or NaN, only it knows the order.
    best = importance.topk(top + 1)
    order, unclear = best.indices[..., :top].clone(), ~(best.values.diff(dim=-1) < 0).all(-1)
    order[unclear] = importance[unclear].argsort(dim=-1, descending=True, stable=True)[..., :top]
    return order


@torch.no_grad()
def is_ranked(importance: Numbers) -> Tensor:
    """Return whether importance ranks the concepts of a sample: it holds no NaN, and is not zero throughout.

    An explanation that is zero throughout prefers no concept: its first concept would be the first of the list.

    Parameters
    ----------
    importance : array_like
        (..., L).

    Returns
    -------
    Tensor
        (...) of bool.

    Raises
    ------
    ValueError
        If `importance` is a single number.

    Examples
    --------
    >>> import torch
    >>> from quantus_concepts.functional import is_ranked
    >>> is_ranked(torch.tensor([[0.0, -1.0], [0.0, 0.0], [float("nan"), 1.0]])).tolist()
    [True, False, False]
    """
    importance = to_floats("importance", importance)
    check_axes(importance=(importance, "... L"))
    # The largest absolute value is NaN if any is.
    return torch.linalg.vector_norm(importance, torch.inf, -1) > 0
