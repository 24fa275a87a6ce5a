"""Pool the features of a backbone to an embedding, and turn them into maps of its channels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from captum_concepts.backbones.backbone import Backbone, Normalisation
from captum_concepts.support.checks import to_tensor
from captum_concepts.support.running import at_least_float32, tensor_output, without_autocast

Pool = str | Callable[[Tensor], Tensor]
Maps = Callable[[Tensor], Tensor]
#: Indices of concepts: (k,) for all images, (N, k) for each its own, None for all concepts.
Concepts = Tensor | Sequence[int] | Sequence[Sequence[int]] | None


class Pooling(nn.Module):
    """The two readings of a backbone's output."""

    # ``pooling(features)`` is the embedding (N, d), `feature_maps` are the maps (N, d, h, w).

    pool: Any
    maps: Any

    def __init__(self, pool: Pool = "mean", maps: Maps | None = None, owner: nn.Module | None = None) -> None:
        super().__init__()
        self.linear = pool == "mean"
        #: Mean and standard deviation that the model expects of its images, if known.
        self.normalisation: Normalisation | None = None
        self._hold("pool", pool, [owner])
        self._hold("maps", maps, [owner, pool])

    def _hold(self, name: str, function: Any, owners: list[Any]) -> None:
        if isinstance(function, nn.Module) and _is_part(function, owners):
            # Registered through its owner already; twice would duplicate its keys in the state dict, which
            # safetensors refuses.
            self.__dict__[name] = function
        else:
            setattr(self, name, function)

    def forward(self, features: Tensor, channels: int | None = None) -> Tensor:
        """Return embeddings."""
        if self.pool != "mean":
            embedding = self.pool(features)
            if embedding.ndim != 2 or channels not in (None, embedding.shape[1]):
                raise ValueError(
                    f"Expected argument `pool` to give embeddings (N, d) = (*, {channels or '*'}) but got "
                    f"{tuple(embedding.shape)}."
                )
            return embedding
        if self.maps is None:
            features = tensor_output(features, "`features`")
        if self.maps is None and features.ndim == 2:
            _check_channels(features, channels)
            return features
        return self.feature_maps(features, channels).mean(dim=(2, 3))

    def feature_maps(self, features: Tensor, channels: int | None = None) -> Tensor:
        """Return maps."""
        maps = tensor_output(features, "`features`") if self.maps is None else self.maps(features)
        if maps.ndim != 4:
            source = "`features`, with `maps=None`," if self.maps is None else "`maps`"
            raise ValueError(
                f"Expected {source} to give maps (N, d, h, w) but got {tuple(maps.shape)}. Pass `maps`, a "
                f"callable from the output of `features` to such maps, or features that stop before "
                f"the pooling."
            )
        _check_channels(maps, channels)
        return maps


def resolve_stages(
    features: nn.Module | Backbone, pool: Pool, maps: Maps | None, name: str = "features"
) -> tuple[nn.Module, Pooling]:
    """Take backbone, pool and maps from the arguments, or all three from a Backbone."""
    if isinstance(features, nn.Module):
        return features, Pooling(pool, maps, owner=features)
    if not isinstance(features, Backbone):
        raise TypeError(
            f"Expected argument `{name}` to be an nn.Module or a Backbone but got {type(features).__name__}."
        )
    if not (isinstance(pool, str) and pool == "mean" and maps is None):
        raise ValueError("Expected arguments `pool` and `maps` to be left out, since the Backbone has its own.")
    pooling = Pooling(features.pool, features.maps, owner=features.features)
    pooling.normalisation = features.normalisation
    return features.features, pooling


def project_maps(maps: Tensor, weights: Tensor, concepts: Concepts = None) -> Tensor:
    """Weight maps by concept vectors, ``F_ij = (1/d) sum_k c_jk E_i(:, :, k)`` (Aysel et al. 2025, Eq. 2)."""
    n, d, h, w = maps.shape
    maps = at_least_float32(maps)
    rows = weights.to(maps) / d
    if concepts is not None:
        rows = rows[check_concepts(concepts, n, len(weights)).to(rows.device)]
    rows = rows.expand(n, -1, -1) if rows.ndim == 2 else rows
    with without_autocast(maps.device):
        return torch.bmm(rows, maps.flatten(2)).reshape(n, rows.shape[1], h, w)


def check_concepts(concepts: Tensor | np.ndarray | Sequence[object], n_samples: int, n_concepts: int | None) -> Tensor:
    """Return concept indices, checked."""
    indices = to_tensor("concepts", concepts)
    if indices.is_floating_point() or indices.dtype == torch.bool:
        raise TypeError(f"Expected argument `concepts` to hold concept indices but got {indices.dtype}.")
    if indices.ndim not in (1, 2) or (indices.ndim == 2 and len(indices) != n_samples):
        raise ValueError(
            f"Expected argument `concepts` to have shape (k,) or (N, k) = ({n_samples}, *) but got "
            f"{tuple(indices.shape)}."
        )
    # Skip tensors on accelerators: the check would synchronise.
    if indices.numel() and n_concepts is not None and indices.device.type == "cpu":
        low, high = indices.numpy().min(), indices.numpy().max()
        if low < 0 or high >= n_concepts:
            raise ValueError(
                f"Expected argument `concepts` to lie in 0..{n_concepts - 1}, an index of each of the "
                f"{n_concepts} concepts, but got {low if low < 0 else high}."
            )
    return indices.long()


def _is_part(module: nn.Module, owners: list[Any]) -> bool:
    tensors = _tensors(module)
    owned = set().union(*(_tensors(owner) for owner in owners if isinstance(owner, nn.Module)))
    return bool(tensors) and tensors <= owned


def _tensors(module: nn.Module) -> set[int]:
    return {id(tensor) for group in (module.parameters(), module.buffers()) for tensor in group}


def _check_channels(features: Tensor, channels: int | None) -> None:
    shape = tuple(features.shape)
    last = " It looks as if channels came last: pass `maps=lambda f: f.permute(0, 3, 1, 2)`."
    if channels is None:
        # Swin gives (N, h, w, C). Square maps with more channels than rows betray that.
        if features.ndim == 4 and shape[1] == shape[2] < shape[3]:
            raise ValueError(
                f"Expected `features` to give maps (N, d, h, w) but got {shape}.{last} If they are right as "
                f"they are, pass `maps=torch.nn.Identity()`."
            )
    elif shape[1] != channels:
        axes = "(N, d)" if features.ndim == 2 else "(N, d, h, w)"
        raise ValueError(
            f"Expected `features` to give {axes} with d = {channels}, the width of the concepts, but "
            f"got {shape}." + (last if features.ndim == 4 and shape[3] == channels else "")
        )
