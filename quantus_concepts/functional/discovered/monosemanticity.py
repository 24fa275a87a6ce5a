"""Monosemanticity of concepts: whether the images that activate a concept look alike to another network."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from captum_concepts.support.checks import check_axes, check_finite
from captum_concepts.support.running import widest_float
from quantus_concepts.functional.arguments import Numbers, to_floats


@torch.no_grad()
def monosemanticity(activations: Numbers, embeddings: Numbers) -> Tensor:
    """Return how alike the images are that activate a concept: the mean cosine of pairs, weighted by activation.

    MS of arXiv 2504.02821. With the activations of concept j scaled to [0, 1] over the images, a, and embeddings of
    length 1 of *another* network, e, it is the sum over pairs of a_i a_k cos(e_i, e_k) by the sum of a_i a_k, here in
    closed form. An increasing linear change of the activations changes nothing.

    Parameters
    ----------
    activations : array_like
        (N, L): activations, or values, of L concepts in N images.
    embeddings : array_like
        (N, e): the same images in a network other than the model's, whose own features would make it circular.

    Returns
    -------
    Tensor
        (L,) in [-1, 1] of the dtype of `activations` (float32 for narrower ones): 1 where all images that activate a
        concept have the same embedding. Chance is the mean cosine of all pairs of images, which is not 0. NaN for a
        concept that is the same in all images or is not finite, and where fewer than two images are above its smallest
        activation.

    Raises
    ------
    ValueError
        If the numbers of images differ, or an embedding is not finite or is 0.

    Examples
    --------
    >>> from quantus_concepts.functional import monosemanticity
    >>> activations = [[1.0, 1.0], [1.0, 0.0], [0.0, 1.0]]
    >>> monosemanticity(activations, [[2.0, 0.0], [1.0, 0.0], [0.0, 1.0]]).tolist()
    [1.0, 0.0]
    """
    given = to_floats("activations", activations)
    values = given.to(widest_float(given.device))
    units = to_units("embeddings", embeddings).to(values)
    check_axes(activations=(values, "N L"), embeddings=(units, "N e"))
    low, high = (values.amin(0), values.amax(0)) if len(values) else values.new_zeros(2, values.shape[1])
    scaled = (values - low) / (high - low)
    squares = scaled.square().sum(0)
    pairs = scaled.sum(0).square() - squares
    likeness = ((scaled.T @ units).square().sum(1) - squares) / pairs
    # Rounding may leave a little of the pairs of a single image, and a mean of cosines a little above 1.
    likeness = likeness.clamp(-1, 1).masked_fill((scaled > 0).sum(0) < 2, torch.nan)
    return likeness.to(torch.promote_types(given.dtype, torch.float32))


def to_units(name: str, embeddings: Numbers) -> Tensor:
    """Return embeddings (N, e) at length 1, or raise where one has no direction."""
    rows = to_floats(name, embeddings)
    check_axes(**{name: (rows, "N e")})
    check_finite(name, rows)
    rows = rows.to(widest_float(rows.device))
    if len(rows) and not rows.norm(dim=1).min() > 0:
        raise ValueError(f"Expected argument `{name}` to hold embeddings other than 0 but got some. Leave them out.")
    return functional.normalize(rows, dim=1)


def mean_likeness(embeddings: Numbers) -> float:
    """Return the mean cosine of all pairs of images, the chance of monosemanticity; NaN for fewer than two images."""
    units = to_units("embeddings", embeddings)
    n = len(units)
    return float((units.sum(0).square().sum() - n) / (n * (n - 1))) if n > 1 else float("nan")
