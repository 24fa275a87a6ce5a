"""Backbones from the image towers of open_clip."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from torch import Tensor, nn

from captum_concepts.backbones import pools
from captum_concepts.backbones.backbone import Backbone, is_family, own_normalisation, refusal, square, unwrap, width
from captum_concepts.backbones.families_timm import from_timm

_KNOWN = ("VisionTransformer", "ModifiedResNet", "TimmModel")


def from_open_clip(model: nn.Module) -> Backbone:
    """Cut the image tower of an open_clip model before its pooling.

    The embedding is that of ``model.encode_image(images)`` without normalisation, so that a bank of text
    embeddings has its width.

    ===============================================  =============================================  ======
    tower                                            maps                                           linear
    ===============================================  =============================================  ======
    VisionTransformer by its class token             patch tokens through last norm and projection  False
    VisionTransformer by the mean of its patches     the same                                       True
    ModifiedResNet (CLIP-RN50, attention pool)       the pool's value of each position              False
    TimmModel                                        as `from_timm`, projected at each position     same
    ===============================================  =============================================  ======

    "linear" is `Backbone.linear_pool`; where it is False the maps are local evidence, not a decomposition of
    the value. A tower of timm stays linear only if its projection is, and a mean of patches is not if its
    norm comes after it.

    Parameters
    ----------
    model : nn.Module
        An open_clip model, or its image tower (``model.visual``).

    Returns
    -------
    Backbone
        Sharing the submodules of `model`.

    Raises
    ------
    ValueError
        If the tower is of no known family, or pools in a way that is not known (CoCa's attentional pooler).
    """
    model = unwrap(model)
    # Imported here, since loading it is slow and other libraries' models do not need it.
    from open_clip.modified_resnet import ModifiedResNet
    from open_clip.timm_model import TimmModel
    from open_clip.transformer import VisionTransformer

    tower: Any = getattr(model, "visual", model)
    for family, cut in ((VisionTransformer, _vit), (ModifiedResNet, _resnet), (TimmModel, _timm)):
        if is_family(tower, family):
            normalisation = own_normalisation(tower)
            # That of a tower of timm's own configuration is not open_clip's.
            size = square(getattr(tower, "image_size", None))
            return replace(cut(tower), normalisation=normalisation, source=None, image_size=size)
    raise refusal(tower, "open_clip", _KNOWN)


class ClipTokens(nn.Module):
    """The tokens (N, 1 + t, c) of an open_clip vision transformer before its last norm, class token first."""

    def __init__(self, tower: nn.Module) -> None:
        super().__init__()
        for name in ("conv1", "class_embedding", "positional_embedding", "patch_dropout", "ln_pre", "transformer"):
            setattr(self, name, getattr(tower, name))

    def forward(self, images: Tensor) -> Tensor:
        """Return the tokens of images (N, 3, H, W)."""
        tower: Any = self
        patches = tower.conv1(images).flatten(2).transpose(1, 2)
        tokens = pools.with_class_token(tower.class_embedding, patches)
        tokens = tokens + tower.positional_embedding.to(tokens.dtype)
        return tower.transformer(tower.ln_pre(tower.patch_dropout(tokens)))


def _vit(tower: Any) -> Backbone:
    if tower.attn_pool is not None or tower.pool_type not in ("tok", "avg"):
        raise refusal(tower, "open_clip", _KNOWN, "with an attentional pooler or none")
    project: nn.Module = nn.Identity() if tower.proj is None else pools.Matrix(tower.proj)
    before: nn.Module = tower.ln_post
    after = project
    if tower.final_ln_after_pool:
        before, after = nn.Identity(), nn.Sequential(tower.ln_post, project)
    mean_from = 1 if tower.pool_type == "avg" else None
    pool = pools.TokenPool(before, after, prefix=1, grid=tuple(tower.grid_size), mean_from=mean_from)
    channels = width(tower.ln_post) if tower.proj is None else int(tower.proj.shape[1])
    return pools.token_backbone(ClipTokens(tower), pool, channels)


def _resnet(tower: Any) -> Backbone:
    features = nn.Sequential()
    for name, child in tower.named_children():
        if name != "attnpool":
            features.add_module(name, child)
    if tower.attnpool is None:
        raise refusal(tower, "open_clip", _KNOWN, "without its attention pool")
    pool = pools.AttentionPool(tower.attnpool)
    return Backbone(features, pool, pool.maps, width(tower.attnpool.c_proj))


def _timm(tower: Any) -> Backbone:
    trunk = from_timm(tower.trunk)
    # Without a projection of its own the tower uses the trunk's classifier as one.
    layers = [tower.trunk.get_classifier(), *tower.head]
    projection = nn.Sequential(*(layer for layer in layers if not isinstance(layer, nn.Identity | nn.Dropout)))
    if not len(projection):
        return trunk
    channels = width(projection)
    if not isinstance(trunk.pool, str):
        pool: pools.Projected | pools.MeanThen = pools.Projected(cast("nn.Module", trunk.pool), projection)
    elif all(isinstance(layer, nn.Linear) for layer in projection):
        # A linear projection of the mean is the mean of the projections.
        return Backbone(nn.Sequential(trunk.features, pools.Channels(projection)), "mean", None, channels)
    else:
        pool = pools.MeanThen(nn.Identity(), projection)
    return Backbone(trunk.features, pool, pool.maps, channels)
