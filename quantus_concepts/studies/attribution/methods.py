"""Attribution methods that one text names: the papers', Captum's classes, or a function in a user's file."""

from __future__ import annotations

import difflib
import importlib
import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import captum.attr
import torch
from captum.attr import Attribution, KernelShap, Lime, Occlusion, ShapleyValues
from captum.log import log_usage
from numpy.typing import ArrayLike
from torch import Tensor

from captum_concepts import build_method, explain_func
from captum_concepts.attributions.cams import CAM_METHODS
from captum_concepts.attributions.methods import METHOD_NAMES, Baseline
from captum_concepts.attributions.variants import AtLayer
from captum_concepts.lazy import check_extra
from captum_concepts.support.checks import check_path
from captum_concepts.support.running import error_text, nearest_functions, run_file

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

    It may be a name of `build_method`; a class of Captum, "Occlusion" or "captum.attr.KernelShap", with its own
    defaults, of which those that change parts of the input work on 8 x 8 squares of the image, all channels at once;
    or "module:function" or "path.py:function", the user's own: an explanation function as of Quantus if it has a
    parameter `inputs`, else a function of the model that returns an attribution, a class or a result of `explain_func`.
    """
    common: dict[str, Any] = {"batch_size": batch_size, "device": device, "seed": seed}
    named = {name.lower(): name for name in METHOD_NAMES}
    if spec.lower() in named:
        if named[spec.lower()] in CAM_METHODS:
            # Now, and not when networks are trained.
            check_extra("pytorch_grad_cam", "cam", f"The class activation map {named[spec.lower()]}")
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


def named_methods(names: Iterable[str], **settings: Any) -> dict[str, Callable[..., Any]]:
    """Build the methods that `--methods` names, each as `method_from_spec` does."""
    try:
        return {name: method_from_spec(name, **settings) for name in names}
    except (ValueError, TypeError) as error:
        raise ValueError(f"`--methods` names what cannot be used. {error}") from error


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
