"""The oracle head: classes read from concepts by what people say of the classes."""

from __future__ import annotations

import torch
from torch import Tensor

from captum_concepts.support.checks import check_axes
from quantus_concepts.functional.arguments import Numbers, check_within, to_class_tensor, to_floats
from quantus_concepts.functional.concepts.substitution import MAJORITY


@torch.no_grad()
def oracle_head(presence: Numbers, class_concepts: Numbers, labels: Numbers) -> Tensor:
    """Return how well the class whose concepts agree most with those that are present is the true one.

    The agreement of a sample with a class is the number of concepts that are present in both or in neither; a concept
    belongs to a class from 1/2 on. This is the rule from concepts to classes that people would apply, in place of a
    learned head: `quantus_concepts.OracleHead`.

    Parameters
    ----------
    presence : array_like
        (N, L) of 0 and 1: the concepts of each sample, predicted or true; NaN where that is unknown.
    class_concepts : array_like
        (K, L) in [0, 1]: how far each concept belongs to each class.
    labels : array_like
        (N,), the true classes.

    Returns
    -------
    Tensor
        (N,) in [0, 1]: 1 / t if the true class is among t classes that agree most, else 0; NaN for a row with NaN.

    Raises
    ------
    ValueError
        If shapes do not go together, presence is not 0, 1 or NaN, the table is not in [0, 1], or a class is not one of
        the table's.

    Examples
    --------
    >>> from quantus_concepts.functional import oracle_head
    >>> table = [[1, 0, 1], [0, 1, 1], [0, 1, 1]]
    >>> oracle_head(
    ...     [[1, 0, 1], [1, 0, 0], [0, 1, 1]], table, [0, 1, 2]
    ... )  # the third sample fits two classes
    tensor([1.0000, 0.0000, 0.5000])
    """
    present, table = to_floats("presence", presence), to_floats("class_concepts", class_concepts)
    classes = to_class_tensor("labels", labels)
    check_axes(presence=(present, "N L"), class_concepts=(table, "K L"), labels=(classes, "N"))
    if not ((present == 0) | (present == 1) | present.isnan()).all():
        known = present[~present.isnan()]
        raise ValueError(
            "Expected argument `presence` to hold 0 and 1, or NaN where it is unknown, but got values from "
            f"{known.min().item():g} to {known.max().item():g}. Compare values with the one from which on a concept is "
            "present, as `values >= threshold`."
        )
    check_within("class_concepts", table, 0, 1, remedy="Divide percentages by 100.")
    check_within("labels", classes, 0, len(table) - 1)
    signs = 2 * (table >= MAJORITY).to(present) - 1
    # Whole numbers, which are exact: a constant less, the concepts that are present in both or in neither.
    agreement = present @ signs.T + (signs < 0).sum(1)
    best = agreement >= agreement.amax(1, keepdim=True)
    hits = best.gather(1, classes.to(present.device)[:, None])[:, 0] / best.sum(1)
    return hits.masked_fill(present.isnan().any(1), torch.nan)
