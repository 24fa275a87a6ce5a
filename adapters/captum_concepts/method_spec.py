"""An attribution method from one text: a name, a Captum class, or a function of the user's own."""

from __future__ import annotations

import difflib
import importlib
import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import captum.attr
import torch
from captum.attr import Attribution, KernelShap, Lime, Occlusion, ShapleyValues
from captum.log import log_usage
from torch import Tensor

from captum_concepts.checks import check_path, check_seed, check_whole
from captum_concepts.explain import explain_func
from captum_concepts.factories import check_layer_name
from captum_concepts.paper_methods import METHOD_NAMES, Baseline, build_method
from captum_concepts.running import error_text, nearest_functions, run_file
from captum_concepts.variants import AtLayer

# Perturbation methods change squares of an image rather than pixels: so many to a side.
_SQUARES = 8
# Captum's 25 samples are fewer than there are squares to weigh.
_SHAP_SAMPLES = 4 * _SQUARES**2


def method_from_spec(
    spec: str,
    *,
    layer: str | None = None,
    n_steps: int = 50,
    baseline: Any = 0.0,
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

      A Captum class, or what `explain_func` gives, may stand there too.

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
        Images that the model gets at once.
    device : torch.device or str, optional
        Where to work if a model has neither parameters nor buffers.
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
    """
    if not isinstance(spec, str):
        raise TypeError(f"Expected argument `spec` to be a text that names a method but got {type(spec).__name__}.")
    check_layer_name(layer)
    check_whole("n_steps", n_steps, 1)
    check_seed(seed)
    common: dict[str, Any] = {"batch_size": batch_size, "device": device, "seed": seed}
    named = {name.lower(): name for name in METHOD_NAMES}
    if spec.lower() in named:
        return build_method(named[spec.lower()], layer=layer, n_steps=n_steps, baseline=baseline, **common, **settings)
    found = _load(spec) if ":" in spec else _captum_class(spec)
    if isinstance(found, type) and issubclass(found, Attribution):
        _check_usable(found)
        factory = partial(
            WithDefaults,
            attribution=found,
            layer=layer,
            n_steps=n_steps,
            baseline=Baseline(baseline),
            batch_size=batch_size,
        )
        return explain_func(factory, **common)
    if not callable(found):
        raise TypeError(f"Expected {spec!r} to be a function but got {type(found).__name__}.")
    if "inputs" in inspect.signature(found).parameters:
        return found
    return explain_func(found, **common)


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
        known.lower(): value
        for known, value in vars(captum.attr).items()
        if isinstance(value, type) and issubclass(value, Attribution)
    }
    name = spec.lower().removeprefix("captum.attr.")
    if name in classes:
        return classes[name]
    every = {each.lower(): each for each in METHOD_NAMES}
    every |= {lower: value.__name__ for lower, value in classes.items()}
    near = [every[each] for each in difflib.get_close_matches(name, every, n=3, cutoff=0.4)]
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
    first, *others = inspect.signature(attribution).parameters.values()
    needs = [each.name for each in others if each.default is each.empty and each.name != "layer"]
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


def _load(spec: str) -> Any:
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
        except Exception as error:  # whatever the user's module raises
            raise ValueError(
                "Expected argument `spec` to be 'module:function' with a module that can be imported but got "
                f"{spec!r}: {error_text(error)}."
            ) from error
    if not hasattr(module, name):
        raise ValueError(
            f"Expected {place!r} to have {name!r} but it has not. Nearest: {nearest_functions(module, name)}."
        )
    return getattr(module, name)
