"""Backbones from timm."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from torch import Tensor, nn

from captum_concepts.backbones import backbone
from captum_concepts.backbones.pools import LatentPool, MeanThen, TokenPool, check_square, token_backbone

_KNOWN = (
    "ResNet",
    "RegNet",
    "EfficientNet",
    "SwinTransformer",
    "SwinTransformerV2",
    "ConvNeXt",
    "MaxxVit",
    "VisionTransformer",
    "Eva",
)
_HEAD = ("global_pool", "fc", "classifier", "head", "head_drop", "fc_norm", "attn_pool")
_AVERAGE = ("avg", "fastavg", "fast")


def from_timm(model: nn.Module | str) -> backbone.Backbone:
    """Cut a timm classifier before its pooling.

    The embedding is ``model.forward_head(model.forward_features(images), pre_logits=True)`` in eval mode.

    ====================================================  =======================================  ======
    family                                                maps                                     linear
    ====================================================  =======================================  ======
    ResNet, RegNet, EfficientNet, MaxxVit without MLP     before the average pool                  True
    SwinTransformer, SwinTransformerV2                    after the last norm, as (N, d, h, w)     True
    ConvNeXt, MaxxVit                                     the layers after the pool, per position  False
    VisionTransformer (ViT, DeiT, DINOv2, CLIP), Eva      patch tokens after the last norm         False
    the same by the mean of patches after the norm        the same                                 True
    the same with attention pooling (SigLIP)              the pool's value of each patch token     False
    ====================================================  =======================================  ======

    "linear" is `Backbone.linear_pool`; where it is False the maps are local evidence, not a decomposition of
    the value.

    Parameters
    ----------
    model : nn.Module or str
        The model, or a name known to `timm.create_model`, built without weights (the global random state
        is left as it was).

    Returns
    -------
    Backbone
        Sharing the submodules of `model`.

    Raises
    ------
    ValueError
        If the name or the family is not known, or the model pools in a way that is not known.
    """
    # Imported here, since loading it is slow and other libraries' models do not need it.
    from timm import create_model, is_model, list_models, models

    model = backbone.as_model(model, "timm", is_model, list_models, partial(create_model, pretrained=False))
    for name in _KNOWN:
        if backbone.is_family(model, getattr(models, name)):
            cut = _tokens(model) if name in ("VisionTransformer", "Eva") else _convolutional(model)
            return replace(cut, **_read_config(model))
    raise backbone.refusal(model, "timm", _KNOWN)


def _read_config(model: Any) -> dict[str, Any]:
    """Return normalisation, source and image size of a model, as its configuration tells them."""
    config = getattr(model, "pretrained_cfg", None) or {}
    name = ".".join(filter(None, (config.get("architecture"), config.get("tag"))))
    return {
        "normalisation": backbone.own_normalisation(model),
        "source": f"timm:{name}" if name else None,
        "image_size": backbone.square(tuple(config.get("input_size", ()))[1:]),
    }


class Trunk(nn.Module):
    """A timm model without its head: images (N, C, H, W) to what `forward_features` gives."""

    def __init__(self, model: nn.Module, channels_last: bool = False, any_size: bool = False) -> None:
        super().__init__()
        self.model: Any = backbone.shared_copy(model, without=_HEAD)
        self.channels_last = channels_last
        self.any_size = any_size

    def forward(self, images: Tensor) -> Tensor:
        """Return maps (N, c, h, w) or tokens (N, t, c)."""
        if self.any_size:
            check_square(images)
        features = self.model.forward_features(images)
        return features.permute(0, 3, 1, 2) if self.channels_last else features


def _convolutional(model: Any) -> backbone.Backbone:
    from timm.layers.classifier import ClassifierHead, NormMlpClassifierHead

    head = getattr(model, "head", None)
    if head is not None and not isinstance(head, ClassifierHead | NormMlpClassifierHead):
        raise backbone.refusal(model, "timm", _KNOWN, f"with a head of type {type(head).__name__}")
    pooling = model.global_pool if head is None else head.global_pool
    kind = getattr(pooling, "pool_type", type(pooling).__name__)
    if kind not in _AVERAGE:
        raise backbone.refusal(model, "timm", _KNOWN, f"with global pooling {kind!r} instead of 'avg'")
    trunk = Trunk(model, channels_last=getattr(head, "input_fmt", "NCHW") == "NHWC")
    channels = int(model.head_hidden_size)
    if isinstance(head, NormMlpClassifierHead):
        pool = MeanThen(head.norm, head.pre_logits)
        return backbone.Backbone(trunk, pool, pool.maps, channels)
    return backbone.Backbone(trunk, "mean", None, channels)


def _tokens(model: Any) -> backbone.Backbone:
    from timm.layers.attention_pool import AttentionPoolLatent

    any_size = bool(model.dynamic_img_size)
    # None stands for a square of any size; a fixed grid may be oblong.
    grid = None if any_size else tuple(model.patch_embed.grid_size)
    prefix = int(model.num_prefix_tokens)
    trunk = Trunk(model, any_size=any_size)
    channels = int(model.head_hidden_size)
    # Eva's attention pool reads the prefix tokens, that of the plain transformer only on request.
    attention = getattr(model, "attn_pool", None)
    with_prefix = getattr(model, "pool_include_prefix", attention is not None)
    start = 0 if with_prefix else prefix
    if attention is not None:
        if not isinstance(attention, AttentionPoolLatent) or attention.pos_embed is not None:
            raise backbone.refusal(model, "timm", _KNOWN, f"with pooling by {type(attention).__name__}")
        pool = LatentPool(attention, model.fc_norm, prefix, start, grid)
        return backbone.Backbone(trunk, pool, pool.maps, channels)
    if model.global_pool not in ("token", "avg"):
        raise backbone.refusal(model, "timm", _KNOWN, f"with global pooling {model.global_pool!r}")
    mean_from = start if model.global_pool == "avg" else None
    return token_backbone(trunk, TokenPool(nn.Identity(), model.fc_norm, prefix, grid, mean_from), channels)
