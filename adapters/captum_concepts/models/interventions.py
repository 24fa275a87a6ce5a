"""Which concepts an intervention replaces, and by which values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from captum_concepts.backbones.pooling import check_concepts
from captum_concepts.support.checks import as_list, check_binary, check_finite, check_shape, find_names, to_tensor
from captum_concepts.texts import in_one_line


@in_one_line
class Levels(NamedTuple):
    """The values that stand for a concept's absence and for its presence.

    Attributes
    ----------
    low : Tensor
        (L,), of absence.
    high : Tensor
        (L,), of presence.
    """

    low: Tensor
    high: Tensor


def mean_absent_values(values: Tensor, concept_labels: Tensor) -> Tensor:
    """Return the mean value (L,) of each concept over the images without it, from values and labels (N, L)."""
    return values.masked_fill(concept_labels.to(values.device) > 0, torch.nan).nanmean(0)


def chosen_concepts(
    concepts: int | str | Sequence[int | str] | np.ndarray | Tensor,
    names: Sequence[str],
    n_samples: int,
    n_concepts: int | None,
) -> Tensor:
    """Return the indices (k,) or (N, k) of concepts given by index or by name, each once."""
    if isinstance(concepts, str | int | np.integer):
        concepts = [concepts]
    if isinstance(concepts, list | tuple) and any(isinstance(name, str) for name in concepts):
        if not names:
            raise ValueError("Expected argument `concepts` to hold indices, as concepts have no names here.")
        concepts = [place for name in concepts for place in find_names("concepts", names, [name])]
    indices = check_concepts(concepts, n_samples, n_concepts)
    if not indices.shape[-1]:
        raise ValueError("Expected argument `concepts` to name at least one concept but it is empty.")
    ordered = indices.sort(-1).values
    if (ordered[..., 1:] == ordered[..., :-1]).any():
        raise ValueError("Expected argument `concepts` to name each concept of an image once but some occur twice.")
    return indices


def replacements(
    values: Tensor | ArrayLike,
    concepts: Tensor,
    n_samples: int,
    levels: Levels | tuple[Tensor, Tensor] | None,
    n_concepts: int | None,
    *,
    bounded: bool,
) -> Tensor:
    """Return the values (N, k) that concepts, (k,) or (N, k), are set to."""
    tensor = to_tensor("values", values)
    shape = (n_samples, concepts.shape[-1])
    if tuple(tensor.shape) not in ((), shape[1:], shape):
        raise ValueError(
            f"Expected argument `values` to be one number or to have shape (k,) or (N, k) = {shape}, one for each "
            f"concept, but got {tuple(tensor.shape)}."
        )
    check_finite("values", tensor)
    if tensor.is_floating_point() and levels is None:
        return tensor.expand(shape)
    check_binary("values", tensor)
    if levels is None:
        if not bounded:
            raise ValueError(
                "Expected argument `levels` with labels, since the values of this model are not bounded: "
                "`model.value_levels(loader)` gives the percentiles that stand for 0 and 1. To set the values "
                "themselves, pass `values` of a floating-point type."
            )
        return tensor.expand(shape)
    low, high = (level.to(concepts.device)[concepts] for level in check_value_levels(levels, n_concepts))
    return torch.where(tensor.to(concepts.device) > 0, high, low).expand(shape)


def check_value_levels(levels: Levels | tuple[Tensor, Tensor], n_concepts: int | None) -> Levels:
    """Return the values of absence and presence, or raise."""
    pair = as_list("levels", levels, "two arrays, `low` and `high`")
    if len(pair) != 2:
        raise ValueError(f"Expected argument `levels` to be (low, high) but got {len(pair)} items.")
    low, high = (to_tensor("levels", level) for level in pair)
    for level in (low, high):
        check_shape("levels", level, ("L",), (n_concepts,))
        check_finite("levels", level)
    if len(low) != len(high) or (low > high).any():
        raise ValueError("Expected argument `levels` to be (low, high), of which no low one is above its high one.")
    return Levels(low, high)
