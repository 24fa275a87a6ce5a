"""Deletion of concepts: embeddings in which some concepts have the value of images without them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from captum_concepts.support.checks import check_axes, check_finite, check_shape, check_whole
from captum_concepts.support.running import at_least_float32
from quantus_concepts.functional.arguments import Numbers, as_tensor, check_within, to_floats
from quantus_concepts.functional.discovered.explained_variance import orthonormal_basis, tolerance, unit_rows

#: Share of the images below the value of an absent concept, as of `captum_concepts.PostHocCBM.value_levels`.
ABSENT = 0.05


@torch.no_grad()
def delete_concepts(
    embeddings: Numbers, directions: Numbers, order: Numbers, counts: Sequence[int], absent: Numbers | None = None
) -> Tensor:
    """Remove the first concepts of an order from embeddings.

    The result is the nearest embedding in which the removed concepts have the values of images without them. Nothing
    changes at right angles to their directions. The classes that a head gives for the result are the deletion curve
    (C-Deletion of CRAFT, Fel et al. 2023, which sets a concept's coefficient to 0).

    Parameters
    ----------
    embeddings : array_like
        (N, d).
    directions : array_like
        (L, d), of any length.
    order : array_like
        (N, k) of int: the concepts of each image, the one that goes first at the left.
    counts : sequence of int
        How many concepts of the order are removed, one number after another; 0 for none.
    absent : array_like, optional
        (L,), the value ``directions @ embedding`` of an absent concept; by default the 5th percentile of those of
        `embeddings`.

    Returns
    -------
    Tensor
        (S, N, d), for each of the S counts.

    Raises
    ------
    ValueError
        If a shape is wrong, a number is not finite, or a concept or a count is out of range.

    Notes
    -----
    A direction that depends on those removed before it changes nothing more: d independent ones are an embedding's all.

    Examples
    --------
    >>> import torch
    >>> from quantus_concepts.functional import delete_concepts
    >>> embeddings, order = torch.tensor([[3.0, 4.0]]), [[1, 0]]
    >>> delete_concepts(embeddings, torch.eye(2), order, counts=[0, 1], absent=[0.0, 0.5])
    tensor([[[3.0000, 4.0000]],
    <BLANKLINE>
            [[3.0000, 0.5000]]])
    """
    embeddings = at_least_float32(to_floats("embeddings", embeddings))
    directions, order = to_floats("directions", directions).to(embeddings), as_tensor("order", order)
    check_axes(embeddings=(embeddings, "N d"), directions=(directions, "L d"))
    check_shape("order", order, ("N", "k"), (len(embeddings), None))
    for name, value in (("embeddings", embeddings), ("directions", directions)):
        check_finite(name, value)
    check_within("order", order, 0, len(directions) - 1)
    for count in counts:
        check_whole("counts", count, 0, order.shape[1])
    basis, units = orthonormal_basis(directions), unit_rows(directions)
    coordinates, inside = embeddings @ basis, units @ basis
    if absent is None:
        levels = absent_values(coordinates @ inside.T)
    else:
        levels = to_floats("absent", absent).to(embeddings)
        check_axes(directions=(directions, "L d"), absent=(levels, "L"))
        check_finite("absent", levels)
        lengths = directions.norm(dim=1)
        levels = levels / torch.where(lengths > 0, lengths, 1)
    parts = deleted_parts(coordinates, inside, order.to(embeddings.device), counts, levels)
    return embeddings - parts @ basis.T


def absent_values(values: Tensor) -> Tensor:
    """Return the 5th percentile (L,) of values (N, L)."""
    # Column by column: of all values together there may be more than `torch.quantile` takes.
    return torch.stack([column.quantile(ABSENT) for column in values.T])


def deleted_parts(coordinates: Tensor, units: Tensor, order: Tensor, counts: Sequence[int], levels: Tensor) -> Tensor:
    """Return the parts (S, N, r) that vectors (N, r) lose with the first directions (L, r) of each one's order.

    Directions have length 1 (or 0) and span all r dimensions; along those removed a vector keeps the levels (L,).
    """
    least = tolerance(coordinates.dtype)
    changed, left = coordinates, units[order]
    stages = [changed]
    # Gram-Schmidt, of all vectors together: each step sets one value and keeps those that are set.
    for step in range(max(counts, default=0)):
        size = left[:, step].norm(dim=1, keepdim=True)
        unit = torch.where(size > least, left[:, step] / size.clamp(min=least), 0)
        concepts = order[:, step]
        excess = (changed * units[concepts]).sum(1, keepdim=True) - levels[concepts, None]
        changed = changed - excess / size.clamp(min=least) * unit
        left = left - (left * unit[:, None]).sum(2, keepdim=True) * unit[:, None]
        stages.append(changed)
    return torch.stack([coordinates - stages[count] for count in counts])
