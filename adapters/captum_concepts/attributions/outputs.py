"""Bring inputs, outputs and targets into the form that Captum needs, and clarify its errors."""

from __future__ import annotations

import difflib
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from captum.attr import LRP, Deconvolution, DeepLift, GuidedBackprop, GuidedGradCam, LayerAttribution, NeuronAttribution
from torch import Tensor, nn

from captum_concepts._support.checks import image_remedy, is_integral, to_tensor
from captum_concepts._support.files import reason_of
from captum_concepts._support.running import first_floating, tensor_output

# Methods that put hooks on every layer of a model, and on one.
_ON_EVERY_LAYER = (LRP, Deconvolution, DeepLift, GuidedBackprop, GuidedGradCam)
_ON_ONE_LAYER = (LayerAttribution, NeuronAttribution)


class Hookable(nn.Module):
    """A ScriptModule inside a module that takes hooks."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return what the model gives."""
        return self.model(*args, **kwargs)


def as_hookable(model: Any) -> Any:
    """Return a model that takes a hook: a ScriptModule in a module around it, any other as it is."""
    return Hookable(model) if isinstance(model, torch.jit.ScriptModule) else model


def check_scripted(attribution: Any, model: Any) -> None:
    """Raise where a method needs hooks inside a ScriptModule, which takes none or, traced, never calls them."""
    method = getattr(attribution, "attribution_method", attribution)
    every = isinstance(method, _ON_EVERY_LAYER) and isinstance(model, nn.Module)
    if (isinstance(method, _ON_ONE_LAYER) and isinstance(model, Hookable)) or (
        every and any(isinstance(part, torch.jit.ScriptModule) for part in model.modules())
    ):
        raise ValueError(script_refusal(type(method).__name__))


def script_refusal(wanting: str) -> str:
    """Return the message that a ScriptModule does not support something."""
    return (
        "Expected argument `model` to be a Python module but it is, or holds, a ScriptModule, and "
        f"{wanting} needs hooks on its layers, which ScriptModules do not run. Give the module that it was scripted or "
        "traced from, or use a method that needs inputs and outputs only, Saliency for instance."
    )


@contextmanager
def tensor_outputs(model: Any, targets: Tensor | None = None, name: str = "targets") -> Iterator[None]:
    """Let a module return the tensor that `tensor_output` finds, and turn raw errors into ones that say what to do."""
    thread = threading.get_ident()
    outputs: list[Any] = []

    def unwrap_output(_module: nn.Module, _inputs: Any, output: Any) -> Tensor | None:
        if threading.get_ident() != thread:
            return None
        try:
            tensor = tensor_output(output)
        except TypeError:
            # Methods that only look at a layer do not need it.
            tensor = None
        outputs[:] = [output if tensor is None else tensor]
        return tensor

    handle = model.register_forward_hook(unwrap_output) if isinstance(model, nn.Module) else None
    try:
        yield
    except (RuntimeError, IndexError, AssertionError, TypeError, AttributeError) as error:
        better = _explain_error(error, type(model).__name__, outputs, targets, name)
        if better is None:
            raise
        raise better from error
    finally:
        if handle is not None:
            handle.remove()


def input_tensors(inputs: Any) -> tuple[Tensor, ...]:
    """Return the inputs of an attribution as a tuple of tensors, at least one, or raise."""
    tensors = inputs if isinstance(inputs, tuple) else (inputs,)
    if not tensors or not all(isinstance(tensor, Tensor) and tensor.ndim for tensor in tensors):
        kinds = [type(tensor).__name__ for tensor in tensors] if isinstance(inputs, tuple) else type(inputs).__name__
        raise TypeError(f"Expected argument `inputs` to be a tensor, or a tuple of tensors, but got {kinds}.")
    return tensors


def extra_arguments(arguments: Any) -> tuple[Any, ...]:
    """Return Captum's `additional_forward_args` as a tuple."""
    if arguments is None:
        return ()
    return arguments if isinstance(arguments, tuple) else (arguments,)


@contextmanager
def advise_on_inputs(model: Any, inputs: tuple[Tensor, ...]) -> Iterator[None]:
    """Add advice to the error of a model that fails on its inputs."""
    try:
        yield
    except (RuntimeError, ValueError, TypeError, IndexError, AssertionError) as error:
        advice = input_advice(model, inputs[0])
        if len(inputs) > 1 or not advice:
            raise
        raise ValueError(
            f"Expected argument `inputs` to hold images (N, C, H, W) as the model takes them but it fails on "
            f"{str(inputs[0].dtype)[6:]} of shape {tuple(inputs[0].shape)} ({reason_of(error)}). {advice}"
        ) from error


def input_advice(model: Any, images: Tensor) -> str:
    """Return advice for images that do not look as a model takes them; empty if they do."""
    reference = first_floating(model) if isinstance(model, nn.Module) else None
    if images.ndim == 3:
        return "One image is a batch of one: pass `inputs[None]`."
    if (remedy := image_remedy(images.shape)).startswith("Move"):
        return remedy
    if not images.is_floating_point():
        return "Pass floats, normalised as the model was trained: levels divided by 255 first."
    if reference is not None and reference.dtype != images.dtype:
        return f"Pass `inputs.to({reference.dtype})`, the type of the model."
    return ""


def find_targets(target: Any, names: Sequence[str]) -> Any:
    """Return a target with indices in place of the names of concepts."""
    targets = target if isinstance(target, list | tuple) else [target]
    if not any(isinstance(name, str) for name in targets):
        return target
    for name in targets:
        if name not in names:
            near = difflib.get_close_matches(str(name), names, n=3, cutoff=0.4) or list(names[:3])
            hint = f"The nearest are {near}." if near else "They have no names here: give a ConceptBank as `cavs`."
            raise ValueError(
                f"Expected argument `target` to be the index or the name of a concept but got {name!r}. {hint}"
            )
    indices = [names.index(name) for name in targets]
    return indices if targets is target else indices[0]


def as_targets(target: Any, n: int, singular: str, plural: str) -> Tensor:
    """Return targets (1,) for all samples, or (n,): of tensors one element counts for all, a list has one for each."""
    values = to_tensor("target", target)
    if not is_integral(values):
        raise TypeError(f"Expected argument `target` to hold {plural} (integers) but got {str(values.dtype)[6:]}.")
    shared = values.ndim == 0 or (values.numel() == 1 and not isinstance(target, list | tuple))
    if not shared and values.shape != (n,):
        raise ValueError(
            f"Expected argument `target` to be one {singular}, or to have shape (N,) = ({n},), but got shape "
            f"{tuple(values.shape)}."
        )
    return values.reshape(-1).long()


def check_targets(targets: Tensor, n_outputs: int, name: str) -> None:
    """Raise where a target (N,) is no index of an output."""
    wrong = ((targets < 0) | (targets >= n_outputs)).nonzero().flatten()
    if len(wrong):
        raise ValueError(
            f"Expected argument `{name}` to hold indices of outputs from 0 to {n_outputs - 1}, since the model has "
            f"{n_outputs}, but got {int(targets[wrong[0]])} at {int(wrong[0])}."
        )


def _explain_error(
    error: Exception, model: str, outputs: list[Any], targets: Tensor | None, name: str
) -> Exception | None:
    """Return a clearer error in place of one of torch or Captum; None if that is clear enough."""
    output = outputs[0] if outputs else None
    if outputs and not isinstance(output, Tensor):
        try:
            tensor_output(output, model)
        except TypeError as reason:
            return reason
    if isinstance(output, Tensor) and targets is not None:
        if output.ndim != 2 and isinstance(error, AssertionError | IndexError):
            return ValueError(
                f"Expected {model} to return outputs (N, K), of which argument `{name}` chooses one, but got shape "
                f"{tuple(output.shape)}. Leave the targets out, or wrap the model."
            )
        if output.ndim == 2:
            try:
                check_targets(targets, output.shape[1], name)
            except ValueError as reason:
                return reason
    message = str(error)
    if "not supported on ScriptModules" in message:
        return ValueError(script_refusal("this method"))
    if "does not require grad" in message or "not have been used in the graph" in message:
        return ValueError(
            f"Expected outputs of {model} that depend on its inputs, or on the layer, by a gradient but they do not. "
            "Quantised models, and those that work under no_grad, have none: explain the model before it was "
            "quantised, or use a method that needs none (Occlusion, FeatureAblation, SteeredRISE)."
        )
    return None
