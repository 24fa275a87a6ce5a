"""Swap: do the concepts of two trainings mean the same, so that the head of one can read those of the other?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from captum_concepts.support.checks import check_axes, check_finite
from captum_concepts.texts import in_one_line
from quantus_concepts.functional.arguments import Numbers, check_within, to_class_tensor, to_floats


@in_one_line
class Swap(NamedTuple):
    """Accuracies of swapped heads, as `concept_swap` returns them.

    Attributes
    ----------
    accuracy : Tensor
        (S, S): row s is the head of training s, column t the concept values of training t.
    drop : Tensor
        (S, S): accuracy of the head of training t on its own values less that of head s on them; 0 on the diagonal.
    """

    accuracy: Tensor
    drop: Tensor

    @property
    def mean_drop(self) -> float:
        """Mean drop over ordered pairs of two trainings."""
        n = len(self.drop)
        return float(self.drop.sum() / (n * (n - 1)))


@torch.no_grad()
def concept_swap(
    values: Sequence[Numbers],
    classes: Sequence[Numbers],
    weights: Sequence[Numbers],
    biases: Sequence[Numbers],
    train_mean: Sequence[Numbers],
    train_deviation: Sequence[Numbers],
) -> Swap:
    """Return how well the head of each training classifies the concept values of each other one.

    The swap of arXiv 2606.16535: a value that means what its name says is read by any head that was fitted to values
    of this name; where two trainings agreed on a code of their own, accuracy falls to chance. Scales differ between
    trainings, so a head reads the other's values standardised by the other's training images and brought to the scale
    of its own.

    Parameters
    ----------
    values : sequence of array_like
        For each of S trainings (N_s, L) concept values of test images; concepts have one order.
    classes : sequence of array_like
        (N_s,) their classes, of one list of classes.
    weights : sequence of array_like
        (K, L) of the linear head of each training.
    biases : sequence of array_like
        (K,) of it.
    train_mean : sequence of array_like
        (L,) of the values of each training's training images.
    train_deviation : sequence of array_like
        (L,) of the same.

    Returns
    -------
    Swap
        ``accuracy`` and ``drop`` (S, S), and ``mean_drop``.

    Raises
    ------
    ValueError
        If there are fewer than two trainings, shapes do not match, a number is not finite, or a class is none of the
        heads'.

    Examples
    --------
    >>> import torch
    >>> from quantus_concepts.functional import concept_swap
    >>> values = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> same = ([[1.0, 0.0], [0.0, 1.0]], [0.0, 0.0], [0.5, 0.5], [0.5, 0.5])
    >>> codes = [values, 1 - values]  # the second training says 0 for present
    >>> heads = [torch.eye(2), -torch.eye(2)]
    >>> swap = concept_swap(codes, [[0, 1]] * 2, heads, *([part] * 2 for part in same[1:]))
    >>> swap.accuracy.tolist(), swap.mean_drop
    ([[1.0, 0.0], [0.0, 1.0]], 1.0)
    """
    if len(values) < 2:
        raise ValueError(f"Expected argument `values` to be of at least two trainings but got {len(values)}.")
    trainings = []
    rows = zip(values, classes, weights, biases, train_mean, train_deviation, strict=True)
    names = ("values", "weights", "biases", "train_mean", "train_deviation")
    for own_values, own_classes, *linear in rows:
        floats = {
            name: to_floats(name, part).cpu().double() for name, part in zip(names, (own_values, *linear), strict=True)
        }
        labels = to_class_tensor("classes", own_classes)
        axes = dict(zip(names, ("N L", "K L", "K", "L", "L"), strict=True))
        check_axes(classes=(labels, "N"), **{name: (part, axes[name]) for name, part in floats.items()})
        for name, part in floats.items():
            check_finite(name, part)
        check_within("train_deviation", floats["train_deviation"], 0, torch.inf)
        check_within("classes", labels, 0, len(floats["weights"]) - 1, remedy="Count classes from 0, as the heads do.")
        trainings.append((*floats.values(), labels.cpu()))
    accuracy = torch.tensor([[_accuracy(reader, read) for read in trainings] for reader in trainings])
    return Swap(accuracy, accuracy.diagonal() - accuracy)


def _accuracy(reader: tuple[Tensor, ...], read: tuple[Tensor, ...]) -> float:
    """Return the accuracy of one training's head on another's values; on its own they stay as they are."""
    _, weights, bias, mean, deviation, _ = reader
    values, _, _, own_mean, own_deviation, classes = read
    scaled = (values - own_mean) / torch.where(own_deviation > 0, own_deviation, 1) * deviation + mean
    logits = scaled @ weights.T + bias
    return float((logits.argmax(1) == classes).double().mean())
