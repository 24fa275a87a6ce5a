"""The concept global importance metric: importance of concepts for classes against what people say."""

from __future__ import annotations

import copy
from typing import Self

import torch
from torch import Tensor

from captum_concepts._support.checks import check_shape
from captum_concepts._support.constraints import (
    Bools,
    Choice,
    Device,
    Flag,
    Floats,
    Indices,
    Instance,
    Whole,
    check_arguments,
)
from captum_concepts._support.running import at_least_float32, to_host
from captum_concepts._support.shown import describe


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
        If a number is no whole one, or `dtype` not floating-point.

    Attributes
    ----------
    counts : Tensor
        (K,) of int64: samples of each class so far.
    """

    @check_arguments(
        n_classes=Whole(1), n_concepts=Whole(1), device=Device(), dtype=Instance(torch.dtype, "a torch.dtype")
    )
    def __init__(
        self,
        n_classes: int,
        n_concepts: int,
        device: torch.device | str | None = None,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        if not dtype.is_floating_point:
            raise TypeError(f"Expected argument `dtype` to be of a floating-point dtype but got {dtype}.")
        super().__init__(n_classes, n_concepts, device, dtype)

    def __repr__(self) -> str:
        return describe(self, n_classes=len(self.counts), n_concepts=self.sums.shape[1])

    @check_arguments(
        lambda self: {"K": len(self.counts), "L": self.sums.shape[1]},
        values=Floats("N, L"),
        classes=Indices("N"),
        mask=Bools("N"),
        checked=Flag(),
    )
    @torch.no_grad()
    def update(self, values: Tensor, classes: Tensor, mask: Tensor | None = None, *, checked: bool = False) -> None:
        """Add a batch.

        Parameters
        ----------
        values : Tensor
            (N, L), on any device. NaN makes its class NaN from then on.
        classes : Tensor
            (N,) of int, in [0, K).
        mask : Tensor, optional
            (N,) of bool: the samples that count, the correctly predicted ones for instance; all if None. The
            values of the others are ignored.
        checked : bool
            Whether classes are known to lie in [0, K): then nothing waits for the device they are on.

        Raises
        ------
        TypeError
            If a dtype is wrong.
        ValueError
            If a shape is wrong or a class outside [0, K); nothing is added then.
        """
        n_classes = len(self.counts)
        counted = classes if mask is None or checked else classes[mask.to(classes.device)]
        if not checked and ((counted < 0) | (counted >= n_classes)).any():
            raise ValueError(
                f"Expected argument `classes` to hold class indices 0 to {n_classes - 1} but got values from "
                f"{int(counted.min())} to {int(counted.max())}."
            )
        device = self.sums.device
        classes = classes.to(device, torch.int64)
        self.add(values, classes, torch.ones_like(classes, dtype=torch.bool) if mask is None else mask.to(device))

    @check_arguments(other=Instance(lambda: ClassMeans, "class means"))
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


@check_arguments(
    importance=Floats("K, L"),
    class_concepts=Floats("K, L", low=0, high=1, remedy="Divide percentages by 100."),
    per=Choice(("concept", "class")),
)
@torch.no_grad()
def cgim(importance: Tensor, class_concepts: Tensor, per: str = "concept") -> Tensor:
    """Cosine similarity between importance and what people say, of each concept or of each class.

    Aysel et al. (2025), "Concept-Based Explainable AI: Metrics and Benchmarks", Equations 3 to 5 (concepts)
    and 6 to 8 (classes): type 1 with the weights theta as `importance`, type 2 with the class means U* of the
    concept values, type 3 with their product. 1 is best, 0 no relation. Matrices are the transposes of the
    paper's, which have concepts in rows.

    Parameters
    ----------
    importance : Tensor
        (K, L). A row that holds NaN is a class without a correctly predicted sample: NaN among the classes,
        and left out of the concepts' similarities.
    class_concepts : Tensor
        (K, L) in [0, 1], the paper's V transposed.
    per : str
        "concept" or "class".

    Returns
    -------
    Tensor
        (L,) or (K,) in [-1, 1], of the dtype of `importance` (float32 for narrower ones); NaN where either
        side is zero throughout.

    Raises
    ------
    TypeError
        If an argument is not a tensor of a floating-point dtype.
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
    """
    return agreement(importance, class_concepts, per)


def agreement(importance: Tensor, class_concepts: Tensor, per: str) -> Tensor:
    """Return `cgim` of checked arguments; `importance` (..., K, L) may be several."""
    importance = at_least_float32(importance)
    undefined = importance.isnan().any(-1, keepdim=True)
    fill, dim = (torch.nan, -1) if per == "class" else (0.0, -2)
    a = importance.masked_fill(undefined, fill)
    b = class_concepts.to(importance).masked_fill(undefined, fill)
    # Scaled to a largest entry of 1 first: squares of small importances underflow, those of large ones overflow.
    a = a / a.abs().amax(dim, keepdim=True)
    b = b / b.abs().amax(dim, keepdim=True)
    norms = a.square().sum(dim).sqrt() * b.square().sum(dim).sqrt()
    return ((a * b).sum(dim) / norms).clamp(-1, 1)
