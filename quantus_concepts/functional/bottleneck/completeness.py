"""Completeness: which share of what a network knows of its classes its concept values keep."""

from __future__ import annotations

import math

import torch

from captum_concepts.support.checks import check_axes
from quantus_concepts.functional.arguments import Numbers, to_class_tensor


@torch.no_grad()
def completeness(predicted: Numbers, network_predicted: Numbers, classes: Numbers) -> float:
    """Return the share of a network's accuracy above chance that a concept model keeps.

    Yeh et al. (2020), "On Completeness-aware Concept-Based Explanations in Deep Neural Networks", Definition 3.1:
    ``(accuracy of the concept model - a_r) / (accuracy of the network - a_r)``, where a_r is the accuracy without
    knowledge of the image, here the share of the commonest class. PyC's ``completeness_score`` subtracts no chance.

    Parameters
    ----------
    predicted : array_like
        (N,) classes that the concept model predicts.
    network_predicted : array_like
        (N,) classes that the network predicts from the same images.
    classes : array_like
        (N,) true classes.

    Returns
    -------
    float
        1 if the concepts lose nothing, 0 if the concept model is as good as naming the commonest class; more than 1 if
        it is better than its network. NaN if the network is not better than that.

    Raises
    ------
    ValueError
        If shapes do not match.

    Examples
    --------
    >>> from quantus_concepts.functional import completeness
    >>> completeness([0, 0, 1, 0], [0, 0, 1, 1], [0, 0, 1, 1])
    0.5
    """
    rows = {"predicted": predicted, "network_predicted": network_predicted, "classes": classes}
    indices = {name: to_class_tensor(name, values).cpu() for name, values in rows.items()}
    check_axes(**{name: (values, "N") for name, values in indices.items()})
    truth = indices["classes"]
    if not len(truth):
        return math.nan
    of_model, of_network = (float((indices[name] == truth).double().mean()) for name in (*rows,)[:2])
    chance = float(truth.unique(return_counts=True)[1].max()) / len(truth)
    return (of_model - chance) / (of_network - chance) if of_network > chance else math.nan
