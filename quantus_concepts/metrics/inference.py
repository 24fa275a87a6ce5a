"""Running a user's model without leaving a trace: on its device, in its precision, in eval mode and back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from quantus_concepts.checks import check_choice
from quantus_concepts.protocols import ConceptModel, shares_features

IMPORTANCES = ("weight", "value", "contribution")


class ConceptOutputs(NamedTuple):
    """What one pass of a concept model over a batch of images gives.

    Attributes
    ----------
    features : Tensor or None
        Output of ``model.features``; None where the model does not share it.
    values : Tensor
        Concept values u, (N, L).
    logits : Tensor
        Class logits, (N, K).
    """

    features: Tensor | None
    values: Tensor
    logits: Tensor


def _first_floating(model: nn.Module) -> Tensor | None:
    tensors = chain(model.parameters(), model.buffers())
    return next((tensor for tensor in tensors if tensor.is_floating_point()), None)


def to_model(model: nn.Module, array: Any) -> Tensor:
    """Put an array where a model's parameters are, in their precision.

    Parameters
    ----------
    model : nn.Module
        Module whose first floating-point parameter or buffer tells device and dtype; one without any is
        taken to be on the CPU in float32.
    array : array or tensor
        Input of the model.

    Returns
    -------
    Tensor
        The input on the model's device.
    """
    reference = _first_floating(model)
    if reference is None:
        return torch.as_tensor(np.asarray(array), dtype=torch.float32)
    return torch.as_tensor(array).to(device=reference.device, dtype=reference.dtype)


@contextmanager
def evaluation_mode(model: nn.Module | None) -> Iterator[None]:
    """Put a model into eval mode and every one of its modules back into its own mode afterwards.

    Parameters
    ----------
    model : nn.Module or None
        The model; with None nothing happens.

    Yields
    ------
    None
        Inside, the model is in eval mode.
    """
    modules = list(model.modules()) if isinstance(model, nn.Module) else []
    flags = [module.training for module in modules]
    try:
        if isinstance(model, nn.Module):
            model.eval()
        yield
    finally:
        for module, training in zip(modules, flags, strict=True):
            module.training = training


def predict_logits(model: nn.Module, inputs: Any, **kwargs: Any) -> Tensor:
    """Return a model's outputs for a batch, without gradient and on its device."""
    with torch.no_grad():
        return model(to_model(model, inputs), **kwargs)


def concept_outputs(model: ConceptModel, images: Any) -> ConceptOutputs:
    """Run a concept model once over a batch of images.

    Parameters
    ----------
    model : ConceptModel
        Model of `quantus_concepts.protocols`. One that shares its features runs its backbone once.
    images : array or tensor
        (N, C, H, W).

    Returns
    -------
    ConceptOutputs
        Features, concept values and class logits, on the model's device.
    """
    with torch.no_grad():
        if shares_features(model):
            features = model.features(to_model(model.features, images))
            values = model.values_from_features(features)
        else:
            features = None
            values = model.concept_predictor(to_model(model.concept_predictor, images))
        return ConceptOutputs(features, values, model.head(values))


def concept_importance(model: ConceptModel, values: Tensor, classes: Tensor, importance: str) -> Tensor:
    """Compute the importance of every concept for the class each sample is explained for.

    Parameters
    ----------
    model : ConceptModel
        Its head may have any form; for a linear one the gradient is the weight theta_jk of the paper.
    values : Tensor
        Concept values u, (N, L).
    classes : Tensor
        (N,), the explained classes.
    importance : str
        "weight" (gradient of the class logit), "value" (u itself) or "contribution" (their product).

    Returns
    -------
    Tensor
        (N, L).
    """
    check_choice("importance", importance, IMPORTANCES)
    if importance == "value":
        return values
    with torch.enable_grad():
        leaf = values.detach().clone().requires_grad_(True)
        chosen = model.head(leaf).gather(1, classes[:, None]).sum()
        (gradient,) = torch.autograd.grad(chosen, leaf)
    return gradient if importance == "weight" else gradient * values
