"""Any Captum attribution as a Quantus `explain_func`."""

from __future__ import annotations

import contextlib
import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from captum.attr import Attribution
from numpy.typing import ArrayLike
from torch import Tensor, nn
from torch.nn import functional

from captum_concepts.attributions.outputs import Targets, as_targets, tensor_outputs
from captum_concepts.backbones.layers import find_layer
from captum_concepts.support.checks import check_choice, check_finite, check_whole, to_array
from captum_concepts.support.running import evaluation_mode, first_floating, floating_images, seeded_generators
from captum_concepts.texts import describe, show_value

#: A class of Captum, or a function, that makes an attribution of a model, or of a model and its layer.
Factory = Callable[..., Attribution]


def check_factory(factory: Factory) -> None:
    """Raise unless a factory is a class, or a function, that makes an attribution of a model."""
    bound = isinstance(getattr(factory, "__self__", factory), Attribution)
    if bound or isinstance(factory, nn.Module) or not callable(factory):
        raise TypeError(
            "Expected argument `factory` to be a Captum attribution class, or a function from model to attribution, "
            f"but got {factory!r}. Metrics call it with other models, which what is bound to one would not explain. "
            "Pass captum.attr.Saliency, for instance, or `lambda model: NoiseTunnel(Saliency(model))`."
        )


def check_arguments(
    factory: type[Attribution],
    layer: str | None,
    constructor_kwargs: Mapping[str, object],
    attribute_kwargs: Mapping[str, object],
) -> None:
    """Raise if a class does not take an argument, or lacks one."""
    of_layer = {} if layer is None else {"layer": layer}
    method = inspect.signature(factory.attribute)
    of_call = {"target": None} if "target" in method.parameters else {}
    try:
        inspect.signature(factory).bind(None, **of_layer, **constructor_kwargs)
        method.bind(None, None, **of_call, **attribute_kwargs)
    except TypeError as error:
        raise ValueError(f"Expected the arguments of {factory.__name__} and its `attribute` but {error}.") from error


def takes_target(attribution: Attribution) -> bool:
    """Whether an attribution explains one output, which has to be named."""
    parameters = inspect.signature(attribution.attribute).parameters
    if "target" in parameters:
        return True
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return False
    # NoiseTunnel hands everything on to what it wraps.
    inner = getattr(attribution, "attribution_method", None)
    return True if inner is None else takes_target(inner)


def check_same_model(attribution: Attribution, model: Callable[..., object]) -> None:
    """Raise if an attribution explains a model that shares nothing with the requested one."""
    explained = getattr(attribution, "forward_func", None)
    if not isinstance(explained, nn.Module) or not isinstance(model, nn.Module):
        return
    ours = {id(module) for module in model.modules()}
    if not any(id(module) in ours for module in explained.modules()):
        raise ValueError(
            "Expected argument `factory` to explain the model it is given but it explains another "
            f"{type(explained).__name__}. Use the argument of the function, not a model from outside it."
        )


# The linear modes of torch are named by the number of dimensions.
_LINEAR = {3: "linear", 4: "bilinear", 5: "trilinear"}

# Warnings of Captum on every call, about hooks that it removes again and batches that it splits itself.
_CHATTER = (
    r"You are providing multiple inputs for Lime / Kernel SHAP",
    r"\s*Setting forward, backward hooks and attributes on non-linear",
    r"Setting backward hooks on ReLU activations",
    r"Input Tensor \d+ did not already require gradients",
)


def explain_func(
    factory: Factory,
    *,
    layer: str | None = None,
    attribute_kwargs: Mapping[str, object] | None = None,
    batch_size: int | None = None,
    interpolate: str = "bilinear",
    channels: str = "auto",
    rescale: bool = False,
    device: torch.device | str | None = None,
    seed: int | None = 0,
    **kwargs: object,
) -> CaptumExplainer:
    """Make a Captum attribution the callable that Quantus wants.

    The result goes into the `xai_methods` of `quantus.evaluate` (with ``explain_func_kwargs={}``) or is the
    `explain_func` of a metric. It builds the attribution anew for the model of each call, since metrics call
    it with other models too: that is why `factory` is a class or a function, and a layer is given by name.

    Parameters
    ----------
    factory : class or function
        A Captum attribution class, built as ``factory(model)`` or ``factory(model, layer_module)``, or a
        function of the same arguments that returns an attribution, for instance
        ``lambda model: NoiseTunnel(Saliency(model))``.
    layer : str, optional
        Dotted name of the layer in whichever model comes with the call.
    attribute_kwargs : mapping, optional
        Arguments of `attribute`, for names that this function has itself.
    batch_size : int, optional
        Batch size; by default 64, or `internal_batch_size` if that is given and smaller.
    interpolate : {"bilinear", "bicubic", "nearest"}
        How layer maps (N, c, h, w) are brought to the size (H, W) of the inputs; "bilinear" with
        ``align_corners=False``, and for series (N, c, t) the linear counterpart.
    channels : {"auto", "sum", "keep"}
        "auto" sums attributions over channels where these are not the channels of the input, so that a layer
        map becomes (N, 1, H, W); "sum" does so for pixel attributions (N, C, H, W) too, as `quantus.explain` does and
        its localisation metrics with one mask need; "keep" never does. For the numbers of Quantus's own "Saliency",
        and to compare pixel attributions with maps of one channel, pass "sum": a map of three channels has another
        Sparseness, for instance.
    rescale : bool
        Whether the explanation of each sample is stretched to [0, 1], a constant one to 0. Quantus refuses
        explanations that are negative throughout, as concept maps may well be: they leave out the intercept.
    device : torch.device or str, optional
        Device if the model has neither parameters nor buffers; otherwise it is where the model is.
    seed : int, optional
        For methods that draw at random: the same seed gives the same result in every call, for the same
        `batch_size`. None draws afresh each time. The global generators are left as they were. A class whose
        constructor has a `seed` gets it too.
    **kwargs : Any
        Further arguments: those that the constructor of a class names go there, the others to `attribute`
        (``n_steps=20``, ``abs=False``). Arrays and tensors are brought to the model's device and type;
        `baselines` may be a function of the inputs.

    Returns
    -------
    CaptumExplainer
        A callable ``(model, inputs, targets, **ignored) -> np.ndarray``.

    Raises
    ------
    TypeError
        If `factory` is an attribution already bound to a model, which would explain the wrong one, or is
        no class or function; if `layer` is a module.
    ValueError
        If a class needs a layer and none is given, or does not know an argument, or a choice or number is
        out of range.

    Examples
    --------
    >>> import numpy as np
    >>> from captum.attr import LayerGradCam
    >>> from torch import nn
    >>> from captum_concepts import explain_func
    >>> grad_cam = explain_func(LayerGradCam, layer="0")
    >>> grad_cam
    explain_func(LayerGradCam, layer='0')
    >>> model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4 * 36, 2))
    >>> grad_cam(model, np.ones((2, 3, 8, 8)), np.array([0, 1])).shape
    (2, 1, 8, 8)
    """
    if isinstance(layer, nn.Module):
        raise TypeError(
            f"Expected argument `layer` to be the dotted name of a module, since metrics call with other models, but "
            f"got a {type(layer).__name__}. `model.named_modules()` lists the names."
        )
    check_choice("interpolate", interpolate, ("bilinear", "bicubic", "nearest"))
    check_choice("channels", channels, ("auto", "sum", "keep"))
    check_factory(factory)
    to_attribute: dict[str, Any] = dict(attribute_kwargs or {})
    to_constructor: dict[str, Any] = {}
    own_names = {*inspect.signature(factory).parameters} if isinstance(factory, type) else set()
    for name, value in kwargs.items():
        (to_constructor if name in own_names else to_attribute)[name] = value
    if "seed" in own_names and seed is not None:
        # A class that draws by a seed of its own (RandomAttribution) would else give the same under every seed.
        to_constructor["seed"] = seed
    if wrong := {"inputs", "target"} & to_attribute.keys():
        raise ValueError(f"Expected arguments of `attribute` without {sorted(wrong)}, which come with each call.")
    if isinstance(factory, type):
        check_arguments(factory, layer, to_constructor, to_attribute)
    if batch_size is None:
        batch_size = min(64, to_attribute.get("internal_batch_size") or 64)
    check_whole("batch_size", batch_size, 1)
    return CaptumExplainer(
        factory, layer, to_constructor, to_attribute, batch_size, interpolate, channels, rescale, device, seed
    )


@dataclass(frozen=True, repr=False)
class CaptumExplainer:
    """What `explain_func` returns; it can be pickled where its factory can."""

    factory: Factory
    layer: str | None
    constructor_kwargs: dict[str, Any]
    attribute_kwargs: dict[str, Any]
    batch_size: int
    interpolate: str
    channels: str
    rescale: bool
    device: torch.device | str | None
    seed: int | None

    def __call__(
        self,
        model: Callable[..., object],
        inputs: ArrayLike | Tensor,
        targets: Targets = None,
        **kwargs: object,
    ) -> np.ndarray:
        """Explain the outputs `targets` of a model for a batch of inputs."""
        # The model is in eval mode meanwhile and gets its flags back, submodule by submodule. What it returns is a
        # tensor, has `.logits`, or is a tuple, list or mapping whose first tensor is explained.
        if not isinstance(inputs, Tensor):
            inputs = to_array("inputs", inputs)
        place, dtype = _device_and_type(model, kwargs.get("device") or self.device, inputs)
        check_finite("inputs", inputs)
        n = len(inputs)
        chosen = None if targets is None else as_targets(targets, n, "targets").expand(n)
        results = []
        # Metrics may ask for explanations from within no_grad or inference mode.
        with torch.inference_mode(False), torch.enable_grad():
            attribution = self._build(model)
            # A wrapper that the factory has built is in train mode, even around modules in eval mode.
            explained = getattr(attribution, "forward_func", None)
            settings = {name: _as_setting(value, place, dtype) for name, value in self.attribute_kwargs.items()}
            if chosen is not None and takes_target(attribution):
                settings["target"] = chosen.to(place, copy=True)
            with (
                evaluation_mode(model, explained),
                tensor_outputs(explained),
                seeded_generators(place, self.seed),
                _without_chatter(),
            ):
                for start in range(0, n, self.batch_size):
                    part = slice(start, start + self.batch_size)
                    batch = _as_batch(inputs[part], place, dtype)
                    here = dict(settings)
                    if "target" in here:
                        here["target"] = here["target"][part]
                    if callable(here.get("baselines")):
                        here["baselines"] = here["baselines"](batch.detach())
                    result = self._fit_to_inputs(_attribute(attribution, batch, here), batch)
                    results.append((_stretch(result) if self.rescale else result).cpu().numpy())
        return np.concatenate(results)

    def __repr__(self) -> str:
        line = describe(
            self, show_value(self.factory), layer=self.layer, **{**self.constructor_kwargs, **self.attribute_kwargs}
        )
        return line.replace("CaptumExplainer", "explain_func", 1)

    def _build(self, model: Callable[..., object]) -> Attribution:
        if self.layer is None:
            attribution = self.factory(model, **self.constructor_kwargs)
        else:
            if not isinstance(model, nn.Module):
                raise TypeError(
                    f"Expected argument `model` to be an nn.Module with layers but got {type(model).__name__}."
                )
            attribution = self.factory(model, find_layer(model, self.layer), **self.constructor_kwargs)
        check_same_model(attribution, model)
        return attribution

    def _fit_to_inputs(self, result: Any, batch: Tensor) -> Tensor:
        """Bring an attribution to the shape of the inputs, or to one channel of it."""
        if isinstance(result, tuple) and len(result) == 1:
            result = result[0]
        if not isinstance(result, Tensor):
            raise ValueError(
                f"Expected the attribution to be one tensor but got {type(result).__name__}. "
                "Leave out `return_convergence_delta` and layers of several outputs."
            )
        result = result.detach()
        if result.dtype in (torch.float16, torch.bfloat16):
            # NumPy has no bfloat16, and scores computed in half precision are none.
            result = result.float()
        own_channels = result.shape == batch.shape
        if result.ndim != batch.ndim or len(result) != len(batch) or (batch.ndim == 2 and not own_channels):
            raise ValueError(
                f"Expected the attribution to have shape {tuple(batch.shape)}, or that of a layer map with "
                f"{batch.ndim} dimensions, but got {tuple(result.shape)}. Choose a layer that keeps the "
                "spatial dimensions, or pass a function whose attribution brings them back."
            )
        if batch.ndim == 2:
            return result
        # Summed before it is upsampled: both are linear, and so only one channel is.
        if self.channels == "sum" or (self.channels == "auto" and not own_channels):
            result = result.sum(1, keepdim=True)
        size = batch.shape[2:]
        if result.shape[2:] == size:
            return result
        mode = _LINEAR[batch.ndim] if self.interpolate == "bilinear" else self.interpolate
        align = None if mode == "nearest" else False
        return functional.interpolate(result, size, mode=mode, align_corners=align)


def _stretch(result: Tensor) -> Tensor:
    """Return explanations with each sample's lowest value at 0 and its highest at 1; constant ones at 0."""
    axes = tuple(range(1, result.ndim))
    above = result - result.amin(axes, keepdim=True)
    span = above.amax(axes, keepdim=True)
    return above / span.masked_fill(span == 0, 1)


def _device_and_type(model: Any, device: Any, inputs: Any) -> tuple[torch.device, torch.dtype]:
    """Return device and floating type of the model, or where it has none those of the arguments."""
    reference = first_floating(model) if isinstance(model, nn.Module) else None
    if reference is not None:
        return reference.device, reference.dtype
    dtype = torch.float64 if str(inputs.dtype).endswith("float64") else torch.float32
    return torch.device(device or "cpu"), dtype


def _attribute(attribution: Attribution, batch: Tensor, settings: Mapping[str, Any]) -> Any:
    """Return an attribution of inputs without gradients, or of inputs with them where it cannot do without."""
    # A clone of inputs that ask for gradients is no leaf, and has none of its own.
    try:
        return attribution.attribute(batch, **settings)
    except RuntimeError as error:
        if "does not require grad" not in str(error):
            raise
    return attribution.attribute(batch.requires_grad_(), **settings)


def _as_batch(values: Any, device: torch.device, dtype: torch.dtype) -> Tensor:
    if isinstance(values, Tensor):
        return floating_images(values.detach()).to(device, dtype, copy=True)
    # A copy, since torch warns of arrays that cannot be written, and knows no negative strides.
    return floating_images(torch.tensor(np.ascontiguousarray(values))).to(device, dtype)


def _as_setting(value: Any, device: torch.device, dtype: torch.dtype) -> Any:
    if isinstance(value, np.ndarray):
        value = torch.tensor(value)
    if isinstance(value, Tensor):
        return value.to(device, dtype if value.is_floating_point() else None)
    return value


@contextlib.contextmanager
def _without_chatter() -> Iterator[None]:
    with warnings.catch_warnings():
        for message in _CHATTER:
            warnings.filterwarnings("ignore", message=message, category=UserWarning)
        yield
