"""Backbones by name: "library:model:weights", as files of concept models have it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import nn

from captum_concepts._support.checks import check_choice, check_kind
from captum_concepts._support.lazy import check_extra
from captum_concepts._support.running import error_text
from captum_concepts.backbones.backbone import Backbone, square
from captum_concepts.backbones.families_open_clip import from_open_clip
from captum_concepts.backbones.families_timm import from_timm
from captum_concepts.backbones.families_torchvision import from_torchvision
from captum_concepts.backbones.families_transformers import CUTS, from_transformers

_WITH_WEIGHTS = ("open_clip", "transformers")
#: In place of a model's name: what follows is one of the hub, or a folder.
_OPEN_CLIP_PLACES = ("hf-hub", "local-dir")


def check_source(name: str, source: Any) -> tuple[str, str, str | None]:
    """Return library, model and weights that a text names, or raise."""
    check_kind(name, source, str, "a text")
    library, _, model_and_weights = source.partition(":")
    model, _, weights = model_and_weights.partition(":")
    if not model or (library in _WITH_WEIGHTS and not weights):
        raise ValueError(
            f"Expected argument `{name}` to be 'library:model:weights', 'torchvision:resnet50:IMAGENET1K_V2', "
            "'timm:resnet50.a1_in1k' (whose tag names them), 'open_clip:ViT-B-32:openai' or "
            f"'transformers:ViTModel:google/vit-base-patch16-224' for instance, but got {source!r}."
        )
    check_choice(name, library, _BUILD)
    if library == "transformers":
        check_choice(name, model, CUTS)
    return library, model, weights or None


class Built(NamedTuple):
    """A backbone, the whole model it was cut from, and the names of the model's classes if known."""

    backbone: Backbone
    model: nn.Module
    class_names: list[str] | None = None


def build_backbone(source: str) -> Backbone:
    """Build a backbone with its weights, which its library downloads unless it has them."""
    return build_model(source).backbone


def build_model(source: str) -> Built:
    """Build a backbone as `build_backbone` does, and return its model with it."""
    library, model, weights = check_source("backbone", source)
    try:
        # Drawing weights that are overwritten would use the global generator.
        with torch.random.fork_rng(devices=[]):
            built = _BUILD[library](model, weights)
    except Exception as error:  # each library has its own errors for a download that failed
        raise ValueError(
            f"The backbone {source} cannot be built ({error_text(error)}). Build it yourself and give it as `features`."
        ) from error
    built.model.eval()
    built.backbone.features.eval()
    return built._replace(backbone=replace(built.backbone, source=source))


def load_tokenizer(source: str) -> Any:
    """Load the tokenizer of a model that reads texts."""
    library, model, weights = check_source("backbone", source)
    if library == "open_clip":
        from open_clip import get_tokenizer

        return get_tokenizer(_open_clip_name(model, weights)[0])
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(weights)


def _torchvision(model: str, weights: str | None) -> Built:
    from torchvision import models

    chosen = models.get_model_weights(model)[weights or "DEFAULT"]
    transform = chosen.transforms()
    module = models.get_model(model, weights=chosen)
    normalisation = tuple(transform.mean), tuple(transform.std)
    backbone = replace(
        from_torchvision(module), normalisation=normalisation, image_size=square(list(transform.crop_size))
    )
    return Built(backbone, module, chosen.meta.get("categories"))


def _timm(model: str, weights: str | None) -> Built:
    from timm import create_model

    module = create_model(model, pretrained=True)
    return Built(from_timm(module), module)


def _open_clip(model: str, weights: str | None) -> Built:
    from open_clip import create_model

    name, pretrained = _open_clip_name(model, weights)
    module = create_model(name, pretrained=pretrained)
    return Built(from_open_clip(module), module)


def _open_clip_name(model: str, weights: str | None) -> tuple[str, str | None]:
    """Return what open_clip calls a model; one of the hub or of a folder brings its weights."""
    return (f"{model}:{weights}", None) if model in _OPEN_CLIP_PLACES else (model, weights)


def _transformers(model: str, weights: str | None) -> Built:
    check_extra("transformers", "transformers", "This backbone")
    import transformers

    processor = transformers.AutoImageProcessor.from_pretrained(weights)
    module = getattr(transformers, model).from_pretrained(weights)
    names = module.config.id2label or {}
    return Built(from_transformers(module, processor), module, [names[key] for key in sorted(names)])


_BUILD = {"torchvision": _torchvision, "timm": _timm, "open_clip": _open_clip, "transformers": _transformers}
