"""Explainers of the values of concepts by the head of a concept model, as people rated them for PASTA."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
from captum.attr import Attribution, InputXGradient, KernelShap, Lime
from captum.log import log_usage
from torch import Tensor, nn

from captum_concepts.attributions.outputs import Targets, as_targets
from captum_concepts.models.chain import linear_part
from captum_concepts.models.heads import QuadraticHead
from captum_concepts.support.checks import check_axes, check_range, check_whole
from captum_concepts.support.running import seeded_generators, tensor_output
from captum_concepts.texts import show_value


class ConceptRISE(Attribution):
    r"""RISE over concepts: the mean probability of a class over the random masks that keep a concept's value.

    .. math:: a_j = \sum_i m_{ij} \, f_c(x \odot m_i + b \odot (1 - m_i)) \, / \, \sum_i m_{ij}

    A mask keeps each value with probability p, whatever it does with the others; b stands in place of those that it
    hides. Petsiuk et al. (2018) divide by n p, which the number of masks that keep a value comes near to; divided by
    that number, a class whose probability no concept changes gets the same from all. All rows share the masks. NaN
    where no mask keeps the concept.

    Parameters
    ----------
    forward_func : callable or nn.Module
        The head, values (N, L) to logits (N, K).
    seed : int
        Random seed of the masks.
    """

    def __init__(self, forward_func: Any, seed: int = 0) -> None:
        super().__init__(forward_func)
        self.seed = seed

    @log_usage()
    def attribute(
        self,
        inputs: Tensor,
        target: Targets = None,
        baselines: float | Tensor = 0.0,
        n_masks: int = 1000,
        p: float = 0.5,
    ) -> Tensor:
        """Return a mean for each value (N, L); `baselines` are a number, (L,) or (N, L)."""
        check_axes(inputs=(inputs, "N L"))
        check_whole("n_masks", n_masks, 1)
        check_range("p", p, 0, 1, open_low=True)
        generator = torch.Generator().manual_seed(self.seed)
        masks = (torch.rand(n_masks, inputs.shape[1], generator=generator) < p).to(inputs)
        hidden = torch.as_tensor(baselines).to(inputs).expand_as(inputs)
        rows = []
        with torch.no_grad():
            for i, (values, behind) in enumerate(zip(inputs, hidden, strict=True)):
                logits = tensor_output(self.forward_func(values * masks + behind * (1 - masks)))
                column = _targets(target, len(inputs), logits.shape[1])[i]
                rows.append(logits.softmax(1)[:, column].to(masks) @ masks / masks.sum(0))
        return torch.stack(rows)


class RowByRow(Attribution):
    """Captum's explainer of values of concepts, one row at a time: the random copies are the same for each row."""

    def __init__(self, forward_func: Any, inner: type[Attribution], seed: int = 0) -> None:
        super().__init__(forward_func)
        self.inner, self.seed = inner(forward_func), seed

    @log_usage()
    def attribute(self, inputs: Tensor, baselines: Tensor, target: Tensor | None = None, **settings: Any) -> Tensor:
        """Return what the explainer gives for each value (N, L); `baselines` (N, L) and `target` (N,) of each row."""
        check_axes(inputs=(inputs, "N L"))
        rows = []
        for i in range(len(inputs)):
            row = slice(i, i + 1)
            of_row = settings | ({} if target is None else {"target": target[row]})
            with seeded_generators(inputs.device, self.seed):
                rows.append(self.inner.attribute(inputs[row], baselines=baselines[row], **of_row))
        return torch.cat(rows)


class SmallestChange(Attribution):
    """The smallest change of each concept's value alone that changes what a quadratic head decides, with its sign.

    So CLIP-QDA explains a sample (Kazmierczak et al. 2024, "CLIP-QDA: An Explainable Concept Bottleneck Model"): a
    small change means an important concept. For the class that is decided it is the change from which on another class
    is; for any other class the change from which on that one is. It is exact: along one value the log posteriors of two
    classes differ by a polynomial of degree 2. NaN where no change of the concept alone does it.

    Parameters
    ----------
    forward_func : QuadraticHead
        What `fit_qda` returns.

    Raises
    ------
    ValueError
        If it is something else.
    """

    def __init__(self, forward_func: Any) -> None:
        super().__init__(forward_func)
        if not isinstance(forward_func, QuadraticHead):
            raise ValueError(
                "Expected argument `forward_func` to be a head of `fit_qda`, which CLIP-QDA-sample explains, but got "
                f"{show_value(forward_func)}."
            )

    @log_usage()
    def attribute(self, inputs: Tensor, target: Targets = None) -> Tensor:
        """Return the change of each value (N, L) for a class, by default the one that is decided."""
        check_axes(inputs=(inputs, "N L"))
        with torch.no_grad():
            scores, slopes, curvatures = self.forward_func.expansion(inputs)
            classes = scores.argmax(1) if target is None else _targets(target, *scores.shape).to(scores.device)
            rows = zip(scores, slopes, classes.tolist(), strict=True)
            changes = [_smallest(row, slope, curvatures, k) for row, slope, k in rows]
        return torch.stack(changes).to(inputs)


def _smallest(scores: Tensor, slopes: Tensor, curvatures: Tensor, k: int) -> Tensor:
    """Return the smallest change of each value (L,) by which class k wins or loses; scores (K,), the others (K, L)."""
    # Class k less each other one, along the value of concept j: constant + linear * t + square * t ** 2.
    constant = (scores[k] - scores)[:, None]
    linear, square = slopes[k] - slopes, (curvatures - curvatures[k]) / 2
    # Equal curvatures of a fit differ by rounding, which would make a crossing far away.
    noise = 64 * torch.finfo(square.dtype).eps * torch.maximum(curvatures, curvatures[k])
    square = square.masked_fill(square.abs() <= noise, 0)
    discriminant = linear.square() - 4 * square * constant
    half = -(linear + torch.copysign(discriminant.sqrt(), linear)) / 2
    changes = torch.stack([half / square, constant / half], 2)
    # Where the polynomial only touches 0 nothing changes.
    crosses = (discriminant > 0)[:, :, None] & changes.isfinite()
    if not (constant >= 0).all():
        crosses &= _beats_others(constant, linear, square, changes, k)
    sizes = changes.abs().masked_fill(~crosses, torch.inf).transpose(0, 1).flatten(1)
    size, place = sizes.min(1)
    change = changes.transpose(0, 1).flatten(1).gather(1, place[:, None])[:, 0]
    return change.masked_fill(size.isinf(), torch.nan)


def _beats_others(constant: Tensor, linear: Tensor, square: Tensor, changes: Tensor, k: int) -> Tensor:
    """Return where (K, L, 2) class k, as good as one class after a change, is better than all the others."""
    n_classes = len(constant)
    own = torch.eye(n_classes, dtype=torch.bool, device=changes.device)
    own[:, k] = True
    better = []
    # One concept at a time: all of them with each pair of classes would not fit into memory.
    for j in range(changes.shape[1]):
        change = changes[:, j, :, None]
        ahead = constant[:, 0] + linear[:, j] * change + square[:, j] * change.square()
        better.append((ahead > 0).logical_or(own[:, None]).all(2))
    return torch.stack(better, 1)


def weight_times_value(head: nn.Module) -> InputXGradient:
    """Return the attribution of a linear head: each value times its weight for the class."""
    if linear_part(head) is None:
        raise ValueError(
            "Expected argument `head` to be linear, as of `fit_logistic`, which CLIP-linear-sample explains, but got "
            f"{show_value(head)}."
        )
    return InputXGradient(head)


def _targets(target: Targets, n: int, n_outputs: int) -> Tensor:
    """Return the class explained of each row (n,)."""
    if target is None and n_outputs > 1:
        raise ValueError(
            f"Expected argument `target` to name one of the {n_outputs} outputs but got None. Pass its index."
        )
    return as_targets(0 if target is None else target, n, n_outputs=n_outputs).expand(n)


CONCEPT_METHODS: Mapping[str, type[Attribution]] = MappingProxyType(
    {
        "LIME-CBM": Lime,
        "SHAP-CBM": KernelShap,
        "RISE-CBM": ConceptRISE,
        "CLIP-linear-sample": InputXGradient,
        "CLIP-QDA-sample": SmallestChange,
    }
)
"""Names of the explainers of concept values that PASTA's people rated, with the class that each is built on."""
