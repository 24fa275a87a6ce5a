"""Networks by name or from a Python file, with their weights, and cut where their maps end."""

from __future__ import annotations

import difflib
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor, nn

from captum_concepts.backbones.backbone import IMAGENET, Backbone, own_normalisation
from captum_concepts.backbones.families_timm import from_timm
from captum_concepts.backbones.families_torchvision import from_torchvision
from captum_concepts.backbones.layers import LayerFeatures, last_spatial_layer, layer_channels, layer_name
from captum_concepts.backbones.named import NO_WEIGHTS, RESNET18_CUB, Network, build_network
from captum_concepts.backbones.weights import load_weights
from captum_concepts.lazy import MissingExtraError
from captum_concepts.support.checks import check_file, check_normalisation, check_path, check_whole
from captum_concepts.support.files import list_some, reason_of
from captum_concepts.support.running import error_text, nearest_functions, run_file

__all__ = ["IMAGENET", "NO_WEIGHTS", "RESNET18_CUB", "Network", "cut_network", "load_network"]

#: Images are read as RGB.
N_CHANNELS = 3


def load_network(
    spec: str,
    weights: str | None = None,
    *,
    mean: tuple[float, ...] | None = None,
    std: tuple[float, ...] | None = None,
    unnormalised: bool = False,
    option: str = "--backbone",
) -> Network:
    """Build the network that an option of a command names."""
    if ".py:" in spec or spec.endswith(".py"):
        network = _from_file(spec, option)
    else:
        network = _from_library(spec, None if weights is None else NO_WEIGHTS)
    if weights is not None and weights != NO_WEIGHTS:
        path = check_path("weights", weights)
        load_weights(network.module, path)
        network = replace(network, source=f"{network.source}, weights of {path.name}")
    if unnormalised or mean is not None:
        network = replace(network, mean=mean, std=std)
    elif network.mean is None:
        raise ValueError(
            f"How {network.source} wants its images is not known, and with a wrong normalisation its scores are those "
            "of another network. Define MEAN and STD in its file, give --mean and --std (ImageNet's are "
            "0.485,0.456,0.406 and 0.229,0.224,0.225), or say --unnormalised if it takes images in [0, 1]."
        )
    check_normalisation(network.mean, network.std)
    if network.mean is not None and len(network.mean) != N_CHANNELS:
        raise ValueError(f"Expected argument `mean` to hold {N_CHANNELS} numbers but got {len(network.mean)}.")
    network.module.eval()
    return network


def cut_network(network: Network, layer: str | None, images: Tensor) -> tuple[Backbone, str]:
    """Cut a network where its maps end."""
    module = network.module
    if layer is not None:
        layer_name(module, layer)
    try:
        with torch.no_grad():
            module(images)
        if layer is None and (backbone := _known_family(module)) is not None:
            pooled = "averaged over space" if backbone.linear_pool else "pooled as the model pools them"
            return backbone, f"the maps before the model's pooling, {pooled}"
        chosen = layer if layer is not None else last_spatial_layer(module, images)
        channels = layer_channels(module, chosen, images)
    except (RuntimeError, TypeError, IndexError, AttributeError) as error:
        raise ValueError(
            f"The network does not take images of shape {tuple(images.shape[1:])}: {reason_of(error)}. Change the size "
            "with --image-size, or name a network for such images."
        ) from error
    return Backbone(LayerFeatures(module, chosen), "mean", None, channels), f"layer {chosen}, averaged over space"


def _known_family(module: nn.Module) -> Backbone | None:
    for factory in (from_torchvision, from_timm):
        with suppress(ValueError):  # of another family: its last layer with maps is taken
            return factory(module)
    return None


def _from_file(spec: str, option: str) -> Network:
    path_text, _, name = spec.rpartition(":") if ".py:" in spec else (spec, "", "")
    path = check_file(option, path_text, "a Python file")
    module = run_file(path)
    factory = getattr(module, name, None)
    if not callable(factory):
        near = list_some(nearest_functions(module, name))
        raise ValueError(
            f"Expected argument `{option}` to be path.py:factory, with a function of {path}, but got {spec!r}. "
            f"It has: {near or 'none'}."
        )
    try:
        network = factory()
    except (Exception, SystemExit) as error:  # code of the user's: whatever it raises, this is where it came from
        raise ValueError(f"{name}() in {path} failed: {error_text(error)}") from error
    if not isinstance(network, nn.Module):
        raise ValueError(
            f"Expected {name}() in {path} to return an nn.Module but got {type(network).__name__}. "
            "The factory takes no arguments and returns the network with its weights."
        )
    mean = _per_channel(module, "MEAN", path)
    std = _per_channel(module, "STD", path)
    if (mean is None) != (std is None):
        raise ValueError(f"{path} defines only one of MEAN and STD. Define both, or neither.")
    if mean is None or std is None:
        mean, std = own_normalisation(network) or (None, None)
    size = getattr(module, "IMAGE_SIZE", None)
    if size is not None:
        size = check_whole(f"IMAGE_SIZE in {path}", size, 1)
    return Network(network, f"{name}() of {path.name}", mean=mean, std=std, image_size=size)


def _per_channel(module: ModuleType, name: str, path: Path) -> tuple[float, ...] | None:
    value = getattr(module, name, getattr(module, name.lower(), None))
    # A file may import a function of that name.
    if value is None or callable(value):
        return None
    try:
        return tuple(float(part) for part in value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"Expected {name} in {path} to hold one number a channel but got {value!r}.") from error


def _from_library(name: str, weights: str | None) -> Network:
    # Imported here: they take seconds, which only whoever names a model should wait for.
    import timm
    from torchvision import models

    in_torchvision = models.list_models(module=models)
    if name == RESNET18_CUB:
        library = "pytorchcv"
    elif name in in_torchvision or timm.is_model(name):
        library = "torchvision" if name in in_torchvision else "timm"
    else:
        names = {*in_torchvision, *timm.list_models(), RESNET18_CUB}
        near = difflib.get_close_matches(name, sorted(names), n=5, cutoff=0.4)
        raise ValueError(
            f"Expected argument `--backbone` to be a torchvision or timm model, {RESNET18_CUB}, or "
            f"path.py:factory, but got {name!r}.{' Nearest: ' + ', '.join(near) + '.' if near else ''}"
        )
    try:
        return build_network(library, name, weights)
    except MissingExtraError:
        raise
    except Exception as error:  # each library has its own errors for a download that failed
        raise ValueError(
            f"The weights of {name} could not be loaded ({error_text(error)}). Pass a file with --weights, or "
            f"--weights {NO_WEIGHTS} for untrained ones."
        ) from error
