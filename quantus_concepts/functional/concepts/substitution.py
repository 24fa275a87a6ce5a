"""Substitutions: does a model see the concept put in, or recite those of the class?"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from captum_concepts.support.checks import check_axes, check_finite, check_range
from captum_concepts.texts import in_one_line
from quantus_concepts.functional.arguments import (
    Numbers,
    as_tensor,
    check_within,
    check_zero_one,
    to_class_tensor,
    to_floats,
)

#: In place of a concept's index: there is none.
NO_CONCEPT = -1
#: From this share of a class's images on a concept is the class's.
MAJORITY = 0.5


@in_one_line
class SubstitutionScores(NamedTuple):
    """Scores of images in which one concept was put in and another taken out.

    Attributes
    ----------
    added : Tensor
        (N,) of 1, where the concept put in is predicted present, 0 or NaN: their mean is the paper's S+.
    removed : Tensor
        (N,) of 1, where the concept taken out is predicted absent, 0 or NaN: their mean is the paper's S-.
    """

    added: Tensor
    removed: Tensor


@in_one_line
class Movement(NamedTuple):
    """How far concept values move from the image before to the image after.

    Attributes
    ----------
    added : Tensor
        (N,), rise of the concept put in; NaN where there is none.
    removed : Tensor
        (N,), fall of the concept taken out; NaN where there is none.
    others : Tensor
        (N,), mean distance by which the other concepts move; NaN where there are none.
    selectivity : Tensor
        (N,) in [0, 1]: mean distance by which the touched concepts move, divided by itself plus `others`. 1 where
        nothing else moves, 1/2 where the others move as far; NaN where nothing moves.
    """

    added: Tensor
    removed: Tensor
    others: Tensor
    selectivity: Tensor


@torch.no_grad()
def substitution(values: Numbers, added: Numbers, removed: Numbers, threshold: float = 0.5) -> SubstitutionScores:
    """Whether the concept put in is predicted present, and the one taken out absent, for each sample.

    Bader et al. (2025), "SUB: Benchmarking CBM Generalization via Synthetic Attribute Substitutions", Section 5.5.
    Higher is better; chance is 1/2 for both, what only recites the concepts of the class scores 0 and 0, what sees
    them 1 and 1. A value at the threshold is present.

    Parameters
    ----------
    values : array_like
        (N, L), concept values of the images with the substitution.
    added : array_like
        (N,) of int: the concept put in, -1 where it is none of the L.
    removed : array_like
        (N,) of int: the concept taken out, -1 where there is none.
    threshold : float
        Value from which on a concept counts as present: 0.5 of probabilities, 0 of margins and logits.

    Returns
    -------
    SubstitutionScores
        Two tensors (N,) of the dtype of `values` (float32 for narrower ones). NaN in both where `added` is -1 or the
        sample's values hold NaN, as in the authors' release; in the second also where `removed` is -1 or equal to
        `added`.

    Raises
    ------
    ValueError
        If a shape is wrong, a concept is not in -1 to L - 1, or the threshold is not finite.

    Examples
    --------
    >>> import torch
    >>> from quantus_concepts.functional import substitution
    >>> values = torch.tensor([[0.9, 0.2], [0.4, 0.8]])
    >>> scores = substitution(values, torch.tensor([0, 0]), torch.tensor([1, 1]))
    >>> [each.tolist() for each in scores]  # S+ and S-
    [[1.0, 0.0], [1.0, 0.0]]
    """
    values = to_floats("values", values)
    added, removed = _checked_concepts(values, added=added, removed=removed)
    _check_threshold(threshold)
    present = (values >= threshold).to(torch.promote_types(values.dtype, torch.float32))
    unknown = (added < 0) | values.isnan().any(1)
    unchanged = (removed < 0) | (removed == added)
    return SubstitutionScores(
        _value_of(present, added).masked_fill(unknown, torch.nan),
        (1 - _value_of(present, removed)).masked_fill(unknown | unchanged, torch.nan),
    )


@torch.no_grad()
def recital(values: Numbers, class_concepts: Numbers, threshold: float = 0.5) -> Tensor:
    """Whether all concepts of the class are predicted present, the one taken out included, for each sample.

    Bader et al. (2025): models name the class and recite. A model that predicts every concept present recites, too:
    read it together with S+.

    Parameters
    ----------
    values : array_like
        (N, L), concept values of the images with the substitution.
    class_concepts : array_like
        (N, L) of 0 and 1: the concepts of each sample's class.
    threshold : float
        Value from which on a concept counts as present.

    Returns
    -------
    Tensor
        (N,) of 1, 0 or NaN, where values hold NaN or the class has no concept; of the dtype of `values` (float32 for
        narrower ones).

    Raises
    ------
    ValueError
        If a shape is wrong, a concept is neither 0 nor 1, or the threshold is not finite.

    Examples
    --------
    >>> import torch
    >>> from quantus_concepts.functional import recital
    >>> of_class = torch.tensor([[1, 0], [1, 0]])
    >>> recital(torch.tensor([[0.9, 0.2], [0.4, 0.8]]), of_class).tolist()
    [1.0, 0.0]
    """
    values, truth = to_floats("values", values), as_tensor("class_concepts", class_concepts)
    check_axes(values=(values, "N L"), class_concepts=(truth, "N L"))
    check_zero_one("class_concepts", truth)
    _check_threshold(threshold)
    of_class = truth.to(values.device) != 0
    recited = ((values >= threshold) | ~of_class).all(1)
    unknown = values.isnan().any(1) | ~of_class.any(1)
    return recited.to(torch.promote_types(values.dtype, torch.float32)).masked_fill(unknown, torch.nan)


@torch.no_grad()
def movement(before: Numbers, after: Numbers, added: Numbers, removed: Numbers) -> Movement:
    """How far the touched concepts move when one is replaced, and how far all others.

    Photographs have no such pair: it needs images that differ in one attribute and nothing else
    (`quantus_concepts.datasets.PaintedSubstitutions`).

    Parameters
    ----------
    before : array_like
        (N, L), concept values of the images without the substitution.
    after : array_like
        (N, L), of the same images with it.
    added : array_like
        (N,) of int: the concept put in, -1 where it is none of the L.
    removed : array_like
        (N,) of int: the concept taken out, -1 where there is none.

    Returns
    -------
    Movement
        Four tensors (N,) of the dtype of `after` (float32 for narrower ones); NaN where values hold NaN.

    Raises
    ------
    ValueError
        If a shape is wrong, or a concept is not in -1 to L - 1.

    Examples
    --------
    >>> import torch
    >>> from quantus_concepts.functional import movement
    >>> before, after = torch.tensor([[1.0, 0.0, 0.3]]), torch.tensor([[0.0, 1.0, 0.5]])
    >>> moved = movement(before, after, added=torch.tensor([1]), removed=torch.tensor([0]))
    >>> moved.added, moved.removed, moved.others
    (tensor([1.]), tensor([1.]), tensor([0.2000]))
    """
    after, before = to_floats("after", after), to_floats("before", before)
    check_axes(after=(after, "N L"), before=(before, "N L"))
    added, removed = _checked_concepts(after, added=added, removed=removed)
    dtype = torch.promote_types(after.dtype, torch.float32)
    change = after.to(dtype) - before.to(after.device, dtype)
    concepts = torch.arange(after.shape[1], device=after.device)
    touched = (concepts == added[:, None]) | (concepts == removed[:, None])
    moved, others_moved = (change.abs().masked_fill(left_out, torch.nan).nanmean(1) for left_out in (~touched, touched))
    broken = change.isnan().any(1)
    columns = (
        _value_of(change, added).masked_fill(added < 0, torch.nan),
        -_value_of(change, removed).masked_fill(removed < 0, torch.nan),
        others_moved,
        moved / (moved + others_moved),
    )
    return Movement(*(column.masked_fill(broken, torch.nan) for column in columns))


@torch.no_grad()
def group_choice(similarity: Numbers, groups: Numbers, wanted: Numbers, none: Numbers | None = None) -> Tensor:
    """Which option of one group is the most similar to each sample, or none of them.

    Bader et al. (2025), "SUB", Section 5.6: a vision-language model chooses one of a group's options, next to
    "none" in the paper and without it in the authors' release. Among equals it chooses the first, before "none".

    Parameters
    ----------
    similarity : array_like
        (N, A), of each sample to the texts of all options.
    groups : array_like
        (A,) of int: the group of each option, from 0.
    wanted : array_like
        (N,) of int: group that is predicted for each sample.
    none : array_like, optional
        (N,), similarity to the text of "none"; without it one option is always chosen.

    Returns
    -------
    Tensor
        (N,) of int64: the option chosen, -1 for none of them, also where the group has no options.

    Raises
    ------
    ValueError
        If a shape is wrong, or a similarity is NaN.

    Examples
    --------
    >>> import torch
    >>> from quantus_concepts.functional import group_choice
    >>> similarity = torch.tensor([[0.2, 0.3, 0.9]])  # to "red wing", "blue wing", "long bill"
    >>> group_choice(similarity, groups=torch.tensor([0, 0, 1]), wanted=torch.tensor([0]))
    tensor([1])
    """
    similarity, none = to_floats("similarity", similarity), None if none is None else to_floats("none", none)
    groups, wanted = to_class_tensor("groups", groups), to_class_tensor("wanted", wanted)
    check_axes(similarity=(similarity, "N A"), groups=(groups, "A"), wanted=(wanted, "N"), none=(none, "N"))
    if similarity.isnan().any():
        check_finite("similarity", similarity)
    in_group = groups.to(similarity.device) == wanted.to(similarity.device)[:, None]
    best, chosen = similarity.masked_fill(~in_group, -torch.inf).max(1)
    refused = ~in_group.any(1)
    if none is not None:
        refused = refused | (none.to(similarity.device) > best)
    return chosen.masked_fill(refused, NO_CONCEPT)


def _checked_concepts(values: Tensor, **concepts: Numbers) -> list[Tensor]:
    """Return the concept of each of the values (N, L), by the names of the arguments, on their device, or raise."""
    checked = []
    for name, value in concepts.items():
        tensor = as_tensor(name, value)
        if not tensor.dtype.is_signed and tensor.dtype != torch.bool:
            raise ValueError(
                f"Expected argument `{name}` to have a signed dtype but got {tensor.dtype}, in which -1 becomes a "
                "large number. Pass whole numbers as int64."
            )
        tensor = to_class_tensor(name, tensor)
        check_axes(**{"values": (values, "N L"), name: (tensor, "N")})
        check_within(name, tensor, NO_CONCEPT, values.shape[1] - 1, remedy="Pass -1 for none.")
        checked.append(tensor.to(values.device))
    return checked


def _check_threshold(threshold: float) -> None:
    check_range("threshold", threshold, -math.inf, math.inf, open_low=True, open_high=True)


def _value_of(values: Tensor, concepts: Tensor) -> Tensor:
    """Return the value of one concept each; of none, anything."""
    return values.gather(1, concepts.clamp(min=0)[:, None])[:, 0]


def pair_numbers(labels: np.ndarray, added: np.ndarray) -> np.ndarray:
    """Return the number of each image's pair (N,): images of one class and added concept have one recipe."""
    return np.unique(np.stack([labels, added], 1), axis=0, return_inverse=True)[1].ravel()
