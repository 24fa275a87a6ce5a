"""The gain of concept existence over prevalence, and the baselines of concept existence."""

from __future__ import annotations

import torch
from torch import Tensor

from captum_concepts.support.checks import check_axes
from captum_concepts.support.running import at_least_float32
from quantus_concepts.functional.arguments import (
    Numbers,
    as_tensor,
    check_within,
    check_zero_one,
    to_class_tensor,
    to_floats,
)
from quantus_concepts.functional.concepts.cem import first_presence


@torch.no_grad()
def cem_gain(importance: Numbers, concept_labels: Numbers, top_l: int = 1) -> Tensor:
    """Presence of the most important concepts less their prevalence in the other images, for each sample.

    CEM is high for a model that always names a common concept. The gain subtracts, for each named concept, the share
    of the *other* samples that show it, and averages over the `top_l` first concepts. It is 0 on average for a model
    that names concepts without looking at the image, and at most 1 less the prevalence of the concepts named.

    Parameters
    ----------
    importance : array_like
        (N, L), as in `cem`; all samples of the set that is scored (all images, or the correctly classified ones).
    concept_labels : array_like
        (N, L) of 0 and 1.
    top_l : int
        How many concepts count, 1 to L.

    Returns
    -------
    Tensor
        (N,) in [-1, 1], of the dtype of `importance` (float32 for narrower ones). NaN where `cem` is; such samples are
        not among the others. NaN if there is no other sample.

    Raises
    ------
    ValueError
        As `cem`.

    Examples
    --------
    >>> import torch
    >>> from quantus_concepts.functional import cem_gain
    >>> labels = torch.tensor([[1, 1], [1, 0], [1, 0]])
    >>> cem_gain(torch.tensor([[0.0, 1.0], [1.0, 0.0], [1.0, 0.0]]), labels).tolist()
    [1.0, 0.0, 0.0]
    """
    labels, presence, order = first_presence(importance, concept_labels, top_l)
    scored = ~presence[:, 0].isnan()
    counts = labels.to(presence)[scored].sum(0)
    return gain_over_others(presence, counts[order], scored.sum())


def gain_over_others(presence: Tensor, counts: Tensor, n_scored: Tensor) -> Tensor:
    """Return gains (N,) of the presence (N, top) of the concepts that a sample names.

    `counts` (N, top) are how many of the `n_scored` samples of its set show each of them; () or (N, 1).
    """
    others = (counts - presence) / (n_scored - 1)
    return (presence - others).mean(-1)


@torch.no_grad()
def commonest_concept(concept_labels: Numbers) -> Tensor:
    """Return the importance of a baseline that names the commonest concepts for every sample.

    ``cem(commonest_concept(labels), labels)`` is what naming one concept for all images reaches at best; its
    `cem_gain` is 0 on average.

    Parameters
    ----------
    concept_labels : array_like
        (N, L) of 0 and 1.

    Returns
    -------
    Tensor
        (N, L): in every row the share of the samples that show each concept.

    Raises
    ------
    ValueError
        If the labels are not (N, L), or one is neither 0 nor 1.

    Examples
    --------
    >>> import torch
    >>> from quantus_concepts.functional import cem, commonest_concept
    >>> labels = torch.tensor([[1, 1], [0, 1], [1, 0], [0, 1]])
    >>> cem(commonest_concept(labels), labels).tolist()
    [1.0, 1.0, 0.0, 1.0]
    """
    labels = as_tensor("concept_labels", concept_labels)
    check_axes(concept_labels=(labels, "N L"))
    check_zero_one("concept_labels", labels)
    return at_least_float32(labels.float()).mean(0).expand(labels.shape)


@torch.no_grad()
def class_recital(class_concepts: Numbers, classes: Numbers) -> Tensor:
    """Return the importance of a baseline that names the commonest concepts of each sample's class.

    ``cem(class_recital(class_concepts, classes), labels)`` says how far the class alone goes: a model may know its
    class and recite the concepts of that class without looking for them.

    Parameters
    ----------
    class_concepts : array_like
        (K, L) in [0, 1]: the share of each class's *training* samples that show each concept.
    classes : array_like
        (N,) of int: the true class of each sample.

    Returns
    -------
    Tensor
        (N, L): the row of its class for each sample.

    Raises
    ------
    ValueError
        If `class_concepts` is not (K, L) in [0, 1], or a class not in [0, K).

    Examples
    --------
    >>> import torch
    >>> from quantus_concepts.functional import cem, class_recital
    >>> class_concepts = torch.tensor([[0.9, 0.2], [0.1, 0.8]])
    >>> cem(
    ...     class_recital(class_concepts, torch.tensor([0, 1, 1])),
    ...     torch.tensor([[1, 0], [0, 1], [1, 0]]),
    ... ).tolist()
    [1.0, 1.0, 0.0]
    """
    class_concepts, classes = to_floats("class_concepts", class_concepts), to_class_tensor("classes", classes)
    sizes = check_axes(class_concepts=(class_concepts, "K L"), classes=(classes, "N"))
    check_within("class_concepts", class_concepts, 0, 1, remedy="Divide percentages by 100.")
    check_within("classes", classes, 0, sizes["K"] - 1)
    return class_concepts[classes.to(class_concepts.device)]
