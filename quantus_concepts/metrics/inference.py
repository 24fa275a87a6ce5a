"""Running a user's model without leaving a trace: on its device, in its precision, in eval mode and back."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from captum_concepts.checks import check_choice
from captum_concepts.running import alone_with, tensor_output, to_model
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


def predict_logits(model: nn.Module, inputs: Any, **kwargs: Any) -> Tensor:
    """Return a model's outputs for a batch, without gradient and on its device."""
    with alone_with(model), torch.no_grad():
        return tensor_output(model(to_model(model, inputs), **kwargs))


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
    with alone_with(model), torch.no_grad():
        if shares_features(model):
            features = model.features(to_model(model.features, images))
            values = model.values_from_features(features)
        else:
            features = None
            values = tensor_output(model.concept_predictor(to_model(model.concept_predictor, images)))
        return ConceptOutputs(features, values, tensor_output(model.head(values)))


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
        chosen = tensor_output(model.head(leaf)).gather(1, classes[:, None]).sum()
        (gradient,) = torch.autograd.grad(chosen, leaf)
    return gradient if importance == "weight" else gradient * values
