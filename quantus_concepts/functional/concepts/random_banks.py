"""CEM and CGIM of random directions in place of a concept bank: their distribution."""

from __future__ import annotations

import torch
from torch import Tensor

from captum_concepts.models.random_banks import N_BANKS
from captum_concepts.models.random_banks import RandomBank as RandomBank
from captum_concepts.models.random_banks import random_banks as random_banks
from captum_concepts.support.checks import check_axes, check_finite, check_whole
from quantus_concepts.functional.arguments import (
    Numbers,
    check_within,
    check_zero_one,
    to_classes,
    to_floats,
    to_tensor,
)
from quantus_concepts.functional.concepts.cem import cem
from quantus_concepts.functional.concepts.cem_gain import cem_gain
from quantus_concepts.functional.concepts.cgim import ClassMeans, cgim


@torch.no_grad()
def random_bank_scores(
    features: Numbers,
    labels: Numbers,
    test_features: Numbers,
    test_labels: Numbers,
    concept_labels: Numbers,
    class_concepts: Numbers,
    *,
    top_l: int = 1,
    only_correct: bool = False,
    n_banks: int = N_BANKS,
    values: str = "margin",
    seed: int = 0,
) -> dict[tuple[str, str], Tensor]:
    """Return what CEM and CGIM give for random directions, one number for each of many random banks.

    `quantus_concepts.functional.baseline_range` gives the range of 95 % of them; a score above it is above chance.
    Neither metric has a floor that a formula knows: CEM's spread is that of the few concepts that
    classes share, and CGIM of contributions is positive for any fitted head (Aysel et al. 2025, Eqs. 3 to 10).

    Parameters
    ----------
    features : array_like
        (N, d), embeddings that the heads are fitted to.
    labels : array_like
        (N,), their classes.
    test_features : array_like
        (M, d), of the images scored. The class explained is the predicted one.
    test_labels : array_like
        (M,), their classes.
    concept_labels : array_like
        (M, L) of 0 and 1.
    class_concepts : array_like
        (K, L) in [0, 1].
    top_l : int
        Number of first concepts of CEM.
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
        From metric ("CEM", "CEM gain", "CGIM", "CGIM correlation") and importance ("weight", "value", "contribution")
        to (n_banks,) means: of CEM over the images, of CGIM over the concepts; NaN where nothing is defined.

    Raises
    ------
    ValueError
        As `random_banks`, `cem` and `cgim`.

    Examples
    --------
    >>> import torch
    >>> from quantus_concepts.functional import random_bank_scores
    >>> labels = torch.arange(40) % 2
    >>> x = torch.randn(40, 8, generator=torch.Generator().manual_seed(0)) + labels[:, None]
    >>> concepts, class_concepts = torch.stack([labels, 1 - labels], 1), torch.eye(2)[[1, 0]]
    >>> scores = random_bank_scores(x, labels, x, labels, concepts, class_concepts)
    >>> scores["CEM", "value"].shape  # one score for each random bank
    torch.Size([39])
    """
    features, labels = to_floats("features", features), to_classes("labels", labels)
    test_features, test_labels = to_floats("test_features", test_features), to_classes("test_labels", test_labels)
    concept_labels = to_tensor("concept_labels", concept_labels)
    class_concepts = to_floats("class_concepts", class_concepts)
    check_axes(
        features=(features, "N d"),
        labels=(labels, "N"),
        test_features=(test_features, "M d"),
        test_labels=(test_labels, "M"),
        class_concepts=(class_concepts, "K L"),
        concept_labels=(concept_labels, "M L"),
    )
    check_finite("features", features)
    check_finite("test_features", test_features)
    check_within("class_concepts", class_concepts, 0, 1, remedy="Divide percentages by 100.")
    check_zero_one("concept_labels", concept_labels)
    n_classes, n_concepts = class_concepts.shape
    check_within("labels", labels, 0, n_classes - 1)
    check_within("test_labels", test_labels, 0, n_classes - 1)
    top_l = check_whole("top_l", top_l, 1, n_concepts)
    scores_by_metric: dict[tuple[str, str], list[Tensor]] = {}
    banks = random_banks(features, labels, n_concepts, n_classes, n_banks=n_banks, values=values, seed=seed)
    for bank in banks:
        u = bank.concept_values(test_features, values)
        predicted = bank.head(u).argmax(1)
        correct = predicted == test_labels.to(predicted.device)
        theta = bank.head.weight
        importances = {"weight": theta[predicted], "value": u, "contribution": theta[predicted] * u}
        for name, importance in importances.items():
            chosen = correct if only_correct else torch.ones_like(correct)
            present = concept_labels.to(importance.device)[chosen]
            for metric, score in (("CEM", cem), ("CEM gain", cem_gain)):
                mean = score(importance[chosen], present, top_l).nanmean()
                scores_by_metric.setdefault((metric, name), []).append(mean)
            means = ClassMeans(n_classes, n_concepts, importance.device)
            means.update(importance, predicted, correct)
            # The weights of a linear head are known without an image.
            by_class = theta.double() if name == "weight" else means.compute()
            for metric, centred in (("CGIM", False), ("CGIM correlation", True)):
                mean = cgim(by_class, class_concepts.to(by_class), centred=centred).nanmean()
                scores_by_metric.setdefault((metric, name), []).append(mean)
    return {key: torch.stack(numbers) for key, numbers in scores_by_metric.items()}
