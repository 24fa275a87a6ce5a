"""Backbones by name: "library:model:weights", as files of concept models have it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from captum_concepts._support.checks import check_choice, check_kind
from captum_concepts._support.lazy import check_extra
from captum_concepts._support.running import error_text
from captum_concepts.backbones.backbone import Backbone
from captum_concepts.backbones.families_open_clip import from_open_clip
from captum_concepts.backbones.families_timm import from_timm
from captum_concepts.backbones.families_torchvision import from_torchvision
from captum_concepts.backbones.families_transformers import CUTS, from_transformers

_WITH_WEIGHTS = ("open_clip", "transformers")


def check_source(name: str, source: Any) -> tuple[str, str, str | None]:
    """Return library, model and weights that a text names, or raise."""
    check_kind(name, source, str, "a text")
    library, _, rest = source.partition(":")
    model, _, weights = rest.partition(":")
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


def build_backbone(source: str) -> Backbone:
    """Build a backbone with its weights, which its library downloads unless it has them."""
    library, model, weights = check_source("backbone", source)
    try:
        # Drawing weights that are overwritten would use the global generator.
        with torch.random.fork_rng(devices=[]):
            backbone = _BUILD[library](model, weights)
    except Exception as error:  # each library has its own errors for a download that failed
        raise ValueError(
            f"The backbone {source} cannot be built ({error_text(error)}). Build it yourself and give it as `features`."
        ) from error
    backbone.features.eval()
    return replace(backbone, source=source)


def _torchvision(model: str, weights: str | None) -> Backbone:
    from torchvision import models

    chosen = models.get_model_weights(model)[weights or "DEFAULT"]
    transform = chosen.transforms()
    normalisation = tuple(transform.mean), tuple(transform.std)
    return replace(from_torchvision(models.get_model(model, weights=chosen)), normalisation=normalisation)


def _timm(model: str, weights: str | None) -> Backbone:
    from timm import create_model

    return from_timm(create_model(model, pretrained=True))


def _open_clip(model: str, weights: str | None) -> Backbone:
    from open_clip import create_model

    return from_open_clip(create_model(model, pretrained=weights))


def _transformers(model: str, weights: str | None) -> Backbone:
    check_extra("transformers", "transformers", "This backbone")
    import transformers

    processor = transformers.AutoImageProcessor.from_pretrained(weights)
    return from_transformers(getattr(transformers, model).from_pretrained(weights), processor)


_BUILD = {"torchvision": _torchvision, "timm": _timm, "open_clip": _open_clip, "transformers": _transformers}
