"""Concept activation maps: where in an image a concept's value comes from."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from captum.attr import LayerActivation, LayerAttribution
from captum.log import log_usage
from numpy.typing import ArrayLike
from torch import Tensor, nn
from torch.nn import functional

from captum_concepts.attributions.outputs import (
    Targets,
    as_targets,
    extra_arguments,
    find_targets,
    input_tensors,
)
from captum_concepts.backbones.layers import find_layer, watch_layer
from captum_concepts.backbones.pooling import project_maps
from captum_concepts.models.chain import ConceptChain
from captum_concepts.support.checks import check_axes, check_finite, to_numpy, to_tensor
from captum_concepts.support.running import evaluation_mode, tensor_output
from captum_concepts.texts import describe, show_value

if TYPE_CHECKING:
    from captum_concepts.bank.bank import ConceptBank


class CoAM(LayerAttribution):
    r"""Concept activation mapping (Aysel et al. 2025, Eq. 2 and Algorithm 1).

    The map of concept j is the feature map weighted by the concept's activation vector (CAV) c_j,

    .. math:: F_{ij} = \frac{1}{d} \sum_{k=1}^{d} c_{jk} \, E_i(:, :, k),

    with E_i the maps of image i. The CAV enters as it is, neither normalised nor with its intercept: both leave
    the order of the pixels alone. All concepts of a batch are one matrix product.

    There are two ways to say what E is. ``CoAM(model)``, or `CoAM.of`, takes a concept model and uses the maps that
    model itself makes (its ``concept_maps``): right for every backbone, also where E is not a layer's output, as
    with tokens, channels last, or layers between the pool and the concepts. ``CoAM(forward_func, layer, cavs)``
    weights a layer of any model.

    If values are raw, ``u = C mean(E)``, the map times ``d / (h w)`` is what Captum's
    ``LayerGradCam(concept_predictor, layer)`` gives with ``relu_attributions=False``; for margins that is
    divided by the norm of the CAV as well. Behind any other pooling (class token, attention, norm after the
    pool) the map is local evidence and not a decomposition of the value.

    Parameters
    ----------
    forward_func : callable or nn.Module
        A concept model or its ``concept_predictor``; with `layer`, anything that runs it: the backbone, the
        concept predictor or the whole concept model.
    layer : nn.Module or str, optional
        The layer whose output (N, d, h, w) is weighted; a dotted name is looked up in `forward_func`.
    cavs : Tensor, array or ConceptBank, optional
        (L, d), one row for each concept. They follow the features to their device and type. Left out together
        with `layer`.
    device_ids : list of int, optional
        As in Captum: only for a `forward_func` that calls a `DataParallel` model.

    Raises
    ------
    TypeError
        If only one argument is given and it is no concept model, or `layer` is a name and `forward_func` no module.
    ValueError
        If `cavs` is not a finite (L, d) array without rows of zeros, `forward_func` has no module of that name, only
        one of `layer` and `cavs` is given, or `layer` is known not to give the maps of this concept model.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from captum_concepts import CoAM
    >>> model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU())
    >>> coam = CoAM(model, layer="1", cavs=torch.ones(5, 4))  # 5 concepts
    >>> coam.attribute(torch.rand(2, 3, 8, 8), target=0).shape
    torch.Size([2, 1, 6, 6])
    """

    def __init__(
        self,
        forward_func: Callable[..., object],
        layer: nn.Module | str | None = None,
        cavs: Tensor | ArrayLike | ConceptBank | None = None,
        device_ids: list[int] | None = None,
    ) -> None:
        self.cavs: Tensor | None = None
        self._names: list[str] = []
        self._owner: ConceptChain | None = None
        if layer is None and cavs is None:
            _check_concept_model("forward_func", forward_func)
            super().__init__(forward_func, getattr(forward_func, "features", forward_func), device_ids)
            self._names = list(getattr(getattr(forward_func, "concept_layer", None), "names", ()))
            return
        if layer is None or cavs is None:
            raise ValueError(
                "Expected arguments `layer` and `cavs` together but got one of them. A concept model needs neither."
            )
        if isinstance(layer, str):
            if not isinstance(forward_func, nn.Module):
                raise TypeError(
                    f"Expected argument `layer` to be a module, since `forward_func` is none, but got {layer!r}."
                )
            layer = find_layer(forward_func, layer)
        super().__init__(forward_func, layer, device_ids)
        self.cavs = _as_cavs(cavs)
        # A tensor has `names` too, of its dimensions.
        self._names = [] if isinstance(cavs, Tensor) else list(getattr(cavs, "names", ()))
        self._owner = _owner(forward_func, layer, self.cavs)

    def __repr__(self) -> str:
        if self.cavs is None:
            return describe(self, show_value(self.forward_func))
        return describe(self, show_value(self.forward_func), layer=self.layer, cavs=self.cavs)

    @classmethod
    def of(cls, model: nn.Module) -> CoAM:
        """Return the attribution of a concept model by its own maps; ``explain_func(CoAM.of)`` makes it for any.

        Parameters
        ----------
        model : PostHocCBM, BottleneckCBM or another concept model
            The model, or its ``concept_predictor``.

        Returns
        -------
        CoAM
            The same as ``CoAM(model)``; its maps are those of ``model.concept_maps``.

        Raises
        ------
        TypeError
            If it is no concept model.
        """
        _check_concept_model("model", model)
        return cls(model)

    @property
    def multiplies_by_inputs(self) -> bool:
        """True: the weight of a channel is multiplied by its activation."""
        return True

    @log_usage()
    def attribute(
        self,
        inputs: Tensor | tuple[Tensor, ...],
        target: Targets = None,
        additional_forward_args: object = None,
        attribute_to_layer_input: bool = False,
        input_shaped: bool = False,
    ) -> Tensor | tuple[Tensor, ...]:
        """Return the maps of one concept, of one concept for each image, or of all.

        The model runs in eval mode and is left as it was.

        Parameters
        ----------
        inputs : Tensor or tuple of Tensor
            Inputs of `forward_func`; images are (N, C, H, W).
        target : int, str, Tensor, list or array, optional
            Index of the concept, the same for all images (int, or a tensor of one element), or one for
            each image (N,) or one-hot (N, L); or names, where `cavs` is a bank or the concept model has one. None
            gives the maps of all L concepts.
        additional_forward_args : object
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
            If `target` is out of range, no name of a concept, or has another length than the inputs; if the layer is
            not run, its output is not one (N, d, h, w) tensor with the d of the CAVs, or not the maps of the concept
            model that the CAVs are of; if maps cannot take the shape of the input; or if a concept model gets anything
            but images.
        """
        is_tuple = isinstance(inputs, tuple)
        tensors = input_tensors(inputs)
        concepts = None
        if target is not None:
            names = find_targets(target, self._names)
            concepts = as_targets(names, len(tensors[0]), n_outputs=self._n_concepts())
        if input_shaped:
            self._check_input_shaped(tensors, concepts)
        with evaluation_mode(self.forward_func, self.layer), torch.no_grad():
            if self.cavs is None:
                maps = self._own_maps(tensors, concepts, additional_forward_args, attribute_to_layer_input)
            else:
                features = self._activation(tensors, additional_forward_args, attribute_to_layer_input)
                _check_features(features, self.cavs.shape[1], tensors[0])
                maps = project_maps(features, self.cavs, _as_columns(concepts))
        maps = maps.detach().contiguous()
        if input_shaped:
            image = tensors[0]
            maps = functional.interpolate(maps, image.shape[2:], mode="bilinear", align_corners=False)
            maps = (maps / image.shape[1]).expand(image.shape).contiguous()
        return (maps,) if is_tuple else maps

    def _n_concepts(self) -> int | None:
        """Return L where it is known."""
        if self.cavs is not None:
            return len(self.cavs)
        owner = getattr(self.forward_func.concept_maps, "__self__", None)
        return owner.n_concepts() if isinstance(owner, ConceptChain) else None

    def _own_maps(self, inputs: tuple[Tensor, ...], concepts: Tensor | None, args: object, of_input: bool) -> Tensor:
        """Return the maps of a concept model as it makes them."""
        if len(inputs) != 1 or args is not None or of_input:
            raise ValueError(
                "Expected argument `inputs` to be one batch of images, without `additional_forward_args` or "
                "`attribute_to_layer_input`, since the maps of a concept model are made of images alone. Pass `layer` "
                "and `cavs` for anything else."
            )
        # A model of a user's own may index by them as they are.
        columns = None if concepts is None else _as_columns(concepts.to(inputs[0].device))
        return self.forward_func.concept_maps(inputs[0], columns)

    def _activation(self, inputs: tuple[Tensor, ...], args: object, of_input: bool) -> Tensor:
        """Run the model once and return what the layer gave, or its input."""
        if self.device_ids is not None or isinstance(self.forward_func, nn.DataParallel):
            # The replicas run in threads of their own; Captum gathers them.
            activation = LayerActivation(self.forward_func, self.layer, self.device_ids)
            return tensor_output(activation.attribute(inputs, args, of_input), "`layer`")
        layer_outputs: list[Any] = []
        backbone_outputs: list[Any] = []
        owner = self._owner

        def keep(outputs: list[Any], output: Any) -> None:
            # The last call counts, as in Captum. Copied, since layers behind it may work in place.
            outputs[:] = [tensor_output(output, "`layer`").clone()]

        with (
            watch_layer(self.layer, partial(keep, layer_outputs), of_input),
            watch_layer(owner.features, partial(keep, backbone_outputs)) if owner is not None else nullcontext(),
        ):
            self.forward_func(*inputs, *extra_arguments(args))
        if not layer_outputs:
            raise ValueError(
                f"Expected argument `layer` to take part in the forward pass but {type(self.layer).__name__} was not "
                "run. Name another."
            )
        features: Tensor = layer_outputs[0]
        if owner is None or not backbone_outputs or features.ndim != 4:
            return features
        if not torch.equal(features, owner.pooling.feature_maps(backbone_outputs[0])):
            raise ValueError(
                f"Expected argument `layer` to give the maps that `cavs`, the concepts of this {type(owner).__name__}, "
                f"are of, but {type(self.layer).__name__} gives others. Use `CoAM.of(model)`."
            )
        return features

    def _check_input_shaped(self, inputs: tuple[Tensor, ...], concepts: Tensor | None) -> None:
        if len(inputs) != 1 or inputs[0].ndim != 4:
            raise ValueError(
                "Expected argument `inputs` to be one image tensor of shape (N, C, H, W), as "
                f"`input_shaped=True` needs, but got {[tuple(tensor.shape) for tensor in inputs]}."
            )
        if concepts is None and (self.cavs is None or len(self.cavs) != 1):
            raise ValueError(
                "Expected argument `target` to name a concept, as `input_shaped=True` needs, but got None: the maps of "
                "several concepts do not fit into one input."
            )


def _check_features(features: Tensor, d: int, inputs: Tensor) -> None:
    shape = tuple(features.shape)
    if features.ndim == 4 and shape[1] == d:
        return
    advice = "The CAVs must have been fitted on the channels of this layer."
    if features.ndim == inputs.ndim == 3:
        advice = "One image is a batch of one: pass `inputs[None]`."
    elif features.ndim != 4:
        advice = "Choose a layer before the pooling, or put a module there that gives tokens back their grid."
    elif shape[3] == d:
        advice = "If the channels come last there, choose a layer that gives them first."
    raise ValueError(
        f"Expected argument `layer` to give a tensor (N, d, h, w) with d = {d}, the width of `cavs`, but it gives "
        f"{shape}. {advice}"
    )


def _check_concept_model(name: str, model: Callable[..., object]) -> None:
    if isinstance(model, type) or not callable(getattr(model, "concept_maps", None)):
        raise TypeError(
            f"Expected argument `{name}` to be a concept model (PostHocCBM, BottleneckCBM, or any with `concept_maps`) "
            f"or its `concept_predictor` but got {type(model).__name__}. For any other model pass `layer` and `cavs` "
            "too."
        )


def _owner(forward_func: Callable[..., object], layer: nn.Module, cavs: Tensor) -> ConceptChain | None:
    """Return the concept model that the CAVs are of, where `forward_func` is or belongs to it; refuse a wrong layer."""
    owner = getattr(getattr(forward_func, "concept_maps", None), "__self__", None)
    if not isinstance(owner, ConceptChain) or owner.n_concepts() is None:
        return None
    if layer is owner.features and owner.pooling.maps is not None:
        raise ValueError(
            f"Expected argument `layer` to give the maps that concepts are of but `features` of this "
            f"{type(owner).__name__} does not: its maps are made from that output by `maps`. Use `CoAM.of(model)`; for "
            "CAVs of the output itself pass `features` as `forward_func` too."
        )
    weights = owner.map_weights().detach()
    if layer is owner.features or cavs.shape[1] != weights.shape[1]:
        return None
    concept_rows = {row.tobytes() for row in to_numpy(weights)}
    return owner if all(row.tobytes() in concept_rows for row in to_numpy(cavs.to(weights.dtype))) else None


def _as_cavs(cavs: Tensor | ArrayLike | ConceptBank) -> Tensor:
    # By the attribute, not the class: any object with CAVs will do.
    values = to_tensor("cavs", getattr(cavs, "cavs", cavs))
    check_axes(cavs=(values, "L d"))
    check_finite("cavs", values)
    if not values.numel() or not values.any(1).all():
        raise ValueError(
            f"Expected argument `cavs` to hold (L, d) vectors without zeros but got {tuple(values.shape)} with zeros "
            f"in rows {(~values.any(1)).nonzero().flatten().tolist()}. Leave these concepts out."
        )
    return values if values.is_floating_point() else values.float()


def _as_columns(concepts: Tensor | None) -> Tensor | None:
    """Return one index for all (1,), or one for each image (N, 1), in the form that `concept_maps` takes."""
    return concepts if concepts is None or len(concepts) == 1 else concepts[:, None]
