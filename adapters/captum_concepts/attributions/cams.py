"""The class activation maps of the library grad-cam as Captum attributions."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from operator import itemgetter
from types import MappingProxyType, SimpleNamespace
from typing import Any, NamedTuple

import torch
from captum.attr import Attribution
from captum.log import log_usage
from torch import Tensor, nn

from captum_concepts.attributions.outputs import Targets, as_targets, input_tensors
from captum_concepts.backbones.layers import find_layer, is_map, last_spatial_layer, layer_name, watch_layer
from captum_concepts.backbones.pools import to_grid
from captum_concepts.lazy import check_extra
from captum_concepts.support.checks import check_axes, check_choice
from captum_concepts.support.running import (
    at_least_float32,
    evaluation_mode,
    first_floating,
    import_sklearn,
    tensor_output,
)
from captum_concepts.texts import describe, show_value

CAM_METHODS: Mapping[str, str] = MappingProxyType(
    {
        "HiResCAM": "HiResCAM",
        "GradCAMElementWise": "GradCAMElementWise",
        "GradCAM++": "GradCAMPlusPlus",
        "XGradCAM": "XGradCAM",
        "AblationCAM": "AblationCAM",
        "ScoreCAM": "ScoreCAM",
        "EigenCAM": "EigenCAM",
        "EigenGradCAM": "EigenGradCAM",
        "FullGrad": "FullGrad",
    }
)
"""Names of the class activation maps that PASTA's people rated, with their classes in the library grad-cam."""


class LibraryCAM(Attribution):
    """A class activation map of the library grad-cam, of any model of images.

    What it returns is what the library returns for each image alone, its least value at 0 and its largest at 1; but a
    ReLU that works in place after the layer does not change its maps, as it does in the library on a CPU. The model is
    in eval mode meanwhile; its modules, its gradients and its flags are as before afterwards.

    Maps come from one layer. Of a vision transformer it gives the tokens of patches, which become maps by the grid that
    the last convolution before that layer has laid over the image, the tokens before them left out. EigenCAM shows what
    is strong, whatever the target, and the sign of its and EigenGradCAM's component is the decomposition's own.
    FullGrad reads no layer but the biases of all convolutions and batch norms.

    Parameters
    ----------
    forward_func : nn.Module
        The model, (N, C, H, W) to (N, K), or to what holds these outputs as `.logits` or first; with parameters.
    layer : str or nn.Module, optional
        A layer of it, or its dotted name, that gives maps (N, d, h, w) or (N, h, w, d), or tokens (N, t, d). By
        default the last that gives maps (N, d, h, w); where tokens come after these, the last `nn.LayerNorm` whose
        patch tokens the output depends on, which with a class token is the one before the last attention.
    cam : str or type
        A class of the library, or its name there: "HiResCAM", a value of `CAM_METHODS`, or any other that is built of
        a model, its layers and a `reshape_transform`.

    Raises
    ------
    MissingExtraError
        If grad-cam is not installed.
    TypeError
        If `forward_func` is no module.
    ValueError
        If it has no parameters, or the library has no such class, or the model no such layer.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from captum_concepts import LibraryCAM
    >>> model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2))
    >>> LibraryCAM(model, "1", cam="LayerCAM").attribute(torch.rand(2, 3, 8, 8), target=1).shape
    torch.Size([2, 1, 8, 8])
    """

    def __init__(
        self, forward_func: nn.Module, layer: str | nn.Module | None = None, cam: str | type[Any] = "HiResCAM"
    ) -> None:
        super().__init__(forward_func)
        if not isinstance(forward_func, nn.Module) or first_floating(forward_func) is None:
            kind = TypeError if not isinstance(forward_func, nn.Module) else ValueError
            raise kind(
                "Expected argument `forward_func` to be an nn.Module with parameters but got "
                f"{show_value(forward_func)}. The library grad-cam takes no other."
            )
        self.layer = None if layer is None else layer_name(forward_func, layer)
        self.cam: type[Any] = _class_of(cam) if isinstance(cam, str) else cam

    def __repr__(self) -> str:
        return describe(self, show_value(self.forward_func), layer=self.layer, cam=self.cam.__name__)

    @log_usage()
    def attribute(self, inputs: Tensor | tuple[Tensor, ...], target: Targets = None) -> Tensor | tuple[Tensor, ...]:
        """Return a map for each image.

        Parameters
        ----------
        inputs : Tensor or tuple of Tensor
            (N, C, H, W), or a tuple of one.
        target : int, Tensor, list or array, optional
            Output explained, the same for all images, or one for each (N,). None for a model of one output.

        Returns
        -------
        Tensor or tuple of Tensor
            (N, 1, H, W) in [0, 1], without gradient, on the device of the inputs, at least of float32.

        Raises
        ------
        ValueError
            If an argument has the wrong shape, there is no such output, or no layer whose output can become maps.
        TypeError
            If `inputs` are no tensor.
        """
        images, *others = (tensor.detach() for tensor in input_tensors(inputs))
        if others:
            raise ValueError(f"Expected argument `inputs` to be one tensor of images but got {1 + len(others)}.")
        check_axes(inputs=(images, "N C H W"))
        # One at a time: ScoreCAM makes a masked copy of an image for each channel, of all images at once.
        alone = images.split(1)
        with torch.inference_mode(False), torch.enable_grad(), _as_it_was(self.forward_func), _without_bars(self.cam):
            model = _Logits(self.forward_func)
            layers, kwargs, n_outputs = self._place(model, alone[0])
            if target is None and n_outputs > 1:
                raise ValueError(
                    f"Expected argument `target` to name one of the {n_outputs} outputs but got None. Pass its index."
                )
            targets = as_targets(0 if target is None else target, len(images), n_outputs=n_outputs).expand(len(images))
            cam = self.cam(model, layers, **kwargs)
            try:
                results = [
                    torch.from_numpy(cam(_leaf(image), [itemgetter(index)]))
                    for image, index in zip(alone, targets.tolist(), strict=True)
                ]
            finally:
                cam.activations_and_grads.release()
        maps = torch.stack(results).to(images.device, torch.promote_types(images.dtype, torch.float32))
        return (maps,) if isinstance(inputs, tuple) else maps

    def _place(self, model: _Logits, image: Tensor) -> tuple[list[nn.Module], dict[str, Any], int]:
        """Return the layers that the library's class gets, its further arguments, and the number of outputs."""
        library = importlib.import_module("pytorch_grad_cam")
        if issubclass(self.cam, library.FullGrad):
            # It finds its layers itself, and prints a line where it is given any.
            return [], {"reshape_transform": at_least_float32}, _run(model, image, {})[0].shape[1]
        name = self.layer or _default_layer(model, image)
        layer = find_layer(self.forward_func, name)
        logits, seen = _run(model, image, {name: layer})
        to_maps = seen[name].to_maps if name in seen else None
        if to_maps is None:
            got = f"shape {tuple(seen[name].output.shape)}" if name in seen else "no tensor"
            raise ValueError(
                f"Expected argument `layer` to name a layer that gives maps (N, d, h, w), or the tokens (N, t, d) of "
                f"the patches of an image, but {name!r} gives {got}. Of a vision transformer name the norm before its "
                "last attention, 'blocks.11.norm1' in timm for instance."
            )
        kwargs: dict[str, Any] = {"reshape_transform": partial(_kept, to_maps)}
        if issubclass(self.cam, library.AblationCAM):
            # A new one, since the library's default one is shared by all calls.
            kwargs["ablation_layer"] = library.AblationLayer() if to_maps is _as_is else library.AblationLayerVit()
        return [layer], kwargs, logits.shape[1]


class _Logits(nn.Module):
    """A model by its outputs (N, K) alone, of at least float32, whatever the type of the images."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        """Return the outputs."""
        reference = first_floating(self.model)
        outputs = tensor_output(self.model(images.to(reference) if reference is not None else images))
        outputs = outputs[:, None] if outputs.ndim == 1 else outputs
        check_axes(outputs=(outputs, "N K"))
        return at_least_float32(outputs)


class _Seen(NamedTuple):
    """What a layer gave, and the function by which that becomes maps, if there is one."""

    output: Any
    to_maps: Callable[[Tensor], Tensor] | None


def _class_of(name: str) -> type[Any]:
    check_extra("pytorch_grad_cam", "cam", f"The class activation map {name}")
    # Before the library does.
    import_sklearn("decomposition")
    library = importlib.import_module("pytorch_grad_cam")
    classes = [key for key, value in vars(library).items() if isinstance(value, type) and issubclass(value, _base())]
    check_choice("cam", name, classes)
    return getattr(library, name)


def _base() -> type[Any]:
    return importlib.import_module("pytorch_grad_cam.base_cam").BaseCAM


def _run(model: _Logits, image: Tensor, layers: Mapping[str, nn.Module]) -> tuple[Tensor, dict[str, _Seen]]:
    """Return the outputs for an image (1, C, H, W), and what layers gave, in the order of their calls."""
    size = (int(image.shape[2]), int(image.shape[3]))
    grid: list[tuple[int, int]] = []
    seen: dict[str, _Seen] = {}

    def note_grid(output: Any) -> None:
        if isinstance(output, Tensor) and is_map(output, size):
            grid[:] = [(int(output.shape[2]), int(output.shape[3]))]

    def note(name: str, output: Any) -> None:
        seen.pop(name, None)
        if isinstance(output, Tensor):
            seen[name] = _Seen(output, _to_maps(output, grid[0] if grid else None, size))

    with ExitStack() as hooks:
        for layer in model.modules():
            if isinstance(layer, nn.Conv2d):
                hooks.enter_context(watch_layer(layer, note_grid))
        for name, layer in layers.items():
            hooks.enter_context(watch_layer(layer, partial(note, name)))
        return model(_leaf(image)), seen


def _to_maps(output: Tensor, grid: tuple[int, int] | None, size: tuple[int, int]) -> Callable[[Tensor], Tensor] | None:
    """Return the function by which what a layer gave for one image becomes maps (1, d, h, w)."""
    if is_map(output, size):
        return _as_is
    if output.ndim == 4 and is_map(output.movedim(3, 1), size):
        return _channels_first
    if output.ndim != 3 or len(output) != 1 or grid is None:
        return None
    count, (rows, columns) = output.shape[1], grid
    # Swin merges four patches into one.
    while count < rows * columns and rows % 2 == columns % 2 == 0:
        rows, columns = rows // 2, columns // 2
    # Class token, registers and the like come before the patches; more than patches there are would be another grid.
    prefix = count - rows * columns
    return partial(_patches, prefix, (rows, columns)) if 0 <= prefix < rows * columns else None


def _as_is(maps: Tensor) -> Tensor:
    return maps


def _channels_first(maps: Tensor) -> Tensor:
    return maps.movedim(3, 1)


def _patches(prefix: int, grid: tuple[int, int], tokens: Tensor) -> Tensor:
    return to_grid(tokens[:, prefix:], grid)


def _kept(to_maps: Callable[[Tensor], Tensor], output: Tensor) -> Tensor:
    """Return maps as NumPy has them, in a copy: on a CPU the library would read what works in place after the layer."""
    return at_least_float32(to_maps(output)).clone()


def _default_layer(model: _Logits, image: Tensor) -> str:
    """Return the name of the last layer with maps, or of tokens the last norm whose patches the first output reads."""
    try:
        return last_spatial_layer(model.model, image)
    except ValueError:
        norms = {name: layer for name, layer in model.model.named_modules() if isinstance(layer, nn.LayerNorm)}
        logits, seen = _run(model, image, norms)
        readable = [name for name, each in seen.items() if each.to_maps is not None and each.output.requires_grad]
        outputs = [seen[name].output for name in readable]
        gradients = torch.autograd.grad(logits[0, 0], outputs, allow_unused=True) if readable else ()
        for name, gradient in reversed([*zip(readable, gradients, strict=True)]):
            to_maps = seen[name].to_maps
            if gradient is not None and to_maps is not None and to_maps(gradient).any():
                return name
        raise


def _leaf(image: Tensor) -> Tensor:
    """Return a copy that asks for its gradient, without which a model of frozen weights gives none."""
    return image.clone().requires_grad_()


@contextmanager
def _as_it_was(model: nn.Module) -> Iterator[None]:
    """Put a model into eval mode, and give it its flags, its gradients and its modules back."""
    gradients = [(parameter, parameter.grad) for parameter in model.parameters()]
    children = [(module, dict(module._modules)) for module in model.modules()]
    try:
        with evaluation_mode(model):
            yield
    finally:
        for parameter, gradient in gradients:
            parameter.grad = gradient
        for module, own in children:
            # AblationCAM puts a layer of its own into the model, which stays there if the model fails.
            module._modules.update(own)


@contextmanager
def _without_bars(cam: type[Any]) -> Iterator[None]:
    """Switch the bars off that ScoreCAM and AblationCAM show for each image."""
    module: Any = sys.modules[cam.__module__]
    bars = getattr(module, "tqdm", None)
    if bars is None:
        yield
        return
    module.tqdm = SimpleNamespace(tqdm=iter)
    try:
        yield
    finally:
        module.tqdm = bars
