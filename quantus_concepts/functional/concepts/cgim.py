"""The concept global importance metric: importance of concepts for classes against what people say."""

from __future__ import annotations

import torch
from torch import Tensor

from captum_concepts.support.checks import check_axes, check_choice
from captum_concepts.support.running import at_least_float32, widest_float
from quantus_concepts.functional.arguments import (
    Numbers,
    check_within,
    to_floats,
)


def class_sums(
    values: Tensor,
    classes: Tensor,
    enters: Tensor,
    n_classes: int,
    before: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """Return sums (K, L) in the widest float and counts (K,) of the rows of values (N, L) that enter (N,), by class.

    They are added in place to those of the rows `before`.
    """
    if before is None:
        kind = widest_float(values.device)
        before = (
            torch.zeros(n_classes, values.shape[1], device=values.device, dtype=kind),
            torch.zeros(n_classes, device=values.device, dtype=torch.int64),
        )
    sums, counts = before
    # The rows that do not enter add nothing to class 0, whatever they hold: choosing rows would need their number.
    out = ~enters
    rows = classes.masked_fill(out, 0)
    sums.index_add_(0, rows, values.to(sums).masked_fill(out[:, None], 0))
    return sums, counts.index_add_(0, rows, enters.to(torch.int64))


@torch.no_grad()
def cgim(importance: Numbers, class_concepts: Numbers, per: str = "concept", centred: bool = False) -> Tensor:
    """Cosine similarity between importance and what people say, of each concept or of each class.

    Aysel et al. (2025), "Concept-Based Explainable AI: Metrics and Benchmarks", Equations 3 to 5 (concepts)
    and 6 to 8 (classes): type 1 with the weights theta as `importance`, type 2 with the class means U* of the
    concept values, type 3 with their product. 1 is best. 0 does not mean "no relation": the truth is never negative,
    so that a matrix that gives every concept the same importance for every class has a large cosine (.67 on birds of
    CUB). With `centred` the means over classes (per class: over concepts) are subtracted from both sides first, which
    is Pearson's correlation: there 0 is no relation, and the same matrix is undefined. Matrices are the transposes of
    the paper's, which have concepts in rows.

    Parameters
    ----------
    importance : array_like
        (K, L), or several (..., K, L). A row that holds NaN is a class without a correctly predicted sample: NaN
        among the classes, and left out of the concepts' similarities.
    class_concepts : array_like
        (K, L) in [0, 1], the paper's V transposed.
    per : str
        "concept" or "class".
    centred : bool
        Whether to correlate, in place of the paper's cosine.

    Returns
    -------
    Tensor
        (..., L) or (..., K) in [-1, 1], of the dtype of `importance` (float32 for narrower ones); NaN where either
        side is zero throughout or, with `centred`, does not vary; `cgim_reasons` says why.

    Raises
    ------
    ValueError
        If the shapes differ, `class_concepts` leaves [0, 1], or `per` is neither of the two.

    Examples
    --------
    >>> import torch
    >>> from quantus_concepts.functional import cgim
    >>> importance = torch.tensor([[3.0, 0.0], [0.0, -4.0]])
    >>> class_concepts = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> cgim(importance, class_concepts).tolist()
    [1.0, -1.0]
    >>> constant = torch.ones(2, 2)
    >>> (
    ...     cgim(constant, class_concepts)[0].item(),
    ...     cgim(constant, class_concepts, centred=True)[0].item(),
    ... )
    (0.7071067690849304, nan)
    """
    importance, class_concepts = _checked_matrices(importance, class_concepts, per)
    importance = at_least_float32(importance)
    missing = importance.isnan().any(-1, keepdim=True)
    dim = -1 if per == "class" else -2
    if not importance.shape[dim]:  # nothing to compare, and no largest entry
        return importance.new_full(importance.sum(dim).shape, torch.nan)
    a = compared_side(importance, missing, dim, centred)
    b = compared_side(class_concepts.to(importance), missing, dim, centred)
    # Scaled to a largest entry of 1 first: squares of small importances underflow, those of large ones overflow.
    a = a / a.abs().amax(dim, keepdim=True)
    b = b / b.abs().amax(dim, keepdim=True)
    norms = a.square().sum(dim).sqrt() * b.square().sum(dim).sqrt()
    return ((a * b).sum(dim) / norms).clamp(-1, 1)


def _checked_matrices(importance: Numbers, class_concepts: Numbers, per: str) -> tuple[Tensor, Tensor]:
    importance, class_concepts = to_floats("importance", importance), to_floats("class_concepts", class_concepts)
    check_axes(importance=(importance, "... K L"), class_concepts=(class_concepts, "K L"))
    check_within("class_concepts", class_concepts, 0, 1, remedy="Divide percentages by 100.")
    check_choice("per", per, ("concept", "class"))
    return importance, class_concepts


def compared_side(matrix: Tensor, missing: Tensor, dim: int, centred: bool) -> Tensor:
    """Return one side of the comparison, without its means if it is centred; `missing` are (..., K, 1) classes."""
    # Of a class that is missing 0 / 0 makes NaN; concepts are compared over the other classes.
    matrix = matrix.masked_fill(missing, 0.0)
    if not centred:
        return matrix
    count = matrix.shape[-1] if dim == -1 else (~missing).sum(dim, keepdim=True)
    differences = matrix - matrix.sum(dim, keepdim=True) / count
    # What is left of a side that does not vary is rounding.
    limit = 8 * torch.finfo(matrix.dtype).eps * matrix.abs().amax(dim, keepdim=True)
    differences = differences.masked_fill(missing, 0.0)
    return differences * (differences.abs().amax(dim, keepdim=True) > limit)


#: Why a class has no score.
NO_CLASS = "no correctly predicted sample"
#: What is said of a side that cannot be compared, by whether it is centred.
SAME_EVERYWHERE = {False: "is zero throughout", True: "does not vary"}


@torch.no_grad()
def cgim_reasons(
    importance: Numbers, class_concepts: Numbers, per: str = "concept", centred: bool = False
) -> list[str]:
    """Say why scores of `cgim` are undefined.

    Parameters
    ----------
    importance : array_like
        (K, L), as in `cgim`, like the others.
    class_concepts : array_like
        (K, L) in [0, 1].
    per : str
        "concept" or "class".
    centred : bool
        Whether the score is the correlation.

    Returns
    -------
    list of str
        One for each score, "" where it is defined: "no correctly predicted sample", "importance is zero throughout"
        ("does not vary" if centred), or the same of "truth".

    Raises
    ------
    ValueError
        As `cgim`.

    Examples
    --------
    >>> import torch
    >>> from quantus_concepts.functional import cgim_reasons
    >>> cgim_reasons(torch.ones(2, 2), torch.eye(2), centred=True)
    ['importance does not vary', 'importance does not vary']
    """
    importance, class_concepts = _checked_matrices(importance, class_concepts, per)
    check_axes(importance=(importance, "K L"))
    importance = at_least_float32(importance)
    dim = -1 if per == "class" else -2
    missing = importance.isnan().any(-1, keepdim=True)
    sides = [compared_side(side.to(importance), missing, dim, centred) for side in (importance, class_concepts)]
    nothing, no_truth = ((side == 0).all(dim).tolist() for side in sides)
    classless = missing[:, 0].tolist() if per == "class" else [bool(missing.all())] * len(nothing)
    same = SAME_EVERYWHERE[centred]
    return [
        NO_CLASS if gone else f"importance {same}" if empty else f"truth {same}" if untrue else ""
        for gone, empty, untrue in zip(classless, nothing, no_truth, strict=True)
    ]
