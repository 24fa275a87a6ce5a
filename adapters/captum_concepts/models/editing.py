"""Editing a concept model by its weights: taking a concept away from classes."""

from __future__ import annotations

import copy
from typing import Any, TypeVar

import torch

from captum_concepts._support.constraints import Flag, Instance, check_arguments
from captum_concepts.backbones.pooling import check_concepts
from captum_concepts.models.chain import ConceptChain, linear_part
from captum_concepts.models.interventions import chosen_concepts

C = TypeVar("C", bound=ConceptChain)


@check_arguments(cbm=Instance(ConceptChain, "a concept model"), normalise=Flag())
def prune(cbm: C, concepts: Any, classes: Any = None, *, normalise: bool = False) -> C:
    """Take concepts away from classes: their weights in the head become 0.

    Model editing of Yuksekgonul et al. (2023), "Post-hoc Concept Bottleneck Models": a concept that is known to be
    spurious, as the bed on which a dog lies, is pruned from the class that learnt it, with no data and no training.
    A class that loses weight loses against the others; `normalise` gives it back the length that it had.

    Parameters
    ----------
    cbm : PostHocCBM, BottleneckCBM or ResidualCBM
        With a linear head; left as it is. The residual of a ResidualCBM is not edited and may still hold what was
        pruned.
    concepts : int, str or sequence of them
        Indices, or the names of a `PostHocCBM`.
    classes : int or sequence of int, optional
        By default all.
    normalise : bool
        Whether the remaining weights of each class are multiplied so that the sum of their magnitudes (L1) is what it
        was before ("prune and normalise").

    Returns
    -------
    PostHocCBM, BottleneckCBM or ResidualCBM
        Model of the same class with its own head; everything else is shared with `cbm`.

    Raises
    ------
    TypeError
        If `cbm` is no concept model, or `concepts` or `classes` are no indices.
    ValueError
        If a concept or class is not there, the head is not linear, or a class to be normalised has no weight left.
    """
    head = copy.deepcopy(cbm.head)
    linear = linear_part(head)
    if linear is None:
        raise ValueError(
            f"Expected argument `cbm` to have a linear head, whose weights belong to one concept each, but got "
            f"{type(head).__name__}."
        )
    n_classes, n_concepts = linear.weight.shape
    columns = chosen_concepts(concepts, getattr(cbm.concept_layer, "names", ()), 1, n_concepts)
    rows = torch.arange(n_classes)
    if classes is not None:
        rows = _checked_classes(classes, n_classes)
    with torch.no_grad():
        before = linear.weight[rows].abs().sum(1)
        linear.weight[rows[:, None], columns.flatten()] = 0
        if normalise:
            after = linear.weight[rows].abs().sum(1)
            if ((after == 0) & (before > 0)).any():
                empty = rows[((after == 0) & (before > 0)).cpu()].tolist()
                raise ValueError(
                    f"Expected argument `concepts` to leave each class some weight to normalise but classes "
                    f"{empty[:5]} have none. Prune fewer, or with `normalise=False`."
                )
            linear.weight[rows] *= torch.where(after > 0, before / after, 1)[:, None]
    return cbm.with_head(head)


def _checked_classes(classes: Any, n_classes: int) -> torch.Tensor:
    try:
        return check_concepts([classes] if type(classes) is int else classes, 1, n_classes).flatten().unique()
    except (TypeError, ValueError) as error:
        text = str(error).replace("`concepts`", "`classes`").replace("concept", "class")
        raise type(error)(text) from error
