"""Concept activation maps: where in an image a concept's value comes from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from captum.attr import LayerActivation
from captum.attr._utils.attribution import LayerAttribution
from captum.log import log_usage
from torch import Tensor, nn
from torch.nn import functional

from captum_concepts.checks import check_finite, check_shape
from captum_concepts.layers import find_layer


class CoAM(LayerAttribution):
    r"""Concept activation mapping (Aysel et al. 2025, Eq. 2 and Algorithm 1).

    The map of concept j is the feature map weighted by the concept's activation vector (CAV) c_j,

    .. math:: F_{ij} = \frac{1}{d} \sum_{k=1}^{d} c_{jk} \, E_i(:, :, k),

    with E_i the output of `layer` for image i. The CAV enters as it is, neither normalised nor with its
    intercept: both leave the order of the pixels alone. All concepts of a batch are one matrix product.

    Where values are raw, ``u = C mean(E)``, the map times ``d / (h w)`` is what Captum's
    ``LayerGradCam(concept_predictor, layer)`` gives with ``relu_attributions=False``; for margins that is
    divided by the norm of the CAV as well. Behind any other pooling (class token, attention, norm after the
    pool) the map is local evidence and not a decomposition of the value.

    Parameters
    ----------
    forward_func : callable or nn.Module
        Anything that runs `layer`: the backbone, the concept predictor or the whole concept model.
    layer : nn.Module or str
        The layer whose output (N, d, h, w) is weighted; a dotted name is looked up in `forward_func`.
    cavs : Tensor, array or ConceptBank
        (L, d), one row for each concept. They follow the features to their device and type.
    device_ids : list of int, optional
        As in Captum: only for a `forward_func` that calls a `DataParallel` model.

    Raises
    ------
    TypeError
        If `layer` is neither a module nor a name, or is a name and `forward_func` no module.
    ValueError
        If `cavs` is not a finite (L, d) array, or `forward_func` has no module of that name.

    Examples
    --------
    >>> model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU())
    >>> CoAM(model, "1", torch.ones(5, 4)).attribute(torch.rand(2, 3, 8, 8), target=0).shape
    torch.Size([2, 1, 6, 6])
    """

    def __init__(
        self,
        forward_func: Callable[..., Any],
        layer: nn.Module | str,
        cavs: Any,
        device_ids: list[int] | None = None,
    ) -> None:
        if isinstance(layer, str):
            if not isinstance(forward_func, nn.Module):
                raise TypeError(
                    f"Expected argument `layer` to be a module, since `forward_func` is no nn.Module to look "
                    f"the name {layer!r} up in, but is {type(forward_func).__name__}. Pass the layer itself."
                )
            layer = find_layer(forward_func, layer)
        elif not isinstance(layer, nn.Module):
            raise TypeError(
                f"Expected argument `layer` to be an nn.Module or the name of one but got {type(layer).__name__}."
            )
        super().__init__(forward_func, layer, device_ids)
        self.cavs = _as_cavs(cavs)

    @property
    def multiplies_by_inputs(self) -> bool:
        """True: the weight of a channel is multiplied by its activation."""
        return True

    @log_usage()
    def attribute(
        self,
        inputs: Tensor | tuple[Tensor, ...],
        target: int | Tensor | list[int] | np.ndarray | None = None,
        additional_forward_args: Any = None,
        attribute_to_layer_input: bool = False,
        input_shaped: bool = False,
    ) -> Tensor | tuple[Tensor, ...]:
        """Return the maps of one concept, of one concept for each image, or of all.

        Parameters
        ----------
        inputs : Tensor or tuple of Tensor
            What `forward_func` takes; images are (N, C, H, W).
        target : int, Tensor, list or array, optional
            Index of the concept, the same for all images (int, or a tensor of one element), or one for
            each image (N,). None gives the maps of all L concepts.
        additional_forward_args : Any
            Handed to `forward_func` behind the inputs.
        attribute_to_layer_input : bool
            Whether to weight the layer's input instead of its output.
        input_shaped : bool
            Whether to bring the map to the shape of the input, as `captum.metrics.infidelity` needs:
            upsampled bilinearly (``align_corners=False``), and shared out equally among the C channels, so
            that summing over channels gives the upsampled map back. Takes one image input and a target.

        Returns
        -------
        Tensor or tuple of Tensor
            (N, L, h, w), or (N, 1, h, w) with a target, or (N, C, H, W) if `input_shaped`; contiguous, and
            without gradient. A tuple of one if `inputs` is a tuple, as Captum's metrics need.
            Features of half precision give maps in float32.

        Raises
        ------
        TypeError
            If `target` does not hold integers.
        ValueError
            If `target` is out of range or has another length than the inputs, if the layer's output is not
            one (N, d, h, w) tensor with the d of the CAVs, or if maps cannot take the shape of the input.
        """
        is_tuple = isinstance(inputs, tuple)
        tensors: tuple[Tensor, ...] = inputs if isinstance(inputs, tuple) else (inputs,)
        concepts = _as_concepts(target, len(tensors[0]), len(self.cavs))
        if input_shaped:
            self._check_input_shaped(tensors, concepts)

        features = LayerActivation(self.forward_func, self.layer, self.device_ids).attribute(
            inputs, additional_forward_args, attribute_to_layer_input
        )
        self._check_features(features, concepts)
        maps = weigh(features, self.cavs, concepts)
        if input_shaped:
            image = tensors[0]
            maps = functional.interpolate(maps, image.shape[2:], mode="bilinear", align_corners=False)
            maps = (maps / image.shape[1]).expand(image.shape).contiguous()
        return (maps,) if is_tuple else maps

    def _check_input_shaped(self, inputs: tuple[Tensor, ...], concepts: Tensor | None) -> None:
        if len(inputs) != 1 or inputs[0].ndim != 4:
            raise ValueError(
                "Expected argument `inputs` to be one image tensor of shape (N, C, H, W), as "
                f"`input_shaped=True` needs, but got {[tuple(each.shape) for each in inputs]}."
            )
        if concepts is None and len(self.cavs) != 1:
            raise ValueError(
                f"Expected argument `target` to name a concept, as `input_shaped=True` needs, but got None: "
                f"the maps of {len(self.cavs)} concepts do not fit into one input."
            )

    def _check_features(self, features: Any, concepts: Tensor | None) -> None:
        d = self.cavs.shape[1]
        if not isinstance(features, Tensor):
            shapes = [tuple(each.shape) for each in features]
            raise ValueError(
                f"Expected argument `layer` to give one tensor (N, d, h, w) but it gives {len(features)}, of "
                f"shapes {shapes}. Choose the layer behind or before it."
            )
        shape = tuple(features.shape)
        if features.ndim != 4:
            raise ValueError(
                f"Expected argument `layer` to give a tensor (N, d, h, w) with d = {d} but it gives {shape}. "
                "Choose a layer before the pooling, or put a module there that gives tokens back their grid."
            )
        if shape[1] != d:
            last = shape[3] == d
            advice = (
                "The channels seem to come last: choose a layer that gives them first."
                if last
                else "The CAVs must have been fitted on the channels of this layer."
            )
            raise ValueError(
                f"Expected argument `layer` to give a tensor (N, d, h, w) with d = {d}, the width of `cavs`, "
                f"but it gives {shape}. {advice}"
            )
        if concepts is not None and len(concepts) not in (1, shape[0]):
            raise ValueError(
                f"Expected argument `target` to have shape (N,) = ({shape[0]},), the number of samples that "
                f"`layer` gives, but got ({len(concepts)},)."
            )


def weigh(features: Tensor, cavs: Tensor, concepts: Tensor | None = None) -> Tensor:
    """Weight feature maps by activation vectors (Eq. 2), all in one matrix product.

    Parameters
    ----------
    features : Tensor
        (N, d, h, w).
    cavs : Tensor
        (L, d), on any device.
    concepts : Tensor, optional
        Rows of `cavs` wanted: (1,) for the same one everywhere, (N,) for one for each sample; None for all.

    Returns
    -------
    Tensor
        (N, 1, h, w), or (N, L, h, w) if `concepts` is None, contiguous.
    """
    n, d, h, w = features.shape
    # Half precision would round maps that are only ranked; under autocast the product would fall back to it.
    if features.dtype in (torch.float16, torch.bfloat16):
        features = features.float()
    weights = cavs if concepts is None else cavs[concepts.to(cavs.device)]
    weights = weights.to(features.device, features.dtype) / d
    weights = weights.unsqueeze(0) if concepts is None else weights.unsqueeze(1)
    with torch.autocast(features.device.type, enabled=False):
        maps = torch.bmm(weights.expand(n, -1, -1), features.flatten(2))
    return maps.reshape(n, -1, h, w)


def _as_cavs(cavs: Any) -> Tensor:
    # A bank is known by its attribute, so that anything with CAVs will do.
    values = torch.as_tensor(getattr(cavs, "cavs", cavs)).detach()
    check_shape("cavs", values, ("L", "d"), (None, None))
    if not values.numel():
        raise ValueError(f"Expected argument `cavs` to hold at least one concept but got shape {tuple(values.shape)}.")
    check_finite("cavs", values)
    return values if values.is_floating_point() else values.float()


def _as_concepts(target: Any, n_samples: int, n_concepts: int) -> Tensor | None:
    """Return concept indices (1,) or (N,), checked, or None for all."""
    if target is None:
        return None
    values = torch.as_tensor(target)
    if values.dtype == torch.bool or values.is_floating_point() or values.is_complex():
        raise TypeError(
            f"Expected argument `target` to hold concept indices (integers) but got {str(values.dtype)[6:]}."
        )
    # As Captum reads it: a tensor of one element counts for all samples, a list has one for each.
    shared = values.ndim == 0 or (values.numel() == 1 and not isinstance(target, list | tuple))
    if not shared and values.shape != (n_samples,):
        raise ValueError(
            f"Expected argument `target` to be one concept index, or to have shape (N,) = ({n_samples},), "
            f"but got shape {tuple(values.shape)}."
        )
    values = values.reshape(-1).long()
    outside = (values < 0) | (values >= n_concepts)
    if outside.any():
        raise ValueError(
            f"Expected argument `target` to lie in 0..{n_concepts - 1}, one index for each of the "
            f"{n_concepts} concepts, but got {int(values[outside][0])}."
        )
    return values
