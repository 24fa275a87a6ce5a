"""Attribution methods by name, as the papers run them."""

from __future__ import annotations

import math
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
    KernelShap,
    LayerGradCam,
    Lime,
    Saliency,
)
from numpy.typing import ArrayLike
from torch import Tensor

from captum_concepts.attributions.cams import CAM_METHODS, LibraryCAM
from captum_concepts.attributions.concept_methods import (
    CONCEPT_METHODS,
    ConceptRISE,
    RowByRow,
    SmallestChange,
    weight_times_value,
)
from captum_concepts.attributions.controls import RandomAttribution, SobelEdges
from captum_concepts.attributions.explain import CaptumExplainer, explain_func
from captum_concepts.attributions.variants import AtLayer, Guided, Smoothed
from captum_concepts.support.checks import check_choice, check_finite, check_range, check_whole, to_array

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

METHOD_NAMES = (*PAPER_METHODS, *SMOOTHED_METHODS, *CONTROL_METHODS, *CAM_METHODS)
"""All names of methods for images that `build_method` knows."""

# Copies of an image for SmoothGrad, and rows of changed concept values.
_COPIES, _ROWS = 25, 1000


def build_methods(names: Iterable[str] | None = None, **settings: Any) -> dict[str, CaptumExplainer]:
    """Build several of the methods.

    Parameters
    ----------
    names : iterable of str, optional
        As in `build_method`; the eight methods of the paper and the two controls by default.
    **settings : Any
        Further arguments of `build_method`.

    Returns
    -------
    dict of str to CaptumExplainer
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
    n_samples: int | None = None,
    noise: float = 0.15,
    stdev: float | None = None,
    n_steps: int = 50,
    baseline: ArrayLike | Tensor = 0.0,
    batch_size: int = 64,
    device: torch.device | str | None = None,
    seed: int = 0,
) -> CaptumExplainer:
    """Build one of the methods of the papers or a release, or a control, as an explanation function for Quantus.

    Signs and channels are kept, (N, C, H, W), since only positive attributions count, each channel for
    itself. Grad-CAM alone, smoothed or not, gives (N, 1, H, W): its positive part, upsampled bilinearly; the maps
    of `CAM_METHODS` are (N, 1, H, W) too, in [0, 1], as the library grad-cam makes them (`LibraryCAM`). No
    method depends on which images are explained together. In models of half precision the noise is brought to
    their type; averages are of float32.

    `CONCEPT_METHODS` explain values of concepts (N, L) by a head: call them with ``cbm.head`` and values in place of
    model and images. LIME-CBM and SHAP-CBM are Captum's `Lime` and `KernelShap`; RISE-CBM is the mean probability of
    the class over random masks that keep the value; CLIP-linear-sample is weight times value of a linear head;
    CLIP-QDA-sample is the smallest change of each value alone that changes the decision of a head of `fit_qda`, NaN
    where none does, small ones the important ones.

    Deviations from Captum's defaults: "vanilla gradient" and "SmoothGrad" keep the sign (``abs=False``);
    guided Grad-CAM upsamples its Grad-CAM bilinearly, as its authors do. The guided methods are Captum's on
    the model as it is, but every ReLU gets a copy of its input: where other layers use that input as well
    (residual networks that activate first), Captum 0.9.0 would clip their gradients too.

    Parameters
    ----------
    name : str
        A key of `PAPER_METHODS`, `SMOOTHED_METHODS`, `CONTROL_METHODS`, `CAM_METHODS` (extra `cam`) or
        `CONCEPT_METHODS`.
    layer : str, optional
        For those with Grad-CAM, and `CAM_METHODS`: dotted name of a layer in whichever model comes with the call;
        by default the last that gives maps, found in each model (`last_spatial_layer`). Models of tokens need it named
        for Grad-CAM; for the others see `LibraryCAM`.
    n_samples : int, optional
        For those with SmoothGrad: noisy copies of each image, by default 25. For LIME-CBM, SHAP-CBM and RISE-CBM:
        changed copies of each row of values, by default 1000.
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
        (C, H, W). 0 is black where images are not normalised; ``-mean / std`` where they are. For LIME-CBM, SHAP-CBM
        and RISE-CBM what stands in place of values, a number or (L,), `cbm.absent_values` for instance.
    batch_size : int
        Batch size of the model; noisy copies and steps count as images.
    device : torch.device or str, optional
        Device if the model has neither parameters nor buffers.
    seed : int
        Random seed of the noise, and of the control "random".

    Returns
    -------
    CaptumExplainer
        A callable ``(model, inputs, targets, **ignored) -> np.ndarray``, as of `explain_func`.

    Raises
    ------
    ValueError
        If the name is not known, or a setting is out of range; in a call of one of the guided methods, if
        the model has no `nn.ReLU` to guide, of one with Grad-CAM, if it has no layer with maps or works on tokens, and
        of CLIP-linear-sample and CLIP-QDA-sample if it is another head.

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
    check_choice("name", name, (*METHOD_NAMES, *CONCEPT_METHODS))
    copies, rows = (default if n_samples is None else n_samples for default in (_COPIES, _ROWS))
    for label, number in (("n_samples", copies), ("n_steps", n_steps), ("batch_size", batch_size)):
        check_whole(label, number, 1)
    for label, deviation in (("noise", noise), ("stdev", 0.0 if stdev is None else stdev)):
        check_range(label, deviation, 0, math.inf, open_high=True)
    steps: dict[str, Any] = {"n_steps": n_steps, "internal_batch_size": batch_size, "baselines": Baseline(baseline)}
    guided_cam = partial(AtLayer, attribution=GuidedGradCam, layer=layer)
    smoothed = partial(Smoothed, n_samples=copies, noise=noise, stdev=stdev, batch_size=batch_size)
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
    factories |= {label: (partial(LibraryCAM, layer=layer, cam=cam), {}) for label, cam in CAM_METHODS.items()}
    hidden: dict[str, Any] = {"baselines": steps["baselines"]}
    sampled = hidden | {"n_samples": rows, "perturbations_per_eval": batch_size}
    factories |= {
        "LIME-CBM": (partial(RowByRow, inner=Lime, seed=seed), sampled),
        "SHAP-CBM": (partial(RowByRow, inner=KernelShap, seed=seed), sampled),
        "RISE-CBM": (ConceptRISE, hidden | {"n_masks": rows}),
        "CLIP-linear-sample": (weight_times_value, {}),
        "CLIP-QDA-sample": (SmallestChange, {}),
    }
    factory, kwargs = factories[name]
    return explain_func(factory, channels="keep", batch_size=batch_size, device=device, seed=seed, **kwargs)


@dataclass(frozen=True)
class Baseline:
    """A baseline of the shape of whatever inputs come: a number, (C,) or (C, H, W); (L,) of concept values (N, L)."""

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
        if value.ndim == 1 and inputs.ndim == 4 and len(value) == inputs.shape[1]:
            value = value[:, None, None]
        if value.ndim and value.shape not in (inputs.shape[1:], (inputs.shape[1], 1, 1)):
            shapes = "(L,)" if inputs.ndim == 2 else "(C,) or (C, H, W)"
            raise ValueError(
                f"Expected argument `baseline` to have shape {shapes} for inputs {tuple(inputs.shape)} "
                f"but got {tuple(value.shape)}."
            )
        return value.expand_as(inputs)
