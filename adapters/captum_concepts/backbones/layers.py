"""Layers of a user's own network: find them by name, run up to them, choose one by default."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from captum_concepts.support.checks import check_axes
from captum_concepts.support.running import device_of, evaluation_mode


class _LayerReached(Exception):  # noqa: N818  (a signal, not an error)
    """Internal signal that stops the forward pass at the target layer."""

    def __init__(self, owner: object) -> None:
        super().__init__("The layer was reached.")
        self.owner = owner


@contextmanager
def watch_layer(layer: nn.Module, note: Callable[[Any], None], of_input: bool = False) -> Iterator[None]:
    """Call `note` with what a layer gives, or with its inputs."""

    def hook(_module: nn.Module, inputs: Any, output: Any = None) -> None:
        note(inputs if of_input else output)

    handle = layer.register_forward_pre_hook(hook) if of_input else layer.register_forward_hook(hook)
    try:
        yield
    finally:
        handle.remove()


class LayerFeatures(nn.Module):
    """A model up to one of its layers: images to that layer's output.

    The forward pass ends at the layer, so what comes after it costs nothing. A layer that the model calls
    several times gives its first output. The model is registered once, as ``model``.

    Parameters
    ----------
    model : nn.Module
        Any network.
    layer : str or nn.Module
        Dotted name of one of its submodules, as in `named_modules`, or that submodule.

    Raises
    ------
    ValueError
        If the model has no such layer.
    """

    def __init__(self, model: nn.Module, layer: str | nn.Module) -> None:
        super().__init__()
        self.model = model
        # Kept by name: a second registration would double the keys, and a copy finds its own layer.
        self.layer = layer_name(model, layer)

    def forward(self, images: Tensor) -> Tensor:
        """Return the output of the layer.

        Parameters
        ----------
        images : Tensor
            (N, C, H, W), or whatever the model takes.

        Returns
        -------
        Tensor
            The output of the layer, with its gradient.

        Raises
        ------
        TypeError
            If the output of the layer is not a tensor.
        RuntimeError
            If the model does not call the layer on these images.
        """
        captured: list[Any] = []
        owner = object()

        def stop(output: Any) -> None:
            # Kept here as well, should the model itself catch every exception.
            captured.append(output)
            raise _LayerReached(owner)

        with watch_layer(self.model.get_submodule(self.layer), stop):
            try:
                self.model(images)
            except _LayerReached as reached:
                # Another LayerFeatures inside this model, or around it, may stop at the same layer.
                if reached.owner is not owner:
                    raise
        if not captured:
            raise RuntimeError(
                f"Expected {type(self.model).__name__} to run its layer {self.layer!r} but it did not. "
                "Name a layer that takes part in the forward pass."
            )
        output = captured[0]
        if not isinstance(output, Tensor):
            raise TypeError(
                f"Expected layer {self.layer!r} to give a tensor but got {type(output).__name__}. "
                "Name a layer inside it, or one after it."
            )
        return output

    def extra_repr(self) -> str:
        """Return the name of the layer."""
        return f"layer={self.layer!r}"


def find_layer(model: nn.Module, name: str) -> nn.Module:
    """Return a submodule by its dotted name."""
    # Names of a module registered under several names are all good.
    layers = {layer_name: layer for layer_name, layer in model.named_modules(remove_duplicate=False) if layer_name}
    if name in layers:
        return layers[name]
    near = difflib.get_close_matches(name, layers, n=5, cutoff=0.4)
    hint = f"Nearest: {near}" if near else f"Its outermost layers: {[n for n in layers if '.' not in n]}"
    raise ValueError(f"Expected argument `layer` to name a layer of {type(model).__name__} but got {name!r}. {hint}.")


def layer_name(model: nn.Module, layer: str | nn.Module) -> str:
    """Return the dotted name of a layer."""
    if isinstance(layer, str):
        find_layer(model, layer)
        return layer
    for name, module in model.named_modules():
        if module is layer:
            return name
    raise ValueError(
        f"Expected argument `layer` to be part of {type(model).__name__} but got a {type(layer).__name__} "
        "that is not. Give its name, or the module itself and not a copy."
    )


def last_spatial_layer(model: nn.Module, images: Tensor) -> str:
    """Return the name of the layer that gives the last maps before a model pools."""
    # That is the layer whose call ends last among those with an output (N, d, h, w) of more than one position; of
    # nested ones the outermost, ``layer4`` rather than ``layer4.1.relu``. Not counted are outputs that are not maps
    # of the image (h, w must have its proportions, which tells (N, h, w, c) apart), Identity layers, the model
    # itself, and layers called more than once, whose first output is not the last. What a model does to the maps
    # afterwards by a function, not a layer (the ReLU of DenseNet), is not seen.
    check_axes(images=(images, "N C H W"))
    size = (int(images.shape[2]), int(images.shape[3]))
    calls: Counter[str] = Counter()
    maps: list[str] = []
    # How many maps there were when a block gave tokens, or maps with the channels last.
    tokens: list[int] = []

    def note(name: str, is_block: bool, output: Any) -> None:
        calls[name] += 1
        if isinstance(output, tuple) and output:
            output = output[0]
        if not isinstance(output, Tensor):
            return
        if is_map(output, size) and len(output) == len(images):
            maps.append(name)
        elif is_block and _are_tokens(output, size, len(images)):
            tokens.append(len(maps))

    with ExitStack() as hooks:
        for name, layer in model.named_modules():
            if name and not isinstance(layer, nn.Identity):
                hooks.enter_context(watch_layer(layer, partial(note, name, any(layer.children()))))
        _run_without_trace(model, images)
    for index, name in reversed(list(enumerate(maps))):
        if calls[name] > 1:
            continue
        if tokens and tokens[-1] > index:
            raise ValueError(
                f"Expected argument `layer` to be given for {type(model).__name__}, since its blocks work on tokens "
                f"after {name!r}, the last layer that gives maps (N, d, h, w), but got None. Pass `layer={name!r}` if "
                "that layer is what you want, or use a method without a layer; concept maps of tokens come from "
                "`CoAM.of` and the backbones of `from_torchvision`, `from_timm` and `from_open_clip`."
            )
        return name
    raise ValueError(
        f"Expected argument `layer` to name a layer of {type(model).__name__}, since none that gives maps (N, d, h, w) "
        f"was found for images of shape {tuple(images.shape)}, but got None. Name it, or pass `features`, `pool` and "
        "`maps` to PostHocCBM yourself."
    )


def layer_channels(model: nn.Module, layer: str | nn.Module, images: Tensor) -> int:
    """Return the number of channels d of a layer's maps."""
    features = LayerFeatures(model, layer)
    output: Tensor = _run_without_trace(features, images)
    if output.ndim != 4:
        raise ValueError(
            f"Expected layer {features.layer!r} to give maps (N, d, h, w) but got shape "
            f"{tuple(output.shape)}. Name an earlier layer."
        )
    return int(output.shape[1])


def is_map(output: Tensor, size: tuple[int, int]) -> bool:
    """Whether a tensor may be maps of an image of a size (H, W)."""
    if output.ndim != 4:
        return False
    h, w = output.shape[2:]
    H, W = size
    # Each layer with a stride rounds both sides on its own, so the proportions hold up to a position each.
    return h * w > 1 and h <= H and w <= W and abs(h * W - w * H) <= H + W


def _are_tokens(output: Tensor, size: tuple[int, int], n_samples: int) -> bool:
    """Whether a tensor may be tokens (N, t, c) or (t, N, c), or maps (N, h, w, c)."""
    if output.ndim == 4:
        return is_map(output.movedim(3, 1), size)
    return output.ndim == 3 and n_samples in output.shape[:2] and output.shape[0] * output.shape[1] > n_samples


def _run_without_trace(model: nn.Module, images: Tensor) -> Any:
    """Run a model in eval mode, without gradient, on its own device, and put its modes back."""
    with evaluation_mode(model), torch.no_grad():
        return model(images.to(device_of(model, images.device)))
