"""What concepts that know nothing score: random directions in place of a concept bank, many times."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from captum_concepts._support.constraints import Choice, Flag, Floats, Indices, Seed, Whole, ZeroOne, check_arguments
from captum_concepts._support.shown import one_line
from quantus_concepts.functional.cem import cem
from quantus_concepts.functional.cgim import ClassMeans, cgim
from quantus_concepts.functional.intervals import N_DRAWS

#: As in `captum_concepts.PostHocCBM`, which loads scikit-learn.
_VALUES = Choice(("margin", "raw"))


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
    """

    cavs: Tensor
    intercepts: Tensor
    head: nn.Linear

    def __repr__(self) -> str:
        return one_line(self)

    @check_arguments(lambda self: {"d": self.cavs.shape[1]}, features=Floats("N, d"), values=_VALUES)
    def concept_values(self, features: Tensor, values: str = "margin") -> Tensor:
        """Return the concept values (N, L) of embeddings (N, d); without the intercepts where `values` is "raw"."""
        return nn.functional.linear(features, self.cavs, self.intercepts if values == "margin" else None)


@check_arguments(
    features=Floats("N, d", finite=True),
    labels=Indices("N", low=0),
    n_concepts=Whole(1),
    n_classes=Whole(1),
    n_banks=Whole(1),
    values=_VALUES,
    seed=Seed(),
    first=Whole(),
)
def random_banks(
    features: Tensor,
    labels: Tensor,
    n_concepts: int,
    n_classes: int | None = None,
    *,
    n_banks: int = N_DRAWS,
    values: str = "margin",
    seed: int = 0,
    first: int = 0,
) -> Iterator[RandomBank]:
    """Draw random directions in place of concepts, and fit a head on the values of each draw.

    No backbone runs: the embeddings are at hand wherever a concept bank was fitted. What a metric gives for these
    banks is the distribution that a real one has to be held against (`random_bank_scores` for CEM and CGIM); one
    draw is not enough, for a ranking by weight names one concept a class, so that ten classes are ten throws of a
    coin whatever the number of images.

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
    n_banks : int
        How many.
    values : str
        "margin" or "raw", as in `captum_concepts.PostHocCBM`.
    seed : int
        Of the directions.
    first : int
        Number of the first bank: whoever fits them in parts gets those of one call.

    Yields
    ------
    RandomBank
        On the device and in the type of `features`.

    Raises
    ------
    TypeError
        If `features` is not a tensor of a floating-point dtype.
    ValueError
        If a shape or setting is wrong.
    """
    # It loads scikit-learn, which not every user of this package needs.
    from captum_concepts.models.heads import fit_logistic

    mean = features.mean(0)
    for number in range(first, first + n_banks):
        drawn = np.random.default_rng([seed, number]).standard_normal((n_concepts, len(mean)))
        cavs = nn.functional.normalize(torch.as_tensor(drawn).to(mean), dim=1)
        intercepts = -cavs @ mean
        projected = nn.functional.linear(features, cavs, intercepts if values == "margin" else None)
        yield RandomBank(cavs, intercepts, fit_logistic(projected, labels, n_classes))


@check_arguments(
    features=Floats("N, d", finite=True),
    labels=Indices("N", low=0),
    test_features=Floats("M, d", finite=True),
    test_labels=Indices("M", low=0),
    class_concepts=Floats("K, L", low=0, high=1, remedy="Divide percentages by 100."),
    concept_labels=ZeroOne("M, L"),
    top_l=Whole(1, "L", "concepts"),
    only_correct=Flag(),
    n_banks=Whole(1),
    values=_VALUES,
    seed=Seed(),
)
@torch.no_grad()
def random_bank_scores(
    features: Tensor,
    labels: Tensor,
    test_features: Tensor,
    test_labels: Tensor,
    concept_labels: Tensor,
    class_concepts: Tensor,
    *,
    top_l: int = 1,
    only_correct: bool = False,
    n_banks: int = N_DRAWS,
    values: str = "margin",
    seed: int = 0,
) -> dict[tuple[str, str], Tensor]:
    """Return what CEM and CGIM give for random directions, one number for each of many random banks.

    `quantus_concepts.functional.baseline_range` gives the range of 95 % of them; a score above it is above chance.
    Neither metric has a floor that a formula knows: CEM's spread is that of the few concepts that
    classes share, and CGIM of contributions is positive for any fitted head (Aysel et al. 2025, Eqs. 3 to 10).

    Parameters
    ----------
    features : Tensor
        (N, d), embeddings that the heads are fitted to.
    labels : Tensor
        (N,), their classes.
    test_features : Tensor
        (M, d), of the images scored. The class explained is the predicted one.
    test_labels : Tensor
        (M,), their classes.
    concept_labels : Tensor
        (M, L) of 0 and 1.
    class_concepts : Tensor
        (K, L) in [0, 1].
    top_l : int
        Of CEM.
    only_correct : bool
        Whether CEM is over the correctly classified images only.
    n_banks : int
        As in `random_banks`.
    values : str
        As in `random_banks`.
    seed : int
        As in `random_banks`.

    Returns
    -------
    dict
        ("CEM" or "CGIM", "weight" or "value" or "contribution") to (n_banks,) means: of CEM over the images, of CGIM
        over the concepts; NaN where nothing is defined.

    Raises
    ------
    TypeError, ValueError
        As `random_banks`, `cem` and `cgim`.
    """
    n_classes, n_concepts = class_concepts.shape
    found: dict[tuple[str, str], list[Tensor]] = {}
    banks = random_banks(features, labels, n_concepts, n_classes, n_banks=n_banks, values=values, seed=seed)
    for bank in banks:
        u = bank.concept_values(test_features, values)
        predicted = bank.head(u).argmax(1)
        correct = predicted == test_labels.to(predicted.device)
        theta = bank.head.weight
        importances = {"weight": theta[predicted], "value": u, "contribution": theta[predicted] * u}
        for name, importance in importances.items():
            scores = cem(importance, concept_labels, top_l)
            found.setdefault(("CEM", name), []).append(scores[correct].mean() if only_correct else scores.mean())
            means = ClassMeans(n_classes, n_concepts, importance.device)
            means.update(importance, predicted, correct)
            # The weights of a linear head are known without an image.
            by_class = theta.double() if name == "weight" else means.compute()
            found.setdefault(("CGIM", name), []).append(cgim(by_class, class_concepts.to(by_class)).nanmean())
    return {key: torch.stack(numbers) for key, numbers in found.items()}
