"""The effect of a concept: what a class loses when the concept is set to its absent level."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from captum_concepts.models.chain import linear_part
from captum_concepts.support.checks import check_shape
from captum_concepts.support.running import at_least_float32, first_floating, tensor_output, without_autocast

#: What the effect of a concept is counted from.
ABSENT_LEVEL, TRAINING_MEAN = "absent level", "training mean"
#: How to let a model know it.
GIVE_LEVEL = (
    "Set `model.absent_values` (L,), the mean value of each concept over the training images without it: "
    "values.masked_fill(labels > 0, torch.nan).nanmean(0), of values and labels (N, L); or, without labels, "
    "`model.mean_values` (L,)"
)
#: Numbers that a head is given at once where it is not linear.
_AT_ONCE = 2**24


def effect_level(model: object) -> tuple[Tensor | None, str]:
    """Return the value of an absent concept, (L,) or of all, and what it is; None and "" where it is not known."""
    absent: Tensor | None = getattr(model, "absent_values", None)
    if absent is None and getattr(model, "bounded", False):
        absent = torch.zeros(())
    mean: Tensor | None = getattr(model, "mean_values", None)
    return (mean, TRAINING_MEAN if mean is not None else "") if absent is None else (absent, ABSENT_LEVEL)


def concept_effects(head: nn.Module, values: Tensor, classes: Tensor, level: Tensor) -> Tensor:
    """Return what a class's logit, less the mean of all, loses if one concept each (N, L) is set to its level.

    Of a linear head it is ``(theta - mean over classes)(u - level)``. `classes` are (N,), the level (L,) or ().
    """
    n, n_concepts = values.shape
    if level.ndim:
        check_shape("absent_values of the model", level, ("L",), (n_concepts,))
    level = level.to(values.device, at_least_float32(values).dtype)
    linear = linear_part(head)
    if linear is not None:
        theta = linear.weight.detach()
        return (theta - theta.mean(0)).to(level.dtype)[classes] * (values - level)
    level, together = level.expand(n_concepts), max(1, _AT_ONCE // max(1, values.numel()))
    before, effects = over_mean(_logits(head, values), classes), []
    for concepts in torch.arange(n_concepts, device=values.device).split(together):
        without = values.repeat(len(concepts), 1, 1)
        without[torch.arange(len(concepts), device=values.device), :, concepts] = level[concepts, None].to(values)
        after = _logits(head, without.flatten(0, 1)).unflatten(0, (len(concepts), n))
        effects.append(before - over_mean(after, classes.expand(len(concepts), -1)))
    return torch.cat(effects).T


def named_effects(effects: Tensor, values: Tensor, level: Tensor) -> Tensor:
    """Return effects (N, L) in the form by which concepts are named: those below their level come last.

    What a class gains by an absence is no reason to name the concept, so there the effect counts by minus its size.
    """
    return torch.where(values >= level.to(values), effects, -effects.abs())


def over_mean(logits: Tensor, classes: Tensor) -> Tensor:
    """Return the logits (..., n) of one class each, less the mean of those of all (..., n, K)."""
    exact = at_least_float32(logits)
    return exact.gather(-1, classes[..., None])[..., 0] - exact.mean(-1)


def _logits(head: nn.Module, values: Tensor) -> Tensor:
    """Return what a head gives for values, in the type of its own numbers."""
    reference = first_floating(head)
    with torch.no_grad(), without_autocast(values.device):
        return tensor_output(head(values if reference is None else values.to(reference.dtype)))
