"""The concept location metric: are the most important concepts found where they are in the image?"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from captum_concepts.support.checks import check_axes, check_whole
from quantus_concepts.functional.arguments import Numbers, check_within, to_floats


@torch.no_grad()
def clm(hits: Numbers, top_l: int) -> Tensor:
    """Average the hits of the most important concepts whose part is visible, for each image.

    Aysel et al. (2025), "Concept-Based Explainable AI: Metrics and Benchmarks", Equation 11. Where parts are not
    visible the mean is over fewer than l, where the equation divides by l throughout.

    Parameters
    ----------
    hits : array_like
        (N, l_max) in [0, 1]: hits of the ranked concepts of each image, the most important first, NaN where
        undefined; `point_hits` of the maps of `rank_concepts`, among the concepts that have a part.
    top_l : int
        How many of the ranked concepts count, 1 to l_max.

    Returns
    -------
    Tensor
        (N,) in [0, 1], of the dtype of `hits`; NaN where all of the first `top_l` are undefined.

    Raises
    ------
    ValueError
        If `hits` is not (N, l_max), holds a number outside [0, 1], or `top_l` is outside [1, l_max].

    Examples
    --------
    >>> import torch
    >>> from quantus_concepts.functional import clm
    >>> hits = torch.tensor([[1.0, 0.0], [float("nan"), 1.0]])  # nan: the part is not visible
    >>> clm(hits, top_l=2).tolist()
    [0.5, 1.0]
    """
    hits = to_floats("hits", hits)
    sizes = check_axes(hits=(hits, "N l_max"))
    check_within("hits", hits, 0, 1, nan=True, remedy="Pass NaN where a part is not visible.")
    return torch.nanmean(hits[:, : check_whole("top_l", top_l, 1, sizes["l_max"])], dim=1)


def running_means(hits: Tensor, tops: Sequence[int]) -> Tensor:
    """Return the mean of the defined hits (N, ..., T, A) among the first l of T, for each l: (N, ..., len(tops), A)."""
    defined = ~hits.isnan()
    means = hits.nan_to_num(0.0).cumsum(-2) / defined.cumsum(-2)
    # Not by a list as the index, which would have to go to the device.
    return torch.stack([means[..., top - 1, :] for top in tops], -2)
