"""Backbones from Hugging Face's transformers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from captum_concepts.backbones.backbone import (
    Backbone,
    Normalisation,
    is_family,
    refusal,
    shared_copy,
    square,
    unwrap,
)
from captum_concepts.backbones.pools import MeanThen, TokenPool, check_map_size, check_square, to_grid, token_backbone

_KNOWN = ("ResNet", "ConvNext", "Swin", "ViT", "DeiT", "Dinov2", "CLIP vision", "Siglip vision")


def from_transformers(model: nn.Module, processor: object = None) -> Backbone:
    """Cut a vision model of Hugging Face's transformers before its pooling.

    The embedding is what the model's own classifier reads; of a model without one what a classifier of its family
    would read, and of CLIP and SigLIP that of ``model.get_image_features``, without normalisation, so that a bank of
    text embeddings has its width.

    =====================================================  ==============================================  ======
    model                                                  maps                                            linear
    =====================================================  ==============================================  ======
    ResNet                                                 before the average pool                         True
    Swin                                                   after the last norm, as (N, d, h, w)            True
    ConvNext                                               the last norm, per position                     False
    ViT, DeiT, Dinov2                                      patch tokens after the last norm                False
    Dinov2ForImageClassification (class token and mean)    patch tokens, in the place of both halves       False
    CLIPModel, CLIPVisionModel[WithProjection]             patch tokens through last norm and projection   False
    SiglipModel, SiglipVisionModel                         the pool's value of each patch token            False
    CLIPForImageClassification, SiglipFor...               the patch tokens that are averaged              True
    =====================================================  ==============================================  ======

    "linear" is `Backbone.linear_pool`; where it is False the maps are local evidence, not a decomposition of the
    value. ResNet, ConvNext, Swin, ViT and DeiT are taken as the bare model or as its ``ForImageClassification``.

    Parameters
    ----------
    model : nn.Module
        The model.
    processor : object, optional
        Its image processor (``AutoImageProcessor.from_pretrained(...)``), or a processor that has one: the Backbone
        then knows the normalisation.

    Returns
    -------
    Backbone
        Sharing the submodules of `model`, of which `features` is a second view.

    Raises
    ------
    ValueError
        If the model is of no known family, or pools in a way that is not known.
    TypeError
        If `model` is a name, or `processor` has no mean and deviation of images.
    """
    if isinstance(model, str):
        raise TypeError(
            f"Expected argument `model` to be an nn.Module but got the name {model!r}. Load it first, with "
            "`AutoModelForImageClassification.from_pretrained` or its like."
        )
    model = unwrap(model)
    normalisation = _normalisation(processor)
    return replace(
        _cut(model), normalisation=normalisation, source=_source(model), image_size=_image_size(model, processor)
    )


class HiddenStates(nn.Module):
    """Images (N, C, H, W) to the last hidden state of a model, its pooling left out."""

    def __init__(
        self,
        model: nn.Module,
        *,
        without: tuple[str, ...] = (),
        size: int | Sequence[int] | None = None,
        square: bool = False,
    ) -> None:
        super().__init__()
        self.model: Any = shared_copy(model, without=())
        for name in without:
            if self.model._modules.get(name) is not None:
                self.model._modules[name] = nn.Identity()
        self.size = (size, size) if isinstance(size, int) else size
        self.square = square

    def forward(self, images: Tensor) -> Tensor:
        """Return maps (N, c, h, w) or tokens (N, t, c)."""
        if isinstance(images, Mapping):
            raise TypeError(
                f"Expected argument `images` to be a tensor (N, C, H, W) but got {type(images).__name__}. Of what a "
                'processor returns pass its "pixel_values".'
            )
        if self.size is not None:
            check_map_size(images, self.size)
        if self.square:
            check_square(images)
        return self.model(pixel_values=images, return_dict=True).last_hidden_state


class SwinMaps(nn.Module):
    """Images (N, C, H, W) to the last hidden state of a Swin as maps (N, d, h, w)."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.tokens = HiddenStates(model, without=("pooler",))
        config: Any = model.config
        patch = config.patch_size
        self.patch = (patch, patch) if isinstance(patch, int) else tuple(patch)
        self.merges = len(config.depths) - 1

    def forward(self, images: Tensor) -> Tensor:
        """Return the maps; sides that patches or merges do not divide are padded, as in the model."""
        step = 2**self.merges
        sides = zip(images.shape[2:], self.patch, strict=True)
        rows, columns = (math.ceil(math.ceil(side / patch_side) / step) for side, patch_side in sides)
        return to_grid(self.tokens(images), (rows, columns))


class ClassAndMean(nn.Module):
    """The class token and the mean of the patch tokens: Dinov2's classifier."""

    def __init__(self, prefix: int) -> None:
        super().__init__()
        self.prefix = prefix

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the embedding (N, 2 c) of tokens (N, t, c)."""
        return torch.cat([tokens[:, 0], tokens[:, self.prefix :].mean(1)], 1)

    def maps(self, tokens: Tensor) -> Tensor:
        """Return maps (N, 2 c, h, w): each patch token as if it were the class token and the only patch."""
        patches = to_grid(tokens[:, self.prefix :], None)
        return torch.cat([patches, patches], 1)


class ProbePool(nn.Module):
    """Attention of a learnt probe over the tokens: SigLIP."""

    def __init__(self, attention: nn.Module, grid: tuple[int, int]) -> None:
        super().__init__()
        self.attention: Any = attention
        self.grid = grid

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the embedding (N, d) of tokens (N, t, d)."""
        return self.attention(tokens)

    def maps(self, tokens: Tensor) -> Tensor:
        """Return maps (N, d, h, w): what the pool gives when all its attention is on one patch."""
        pool, inner = self.attention, self.attention.attention
        # Of the stacked projections the last is that of the values; a softmax over one entry is 1.
        weight, bias = inner.in_proj_weight.chunk(3)[2], inner.in_proj_bias.chunk(3)[2]
        values = inner.out_proj(nn.functional.linear(tokens, weight, bias))
        return to_grid(values + pool.mlp(pool.layernorm(values)), self.grid)


def _cut(model: Any) -> Backbone:
    for kind in type(model).__mro__:
        if kind.__module__.startswith("transformers.") and kind.__name__ in CUTS and is_family(model, kind):
            return CUTS[kind.__name__](model)
    raise refusal(model, "transformers", _KNOWN)


def _cut_inner(name: str) -> Callable[[Any], Backbone]:
    """Return the cut of a classifier that reads the embedding of the model that it has under a name."""
    return lambda model: _cut(getattr(model, name))


def _resnet(model: Any) -> Backbone:
    return Backbone(HiddenStates(model), "mean", None, int(model.config.hidden_sizes[-1]))


def _convnext(model: Any) -> Backbone:
    pool = MeanThen(nn.Identity(), model.layernorm)
    return Backbone(HiddenStates(model, without=("layernorm",)), pool, pool.maps, int(model.config.hidden_sizes[-1]))


def _swin(model: Any) -> Backbone:
    return Backbone(SwinMaps(model), "mean", None, int(model.num_features))


def _grid(config: Any) -> tuple[int, int]:
    sides = [(side, side) if isinstance(side, int) else side for side in (config.image_size, config.patch_size)]
    return sides[0][0] // sides[1][0], sides[0][1] // sides[1][1]


def _class_token(model: Any, prefix: int) -> Backbone:
    config = model.config
    pool = TokenPool(nn.Identity(), nn.Identity(), prefix, _grid(config))
    tokens = HiddenStates(model, without=("pooler",), size=config.image_size)
    return token_backbone(tokens, pool, int(config.hidden_size))


def _dinov2(model: Any) -> Backbone:
    # It interpolates its positions, so that images may have any size.
    pool = TokenPool(nn.Identity(), nn.Identity(), 1, None)
    return token_backbone(HiddenStates(model, square=True), pool, int(model.config.hidden_size))


def _dinov2_classifier(model: Any) -> Backbone:
    inner = _cut(model.dinov2)
    pool = ClassAndMean(prefix=1)
    return Backbone(inner.features, pool, pool.maps, 2 * inner.channels)


def _tower(model: Any) -> Any:
    """Return the vision transformer itself: before version 5 it lay one step deeper."""
    while (inner := getattr(model, "vision_model", None)) is not None:
        model = inner
    return model


def _clip(model: Any, projection: nn.Module | None = None) -> Backbone:
    tower = _tower(model)
    config = tower.config
    after = nn.Identity() if projection is None else projection
    pool = TokenPool(tower.post_layernorm, after, 1, _grid(config))
    tokens = HiddenStates(tower, without=("post_layernorm",), size=config.image_size)
    channels = config.hidden_size if projection is None else getattr(projection, "out_features", None)
    if channels is None:
        raise refusal(model, "transformers", _KNOWN, f"with a projection of type {type(projection).__name__}")
    return token_backbone(tokens, pool, int(channels))


def _siglip(model: Any) -> Backbone:
    tower = _tower(model)
    # Before version 4.42 there was always one.
    if not getattr(tower, "use_head", True):
        raise refusal(model, "transformers", _KNOWN, "without its pooling head")
    pool = ProbePool(tower.head, _grid(tower.config))
    tokens = HiddenStates(tower, without=("head",), size=tower.config.image_size)
    return Backbone(tokens, pool, pool.maps, int(tower.config.hidden_size))


def _mean_of_patches(model: Any, prefix: int, without: tuple[str, ...]) -> Backbone:
    tower = _tower(model)
    pool = TokenPool(nn.Identity(), nn.Identity(), prefix, _grid(tower.config), mean_from=prefix)
    tokens = HiddenStates(tower, without=without, size=tower.config.image_size)
    return token_backbone(tokens, pool, int(tower.config.hidden_size))


def _projected_clip(model: Any) -> Backbone:
    return _clip(model.vision_model, model.visual_projection)


#: What each class of models is cut by.
CUTS: dict[str, Callable[[Any], Backbone]] = {
    "ResNetModel": _resnet,
    "ResNetForImageClassification": _cut_inner("resnet"),
    "ConvNextModel": _convnext,
    "ConvNextForImageClassification": _cut_inner("convnext"),
    "SwinModel": _swin,
    "SwinForImageClassification": _cut_inner("swin"),
    "ViTModel": partial(_class_token, prefix=1),
    "ViTForImageClassification": _cut_inner("vit"),
    # Class token, then the one of distillation.
    "DeiTModel": partial(_class_token, prefix=2),
    "DeiTForImageClassification": _cut_inner("deit"),
    "Dinov2Model": _dinov2,
    "Dinov2ForImageClassification": _dinov2_classifier,
    "CLIPModel": _projected_clip,
    "CLIPVisionModelWithProjection": _projected_clip,
    "CLIPVisionModel": _clip,
    "CLIPForImageClassification": partial(_mean_of_patches, prefix=1, without=("post_layernorm",)),
    "SiglipModel": _siglip,
    "SiglipVisionModel": _siglip,
    "SiglipForImageClassification": partial(_mean_of_patches, prefix=0, without=("head",)),
}


def _normalisation(processor: object) -> Normalisation | None:
    if processor is None:
        return None
    images = getattr(processor, "image_processor", processor)
    mean, std = getattr(images, "image_mean", None), getattr(images, "image_std", None)
    if mean is None or std is None:
        raise TypeError(
            f"Expected argument `processor` to be an image processor of transformers, with `image_mean` and "
            f"`image_std`, but got {type(processor).__name__}."
        )
    if not getattr(images, "do_normalize", True):
        mean, std = [0.0] * len(mean), [1.0] * len(std)
    # Processors start from 0 to 255; almost all of them divide by 255 first.
    full = 255 * getattr(images, "rescale_factor", 1 / 255) if getattr(images, "do_rescale", True) else 255.0
    return tuple(float(number) / full for number in mean), tuple(float(number) / full for number in std)


def _image_size(model: Any, processor: object) -> int | None:
    """Return the size to which a processor crops or resizes; without one that of the configuration."""
    images = getattr(processor, "image_processor", processor)
    crop = getattr(images, "crop_size", None) if getattr(images, "do_center_crop", False) else None
    size = crop or getattr(images, "size", None)
    if size is None:
        config = getattr(model.config, "vision_config", model.config)
        return square(getattr(config, "image_size", None))
    return square((size["height"], size["width"]) if "height" in size else size.get("shortest_edge"))


def _source(model: Any) -> str | None:
    """Return the class of a model and the name on the hub it was loaded from."""
    name = str(getattr(model.config, "_name_or_path", None) or "")
    if not name or Path(name).exists():
        return None
    return f"transformers:{type(model).__name__}:{name}"
