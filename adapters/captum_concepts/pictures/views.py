"""Values, maps and logits of a concept model for some images: the numbers behind `show_concepts`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from captum_concepts.backbones.backbone import Backbone, Normalisation, own_normalisation
from captum_concepts.bank.directions import describe_weak
from captum_concepts.models.bottleneck import BottleneckLayer
from captum_concepts.models.chain import ConceptChain, ConceptLayer
from captum_concepts.models.effects import GIVE_LEVEL, concept_effects, effect_level, named_effects, over_mean
from captum_concepts.support import running
from captum_concepts.support.checks import check_finite, check_logits, check_names, check_shape, to_tensor

if TYPE_CHECKING:
    from captum_concepts.bank.bank import ConceptBank

_REMEDY = (
    "PostHocCBM.fit makes one of a classifier; with any other model pass `layer` and `bank`: the layer's name and "
    "the ConceptBank fitted on it"
)


@dataclass(frozen=True, eq=False)
class ConceptViews:
    """Values and maps of L concepts for N images; tensors on the CPU.

    Maps are in units of the values where the model's own formula tells how: the value that an image would have if all
    of its embedding were like that place.
    """

    images: Tensor  # (N, C, H, W), as the model takes them
    values: Tensor  # (N, L)
    maps: Tensor  # (N, L, h, w)
    names: list[str]
    threshold: float | None  # of a value, from which on its concept is present
    map_threshold: float | None  # of a map, likewise
    weak: list[str]  # L: "weak direction (p = 0.87)" if it cannot be distinguished from random images, else ""

    def importance(self, by: str) -> Tensor:
        """Return the numbers (N, L) that rank concepts."""
        if by != "value":
            raise ValueError(
                f"Expected argument `by` to be 'value', as the model has no head on the bank, but got {by!r}."
            )
        return self.values


@dataclass(frozen=True, eq=False)
class ClassViews(ConceptViews):
    """What a head makes of the values, too, for K classes."""

    logits: Tensor  # (N, K)
    weights: Tensor  # (N, L): gradient of the predicted class's logit by each value
    residual: Tensor  # (N, K): what is added to the head's logits, past the concepts
    random_values: Tensor | None = None  # (N, 2): where 95 % of the values of random directions lie
    random_parts: Tensor | None = None  # (N, 2): of what they do for the predicted class (`parts`), likewise
    effects: Tensor | None = None  # (N, L): what the predicted class loses without each concept, if the level is known
    level: str = ""  # what effects are counted from: "absent level" or "training mean"
    absent: Tensor | None = None  # (L,) or (): that level

    @property
    def predicted(self) -> Tensor:
        """The class (N,) of the highest logit."""
        return self.logits.argmax(1)

    @property
    def contributions(self) -> Tensor:
        """Weight times value (N, L): what each concept adds to the logit of the predicted class."""
        return self.weights * self.values

    @property
    def kind(self) -> str:
        """By what pages and pictures say why a class is predicted: "effect", or "contribution" without a level."""
        return "contribution" if self.effects is None else "effect"

    @property
    def parts(self) -> Tensor:
        """What each concept (N, L) does for the predicted class: its effect, or its contribution without a level."""
        return self.importance(self.kind)

    @property
    def ranking(self) -> Tensor:
        """The importance (N, L) by which metrics name concepts: what they do for the class, absences last."""
        if self.effects is None or self.absent is None:
            return self.contributions
        return named_effects(self.effects, self.values, self.absent)

    def totals(self, kind: str) -> Tensor:
        """Return what the parts (N,) of a kind are of: the logit of the predicted class, for effects less the mean."""
        return over_mean(self.logits, self.predicted) if kind == "effect" else self.logits.amax(1)

    def importance(self, by: str) -> Tensor:
        """Return the numbers (N, L) that rank concepts: "effect", "contribution", "weight" or "value"."""
        if by != "effect":
            return {"contribution": self.contributions, "weight": self.weights, "value": self.values}[by]
        if self.effects is None:
            raise ValueError(
                "Expected argument `by` to be 'contribution', 'weight' or 'value', as the model does not know the "
                f"values of absent concepts, but got 'effect'. {GIVE_LEVEL}."
            )
        return self.effects


def concept_views(model: object, images: Tensor | ArrayLike, batch_size: int = 64) -> ClassViews:
    """Run a concept model over images (N, C, H, W), in eval mode and without a trace, the backbone once an image."""
    members = ("features", "concept_predictor", "head", "concept_maps")
    if isinstance(model, type) or any(not hasattr(model, name) for name in members):
        raise TypeError(f"Expected argument `model` to be a concept model but got {type(model).__name__}. {_REMEDY}.")
    stages: Any = model
    images = check_images(images)
    with running.evaluation_mode(stages, stages.features, stages.concept_predictor, stages.head), torch.no_grad():
        parts = [_batch_views(stages, batch) for batch in images.split(batch_size)]
    layer = getattr(model, "concept_layer", None)
    values = torch.cat([part["values"] for part in parts])
    joined = {name: torch.cat([part[name] for part in parts]) for name in parts[0] if name != "values"}
    margins = getattr(layer, "values", "") == "margin"
    absent, level = effect_level(model)
    threshold = 0.5 if getattr(model, "bounded", False) else 0.0 if margins else None
    return ClassViews(
        images=images,
        values=values,
        **joined,
        names=check_names(getattr(layer, "names", None), values.shape[1]),
        level=level,
        absent=None if absent is None else absent.detach().cpu(),
        threshold=threshold,
        map_threshold=None if threshold is None or not isinstance(model, ConceptChain) else 0.0,
        weak=describe_weak(layer.p_values, layer.test_accuracy)
        if isinstance(layer, ConceptLayer)
        else [""] * values.shape[1],
    )


#: Channels of grey and of coloured images, and of these with transparency.
CHANNELS = (1, 3, 4)


def check_images(images: Tensor | ArrayLike, name: str = "images") -> Tensor:
    """Return images (N, C, H, W) of floating-point numbers, at least one, or raise."""
    tensor = running.floating_images(to_tensor(name, images))
    # One image is a batch of one.
    tensor = tensor[None] if tensor.ndim == 3 else tensor
    check_shape(name, tensor, ("N", "C", "H", "W"), (None,) * 4)
    if tensor.shape[3] in CHANNELS and tensor.shape[1] not in CHANNELS:
        raise ValueError(
            f"Expected argument `{name}` to have shape (N, C, H, W), channels first, but got {tuple(tensor.shape)}. "
            "Move the channels to the second axis: `images.transpose(0, 3, 1, 2)` of an array, "
            "`images.permute(0, 3, 1, 2)` of a tensor."
        )
    if not tensor.numel():
        raise ValueError(f"Expected argument `{name}` to hold at least one image but got shape {tuple(tensor.shape)}.")
    check_finite(name, tensor)
    return tensor


def _batch_views(model: Any, images: Tensor) -> dict[str, Tensor]:
    """Return values, maps, logits, weights and residual of a batch, on the CPU."""
    if isinstance(model, ConceptChain):
        features = model.features(running.to_model(model.features, images))
        values, maps = model.values_from_features(features), model.maps_from_features(features)
        logits = model.logits_from_features(features)
        scale, offset = _map_units(model)
        maps = maps * scale.to(maps)[:, None, None] + offset.to(maps)[:, None, None]
    else:
        images = running.to_model(model.features, images)
        values, maps = running.tensor_output(model.concept_predictor(images)), model.concept_maps(images, None)
        logits = running.tensor_output(model(images))
    check_logits(logits)
    with torch.enable_grad(), running.without_autocast(values.device):
        leaf = values.detach().requires_grad_(True)
        head_logits = running.tensor_output(model.head(leaf))
        chosen = head_logits.gather(1, logits.argmax(1)[:, None]).sum()
        weights = torch.autograd.grad(chosen, leaf)[0]
    predicted, level = logits.argmax(1), effect_level(model)[0]
    results = {} if not isinstance(model, ConceptChain) else _random_ranges(model, features, predicted)
    if level is not None:
        results["effects"] = concept_effects(model.head, values, predicted, level)
    results |= {
        "values": values,
        "maps": maps,
        "logits": logits,
        "weights": weights,
        "residual": logits - head_logits.detach(),
    }
    return {name: running.at_least_float32(tensor).detach().cpu() for name, tensor in results.items()}


def _random_ranges(model: ConceptChain, features: Tensor, predicted: Tensor) -> dict[str, Tensor]:
    """Return where 95 % of the values and parts of random directions lie for each image, if there are any."""
    models: Any = getattr(model, "random_models", list)()
    if not models:
        return {}
    embedding = model.embed_features(features)
    values = [random_model.concept_layer(embedding) for random_model in models]
    parts = []
    for value, random_model in zip(values, models, strict=True):
        level = effect_level(random_model)[0] if effect_level(model)[1] else None
        if level is None:
            parts.append(value * random_model.head.weight[predicted])
        else:
            parts.append(concept_effects(random_model.head, value, predicted, level))
    ends = torch.tensor([0.025, 0.975], dtype=torch.float32, device=embedding.device)
    names = ("random_values", "random_parts")
    # All random directions are draws of one distribution, so the banks are pooled.
    return {
        name: torch.cat(tensors, 1).float().quantile(ends, 1).T
        for name, tensors in zip(names, (values, parts), strict=True)
    }


def _map_units(model: ConceptChain) -> tuple[Tensor, Tensor]:
    """Return what brings each concept's map, the mean over d channels, to units of its values: a factor and a term."""
    layer: Any = model.concept_layer
    if isinstance(layer, ConceptLayer):
        d, norms = layer.cavs.shape[1], layer.cavs.norm(dim=1)
        if layer.values == "margin":
            return d / norms, layer.intercepts / norms
        return torch.full_like(norms, d), torch.zeros_like(norms)
    inner = layer.layer if isinstance(layer, BottleneckLayer) else None
    if isinstance(inner, nn.Linear | nn.Conv2d) and getattr(model, "project", None) is None:
        n, d = inner.weight.flatten(1).shape
        bias = inner.weight.new_zeros(n) if inner.bias is None else inner.bias
        return inner.weight.new_full((n,), d), bias
    return torch.ones(1), torch.zeros(1)


def bank_views(
    model: nn.Module | Backbone,
    layer: str | None,
    bank: ConceptBank,
    images: Tensor | ArrayLike,
    batch_size: int = 64,
) -> ConceptViews:
    """Return the values and maps of a bank at a layer of a model, or of a Backbone, whose classes do not use them."""
    from captum_concepts.backbones.layers import LayerFeatures
    from captum_concepts.models.cbm import PostHocCBM

    features = LayerFeatures(model, layer) if isinstance(model, nn.Module) and layer is not None else model
    # The head is not used: views of the bank alone.
    views = concept_views(PostHocCBM(features, bank, nn.Identity()), images, batch_size)
    return ConceptViews(**{field.name: getattr(views, field.name) for field in fields(ConceptViews)})


def known_normalisation(model: nn.Module | Backbone) -> Normalisation | None:
    """Return mean and deviation of the images that a model expects, as it or timm's configuration of it tells them."""
    own = getattr(model, "normalisation", None)
    if own is not None or not isinstance(model, nn.Module):
        return own
    return own_normalisation(model)


def as_pictures(images: Tensor, normalisation: Normalisation | None) -> Tensor:
    """Return images (N, C, H, W) in [0, 1] for drawing: the model's normalisation is undone if known."""
    if normalisation is not None and (images.amin() < 0 or images.amax() > 1):
        mean, std = (images.new_tensor(numbers)[:, None, None] for numbers in normalisation)
        images = images * std + mean
    return images if images.shape[1] in (1, 3) else images.mean(1, keepdim=True)


def class_labels(names: Sequence[str] | None, n_classes: int) -> list[str]:
    """Return the names of K classes, or "class 0" and so on."""
    if names is None:
        return [f"class {k}" for k in range(n_classes)]
    if isinstance(names, str) or len(names) != n_classes:
        raise ValueError(f"Expected argument `class_names` to hold K = {n_classes} names but got {names!r:.80}.")
    return [str(name) for name in names]
