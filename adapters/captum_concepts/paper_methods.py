"""The attribution methods of the benchmark's paper and release, all Captum's, and the controls, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

import torch
from captum.attr import (
    Attribution,
    GuidedBackprop,
    GuidedGradCam,
    InputXGradient,
    IntegratedGradients,
    LayerGradCam,
    Saliency,
)
from torch import Tensor

from captum_concepts.checks import (
    as_list,
    check_choice,
    check_finite,
    check_seed,
    check_weight,
    check_whole,
    to_array,
    to_numpy,
)
from captum_concepts.controls import RandomAttribution, SobelEdges
from captum_concepts.explain import ExplainFunc, explain_func
from captum_concepts.factories import check_layer_name
from captum_concepts.variants import AtLayer, Guided, Smoothed

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
"""Names of the further variants of the authors' release: what the paper does not smooth, smoothed."""

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
        If `names` is one string, or a setting of the wrong kind.
    """
    if isinstance(names, str):
        raise TypeError(f"Expected argument `names` to hold names of methods but got one text: [{names!r}] is a list.")
    chosen = [*PAPER_METHODS, *CONTROL_METHODS] if names is None else as_list("names", names, "names of methods")
    for name in chosen:
        check_choice("names", name, METHOD_NAMES)
    return {name: build_method(name, **settings) for name in chosen}


def build_method(
    name: str,
    *,
    layer: str | None = None,
    n_samples: int = 25,
    noise: float = 0.15,
    stdev: float | None = None,
    n_steps: int = 50,
    baseline: Any = 0.0,
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
        Where that integral starts, in units of the input: a number, one for each channel (C,), or an image
        (C, H, W). 0 is black where images are not normalised; ``-mean / std`` where they are.
    batch_size : int
        Images, or noisy copies and steps of them, that the model gets at once.
    device : torch.device or str, optional
        Where to work if the model has neither parameters nor buffers.
    seed : int
        Of the noise, and of the control "random".

    Returns
    -------
    ExplainFunc
        A callable ``(model, inputs, targets, **ignored) -> np.ndarray``, as of `explain_func`.

    Raises
    ------
    ValueError
        If the name is not known, or a setting is out of range; in a call of one of the guided methods, if
        the model has no `nn.ReLU` to guide, and of one with Grad-CAM, if it has no layer with maps or works on tokens.
    """
    check_choice("name", name, METHOD_NAMES)
    check_layer_name(layer)
    for label, count in {"n_samples": n_samples, "n_steps": n_steps, "batch_size": batch_size}.items():
        check_whole(label, count, 1)
    check_seed(seed)
    check_weight("noise", noise)
    if stdev is not None:
        check_weight("stdev", stdev)
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
        names.get(each, f"{each} + SmoothGrad"): (partial(smoothed, inner=factory), kwargs)
        for each, (factory, kwargs) in plain.items()
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
        if array.ndim not in (0, 1, 3) or array.dtype.kind not in "iuf":
            raise ValueError(
                "Expected argument `baseline` to be a number, one number for each channel (C,), or an image (C, H, W), "
                f"but got an array of shape {array.shape} and type {array.dtype}."
            )

    def __call__(self, inputs: Tensor) -> Tensor:
        """Return the baseline of a batch."""
        value = torch.tensor(to_numpy(self.value)).to(inputs)
        if value.ndim == 1:
            value = value[:, None, None]
        if value.ndim and value.shape not in (inputs.shape[1:], (inputs.shape[1], 1, 1)):
            raise ValueError(
                f"Expected argument `baseline` to have shape (C,) or (C, H, W) for inputs {tuple(inputs.shape)} "
                f"but got {tuple(to_numpy(self.value).shape)}."
            )
        return value.expand_as(inputs)
