"""Sparse heads: accuracy from concept values with few weights a class."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import softshrink

from captum_concepts.support.checks import check_axes, check_finite, check_whole
from captum_concepts.texts import in_one_line
from quantus_concepts.functional.arguments import Numbers, check_within, to_class_tensor, to_floats

#: Share of the l1 norm in the penalty, as in GLM-SAGA and VLG-CBM.
_MIX = 0.99
#: Steps after which a fit is checked, and the change of the objective, as a share of it, below which it ends.
_CHECKED, _CONVERGED = 10, 1e-4
#: Sizes over which ANEC-avg is the mean.
AVERAGED = (5, 10, 15, 20, 25, 30)


@in_one_line
@dataclass(frozen=True, repr=False)
class SparseHeads:
    """Heads of several sizes, as `sparse_head_path` returns them.

    Attributes
    ----------
    sizes : tuple of int
        Weights a class that were asked for.
    nec : Tensor
        (S,) number of effective concepts: mean number of weights of a class that are not 0.
    accuracy : Tensor
        (S,) accuracy of each head.
    weights : Tensor
        (S, K, L) for standardised values.
    biases : Tensor
        (S, K).
    centre : Tensor
        (L,) mean of the values of the fit.
    scale : Tensor
        (L,) their standard deviation; infinite for a concept that does not vary.
    classes : Tensor
        (K,) the classes of the fit, in the order of `weights`.
    """

    sizes: tuple[int, ...]
    nec: Tensor
    accuracy: Tensor
    weights: Tensor
    biases: Tensor
    centre: Tensor
    scale: Tensor
    classes: Tensor

    def predict(self, values: Tensor) -> Tensor:
        """Return the class (S, M) that each head predicts from values (M, L)."""
        standardised = (values.to(self.centre) - self.centre) / self.scale
        logits = torch.einsum("ml,skl->smk", standardised, self.weights) + self.biases[:, None]
        return self.classes[logits.argmax(2)]

    @property
    def anec_5(self) -> float:
        """Accuracy at five weights a class; NaN if 5 is not among the sizes."""
        return float(self.accuracy[self.sizes.index(5)]) if 5 in self.sizes else math.nan

    @property
    def anec_avg(self) -> float:
        """Mean accuracy at 5, 10, 15, 20, 25 and 30 weights a class; NaN if one of them is not among the sizes."""
        if not {*AVERAGED} <= {*self.sizes}:
            return math.nan
        return float(self.accuracy[[self.sizes.index(size) for size in AVERAGED]].mean())


@torch.no_grad()
def sparse_head_path(
    values: Numbers,
    classes: Numbers,
    sizes: Sequence[int] = AVERAGED,
    test_values: Numbers | None = None,
    test_classes: Numbers | None = None,
    n_steps: int = 40,
    n_iterations: int = 1000,
) -> SparseHeads:
    """Fit heads with so many weights a class, and return their accuracy: the path of NEC and ANEC.

    Srivastava et al. (2024), "VLG-CBM", section 4: with all weights random concepts are as accurate as good ones, for
    they only have to keep what the embedding says. With a few weights a class the concepts themselves have to say it.
    NEC is the mean number of weights of a class that are not 0, ANEC-5 the accuracy at NEC 5 and ANEC-avg the mean of
    those at 5, 10, 15, 20, 25 and 30. Compare with random banks of as many concepts.

    As there, the heads are those of an elastic net (0.99 l1) on standardised values, along a path of falling penalty
    from no weight on; of the first with enough weights the smallest are set to 0 until there are as many as asked for.
    The fit is by accelerated proximal gradients (FISTA), on the device of the values. It goes on for each penalty until
    ten steps change the objective by less than 1e-4 of its value: a fit that is cut short has more weights than the
    minimum, 30 in place of 22.

    Parameters
    ----------
    values : array_like
        (N, L) concept values on which heads are fitted.
    classes : array_like
        (N,) true classes, any numbers from 0 on; K of them occur.
    sizes : sequence of int
        Weights a class, as the mean over the classes that occur.
    test_values : array_like, optional
        (M, L) values of other images, on which accuracy is measured; by default those of the fit, which is too good.
    test_classes : array_like, optional
        (M,) their classes, among those of the fit.
    n_steps : int
        Penalties of the path, from that which leaves no weight to a thousandth of it; it ends with enough weights.
    n_iterations : int
        Most steps of the fit for each penalty.

    Returns
    -------
    SparseHeads
        In the order of `sizes`. Where no penalty of the path leaves enough weights, ``nec`` is smaller than the size.

    Raises
    ------
    ValueError
        If shapes do not match, values are not finite, a class is negative, a test class is none of the fit's, or only
        one of the two test arguments is given.

    Examples
    --------
    >>> import torch
    >>> from quantus_concepts.functional import sparse_head_path
    >>> classes = torch.arange(60) % 3
    >>> # three of eight concepts say the class
    >>> values = torch.nn.functional.one_hot(classes, 8).float()
    >>> heads = sparse_head_path(values, classes, sizes=[1, 2])
    >>> heads.accuracy.tolist(), heads.nec.tolist()
    ([1.0, 1.0], [1.0, 1.0])
    """
    if (test_values is None) != (test_classes is None):
        raise ValueError("Expected arguments `test_values` and `test_classes` together but got one of them.")
    values, sizes = to_floats("values", values).float(), tuple(sizes)
    members = to_class_tensor("classes", classes).to(values.device)
    judged = values if test_values is None else to_floats("test_values", test_values).to(values)
    truth = members if test_classes is None else to_class_tensor("test_classes", test_classes).to(values.device)
    check_axes(values=(values, "N L"), classes=(members, "N"), test_values=(judged, "M L"), test_classes=(truth, "M"))
    for name, numbers in {"values": values, "test_values": judged}.items():
        check_finite(name, numbers)
    check_within("classes", members, 0, math.inf)
    labels, members = members.unique(return_inverse=True)
    _check_seen(truth, labels)
    least = {"n_steps": (n_steps, 2), "n_iterations": (n_iterations, 1), "sizes": (min(sizes, default=1), 1)}
    for name, (number, smallest) in least.items():
        check_whole(name, number, smallest)
    mean, deviation = values.mean(0), values.std(0, correction=0)
    deviation = torch.where(deviation > 0, deviation, torch.inf)
    n_classes = len(labels)
    most = max(sizes, default=0) * n_classes
    path = elastic_net_path((values - mean) / deviation, members, n_classes, n_steps, n_iterations, most)
    n_nonzero = [int((weights != 0).sum()) for weights, _ in path]
    heads = []
    for size in sizes:
        wanted = size * n_classes
        enough = next((place for place, count in enumerate(n_nonzero) if count >= wanted), len(path) - 1)
        weights, bias = path[enough]
        heads.append((_largest(weights, wanted), bias))
    all_weights, biases = (torch.stack(parts) for parts in zip(*heads, strict=True))
    nec = (all_weights != 0).sum((1, 2)) / n_classes
    found = SparseHeads(sizes, nec, torch.empty(0), all_weights, biases, mean, deviation, labels)
    return replace(found, accuracy=(found.predict(judged) == truth).float().mean(1))


def elastic_net_path(
    values: Tensor, classes: Tensor, n_classes: int, n_steps: int, n_iterations: int, most: int
) -> list[tuple[Tensor, Tensor]]:
    """Return weights (K, L) and biases (K,) of softmax regressions on standardised values (N, L), by falling penalty.

    Each minimises cross entropy + lambda (0.99 |w|_1 + 0.005 |w|^2); biases are free. The fit of a penalty ends with
    `n_iterations`, or where the objective hardly falls, the path where as many as `most` weights are not 0.
    """
    n = len(values)
    truth = torch.nn.functional.one_hot(classes, n_classes).to(values)
    design = torch.cat([values, values.new_ones(n, 1)], 1)
    # Half the largest eigenvalue bounds the curvature of cross entropy.
    step = 2 / float(torch.linalg.eigvalsh((design.T @ design / n).cpu().double())[-1])
    share = truth.mean(0).clamp(min=1 / n)
    largest = float(((truth - truth.mean(0)).T @ values).abs().max()) / n / _MIX
    weights = values.new_zeros(n_classes, design.shape[1])
    weights[:, -1] = share.log()
    path = []
    # Classes first: a softmax over few classes is slow along the last axis.
    truth, across = truth.T.contiguous(), design.T.contiguous()
    seen = truth @ design

    def objective(weights: Tensor, penalty: float) -> float:
        entropy = (torch.logsumexp(weights @ across, 0).sum() - (weights * seen).sum()) / n
        slopes = weights[:, :-1]
        return float(entropy + penalty * (_MIX * slopes.abs().sum() + (1 - _MIX) / 2 * slopes.square().sum()))

    before = weights
    for penalty in (largest * torch.logspace(0, -3, n_steps)).tolist():
        # Weights go on as from the last penalty but one to the last: half as many steps as from those of the last.
        before, weights = weights, 2 * weights - before
        previous, moved, momentum, value = weights, weights, 1.0, math.inf
        for count in range(1, n_iterations + 1):
            weights = moved - step / n * (torch.softmax(moved @ across, 0) @ design - seen)
            weights[:, :-1] = softshrink(weights[:, :-1], step * penalty * _MIX) / (1 + step * penalty * (1 - _MIX))
            momentum, last = (1 + math.sqrt(1 + 4 * momentum**2)) / 2, momentum
            moved = weights + (last - 1) / momentum * (weights - previous)
            previous = weights
            if count % _CHECKED == 0:
                value, earlier = objective(weights, penalty), value
                if abs(earlier - value) < _CONVERGED * value:
                    break
        path.append((weights[:, :-1], weights[:, -1]))
        if (weights[:, :-1] != 0).sum() >= most:
            break
    return path


def _check_seen(classes: Tensor, seen: Tensor) -> None:
    """Raise if a class (M,) of the test images is none of those `seen` (K,) in the fit."""
    unseen = classes[~torch.isin(classes, seen)]
    if len(unseen):
        raise ValueError(
            f"Expected argument `test_classes` to hold classes of the fit but got {len(unseen)} of {len(classes)} that "
            f"are none, such as {unseen[0].item()}: `classes` has {len(seen)}, from {seen[0].item()} to "
            f"{seen[-1].item()}. Count both alike, from 0, and leave out images of other classes."
        )


def _largest(weights: Tensor, n: int) -> Tensor:
    """Return weights of which all but the n largest are 0."""
    if n >= weights.numel():
        return weights
    kept = weights.abs().flatten().topk(n).indices
    return torch.zeros_like(weights).flatten().scatter(0, kept, weights.flatten()[kept]).view_as(weights)
