"""The concept global importance metric: importance of concepts for classes against what people say."""

from __future__ import annotations

import copy
from typing import Self

import torch
from torch import Tensor

from captum_concepts.support.checks import check_axes, check_choice, check_shape, check_whole
from captum_concepts.support.running import at_least_float32, to_host
from captum_concepts.support.shown import describe
from quantus_concepts.functional.arguments import (
    Numbers,
    check_within,
    check_zero_one,
    to_classes,
    to_floats,
    to_tensor,
)


class ClassSums:
    """Sums and counts of rows by class, without checks of what is added."""

    def __init__(
        self,
        n_classes: int,
        n_concepts: int,
        device: torch.device | str | None = None,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        self.sums = torch.zeros(n_classes, n_concepts, device=device, dtype=dtype)
        self.counts = torch.zeros(n_classes, device=device, dtype=torch.int64)

    def add(self, values: Tensor, classes: Tensor, enters: Tensor) -> None:
        """Add the rows of `values` (N, L) that enter (N,) to the sums of their classes (N,), all on one device."""
        # The rows that do not enter add nothing to class 0, whatever they hold: choosing rows would need their number.
        rows = classes.masked_fill(~enters, 0)
        self.sums.index_add_(0, rows, values.to(self.sums).masked_fill(~enters[:, None], 0))
        self.counts.index_add_(0, rows, enters.to(torch.int64))

    def add_sums(self, other: ClassSums) -> None:
        """Add the sums and counts of other samples."""
        self.sums += other.sums.to(self.sums)
        self.counts += other.counts.to(self.counts)

    def to(self, device: torch.device | str) -> Self:
        """Return a copy on a device."""
        moved = copy.copy(self)
        moved.sums, moved.counts = self.sums.to(device, copy=True), self.counts.to(device, copy=True)
        return moved

    def on_host(self) -> Self:
        """Return the same sums on the CPU, in one transfer."""
        moved = copy.copy(self)
        moved.sums, moved.counts = to_host(self.sums, self.counts)
        return moved

    def compute(self) -> Tensor:
        """Return the means so far.

        Returns
        -------
        Tensor
            (K, L); NaN in the rows of classes without a sample.
        """
        return self.sums / self.counts[:, None]


class ClassMeans(ClassSums):
    """Mean of rows over the samples of each class, one batch at a time; keeps only sums and counts.

    Over the correctly predicted samples it gives the paper's U* from concept values (Aysel et al. 2025, section
    3.2), and its theta from the gradients of a linear head.

    Parameters
    ----------
    n_classes : int
        K.
    n_concepts : int
        L.
    device : torch.device or str, optional
        Device of the sums; the default device if None.
    dtype : torch.dtype
        Dtype of the sums.

    Raises
    ------
    ValueError
        If a number is smaller than 1.
    TypeError
        If `dtype` is not floating-point.

    Attributes
    ----------
    counts : Tensor
        (K,) of int64: samples of each class so far.
    """

    def __init__(
        self,
        n_classes: int,
        n_concepts: int,
        device: torch.device | str | None = None,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        if not dtype.is_floating_point:
            raise TypeError(f"Expected argument `dtype` to be of a floating-point dtype but got {dtype}.")
        n_classes, n_concepts = check_whole("n_classes", n_classes, 1), check_whole("n_concepts", n_concepts, 1)
        super().__init__(n_classes, n_concepts, device, dtype)

    def __repr__(self) -> str:
        return describe(self, n_classes=len(self.counts), n_concepts=self.sums.shape[1])

    @torch.no_grad()
    def update(self, values: Numbers, classes: Numbers, mask: Numbers | None = None, *, checked: bool = False) -> None:
        """Add a batch.

        Parameters
        ----------
        values : array_like
            (N, L), on any device. NaN makes its class NaN from then on.
        classes : array_like
            (N,) of int, in [0, K).
        mask : array_like, optional
            (N,) of bool: the samples that count, the correctly predicted ones for instance; all if None. The
            values of the others are ignored.
        checked : bool
            Whether classes are known to lie in [0, K): then nothing waits for the device they are on.

        Raises
        ------
        ValueError
            If a shape is wrong or a class outside [0, K); nothing is added then.
        """
        n_classes, n_concepts = self.sums.shape
        values, classes = to_floats("values", values), to_classes("classes", classes)
        mask = None if mask is None else to_tensor("mask", mask)
        check_axes(values=(values, f"N {n_concepts}"), classes=(classes, "N"), mask=(mask, "N"))
        if mask is not None:
            check_zero_one("mask", mask)
            mask = mask.bool()
        counted = classes if mask is None or checked else classes[mask.to(classes.device)]
        if not checked and ((counted < 0) | (counted >= n_classes)).any():
            raise ValueError(
                f"Expected argument `classes` to hold class indices 0 to {n_classes - 1} but got values from "
                f"{int(counted.min())} to {int(counted.max())}."
            )
        device = self.sums.device
        classes = classes.to(device)
        self.add(values, classes, torch.ones_like(classes, dtype=torch.bool) if mask is None else mask.to(device))

    def merge(self, other: ClassMeans) -> None:
        """Add what another one has collected, in another process for instance.

        Parameters
        ----------
        other : ClassMeans
            Means of as many classes and concepts; not changed.

        Raises
        ------
        ValueError
            If it is of other classes or concepts.
        """
        check_shape("other", other.sums, ("K", "L"), tuple(self.sums.shape))
        self.add_sums(other)


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
    a = _compared(importance, missing, dim, centred)
    b = _compared(class_concepts.to(importance), missing, dim, centred)
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


def _compared(matrix: Tensor, missing: Tensor, dim: int, centred: bool) -> Tensor:
    """Return one side of the comparison, without its means if it is centred; `missing` are (..., K, 1) classes."""
    # Scores of missing classes are NaN; concepts are compared over the other classes.
    matrix = matrix.masked_fill(missing, torch.nan if dim == -1 else 0.0)
    if not centred:
        return matrix
    count = matrix.shape[-1] if dim == -1 else (~missing).sum(dim, keepdim=True)
    differences = matrix - matrix.sum(dim, keepdim=True) / count
    # What is left of a side that does not vary is rounding.
    limit = 8 * torch.finfo(matrix.dtype).eps * matrix.abs().amax(dim, keepdim=True)
    differences = differences.masked_fill(missing, torch.nan if dim == -1 else 0.0)
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
    sides = [_compared(side.to(importance), missing, dim, centred) for side in (importance, class_concepts)]
    nothing, no_truth = ((side == 0).all(dim).tolist() for side in sides)
    classless = missing[:, 0].tolist() if per == "class" else [bool(missing.all())] * len(nothing)
    same = SAME_EVERYWHERE[centred]
    return [
        NO_CLASS if gone else f"importance {same}" if empty else f"truth {same}" if untrue else ""
        for gone, empty, untrue in zip(classless, nothing, no_truth, strict=True)
    ]
