"""Random directions in place of a concept bank, with heads of their own: the baseline of every concept metric."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from captum_concepts.bank.directions import draw_directions
from captum_concepts.models.chain import VALUES, make_linear
from captum_concepts.models.heads import fit_logistic
from captum_concepts.models.interventions import mean_absent_values
from captum_concepts.support.checks import check_axes, check_choice, check_finite, check_shape, check_whole
from captum_concepts.texts import in_one_line

#: The range of so many is their smallest to their largest, and encloses 95 % of further ones.
N_BANKS = 39


@in_one_line
class RandomBank(NamedTuple):
    """Random directions, each with its boundary through the mean embedding, and a head fitted on their values.

    Attributes
    ----------
    cavs : Tensor
        (L, d), rows of length 1.
    intercepts : Tensor
        (L,).
    head : nn.Linear
        Concept values (N, L) to class logits (N, K).
    absent_values : Tensor or None
        (L,), the mean value of the training images without each concept, where their labels were given.
    """

    cavs: Tensor
    intercepts: Tensor
    head: nn.Linear
    absent_values: Tensor | None = None

    def concept_values(self, features: Tensor, values: str = "margin") -> Tensor:
        """Return the concept values (N, L) of embeddings (N, d); without the intercepts where `values` is "raw"."""
        check_choice("values", values, VALUES)
        return nn.functional.linear(features, self.cavs, self.intercepts if values == "margin" else None)

    def mean_values(self, values: str = "margin") -> Tensor:
        """Return the mean values (L,) of the training images, through whose mean embedding the boundaries go."""
        return torch.zeros_like(self.intercepts) if values == "margin" else -self.intercepts


def random_banks(
    features: Tensor,
    labels: Tensor,
    n_concepts: int,
    n_classes: int | None = None,
    *,
    concept_labels: Tensor | None = None,
    n_banks: int = N_BANKS,
    values: str = "margin",
    seed: int = 0,
    first: int = 0,
) -> Iterator[RandomBank]:
    """Draw random directions in place of concepts, and fit a head on the values of each draw.

    No backbone runs: it takes the embeddings on which a concept bank was fitted. The scores of these banks are the
    distribution with which that of a real bank is compared (``quantus_concepts.score_concepts(..., controls=banks)``).
    One draw is not enough: a ranking by weight names one concept for each class, so that ten classes are
    ten coin tosses, regardless of the number of images.

    Parameters
    ----------
    features : Tensor
        (N, d), embeddings of the training images.
    labels : Tensor
        (N,) of int, their classes.
    n_concepts : int
        L.
    n_classes : int, optional
        K, as in `captum_concepts.models.heads.fit_logistic`.
    concept_labels : Tensor, optional
        (N, L) of 0 and 1, whose concepts the directions stand in for: only for `RandomBank.absent_values`.
    n_banks : int
        How many.
    values : str
        "margin" or "raw", as in `captum_concepts.PostHocCBM`.
    seed : int
        Random seed of the directions.
    first : int
        Number of the first bank, so that several calls can fit the banks of one.

    Returns
    -------
    iterator of RandomBank
        On the device and in the type of `features`.

    Raises
    ------
    ValueError
        If embeddings and labels differ in number, an embedding is not finite, or a setting is out of range.

    Examples
    --------
    >>> import torch
    >>> from quantus_concepts.functional import random_banks
    >>> labels = torch.arange(40) % 2
    >>> features = torch.eye(2)[labels].repeat(1, 4)
    >>> bank = next(random_banks(features, labels, n_concepts=3))
    >>> bank.cavs.shape
    torch.Size([3, 8])
    """
    check_axes(features=(features, "N d"), labels=(labels, "N"))
    check_finite("features", features)
    check_choice("values", values, VALUES)
    if concept_labels is not None:
        check_shape("concept_labels", concept_labels, ("N", "L"), (len(features), n_concepts))
    for name, number, least in (("n_concepts", n_concepts, 1), ("n_banks", n_banks, 1), ("first", first, 0)):
        check_whole(name, number, least)
    numbers = range(first, first + n_banks)
    settings = (features, labels, concept_labels, n_concepts, n_classes, values)
    return (_draw_bank(*settings, [seed, number]) for number in numbers)


def _draw_bank(
    features: Tensor,
    labels: Tensor,
    concept_labels: Tensor | None,
    n_concepts: int,
    n_classes: int | None,
    values: str,
    seed: list[int],
) -> RandomBank:
    cavs, intercepts = draw_directions(n_concepts, features.mean(0), seed)
    projected = nn.functional.linear(features, cavs, intercepts if values == "margin" else None)
    absent = None if concept_labels is None else mean_absent_values(projected, concept_labels)
    return RandomBank(cavs, intercepts, fit_logistic(projected, labels, n_classes), absent)


def stack_banks(banks: Sequence[RandomBank]) -> dict[str, Tensor]:
    """Return the tensors of n random banks, as files hold them: (n, L, d), (n, L), (n, K, L) and (n, K)."""
    heads = [bank.head for bank in banks]
    levels = [bank.absent_values for bank in banks if bank.absent_values is not None]
    known = {"absent_values": torch.stack(levels)} if len(levels) == len(banks) else {}
    return known | {
        "cavs": torch.stack([bank.cavs for bank in banks]),
        "intercepts": torch.stack([bank.intercepts for bank in banks]),
        "weight": torch.stack([head.weight.detach() for head in heads]),
        "bias": torch.stack([head.bias.detach() for head in heads]),
    }


def unstack_banks(tensors: Mapping[str, Tensor], n_concepts: int, width: int) -> tuple[RandomBank, ...]:
    """Return the random banks of the tensors of `stack_banks`, or raise where they do not fit."""
    cavs, intercepts, weight, bias = (tensors[name] for name in ("cavs", "intercepts", "weight", "bias"))
    n, k = bias.shape
    shapes = [tuple(tensor.shape) for tensor in (cavs, intercepts, weight)]
    if shapes != [(n, n_concepts, width), (n, n_concepts), (n, k, n_concepts)]:
        raise ValueError(f"its random banks have the shapes {shapes}")
    levels = tensors.get("absent_values")
    if levels is not None:
        check_shape("absent_values", levels, ("n", "L"), (n, n_concepts))
    banks = []
    for i in range(n):
        head = make_linear(weight[i], bias[i], weight.dtype).eval()
        banks.append(RandomBank(cavs[i], intercepts[i], head, None if levels is None else levels[i]))
    return tuple(banks)
