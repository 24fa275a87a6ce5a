"""Heads and residuals of plain layers as JSON: what files hold in place of code."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from captum_concepts.support.files import reason_of

#: The layers that files hold, and what each is made anew from; but for `bias`, attributes of the same names.
SETTINGS: dict[str, tuple[str, ...]] = {
    "Linear": ("in_features", "out_features", "bias"),
    "LayerNorm": ("normalized_shape", "eps", "elementwise_affine", "bias"),
    "BatchNorm1d": ("num_features", "eps", "momentum", "affine", "track_running_stats"),
    "Dropout": ("p",),
    "GELU": ("approximate",),
    "Identity": (),
    "LeakyReLU": ("negative_slope",),
    "ReLU": (),
    "Sigmoid": (),
    "Tanh": (),
}
#: A layer, or the layers of a Sequential, as names and settings.
Layers = dict[str, object] | list[dict[str, object]]


def describe_layers(module: nn.Module, name: str) -> Layers:
    """Return a layer, or the layers of a Sequential, as names and settings; raise for any other module."""
    if type(module) is nn.Sequential:
        return [_describe(layer, name) for layer in module]
    return _describe(module, name)


def _describe(layer: nn.Module, name: str) -> dict[str, object]:
    # The type itself: a subclass, or a parametrised layer, may compute something else.
    kind = type(layer).__name__
    if type(layer) is not getattr(nn, kind, None) or kind not in SETTINGS or "forward" in vars(layer):
        raise ValueError(
            f"Expected argument `{name}` of the model, to be written to a file, to be one or an nn.Sequential of "
            f"{', '.join(f'nn.{allowed}' for allowed in SETTINGS)} but got {kind}. Save the state dict of the {name} "
            "and, of a PostHocCBM, the bank with `cbm.bank.save(path)`, and build the model anew of them."
        )
    settings = {setting: getattr(layer, setting) for setting in SETTINGS[kind]}
    if "bias" in settings:
        settings["bias"] = layer.bias is not None
    return {"layer": kind, "settings": settings}


def build_layers(described: Layers, tensors: Mapping[str, Tensor], width: int, name: str) -> nn.Module:
    """Build the module that `describe_layers` has described, which takes rows of `width`; raise if it does not fit."""
    try:
        check_finites(tensors)
        # The meta device draws nothing and takes no memory, also for the huge sizes of a damaged file.
        with torch.device("meta"), torch.no_grad():
            module = nn.Sequential(*map(_build, described)) if isinstance(described, list) else _build(described)
            module.load_state_dict({key: tensor.to("meta") for key, tensor in tensors.items()}, assign=True)
            # Widths, types and settings that do not fit each other are found here, without computing anything.
            kind = next((tensor.dtype for tensor in tensors.values() if tensor.is_floating_point()), torch.float32)
            module.eval()(torch.empty(2, width, dtype=kind))
        module.train().load_state_dict(tensors, assign=True)
    except (AttributeError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"its {name} cannot be built ({reason_of(error)})") from error
    return module


def _build(described: Mapping[str, object]) -> nn.Module:
    kind, settings = described["layer"], described["settings"]
    if not isinstance(settings, dict) or settings.keys() != {*SETTINGS[str(kind)]}:
        raise ValueError(f"{kind} has the settings {settings}")
    layer: nn.Module = getattr(nn, str(kind))(**settings)
    return layer


def check_finites(tensors: Mapping[str, Tensor]) -> None:
    """Raise where a tensor of a file holds NaN or infinity."""
    for name, tensor in tensors.items():
        if not tensor.isfinite().all():
            raise ValueError(f"{name} holds NaN or infinity")
