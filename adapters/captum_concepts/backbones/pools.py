"""Poolings that are not the plain mean, each with the maps that go with it.

Every class maps the output of a backbone's features to its embedding (N, d) when called, and to maps
(N, d, h, w) by its method `maps`. These maps are local evidence, not a decomposition of the value: each
position is read as if it were pooled alone. A bound method is given to `Backbone.maps` rather
than a module, so that a model that keeps both does not register the parameters twice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from captum_concepts.backbones.backbone import Backbone
from captum_concepts.support.checks import image_remedy


def per_position(module: nn.Module, maps: Tensor) -> Tensor:
    """Apply a module that works on vectors to each position of maps (N, c, h, w)."""
    return module(maps.movedim(1, -1)).movedim(-1, 1)


def to_grid(tokens: Tensor, grid: tuple[int, int] | None) -> Tensor:
    """Arrange patch tokens as maps."""
    count = tokens.shape[1]
    side = math.isqrt(count)
    rows, columns = (side, side) if grid is None else grid
    if rows * columns != count:
        raise ValueError(
            f"Expected {rows} x {columns} patch tokens but got {count}. Give images of the size the model "
            "was built for (square ones where it takes any size), in eval mode."
        )
    return tokens.transpose(1, 2).unflatten(2, (rows, columns))


def check_map_size(images: Tensor, size: Sequence[int]) -> None:
    """Raise unless images have the one size that a model takes."""
    if tuple(images.shape[2:]) != tuple(size):
        raise ValueError(
            f"Expected argument `images` to have shape (N, C, {size[0]}, {size[1]}) but got {tuple(images.shape)}. "
            f"{image_remedy(images.shape)}"
        )


def check_square(images: Tensor) -> None:
    """Raise unless images are square: the grid of their patches cannot be inferred otherwise."""
    if images.shape[2] != images.shape[3]:
        raise ValueError(
            "Expected argument `images` to be square, for this model takes any size and the grid of its patches could "
            f"not be found, but got {tuple(images.shape)}. Crop or resize them."
        )


class Channels(nn.Module):
    """A module on vectors, applied to each position of maps: (N, c, h, w) to (N, d, h, w)."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, maps: Tensor) -> Tensor:
        """Return the maps with their channels transformed."""
        return per_position(self.module, maps)


class Matrix(nn.Module):
    """Vectors (..., c) times a matrix (c, d) that is a bare parameter of another module."""

    def __init__(self, weight: nn.Parameter) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, vectors: Tensor) -> Tensor:
        """Return the products (..., d)."""
        return vectors @ self.weight


class MeanThen(nn.Module):
    """The mean over space, then layers that are not linear: ConvNeXt, MaxViT, MobileNetV3."""

    def __init__(self, norm: nn.Module, project: nn.Module) -> None:
        super().__init__()
        self.norm = norm
        self.project = project

    def forward(self, features: Tensor) -> Tensor:
        """Return the embedding (N, d) of (N, c, h, w)."""
        return self.project(self.norm(features.mean((2, 3), keepdim=True)).flatten(1))

    def maps(self, features: Tensor) -> Tensor:
        """Return maps (N, d, h, w): norm and projection at each position, as if it were the mean."""
        return per_position(self.project, self.norm(features))


class TokenPool(nn.Module):
    """The class token, or the mean of tokens, of a vision transformer."""

    def __init__(
        self, each: nn.Module, after: nn.Module, prefix: int, grid: tuple[int, int] | None, mean_from: int | None = None
    ) -> None:
        super().__init__()
        self.each = each
        self.after = after
        self.prefix = prefix
        self.grid = grid
        self.mean_from = mean_from

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the embedding (N, d) of tokens (N, t, c)."""
        if self.mean_from is None:
            return self.after(self.each(tokens[:, 0]))
        return self.after(self.each(tokens[:, self.mean_from :]).mean(1))

    @property
    def linear(self) -> bool:
        """Whether the embedding is the plain mean of the maps: of all patches, and linear after it."""
        return self.mean_from == self.prefix and isinstance(self.after, nn.Identity | Matrix)

    def maps(self, tokens: Tensor) -> Tensor:
        """Return maps (N, d, h, w): each patch token through the norm and projection of the pooled one."""
        return to_grid(self.after(self.each(tokens[:, self.prefix :])), self.grid)


class TokenMaps(nn.Module):
    """The maps of a pooling of tokens, as the last module of features that are then pooled by the mean."""

    def __init__(self, pool: TokenPool) -> None:
        super().__init__()
        self.pool = pool

    def forward(self, tokens: Tensor) -> Tensor:
        """Return maps (N, d, h, w) of tokens (N, t, c)."""
        return self.pool.maps(tokens)


def token_backbone(tokens: nn.Module, pool: TokenPool, channels: int) -> Backbone:
    """Return the backbone of a transformer; linear where all it does to its patches is to average them."""
    if pool.linear:
        return Backbone(nn.Sequential(tokens, TokenMaps(pool)), "mean", None, channels)
    return Backbone(tokens, pool, pool.maps, channels)


class LatentPool(nn.Module):
    """Attention of a learnt query over the tokens (timm's `AttentionPoolLatent`): SigLIP."""

    def __init__(
        self, attention: nn.Module, after: nn.Module, prefix: int, start: int, grid: tuple[int, int] | None
    ) -> None:
        super().__init__()
        self.attention: Any = attention
        self.after = after
        self.prefix = prefix
        self.start = start
        self.grid = grid

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the embedding (N, d) of tokens (N, t, c)."""
        return self.after(self.attention(tokens[:, self.start :]))

    def maps(self, tokens: Tensor) -> Tensor:
        """Return maps (N, d, h, w): what the pool gives when all its attention is on one patch."""
        # That is the patch's value through the output projection, norm and MLP of the pool; queries and keys
        # cancel, a softmax over one entry being 1.
        pool = self.attention
        values = pool.proj(pool.kv(tokens[:, self.prefix :]).chunk(2, -1)[1])
        if pool.mlp is not None:
            values = values + pool.mlp(pool.norm(values))
        return to_grid(self.after(values), self.grid)


class AttentionPool(nn.Module):
    """Attention of the mean position over all positions (open_clip's `AttentionPool2d`): CLIP-RN50."""

    def __init__(self, attention: nn.Module) -> None:
        super().__init__()
        self.attention: Any = attention

    def forward(self, features: Tensor) -> Tensor:
        """Return the embedding (N, d) of (N, c, h, w)."""
        return self.attention(features)

    def maps(self, features: Tensor) -> Tensor:
        """Return maps (N, d, h, w): what the pool gives when all its attention is on one position."""
        # That is the position's value (of its features plus its positional embedding) through the output
        # projection.
        pool = self.attention
        rows, columns = features.shape[2:]
        positions = pool.positional_embedding[1:].to(features.dtype)
        # The first embedding is that of the mean position, which has no place in space.
        values = features.flatten(2).transpose(1, 2) + positions
        return to_grid(pool.c_proj(pool.v_proj(values)), (rows, columns))


class Projected(nn.Module):
    """Another pooling, then a projection of its embedding."""

    def __init__(self, pool: nn.Module, projection: nn.Module) -> None:
        super().__init__()
        self.pool: Any = pool
        self.projection = projection

    def forward(self, features: Tensor) -> Tensor:
        """Return the embedding (N, d)."""
        return self.projection(self.pool(features))

    def maps(self, features: Tensor) -> Tensor:
        """Return maps (N, d, h, w): those of the pooling, projected at each position."""
        return per_position(self.projection, self.pool.maps(features))


def with_class_token(token: Tensor, patches: Tensor) -> Tensor:
    """Return tokens (N, 1 + t, c): a class token (c,) or (1, 1, c) before the patches (N, t, c)."""
    first = token.reshape(1, 1, -1).expand(patches.shape[0], -1, -1).to(patches.dtype)
    return torch.cat([first, patches], 1)
