"""Attribution methods by name, as the papers run them, or from a user's Python file."""

from __future__ import annotations

import difflib
import importlib
import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

import captum.attr
import torch
from captum.attr import (
    Attribution,
    GuidedBackprop,
    GuidedGradCam,
    InputXGradient,
    IntegratedGradients,
    KernelShap,
    LayerGradCam,
    Lime,
    Occlusion,
    Saliency,
    ShapleyValues,
)
from captum.log import log_usage
from numpy.typing import ArrayLike
from torch import Tensor

from captum_concepts._support.checks import check_choice, check_finite, check_path, check_range, check_whole, to_array
from captum_concepts._support.running import error_text, nearest_functions, run_file
from captum_concepts.attributions.controls import RandomAttribution, SobelEdges
from captum_concepts.attributions.explain import ExplainFunc, explain_func
from captum_concepts.attributions.variants import AtLayer, Guided, Smoothed

PAPER_METHODS: Mapping[str, type[Attribution]] = MappingProxyType(
    {
        "Grad-CAM": LayerGradCam,
        "vanilla gradient": Saliency,
        "SmoothGrad": Saliency,
        "integrated gradients": IntegratedGradients,
        "IG + SmoothGrad": IntegratedGradients,
        "gradient x input": InputXGradient,
        "guided backpropagation": GuidedBackprop,
        "guided Grad-CAM": GuidedGradCam,
    }
)
"""Names of the methods, in the order of the paper, with the Captum class that each is built on."""

SMOOTHED_METHODS: Mapping[str, type[Attribution]] = MappingProxyType(
    {
        "Grad-CAM + SmoothGrad": LayerGradCam,
        "gradient x input + SmoothGrad": InputXGradient,
        "guided backpropagation + SmoothGrad": GuidedBackprop,
        "guided Grad-CAM + SmoothGrad": GuidedGradCam,
    }
)
"""Names of the further variants of the authors' release: smoothed versions of the other methods."""

CONTROL_METHODS: Mapping[str, type[Attribution]] = MappingProxyType(
    {"random": RandomAttribution, "Sobel edges": SobelEdges}
)
"""Names of the controls, with their classes."""

METHOD_NAMES = (*PAPER_METHODS, *SMOOTHED_METHODS, *CONTROL_METHODS)
"""All names that `build_method` knows."""


def build_methods(names: Iterable[str] | None = None, **settings: Any) -> dict[str, ExplainFunc]:
    """Build several of the methods.

    Parameters
    ----------
    names : iterable of str, optional
        As in `build_method`; the eight methods of the paper and the two controls by default.
    **settings : Any
        Further arguments of `build_method`.

    Returns
    -------
    dict of str to ExplainFunc
        In the order of `names`; it may be the `xai_methods` of `quantus.evaluate`.

    Raises
    ------
    ValueError
        If a name is not known, or a setting is out of range.
    TypeError
        If `names` is one string.

    Examples
    --------
    >>> from captum_concepts import build_methods
    >>> methods = build_methods(["Grad-CAM", "vanilla gradient", "random"], layer="layer4")
    >>> list(methods)  # goes into `xai_methods` of `quantus.evaluate`
    ['Grad-CAM', 'vanilla gradient', 'random']
    >>> len(build_methods())
    10
    """
    if isinstance(names, str):
        raise TypeError(f"Expected argument `names` to be a sequence of names but got one: {names!r}.")
    chosen = [*PAPER_METHODS, *CONTROL_METHODS] if names is None else names
    return {name: build_method(name, **settings) for name in chosen}


def build_method(
    name: str,
    *,
    layer: str | None = None,
    n_samples: int = 25,
    noise: float = 0.15,
    stdev: float | None = None,
    n_steps: int = 50,
    baseline: ArrayLike | Tensor = 0.0,
    batch_size: int = 64,
    device: torch.device | str | None = None,
    seed: int = 0,
) -> ExplainFunc:
    """Build one of the methods of the paper or its release, or a control, as an explanation function for Quantus.

    Signs and channels are kept, (N, C, H, W), since only positive attributions count, each channel for
    itself. Grad-CAM alone, smoothed or not, gives (N, 1, H, W): its positive part, upsampled bilinearly. No
    method depends on which images are explained together. In models of half precision the noise is brought to
    their type; averages are of float32.

    Deviations from Captum's defaults: "vanilla gradient" and "SmoothGrad" keep the sign (``abs=False``);
    guided Grad-CAM upsamples its Grad-CAM bilinearly, as its authors do. The guided methods are Captum's on
    the model as it is, but every ReLU gets a copy of its input: where other layers use that input as well
    (residual networks that activate first), Captum 0.9.0 would clip their gradients too.

    Parameters
    ----------
    name : str
        A key of `PAPER_METHODS`, `SMOOTHED_METHODS` or `CONTROL_METHODS`.
    layer : str, optional
        For those with Grad-CAM: dotted name of a layer in whichever model comes with the call; by default
        the last that gives maps, found in each model (`last_spatial_layer`). Models of tokens need it named.
    n_samples : int
        For those with SmoothGrad: noisy copies of each image.
    noise : float
        Standard deviation of that noise, as a share of the image's own range, its maximum less its minimum
        over all channels (SmoothGrad's noise level; 0.15 in the paper's code). Each image gets the same
        noise from the seed, scaled: two models or two versions of an image are compared under one noise.
    stdev : float, optional
        The same in units of the input, for all images alike; takes the place of `noise`.
    n_steps : int
        For the two with integrated gradients: steps of the integral.
    baseline : float or array
        Start of that integral, in units of the input: a number, one for each channel (C,), or an image
        (C, H, W). 0 is black where images are not normalised; ``-mean / std`` where they are.
    batch_size : int
        Batch size of the model; noisy copies and steps count as images.
    device : torch.device or str, optional
        Device if the model has neither parameters nor buffers.
    seed : int
        Random seed of the noise, and of the control "random".

    Returns
    -------
    ExplainFunc
        A callable ``(model, inputs, targets, **ignored) -> np.ndarray``, as of `explain_func`.

    Raises
    ------
    ValueError
        If the name is not known, or a setting is out of range; in a call of one of the guided methods, if
        the model has no `nn.ReLU` to guide, and of one with Grad-CAM, if it has no layer with maps or works on tokens.

    Examples
    --------
    >>> import numpy as np
    >>> from torch import nn
    >>> from captum_concepts import build_method
    >>> model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2))
    >>> explain = build_method("SmoothGrad", n_samples=4, seed=0)
    >>> explain(model, np.ones((2, 3, 8, 8)), np.array([0, 1])).shape
    (2, 3, 8, 8)
    """
    check_choice("name", name, METHOD_NAMES)
    for label, number in (("n_samples", n_samples), ("n_steps", n_steps), ("batch_size", batch_size)):
        check_whole(label, number, 1)
    for label, deviation in (("noise", noise), ("stdev", 0.0 if stdev is None else stdev)):
        check_range(label, deviation, 0, math.inf, open_high=True)
    steps: dict[str, Any] = {"n_steps": n_steps, "internal_batch_size": batch_size, "baselines": Baseline(baseline)}
    guided_cam = partial(AtLayer, attribution=GuidedGradCam, layer=layer)
    smoothed = partial(Smoothed, n_samples=n_samples, noise=noise, stdev=stdev, batch_size=batch_size)
    plain: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
        "Grad-CAM": (partial(AtLayer, attribution=LayerGradCam, layer=layer), {"relu_attributions": True}),
        "vanilla gradient": (Saliency, {"abs": False}),
        "integrated gradients": (IntegratedGradients, steps),
        "gradient x input": (InputXGradient, {}),
        "guided backpropagation": (Guided, {}),
        "guided Grad-CAM": (partial(Guided, inner=guided_cam), {"interpolate_mode": "bilinear"}),
    }
    names = {"vanilla gradient": "SmoothGrad", "integrated gradients": "IG + SmoothGrad"}
    factories = plain | {
        names.get(label, f"{label} + SmoothGrad"): (partial(smoothed, inner=factory), kwargs)
        for label, (factory, kwargs) in plain.items()
    }
    factories |= {"random": (partial(RandomAttribution, seed=seed), {}), "Sobel edges": (SobelEdges, {})}
    factory, kwargs = factories[name]
    return explain_func(factory, channels="keep", batch_size=batch_size, device=device, seed=seed, **kwargs)


@dataclass(frozen=True)
class Baseline:
    """A baseline of the shape of whatever inputs come: a number, (C,) or (C, H, W)."""

    value: Any

    def __post_init__(self) -> None:
        array = to_array("baseline", self.value)
        check_finite("baseline", array)
        if array.ndim not in (0, 1, 3):
            raise ValueError(
                "Expected argument `baseline` to be a number, one number for each channel (C,), or an image (C, H, W), "
                f"but got an array of shape {array.shape}."
            )

    def __call__(self, inputs: Tensor) -> Tensor:
        """Return the baseline of a batch."""
        value = torch.tensor(to_array("baseline", self.value)).to(inputs)
        if value.ndim == 1 and len(value) == inputs.shape[1]:
            value = value[:, None, None]
        if value.ndim and value.shape not in (inputs.shape[1:], (inputs.shape[1], 1, 1)):
            raise ValueError(
                f"Expected argument `baseline` to have shape (C,) or (C, H, W) for inputs {tuple(inputs.shape)} "
                f"but got {tuple(value.shape)}."
            )
        return value.expand_as(inputs)


# Perturbation methods change squares of an image rather than pixels: so many to a side.
_SQUARES = 8
# Captum's 25 samples are fewer than there are squares to weigh.
_SHAP_SAMPLES = 4 * _SQUARES**2


def method_from_spec(
    spec: str,
    *,
    layer: str | None = None,
    n_steps: int = 50,
    baseline: ArrayLike | Tensor = 0.0,
    batch_size: int = 64,
    device: torch.device | str | None = None,
    seed: int = 0,
    **settings: Any,
) -> Callable[..., Any]:
    """Return the explanation function that a text names.

    Three kinds are understood:

    - a name of `PAPER_METHODS`, `SMOOTHED_METHODS` or `CONTROL_METHODS`, in any case: "grad-cam";
    - a Captum class, likewise: "Occlusion" or "captum.attr.KernelShap". It is built with its own defaults, and gets
      `layer`, `n_steps` and `baseline` where it takes such arguments. What changes parts of the input
      (Occlusion, FeatureAblation, KernelShap, Lime, Shapley values) works on 8 x 8 squares of the image,
      all channels at once, KernelShap and Lime with 256 samples of them;
    - "module:function" or "path.py:function", one of the user's own. If it has a parameter `inputs`, it is
      an explanation function as of Quantus, ``(model, inputs, targets, **kwargs) -> array``, and returned
      as it is. Otherwise it is a function of the model that returns a Captum attribution::

          def my_method(model):
              return captum.attr.DeepLift(model)

      It may also name a Captum class, or a result of `explain_func`.

    Parameters
    ----------
    spec : str
        The text.
    layer : str, optional
        As in `build_method`; for layer attributions of Captum too.
    n_steps : int
        As in `build_method`; for all of Captum that has it.
    baseline : float or array
        As in `build_method`; for all of Captum that has it.
    batch_size : int
        Batch size of the model.
    device : torch.device or str, optional
        Device if a model has neither parameters nor buffers.
    seed : int
        For methods that draw at random.
    **settings : Any
        Further arguments of `build_method`, which the other two kinds have no use for.

    Returns
    -------
    callable
        ``(model, inputs, targets, **kwargs) -> np.ndarray``.

    Raises
    ------
    ValueError
        If nothing has that name (the nearest are listed), or it is a class that cannot explain images by
        itself.
    TypeError
        If the user's object is no function.

    Examples
    --------
    >>> import numpy as np
    >>> from torch import nn
    >>> from captum_concepts import method_from_spec
    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 2))
    >>> occlusion = method_from_spec("Occlusion")
    >>> occlusion(model, np.ones((2, 3, 16, 16)), np.array([0, 1])).shape
    (2, 3, 16, 16)
    """
    common: dict[str, Any] = {"batch_size": batch_size, "device": device, "seed": seed}
    named = {name.lower(): name for name in METHOD_NAMES}
    if spec.lower() in named:
        return build_method(named[spec.lower()], layer=layer, n_steps=n_steps, baseline=baseline, **common, **settings)
    method = _load_spec(spec) if ":" in spec else _captum_class(spec)
    if isinstance(method, type) and issubclass(method, Attribution):
        _check_usable(method)
        factory = partial(
            WithDefaults,
            attribution=method,
            layer=layer,
            n_steps=n_steps,
            baseline=Baseline(baseline),
            batch_size=batch_size,
        )
        return explain_func(factory, **common)
    if not callable(method):
        raise TypeError(f"Expected {spec!r} to be a function but got {type(method).__name__}.")
    if "inputs" in inspect.signature(method).parameters:
        return method
    return explain_func(method, **common)


class WithDefaults(Attribution):
    """A Captum attribution with the arguments filled in that images need."""

    def __init__(
        self,
        forward_func: Any,
        attribution: type[Attribution],
        layer: str | None,
        n_steps: int,
        baseline: Baseline,
        batch_size: int,
    ) -> None:
        super().__init__(forward_func)
        self.attribution = attribution
        self.n_steps, self.baseline, self.batch_size = n_steps, baseline, batch_size
        at_layer = "layer" in inspect.signature(attribution).parameters
        self.inner: Attribution = AtLayer(forward_func, attribution, layer) if at_layer else attribution(forward_func)

    @log_usage()
    def attribute(self, inputs: Tensor, target: Any = None) -> Any:
        """Return what the attribution gives."""
        arguments = inspect.signature(self.attribution.attribute).parameters
        kwargs = {name: value for name, value in self._defaults(inputs).items() if name in arguments}
        if "target" in arguments:
            kwargs["target"] = target
        return self.inner.attribute(inputs, **kwargs)

    def _defaults(self, inputs: Tensor) -> Mapping[str, Any]:
        channels, height, width = inputs.shape[1:]
        defaults: dict[str, Any] = {
            "n_steps": self.n_steps,
            "baselines": self.baseline(inputs.detach()),
            "internal_batch_size": max(self.batch_size, len(inputs)),
        }
        if issubclass(self.attribution, Occlusion):
            window = (max(1, height // _SQUARES), max(1, width // _SQUARES))
            return defaults | {"sliding_window_shapes": (channels, *window), "strides": (channels, *window)}
        # The mask of a layer method would be one of the layer.
        if not isinstance(self.inner, AtLayer):
            defaults["feature_mask"] = _squares(height, width).to(inputs.device).repeat(1, channels, 1, 1)
        if issubclass(self.attribution, KernelShap | Lime):
            defaults |= {"n_samples": _SHAP_SAMPLES, "perturbations_per_eval": self.batch_size}
        return defaults


def _squares(height: int, width: int) -> Tensor:
    """Return numbers 0, 1, ... of the squares that the pixels (H, W) of an image lie in."""
    rows = torch.arange(height) * min(_SQUARES, height) // height
    columns = torch.arange(width) * min(_SQUARES, width) // width
    return rows[:, None] * min(_SQUARES, width) + columns


def _captum_class(spec: str) -> Any:
    classes = {
        name.lower(): value
        for name, value in vars(captum.attr).items()
        if isinstance(value, type) and issubclass(value, Attribution)
    }
    name = spec.lower().removeprefix("captum.attr.")
    if name in classes:
        return classes[name]
    names_by_lower = {method.lower(): method for method in METHOD_NAMES}
    names_by_lower |= {lower: value.__name__ for lower, value in classes.items()}
    near = [names_by_lower[lower] for lower in difflib.get_close_matches(name, names_by_lower, n=3, cutoff=0.4)]
    hint = f"Nearest: {near}." if near else ""
    raise ValueError(
        f"Expected argument `spec`, a method, to be one of {[*METHOD_NAMES]}, a class of captum.attr, or "
        f"'module:function' or 'path.py:function' of your own, but got {spec!r}. {hint}"
    )


def _check_usable(attribution: type[Attribution]) -> None:
    """Raise for a class that is no method for images, or needs more than a model and a layer."""
    if attribution.__module__ == Attribution.__module__:
        raise ValueError(f"Expected a method but {attribution.__name__} is only what Captum's methods derive from.")
    if attribution is ShapleyValues:
        raise ValueError(
            f"Expected a method that ends but ShapleyValues goes through all orders of {_SQUARES**2} squares. Use "
            "ShapleyValueSampling."
        )
    first, *options = inspect.signature(attribution).parameters.values()
    needs = [option.name for option in options if option.default is option.empty and option.name != "layer"]
    if first.name not in ("model", "forward_func") or needs:
        lacking = needs or [first.name]
        raise ValueError(
            f"Expected a method that is built of a model, and a layer if need be, but {attribution.__name__} needs "
            f"{lacking}. Write a function of the model that returns it, and name that: 'path.py:function'."
        )
    parameters = inspect.signature(attribution.attribute).parameters
    if "neuron_selector" in parameters:
        raise ValueError(
            f"Expected a method that explains an output of the model but {attribution.__name__} explains a neuron. "
            "Write a function of the model that returns an attribution, and name that: 'path.py:function'."
        )


def _load_spec(spec: str) -> Any:
    """Return what "module:name" or "path.py:name" points at."""
    place, _, name = spec.rpartition(":")
    if place.endswith(".py"):
        if not check_path("spec", place).is_file():
            raise ValueError(
                f"Expected argument `spec` to be 'path.py:function' with a file that exists but got {spec!r}."
            )
        module = run_file(place)
    else:
        try:
            module = importlib.import_module(place)
        except Exception as error:  # a user's module may raise anything
            raise ValueError(
                "Expected argument `spec` to be 'module:function' with a module that can be imported but got "
                f"{spec!r}: {error_text(error)}."
            ) from error
    if not hasattr(module, name):
        raise ValueError(
            f"Expected {place!r} to have {name!r} but it has not. Nearest: {nearest_functions(module, name)}."
        )
    return getattr(module, name)
