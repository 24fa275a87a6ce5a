"""Networks by name or from a Python file, with their weights, and cut where their maps end."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor, nn

from captum_concepts._support.checks import check_path, check_whole
from captum_concepts._support.lazy import MissingExtraError
from captum_concepts._support.running import error_text, nearest_functions, run_file
from captum_concepts.backbones.backbone import Backbone
from captum_concepts.backbones.families_timm import from_timm
from captum_concepts.backbones.families_torchvision import from_torchvision
from captum_concepts.backbones.layers import LayerFeatures, last_spatial_layer, layer_channels, layer_name
from captum_concepts.backbones.named import (
    IMAGENET,
    NO_WEIGHTS,
    RESNET18_CUB,
    Network,
    build_network,
    own_normalisation,
)
from captum_concepts.backbones.weights import load_weights

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
) -> Network:
    """Build the network that `--backbone` names."""
    if ".py:" in spec or spec.endswith(".py"):
        network = _from_file(spec)
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
            f"{_listed(IMAGENET[0])} and {_listed(IMAGENET[1])}), or say --unnormalised if it takes images in [0, 1]."
        )
    for numbers in (network.mean, network.std):
        if numbers is not None and len(numbers) != N_CHANNELS:
            raise ValueError(
                f"Expected mean and deviation of the images to hold one number for each of {N_CHANNELS} channels but "
                f"got {len(numbers)}."
            )
    network.module.eval()
    return network


def _listed(numbers: Sequence[float]) -> str:
    return ",".join(f"{number:g}" for number in numbers)


def cut_network(network: Network, layer: str | None, images: Tensor) -> tuple[Backbone, str]:
    """Cut a network where its maps end."""
    module = network.module
    if layer is not None:
        layer_name(module, layer)
    try:
        with torch.no_grad():
            module(images)
        if layer is None and (backbone := _known_family(network)) is not None:
            pooled = "averaged over space" if backbone.linear_pool else "pooled as the model pools them"
            return backbone, f"the maps before the model's pooling, {pooled}"
        chosen = layer if layer is not None else last_spatial_layer(module, images)
        channels = layer_channels(module, chosen, images)
    except (RuntimeError, TypeError, IndexError, AttributeError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(
            f"The network does not take images of shape {tuple(images.shape[1:])}: {reason}. Change the size with "
            "--image-size, or name a network for such images."
        ) from error
    return Backbone(LayerFeatures(module, chosen), "mean", None, channels), f"layer {chosen}, averaged over space"


def _known_family(network: Network) -> Backbone | None:
    factories = {"torchvision": [from_torchvision], "timm": [from_timm]}
    for factory in factories.get(network.family, [from_torchvision, from_timm]):
        try:
            return factory(network.module)
        except ValueError:  # of another family: its last layer with maps is taken
            continue
    return None


def _from_file(spec: str) -> Network:
    path_text, _, name = spec.rpartition(":") if ".py:" in spec else (spec, "", "")
    path = check_path("path", path_text)
    if not name:
        raise ValueError(f"Expected argument `--backbone` to be path.py:factory but got {spec!r}, without a factory.")
    if not path.is_file():
        raise ValueError(f"Expected argument `--backbone` to name a Python file but there is none at {path}.")
    module = run_file(path)
    factory = getattr(module, name, None)
    if not callable(factory):
        near = nearest_functions(module, name, n_first=8)
        raise ValueError(f"{path} has no function {name!r}. It has: {', '.join(near) or 'none'}.")
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
        mean, std = own_normalisation(network)
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
