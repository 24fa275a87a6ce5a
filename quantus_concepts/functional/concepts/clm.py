"""The concept location metric: are the most important concepts found where they are in the image?"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from captum_concepts.support.checks import check_axes, check_whole
from quantus_concepts.functional.arguments import Numbers, to_floats


@torch.no_grad()
def clm(hits: Numbers, top_l: int | Sequence[int]) -> Tensor:
    """Average the hits of the most important concepts whose part is visible, for each image.

    Aysel et al. (2025), "Concept-Based Explainable AI: Metrics and Benchmarks", Equation 11. Where parts are not
    visible the mean is over fewer than l, where the equation divides by l throughout.

    Parameters
    ----------
    hits : array_like
        (..., l_max): hits in [0, 1], or part specificities, of the ranked concepts of each image, the most important
        first, NaN where undefined; `point_hits` of the maps of `rank_concepts`, among the concepts that have a part.
    top_l : int or sequence of int
        How many of the ranked concepts count, 1 to l_max.

    Returns
    -------
    Tensor
        (...) in [0, 1], of the dtype of `hits`, or (..., number of `top_l`) for a sequence; NaN where all of the first
        `top_l` are undefined.

    Raises
    ------
    ValueError
        If `hits` have no axis, or `top_l` is outside [1, l_max].

    Examples
    --------
    >>> import torch
    >>> from quantus_concepts.functional import clm
    >>> hits = torch.tensor([[1.0, 0.0], [float("nan"), 1.0]])  # nan: the part is not visible
    >>> clm(hits, top_l=2).tolist()
    [0.5, 1.0]
    """
    hits = to_floats("hits", hits)
    sizes = check_axes(hits=(hits, "... l_max"))
    asked = [*top_l] if isinstance(top_l, Sequence) else [top_l]
    tops = [check_whole("top_l", top, 1, sizes["l_max"]) for top in asked]
    # NaN does not equal itself.
    means = hits.nan_to_num(0.0).cumsum(-1) / (hits == hits).cumsum(-1)
    # Not by a list as the index, which would have to go to the device.
    scores = torch.stack([means[..., top - 1] for top in tops], -1)
    return scores if isinstance(top_l, Sequence) else scores[..., 0]
