"""An image model cut in two, and what the factories of all families need."""

from __future__ import annotations

import copy
import difflib
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from captum_concepts.checks import check_callable, check_choice, check_module, check_shape, check_whole
from captum_concepts.shown import one_line

_METHODS = ("forward", "_forward_impl", "forward_features", "forward_head", "pool")


@dataclass(frozen=True, eq=False)
class Backbone:
    """An image model cut where its maps end and its pooling begins.

    The modules are those of the model it was made from, not copies: training, moving or loading one changes
    the other. ``nn.ModuleDict({"features": b.features, "pool": b.pool})`` holds every parameter once, so that
    safetensors takes it.

    Attributes
    ----------
    features : nn.Module
        Images (N, C, H, W) to what the model has before it pools: maps (N, c, h, w) or tokens (N, t, c).
    pool : "mean" or callable
        Output of `features` to the embedding (N, d) that the model really uses. "mean": the maps averaged
        over space.
    maps : callable, optional
        Output of `features` to maps (N, d, h, w); None where that output already is the maps. With any `pool`
        but "mean" they are local evidence, not a decomposition of the value: what each position says when it
        is read as the model reads its embedding. Their average is then *not* the embedding.
    channels : int
        d, the width of the embedding.

    Raises
    ------
    TypeError
        If `features` is no module, or another argument of the wrong kind.
    ValueError
        If `pool` is a string other than "mean", or `channels` is below 1.
    """

    features: nn.Module
    pool: str | Callable[[Tensor], Tensor]
    maps: Callable[[Tensor], Tensor] | None
    channels: int

    def __repr__(self) -> str:
        return one_line(self)

    def __post_init__(self) -> None:
        check_module("features", self.features)
        if isinstance(self.pool, str):
            check_choice("pool", self.pool, ["mean"])
        else:
            check_callable("pool", self.pool)
        if self.maps is not None:
            check_callable("maps", self.maps)
        check_whole("channels", self.channels, 1)

    @property
    def linear_pool(self) -> bool:
        """Whether the embedding is the plain mean of the maps, so that maps decompose a linear value."""
        return self.pool == "mean"

    def embed(self, images: Tensor) -> Tensor:
        """Return the embedding of images, as the model itself computes it.

        Runs in the mode (train or eval) the model is in, on the device it is on, and keeps gradients.

        Parameters
        ----------
        images : Tensor
            (N, C, H, W).

        Returns
        -------
        Tensor
            (N, d).

        Raises
        ------
        ValueError
            If `images` has another rank.
        """
        check_shape("images", images, ("N", "C", "H", "W"), (None,) * 4)
        return self.embed_features(self.features(images))

    def embed_features(self, features: Tensor) -> Tensor:
        """Return the embedding (N, d) of an output of `features`."""
        if isinstance(self.pool, str):
            return self.feature_maps(features).mean((2, 3))
        return self.pool(features)

    def feature_maps(self, features: Tensor) -> Tensor:
        """Return the maps (N, d, h, w) of an output of `features`."""
        return features if self.maps is None else self.maps(features)


def is_family(model: nn.Module, family: type) -> bool:
    """Whether a model is of a family and runs as that family does."""
    # A subclass or an instance with a forward pass of its own may pool in any way, so it does not count.
    if not isinstance(model, family):
        return False
    return not any(
        name in vars(model) or getattr(type(model), name, None) is not getattr(family, name, None) for name in _METHODS
    )


def refusal(model: nn.Module, library: str, known: Iterable[str], why: str = "") -> ValueError:
    """Return the error for a model of no known family, or of one in a form that is not known."""
    name = f"{type(model).__module__}.{type(model).__name__}"
    return ValueError(
        f"Expected argument `model` to be of a {library} family whose pooling is known "
        f"({', '.join(known)}) but got {name}{' ' + why if why else ''}. Pass its parts yourself: "
        "PostHocCBM(features, bank, head, pool=..., maps=...), where `features` maps images to what the "
        "model has before it pools, `pool` maps that to the embedding (N, d), and `maps` maps it to "
        "(N, d, h, w)."
    )


def check_model(model: Any, *, named: bool = False) -> None:
    """Raise a TypeError unless `model` is a module, or where that is allowed a name; before a library is imported."""
    if not isinstance(model, (nn.Module, str) if named else nn.Module):
        alternative = " or a name" if named else ""
        raise TypeError(f"Expected argument `model` to be an nn.Module{alternative} but got {type(model).__name__}.")


def as_model(
    model: Any,
    library: str,
    is_known: Callable[[str], bool],
    names: Callable[[], list[str]],
    build: Callable[[str], nn.Module],
) -> nn.Module:
    """Return a module as it is, or build the one of a name, and leave the global random state as it was."""
    if not isinstance(model, str):
        return model
    if not is_known(model):
        near = difflib.get_close_matches(model, names(), n=3, cutoff=0.4)
        raise ValueError(f"Expected argument `model` to name a {library} model but got {model!r}. Nearest: {near}.")
    with torch.random.fork_rng(devices=[]):
        return build(model)


def shared_copy(model: nn.Module, without: Collection[str]) -> nn.Module:
    """Return a second module over the same submodules, parameters and buffers, some of them left out."""
    # The pieces are shared, the registries are not: what the copy leaves out stays in the model, and a hook on the
    # copy itself is not one on the model.
    twin = copy.copy(model)
    for name, value in vars(model).items():
        if isinstance(value, dict):
            vars(twin)[name] = copy.copy(value)
    for name in without:
        twin._modules.pop(name, None)
    return twin


def width(module: nn.Module) -> int:
    """Return the number of channels a module puts out, read from its last layer that has a width."""
    for layer in reversed(list(module.modules())):
        for name in ("out_channels", "out_features", "num_features", "normalized_shape"):
            value = getattr(layer, name, None)
            if value is not None:
                return int(value[-1] if isinstance(value, tuple) else value)
    raise ValueError(f"Expected a module with a layer of known width but got {type(module).__name__}.")
