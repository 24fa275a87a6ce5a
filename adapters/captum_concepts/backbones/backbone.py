"""An image model cut before its pooling, and helpers of the factories of all families."""

from __future__ import annotations

import copy
import difflib
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from captum_concepts.support.checks import check_axes, check_choice
from captum_concepts.texts import in_one_line

#: Mean and standard deviation of each channel of images in [0, 1].
Normalisation = tuple[tuple[float, ...], tuple[float, ...]]

IMAGENET: Normalisation = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))

_FACTORIES = {
    "torchvision": "from_torchvision",
    "timm": "from_timm",
    "open_clip": "from_open_clip",
    "transformers": "from_transformers",
}
_PARALLEL = (nn.DataParallel, nn.parallel.DistributedDataParallel)
_METHODS = ("forward", "_forward", "_forward_impl", "forward_features", "forward_head", "pool")


@in_one_line
@dataclass(frozen=True, eq=False)
class Backbone:
    """An image model cut where its maps end and its pooling begins.

    The modules are those of the model it was made from, not copies: training, moving or loading one changes
    the other. ``nn.ModuleDict({"features": b.features, "pool": b.pool})`` holds every parameter once, so that
    safetensors takes it.

    Attributes
    ----------
    features : nn.Module
        Images (N, C, H, W) to the model's features before its pooling: maps (N, c, h, w) or tokens (N, t, c).
    pool : "mean" or callable
        Output of `features` to the embedding (N, d) that the model really uses. "mean": the maps averaged
        over space.
    maps : callable, optional
        Output of `features` to maps (N, d, h, w); None where that output already is the maps. With any `pool`
        but "mean" they are local evidence, not a decomposition of the value: what each position says when it
        is read as the model reads its embedding. Their average is then *not* the embedding.
    channels : int
        d, the width of the embedding.
    normalisation : tuple of tuple of float, optional
        Mean and standard deviation of each channel with which the model expects images of [0, 1] to be normalised,
        if known (`normalise` does it).
    source : str, optional
        Origin of the model, as "library:model:weights", if known: files of concept models name
        it.
    image_size : int, optional
        Height and width of the images that the model is made for, if known.

    Raises
    ------
    ValueError
        If `pool` is a string other than "mean", or `normalisation` is not one mean and one
        deviation above 0 for each channel.

    Examples
    --------
    >>> from torch import nn
    >>> from captum_concepts import Backbone
    >>> convolutions = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU())
    >>> backbone = Backbone(convolutions, pool="mean", maps=None, channels=8)
    >>> backbone.channels
    8
    """

    features: nn.Module
    pool: str | Callable[[Tensor], Tensor]
    maps: Callable[[Tensor], Tensor] | None
    channels: int
    normalisation: Normalisation | None = None
    source: str | None = None
    image_size: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.pool, str):
            check_choice("pool", self.pool, ("mean",))
        if self.normalisation is not None:
            check_image_statistics(self.normalisation)

    @property
    def linear_pool(self) -> bool:
        """Whether the embedding is the plain mean of the maps, so that maps decompose a linear value."""
        return self.pool == "mean"

    def normalise(self, images: Tensor) -> Tensor:
        """Return normalised images, as the model expects them.

        Parameters
        ----------
        images : Tensor
            (N, C, H, W), or one image (C, H, W), of floating-point numbers in [0, 1].

        Returns
        -------
        Tensor
            The same shape, less the mean and divided by the deviation of each channel.

        Raises
        ------
        TypeError
            If `images` are not of floating-point numbers.
        ValueError
            If the normalisation is not known, or is for another number of channels.
        """
        if self.normalisation is None:
            raise ValueError(
                "How the model wants its images is not known. Normalise them with the transform of its weights, or "
                "give argument `normalisation` to the Backbone: a mean and a deviation for each channel."
            )
        if not images.is_floating_point():
            raise TypeError(
                f"Expected argument `images` to hold numbers in [0, 1] but got {images.dtype}. Divide levels by 255."
            )
        mean, std = (images.new_tensor(numbers)[:, None, None] for numbers in self.normalisation)
        if images.ndim not in (3, 4) or images.shape[-3] != len(mean):
            raise ValueError(
                f"Expected argument `images` to have shape (N, C, H, W) or (C, H, W), with C = {len(mean)}, but got "
                f"{tuple(images.shape)}."
            )
        return (images - mean) / std

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
        check_axes(images=(images, "N C H W"))
        return self.embed_features(self.features(images))

    def embed_features(self, features: Tensor) -> Tensor:
        """Return the embedding (N, d) of an output of `features`."""
        if isinstance(self.pool, str):
            return self.feature_maps(features).mean((2, 3))
        return self.pool(features)

    def feature_maps(self, features: Tensor) -> Tensor:
        """Return the maps (N, d, h, w) of an output of `features`."""
        return features if self.maps is None else self.maps(features)


def check_image_statistics(value: Sequence[Sequence[float]]) -> None:
    """Raise unless a value is a mean and a deviation above 0 for each channel."""
    try:
        mean, std = (np.asarray(numbers, dtype=np.float64) for numbers in value)
        fits = mean.ndim == 1 and mean.shape == std.shape and bool(np.isfinite(mean).all()) and bool((std > 0).all())
    except (TypeError, ValueError):
        fits = False
    if not fits:
        raise ValueError(
            f"Expected argument `normalisation` to be two sequences of numbers, the mean of each channel and its "
            f"deviation above 0, but got {value!r:.80}."
        )


def square(size: int | Sequence[int | None] | None) -> int | None:
    """Return the side of square images of a size (a number or two); None if it is unknown or not square."""
    sides = {*size} if isinstance(size, Sequence) else {size}
    side = sides.pop() if len(sides) == 1 else None
    return None if side is None else int(side)


def own_normalisation(module: nn.Module) -> Normalisation | None:
    """Return the mean and deviation that a network of timm or open_clip carries with it."""
    config = getattr(module, "pretrained_cfg", None)
    config = config if isinstance(config, dict) else {}
    visual = getattr(module, "visual", module)
    mean = config.get("mean") or getattr(visual, "image_mean", None)
    std = config.get("std") or getattr(visual, "image_std", None)
    return None if mean is None or std is None else (tuple(mean), tuple(std))


def is_family(model: nn.Module, family: type) -> bool:
    """Whether a model is of a family and runs as that family does."""
    # A subclass or an instance with a forward pass of its own may pool in any way, so it does not count.
    if not isinstance(model, family):
        return False
    return not any(
        name in vars(model) or getattr(type(model), name, None) is not getattr(family, name, None) for name in _METHODS
    )


def unwrap(model: nn.Module, *, lightning: bool = True) -> nn.Module:
    """Return the network in a DataParallel, a compiled module or a LightningModule; any other as it is."""
    while (inner := _inner(model, lightning)) is not model:
        model = inner
    return model


def _inner(model: nn.Module, lightning: bool) -> nn.Module:
    if isinstance(model, _PARALLEL):
        return model.module
    # By their names: importing the compiler is slow, and Lightning is rarely installed.
    if (compiled := model._modules.get("_orig_mod")) is not None:
        return compiled
    if not lightning or not any(kind.__name__ == "LightningModule" for kind in type(model).__mro__):
        return model
    parts = {name: part for name, part in model.named_children() if any(True for _ in part.parameters())}
    if len(parts) > 1:
        raise ValueError(
            f"Expected argument `model` to be a network but got the LightningModule {type(model).__name__}, of whose "
            f"parts {list(parts)} have weights: which is the network is not known. Pass one, "
            f"`module.{next(iter(parts))}` for instance."
        )
    return next(iter(parts.values()), model)


def factory_of(model: nn.Module) -> str | None:
    """Return the name of the factory for models of the library that a model is from, or derives from."""
    libraries = (kind.__module__.partition(".")[0] for kind in type(unwrap(model)).__mro__)
    return next((_FACTORIES[library] for library in libraries if library in _FACTORIES), None)


def refusal(model: nn.Module, library: str, families: Iterable[str], why: str = "") -> ValueError:
    """Return the error for a model whose family or pooling is unknown."""
    name = f"{type(model).__module__}.{type(model).__name__}"
    factory = factory_of(model)
    other = f"Give it to `{factory}`, or pass" if factory and factory != f"from_{library}" else "Pass"
    return ValueError(
        f"Expected argument `model` to be of a {library} family whose pooling is known "
        f"({', '.join(families)}) but got {name}{' ' + why if why else ''}. {other} its parts yourself: "
        "PostHocCBM(features, bank, head, pool=..., maps=...), where `features` maps images to what the "
        "model has before it pools, `pool` maps that to the embedding (N, d), and `maps` maps it to "
        "(N, d, h, w). Where the model takes the mean of its last maps, `LayerFeatures(model, layer)` is all three, "
        "with the layer that gives these maps."
    )


def as_model(
    model: nn.Module | str,
    library: str,
    is_known: Callable[[str], bool],
    names: Callable[[], list[str]],
    build: Callable[[str], nn.Module],
) -> nn.Module:
    """Return the network in a module, or build the model of a name without changing the global random state."""
    if not isinstance(model, str):
        return unwrap(model)
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
