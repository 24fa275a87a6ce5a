"""What makes an attribution of a model: its arguments, known and checked before any model comes."""

from __future__ import annotations

import inspect
from typing import Any

from captum.attr import Attribution, NoiseTunnel
from torch import nn

from captum_concepts.checks import check_choice


def check_factory(factory: Any, layer: Any) -> None:
    """Raise unless a factory is a class, or a function, that makes an attribution of a model."""
    owner = getattr(factory, "__self__", factory)
    if not isinstance(owner, type) and isinstance(owner, Attribution):
        raise TypeError(
            f"Expected argument `factory` to be a class or a function of the model but got a "
            f"{type(owner).__name__} already bound to one. Metrics call it with other models, whose place "
            f"the bound one would take unnoticed. Pass {type(owner).__name__} itself, or `lambda model: ...`."
        )
    if isinstance(factory, nn.Module) or not callable(factory):
        raise TypeError(
            f"Expected argument `factory` to be a Captum attribution class, or a function from model to "
            f"attribution, but got {factory!r}. Pass captum.attr.Saliency, for instance."
        )
    check_layer_name(layer)
    if not isinstance(factory, type):
        return
    if issubclass(factory, NoiseTunnel):
        raise TypeError(
            "Expected argument `factory` to build an attribution of a model but NoiseTunnel wraps another. "
            "Pass a function: `lambda model: NoiseTunnel(Saliency(model))`."
        )
    parameter = inspect.signature(factory).parameters.get("layer")
    if parameter is not None and parameter.default is parameter.empty and layer is None:
        raise ValueError(
            f"Expected argument `layer` to be the dotted name of a module, as {factory.__name__} needs, but got None."
        )
    if "layer" not in constructor_names(factory) and layer is not None:
        raise ValueError(f"Expected argument `layer` to be None, since {factory.__name__} has none, but got {layer!r}.")


def check_layer_name(layer: Any) -> None:
    """Raise unless a layer is None, or given by name."""
    if layer is not None and not isinstance(layer, str):
        raise TypeError(
            f"Expected argument `layer` to be the dotted name of a module but got {type(layer).__name__}. A "
            "module belongs to one model, and metrics call with others; `model.named_modules()` lists names."
        )


def check_arguments(factory: Any, constructor_kwargs: dict[str, Any], attribute_kwargs: dict[str, Any]) -> None:
    """Raise where a class does not know an argument, or lacks one."""
    for name in ("inputs", "target"):
        if name in attribute_kwargs:
            raise ValueError(
                f"Expected arguments of `attribute` without `{name}`, which comes with each call, but got it."
            )
    method = getattr(factory, "attribute", None) if isinstance(factory, type) else None
    if method is None:
        return
    for name, parameter in list(inspect.signature(factory).parameters.items())[1:]:
        optional = parameter.default is not parameter.empty or parameter.kind in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
        )
        if name not in ("layer", *constructor_kwargs) and not optional:
            raise ValueError(f"Expected argument `{name}`, which {factory.__name__} needs, but it is missing.")
    parameters = inspect.signature(method).parameters
    if any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        return
    allowed = (set(parameters) | constructor_names(factory)) - {"self", "inputs", "target"}
    for name in attribute_kwargs:
        check_choice(f"an argument of {factory.__name__}", name, sorted(allowed))


def constructor_names(factory: Any) -> set[str]:
    """Return the names of the constructor's arguments, without the model."""
    return set(list(inspect.signature(factory).parameters)[1:])


def takes_target(attribution: Any) -> bool:
    """Whether an attribution explains one output, which has to be named."""
    parameters = inspect.signature(attribution.attribute).parameters
    if "target" in parameters:
        return True
    if not any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        return False
    # NoiseTunnel hands everything on to what it wraps.
    inner = getattr(attribution, "attribution_method", None)
    return True if inner is None else takes_target(inner)


def check_same_model(attribution: Any, model: Any) -> None:
    """Raise if an attribution explains a model that shares nothing with the one asked for."""
    explained = getattr(attribution, "forward_func", None)
    if not isinstance(explained, nn.Module) or not isinstance(model, nn.Module):
        return
    ours = {id(module) for module in model.modules()}
    if not any(id(module) in ours for module in explained.modules()):
        raise ValueError(
            "Expected argument `factory` to explain the model it is given but it explains another "
            f"{type(explained).__name__}. Use the argument of the function, not a model from outside it."
        )
