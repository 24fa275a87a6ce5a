"""Backbones by name: "library:model:weights", as files of concept models have it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import nn

from captum_concepts.backbones.backbone import IMAGENET, Backbone, own_normalisation, square
from captum_concepts.backbones.families_open_clip import from_open_clip
from captum_concepts.backbones.families_timm import from_timm
from captum_concepts.backbones.families_torchvision import from_torchvision
from captum_concepts.backbones.families_transformers import CUTS, from_transformers
from captum_concepts.lazy import check_extra
from captum_concepts.support.checks import check_choice
from captum_concepts.support.running import error_text

#: In place of the name of weights: none, for an untrained network.
NO_WEIGHTS = "none"
RESNET18_CUB = "resnet18_cub"
_WITH_WEIGHTS = ("open_clip", "transformers")
#: In place of a model's name: what follows is one of the hub, or a folder.
_OPEN_CLIP_PLACES = ("hf-hub", "local-dir")


@dataclass(frozen=True)
class Network:
    """A network and how it wants its images."""

    module: nn.Module
    source: str
    family: str = ""
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    image_size: int | None = None
    mode: str = "resize"
    class_names: list[str] | None = None
    processor: object = None


def check_source(name: str, source: str) -> tuple[str, str, str | None]:
    """Return library, model and weights that a text names, or raise."""
    library, _, model_and_weights = source.partition(":")
    model, _, weights = model_and_weights.partition(":")
    if not model or (library in _WITH_WEIGHTS and not weights):
        raise ValueError(
            f"Expected argument `{name}` to be 'library:model:weights', 'torchvision:resnet50:IMAGENET1K_V2', "
            "'timm:resnet50.a1_in1k' (whose tag names them), 'open_clip:ViT-B-32:openai' or "
            f"'transformers:ViTModel:google/vit-base-patch16-224' for instance, but got {source!r}."
        )
    check_choice(name, library, _CUT)
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
        network = build_network(library, model, weights)
        backbone = _CUT[library](network)
    except Exception as error:  # each library has its own errors for a download that failed
        raise ValueError(
            f"The backbone {source} cannot be built ({error_text(error)}). Build it yourself and give it as `features`."
        ) from error
    if network.mean is not None and network.std is not None and backbone.normalisation is None:
        backbone = replace(backbone, normalisation=(network.mean, network.std), image_size=network.image_size)
    network.module.eval()
    backbone.features.eval()
    return Built(replace(backbone, source=source), network.module, network.class_names)


def build_network(library: str, model: str, weights: str | None) -> Network:
    """Build a network with the weights named, its best ones, or `NO_WEIGHTS`; no code of a repository is run."""
    # Drawing weights that are overwritten would use the global generator; pytorchcv prints its progress, and what is
    # printed here is the result of a command.
    with torch.random.fork_rng(devices=[]), redirect_stdout(sys.stderr):
        return _BUILD[library](model, weights)


def load_tokenizer(source: str) -> Callable[..., Any]:
    """Load the tokenizer of a model that reads texts."""
    library, model, weights = check_source("backbone", source)
    if library == "open_clip":
        from open_clip import get_tokenizer

        name = _open_clip_name(model, weights)[0]
        text = _open_clip_text(name)
        # Keywords of a repository's configuration go to transformers, and may ask it to run code: ours go before them.
        # Tokenizers of open_clip itself run none, and do not know the keyword.
        own = bool(text) and not text.get("hf_tokenizer_name")
        return get_tokenizer(name) if own else get_tokenizer(name, trust_remote_code=False)
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(weights, trust_remote_code=False)


def _torchvision(model: str, weights: str | None) -> Network:
    from torchvision import models

    untrained = weights == NO_WEIGHTS
    try:
        chosen = models.get_model_weights(model)["DEFAULT" if untrained else weights or "DEFAULT"]
        transform = chosen.transforms()
        mean, std, size = tuple(transform.mean), tuple(transform.std), square(list(transform.crop_size))
        names = chosen.meta.get("categories")
    except (KeyError, AttributeError):  # a model that torchvision has no weights of
        if not untrained:
            raise
        (mean, std), size, names = IMAGENET, 224, None
    module = models.get_model(model, weights=None if untrained else chosen)
    return Network(module, f"{model} of torchvision", "torchvision", mean, std, size, class_names=names)


def _timm(model: str, weights: str | None) -> Network:
    from timm import create_model

    module = create_model(model, pretrained=weights != NO_WEIGHTS)
    config: dict[str, Any] = getattr(module, "pretrained_cfg", None) or {}
    size = int((config.get("input_size") or (3, 224, 224))[1])
    mean, std = own_normalisation(module) or (None, None)
    # The tag of published weights says on what they were trained.
    of_imagenet = weights != NO_WEIGHTS and config.get("num_classes") == 1000 and "in1k" in str(config.get("tag"))
    names = imagenet_names() if of_imagenet else None
    return Network(module, f"{model} of timm", "timm", mean, std, size, class_names=names)


def imagenet_names() -> list[str]:
    """Return the names of ImageNet's 1000 classes, as torchvision has them: no two are the same."""
    from torchvision import models

    names: list[str] = models.get_model_weights("resnet18")["DEFAULT"].meta["categories"]
    return names


def _pytorchcv(model: str, weights: str | None) -> Network:
    check_extra("pytorchcv", "cub", f"The backbone {model}")
    from pytorchcv.model_provider import get_model

    module = get_model(model, pretrained=weights != NO_WEIGHTS)
    # As the release of post-hoc CBM feeds it: a centre crop without resizing, mean 0.5, deviation 2.
    return Network(module, f"{model} of pytorchcv", "", (0.5, 0.5, 0.5), (2.0, 2.0, 2.0), 224, "centre_crop")


def _open_clip(model: str, weights: str | None) -> Network:
    from open_clip import create_model

    name, pretrained = _open_clip_name(model, weights)
    if text_encoder := _open_clip_text(name).get("hf_model_name"):
        _check_no_code(text_encoder)
    return Network(create_model(name, pretrained=pretrained), f"{name} of open_clip", "open_clip")


def _open_clip_name(model: str, weights: str | None) -> tuple[str, str | None]:
    """Return what open_clip calls a model; one of the hub or of a folder brings its weights."""
    return (f"{model}:{weights}", None) if model in _OPEN_CLIP_PLACES else (model, weights)


def _open_clip_text(name: str) -> dict[str, Any]:
    """Return what the configuration of a model says of its text encoder."""
    from open_clip import get_model_config

    return (get_model_config(name) or {}).get("text_cfg", {})


def _check_no_code(text_encoder: str) -> None:
    """Raise if a text encoder of transformers needs code of its repository: open_clip would ask whether to run it."""
    from transformers import MODEL_MAPPING, AutoConfig

    config = AutoConfig.from_pretrained(text_encoder, trust_remote_code=False)
    if type(config) not in MODEL_MAPPING:
        raise ValueError(f"{text_encoder} contains custom code, or a model that transformers does not have")


def _transformers(model: str, weights: str | None) -> Network:
    check_extra("transformers", "transformers", "This backbone")
    import transformers

    # A repository may bring code of its own, which is never run.
    processor = transformers.AutoImageProcessor.from_pretrained(weights, trust_remote_code=False)
    module = getattr(transformers, model).from_pretrained(weights, trust_remote_code=False)
    names = module.config.id2label or {}
    return Network(
        module,
        f"{weights} of transformers",
        "transformers",
        class_names=[names[key] for key in sorted(names)],
        processor=processor,
    )


_BUILD: dict[str, Callable[[str, str | None], Network]] = {
    "torchvision": _torchvision,
    "timm": _timm,
    "open_clip": _open_clip,
    "transformers": _transformers,
    "pytorchcv": _pytorchcv,
}
#: Libraries whose models are cut where their maps end.
_CUT: dict[str, Callable[[Network], Backbone]] = {
    "torchvision": lambda network: from_torchvision(network.module),
    "timm": lambda network: from_timm(network.module),
    "open_clip": lambda network: from_open_clip(network.module),
    "transformers": lambda network: from_transformers(network.module, network.processor),
}
