"""Running a user's model without leaving a trace: on its device, in its precision, while no other thread does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from captum_concepts._support.checks import check_choice
from captum_concepts._support.running import (
    alone_with,
    device_of,
    first_floating,
    tensor_output,
    to_model,
    without_autocast,
)
from captum_concepts.models.chain import linear_part
from quantus_concepts.metrics.host.checks import checked_classes
from quantus_concepts.metrics.host.protocols import ConceptModel, FeatureSharing, shares_features

IMPORTANCES = ("weight", "value", "contribution")


class ConceptOutputs(NamedTuple):
    """What one pass of a concept model over a batch of images gives."""

    features: Tensor | None
    values: Tensor
    logits: Tensor


def backbone_features(model: FeatureSharing, images: Any) -> Tensor:
    """Run the backbone of a concept model once over images (N, C, H, W)."""
    with torch.no_grad(), alone_with(model):
        return model.features(to_model(model.features, images))


def concept_outputs(model: ConceptModel, images: Any, features: Tensor | None = None) -> ConceptOutputs:
    """Run a concept model once over images (N, C, H, W), or over their `features` where it shares them."""
    # Under autocast only the backbone runs in half precision: what is compared afterwards would tie.
    with torch.no_grad(), alone_with(model):
        if shares_features(model):
            features = backbone_features(model, images) if features is None else features
            with full_precision(model):
                features = in_precision_of(model, features)
                values = model.values_from_features(features)
                return ConceptOutputs(features, values, tensor_output(model.head(values)))
        values = tensor_output(model.concept_predictor(to_model(model.concept_predictor, images)))
        with full_precision(model):
            return ConceptOutputs(None, values, tensor_output(model.head(in_precision_of(model.head, values))))


def concept_maps(model: ConceptModel, features: Tensor | None, images: Any, concepts: Tensor) -> Tensor:
    """Return the maps (N, k, h, w) of the concepts (N, k) of each image, from the `features` of `concept_outputs`."""
    with torch.no_grad(), alone_with(model):
        if shares_features(model) and features is not None:
            with full_precision(model):
                return model.maps_from_features(in_precision_of(model, features), concepts.to(device_of(model)))
        images = to_model(model.concept_predictor, images)
        return model.concept_maps(images, concepts.to(images.device))


class ConceptPasses:
    """The passes of a concept model over the images of a batch."""

    def __init__(
        self, model: ConceptModel, images: np.ndarray, recall: Callable[[str, Callable[[], Any]], Any]
    ) -> None:
        self.model, self.images, self.recall = model, images, recall
        self._features: Tensor | None = None

    def features(self) -> Tensor | None:
        """Return what the backbone gives; None if the model takes no features."""
        model = self.model
        if self._features is None and shares_features(model):
            # Held here as well: a result that found no room is not made twice for one batch.
            self._features = self.recall("features", lambda: backbone_features(model, self.images))
        return self._features

    def outputs(self) -> tuple[Tensor, Tensor]:
        """Return concept values (N, L) and logits (N, K)."""

        def make() -> tuple[Tensor, Tensor]:
            found = concept_outputs(self.model, self.images, self.features())
            return found.values, found.logits

        # Kept by themselves: they find room where the features of many images do not.
        return self.recall("values and logits", make)

    def importance(self, classes: np.ndarray, importance: str) -> Tensor:
        """Return the importance (N, L) of every concept for the class each image is explained for."""
        values, logits = self.outputs()
        return concept_importance(self.model, values, checked_classes(classes, logits), importance)


def full_precision(model: Any) -> AbstractContextManager[Any]:
    """Switch off autocast on a model's device: it would round values to half precision and make them tie."""
    return without_autocast(device_of(model))


def in_precision_of(model: Any, values: Any) -> Any:
    """Return a floating-point tensor in the dtype of a model's own numbers; anything else as it is."""
    reference = first_floating(model)
    floating = isinstance(values, Tensor) and values.is_floating_point()
    return values if reference is None or not floating else values.to(reference.dtype)


def linear_weights(head: nn.Module) -> Tensor | None:
    """Return theta (K, L) of a head that is one linear layer in eval mode; None for a head of another form."""
    linear = linear_part(head)
    return None if linear is None else linear.weight.detach()


def class_logits(model: ConceptModel, values: Tensor) -> Tensor:
    """Return the class logits (N, K) of concept values (N, L) of any origin."""
    with torch.no_grad(), alone_with(model), full_precision(model):
        return tensor_output(model.head(in_precision_of(model.head, values)))


def concept_importance(model: ConceptModel, values: Tensor, classes: Tensor, importance: str) -> Tensor:
    """Compute the importance of every concept for the class each sample is explained for."""
    check_choice("importance", importance, IMPORTANCES)
    return concept_importances(model, values, classes, (importance,))[importance]


def concept_importances(
    model: ConceptModel, values: Tensor, classes: Tensor, names: Sequence[str]
) -> dict[str, Tensor]:
    """Compute several importances (N, L) of the concepts at the price of one."""
    own = values.to(torch.promote_types(values.dtype, torch.float32))
    if all(name == "value" for name in names):
        return dict.fromkeys(names, own)
    with torch.enable_grad(), alone_with(model), full_precision(model):
        leaf = values.detach().clone().requires_grad_(True)
        chosen = tensor_output(model.head(in_precision_of(model.head, leaf))).gather(1, classes[:, None]).sum()
        gradient = torch.autograd.grad(chosen, leaf, allow_unused=True)[0] if chosen.requires_grad else None
    if gradient is None:
        raise ValueError(
            f"Importance by weight or contribution is the gradient of the model's head but {type(model.head).__name__} "
            "has none (is it quantised?). Pass importance='value', or keep the head in floating point and quantise "
            "`model.features` alone."
        )
    weight = gradient.to(own.dtype)
    every = {"weight": weight, "value": own, "contribution": weight * own}
    return {name: every[name] for name in names}
