"""Heads as files hold them: a list of plain layers, each by name and settings."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from captum_concepts.reading import quoted, reason_of

# What each layer is made anew from; but for `bias`, attributes of the same names.
_SETTINGS: dict[str, tuple[str, ...]] = {
    "Linear": ("in_features", "out_features", "bias"),
    "LayerNorm": ("normalized_shape", "eps", "elementwise_affine", "bias"),
    "BatchNorm1d": ("num_features", "eps", "momentum", "affine", "track_running_stats"),
    "Dropout": ("p",),
    "GELU": ("approximate",),
    "Identity": (),
    "ReLU": (),
    "Sigmoid": (),
    "Tanh": (),
}
_RANGES = {"eps": (0.0, 1.0), "momentum": (0.0, 1.0), "p": (0.0, 1.0)}
#: Of a head; ours have one to three.
_MAX_LAYERS = 100


def describe_head(head: nn.Module, name: str = "head") -> list[dict[str, Any]] | dict[str, Any]:
    """Return a layer, or the layers of a Sequential, as names and settings; raise for any other head."""
    if type(head) is nn.Sequential:
        return [_described(layer, name) for layer in head]
    return _described(head, name)


def build_head(description: Any, tensors: dict[str, Tensor], width: int, name: str = "head") -> nn.Module:
    """Build the head that `describe_head` has described, with its tensors; a ValueError if they do not fit.

    It must take rows of `width` numbers, and hold finite ones.
    """
    try:
        if isinstance(description, list) and len(description) > _MAX_LAYERS:
            raise ValueError(f"it has {len(description):,} layers, more than {_MAX_LAYERS}")
        _check_tensors(tensors)
        # On the meta device nothing is drawn and no memory taken, whatever sizes a damaged file claims.
        with torch.device("meta"):
            many = isinstance(description, list)
            layers = [_built(each) for each in (description if many else [description])]
            head = nn.Sequential(*layers) if many else layers[0]
        head.load_state_dict({key: tensor.to("meta") for key, tensor in tensors.items()}, assign=True)
        # Widths, types and settings that do not fit each other are found here, without computing anything.
        kinds = {tensor.dtype for tensor in tensors.values() if tensor.is_floating_point()} or {torch.float32}
        with torch.no_grad():
            head.eval()(torch.empty(2, width, dtype=kinds.pop(), device="meta"))
        head.train().load_state_dict(tensors, assign=True)
    except (AttributeError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"its {name} cannot be built ({reason_of(error)})") from error
    return head


def _described(layer: nn.Module, name: str) -> dict[str, Any]:
    # The type itself: a subclass, or a parametrised layer, may compute something else.
    kind = type(layer).__name__
    if type(layer) is not getattr(nn, kind, None) or kind not in _SETTINGS or "forward" in vars(layer):
        owner = "cbm" if name == "head" else "cbm.bottleneck"
        raise ValueError(
            f"Expected argument `{name}` of the model, to be written to a file, to be one or an nn.Sequential of "
            f"{', '.join(f'nn.{each}' for each in _SETTINGS)} but got {kind}. Save the bank with "
            f"`{owner}.bank.save(path)` and the {name}'s own state dict, and build "
            "`PostHocCBM(features, bank, head, values)` of both"
            + ("." if name == "head" else ", and `ResidualCBM(cbm, residual)` of that.")
        )
    settings = {each: getattr(layer, each) for each in _SETTINGS[kind]}
    if "bias" in settings:
        settings["bias"] = layer.bias is not None
    return {"layer": kind, "settings": settings}


def _check_tensors(tensors: dict[str, Tensor]) -> None:
    """Raise unless tensors are finite numbers, those of a layer of one type."""
    numbers = {name: each for name, each in tensors.items() if name.rpartition(".")[2] != "num_batches_tracked"}
    for name, tensor in numbers.items():
        if not tensor.is_floating_point():
            raise ValueError(f"{name} holds {tensor.dtype}")
        if not tensor.isfinite().all():
            raise ValueError(f"{name} holds NaN or infinity")
    for name, tensor in numbers.items():
        layer, dot, kind = name.rpartition(".")
        if kind == "bias" and numbers.get(f"{layer}{dot}weight", tensor).dtype != tensor.dtype:
            raise ValueError(f"{name} is of another type than the weight: {tensor.dtype}")
        if kind == "running_var" and (tensor < 0).any():
            raise ValueError(f"{name} is negative")


def _built(description: dict[str, Any]) -> nn.Module:
    name, settings = description["layer"], description["settings"]
    if settings.keys() != {*_SETTINGS[name]}:
        raise ValueError(f"{name} has the settings {sorted(settings)}")
    for key, (low, high) in _RANGES.items():
        value = settings.get(key, low)
        if not (key == "momentum" and value is None) and not (type(value) in (int, float) and low <= value <= high):
            raise ValueError(f"{key} of {name} is {quoted(value)}")
    return getattr(nn, name)(**settings)
