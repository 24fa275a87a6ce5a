"""The concept existence metric: share of the most important concepts that the image shows."""

from __future__ import annotations

import torch
from torch import Tensor

from captum_concepts.support.checks import check_axes, check_whole
from captum_concepts.support.running import at_least_float32
from quantus_concepts.functional.arguments import Numbers, as_tensor, check_zero_one, to_floats
from quantus_concepts.functional.concepts.ranking import is_ranked, rank_concepts


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
    _, presence, _ = first_presence(importance, concept_labels, top_l)
    return presence.mean(1)


def first_presence(importance: Numbers, concept_labels: Numbers, top_l: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the labels (N, L), the `ranked_presence` (N, top_l) of the first concepts, and their indices, or raise."""
    importance, labels = to_floats("importance", importance), as_tensor("concept_labels", concept_labels)
    sizes = check_axes(importance=(importance, "N L"), concept_labels=(labels, "N L"))
    check_zero_one("concept_labels", labels)
    top_l = check_whole("top_l", top_l, 1, sizes["L"])
    labels, order = labels.to(importance.device), rank_concepts(importance, top_l)
    presence = at_least_float32(labels.gather(1, order).to(importance.dtype))
    return labels, ranked_presence(presence, is_ranked(importance)), order


def ranked_presence(presence: Tensor, ranked: Tensor) -> Tensor:
    """Return the presence (N, top) of the first concepts of samples; NaN where none is ranked (N,)."""
    return presence.masked_fill(~ranked.unsqueeze(-1), torch.nan)
