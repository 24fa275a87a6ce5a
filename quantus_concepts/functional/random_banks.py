"""What concepts that know nothing score: random directions in place of a concept bank, many times."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from captum_concepts._support.checks import (
    check_choice,
    check_finite,
    check_range,
    check_seed,
    check_shape,
    check_whole,
)
from captum_concepts._support.shown import one_line
from quantus_concepts.functional.arguments import check_floating, check_indices, check_top_l, finite_rows
from quantus_concepts.functional.cem import cem
from quantus_concepts.functional.cgim import ClassMeans, cgim
from quantus_concepts.functional.intervals import N_DRAWS


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

    def concept_values(self, features: Tensor, values: str = "margin") -> Tensor:
        """Return the concept values (N, L) of embeddings (N, d); without the intercepts where `values` is "raw"."""
        check_choice("values", values, ("margin", "raw"))
        check_floating("features", features)
        check_shape("features", features, ("N", "d"), (None, self.cavs.shape[1]))
        return nn.functional.linear(features, self.cavs, self.intercepts if values == "margin" else None)


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
    # Both load scikit-learn, which not every user of this package needs.
    from captum_concepts.models.cbm import VALUES
    from captum_concepts.models.heads import fit_logistic

    check_floating("features", features)
    check_shape("features", features, ("N", "d"), (None, None))
    _check_finite("features", features)
    check_indices("labels", labels)
    check_shape("labels", labels, ("N",), (len(features),))
    check_whole("n_concepts", n_concepts, 1)
    check_whole("n_banks", n_banks, 1)
    check_seed(seed)
    check_whole("first", first, 0)
    check_choice("values", values, VALUES)
    mean = features.mean(0)
    for number in range(first, first + n_banks):
        drawn = np.random.default_rng([seed, number]).standard_normal((n_concepts, len(mean)))
        cavs = nn.functional.normalize(torch.as_tensor(drawn).to(mean), dim=1)
        intercepts = -cavs @ mean
        projected = nn.functional.linear(features, cavs, intercepts if values == "margin" else None)
        yield RandomBank(cavs, intercepts, fit_logistic(projected, labels, n_classes))


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
    check_floating("features", features)
    check_shape("features", features, ("N", "d"), (None, None))
    check_floating("test_features", test_features)
    check_shape("test_features", test_features, ("M", "d"), (None, features.shape[1]))
    _check_finite("test_features", test_features)
    check_floating("class_concepts", class_concepts)
    check_shape("class_concepts", class_concepts, ("K", "L"), (None, None))
    n_classes, n_concepts = class_concepts.shape
    check_indices("test_labels", test_labels)
    check_shape("test_labels", test_labels, ("M",), (len(test_features),))
    check_range("test_labels", int(test_labels.min()) if len(test_labels) else 0, 0, np.inf)
    check_top_l("top_l", top_l, n_concepts, "concepts")
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


def _check_finite(name: str, features: Tensor) -> None:
    # The full message needs the values on the CPU; only a failure pays for that.
    if not finite_rows(features).all():
        check_finite(name, features)
