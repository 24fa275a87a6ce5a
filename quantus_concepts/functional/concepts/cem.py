"""The concept existence metric: share of the most important concepts that the image shows."""

from __future__ import annotations

import torch
from torch import Tensor

from captum_concepts.support.checks import check_axes, check_whole
from captum_concepts.support.running import at_least_float32
from quantus_concepts.functional.arguments import Numbers, check_zero_one, to_floats, to_tensor
from quantus_concepts.functional.concepts.ranking import first_concepts, ranks_concepts


@torch.no_grad()
def cem(importance: Numbers, concept_labels: Numbers, top_l: int = 1) -> Tensor:
    """Share of the `top_l` most important concepts that are labelled present, for each sample.

    Aysel et al. (2025), "Concept-Based Explainable AI: Metrics and Benchmarks", Equations 9 and 10.
    Higher is better; chance is the share of concepts the sample shows. Concepts are ranked as in
    `rank_concepts`: signed, where the paper's text says magnitude.

    Parameters
    ----------
    importance : array_like
        (N, L), importance of each concept for the explained class: weights theta, values u, or theta times u.
    concept_labels : array_like
        (N, L) of 0 and 1, of any dtype: the concepts each sample shows.
    top_l : int
        How many concepts count, 1 to L.

    Returns
    -------
    Tensor
        (N,) in [0, 1], of the dtype of `importance` (float32 for narrower ones); NaN for a sample whose
        importance holds NaN or is zero throughout, which ranks no concept (`is_ranked`).

    Raises
    ------
    ValueError
        If a shape is wrong, a label is neither 0 nor 1, or `top_l` is outside [1, L].

    Examples
    --------
    >>> import torch
    >>> from quantus_concepts.functional import cem
    >>> importance = torch.tensor([[3.0, 2.0, 1.0], [0.0, 1.0, 5.0]])
    >>> labels = torch.tensor([[1, 0, 1], [1, 0, 0]])
    >>> cem(importance, labels, top_l=2).tolist()
    [0.5, 0.0]
    """
    return ranked_presence(*checked_ranking(importance, concept_labels, top_l)).mean(1)


def checked_ranking(importance: Numbers, concept_labels: Numbers, top_l: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the arguments of `ranked_presence` from those of `cem`, or raise."""
    importance, labels = to_floats("importance", importance), to_tensor("concept_labels", concept_labels)
    sizes = check_axes(importance=(importance, "N L"), concept_labels=(labels, "N L"))
    check_zero_one("concept_labels", labels)
    top_l = check_whole("top_l", top_l, 1, sizes["L"])
    return importance, labels.to(importance.device), first_concepts(importance, top_l)


def ranked_presence(importance: Tensor, present: Tensor, order: Tensor) -> Tensor:
    """Return whether each sample shows its most important concepts, (..., top) of 0 and 1; NaN if none is ranked.

    Importance and `present` (..., L), and the `order` (..., top) of `first_concepts`, are on one device.
    """
    presence = at_least_float32(present.gather(-1, order).to(importance.dtype))
    return presence.masked_fill(~ranks_concepts(importance).unsqueeze(-1), torch.nan)
