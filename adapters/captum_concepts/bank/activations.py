"""Concept directions without labels: a factorisation of activations, or the centres of their clusters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from captum_concepts.backbones.embedding import read_batch
from captum_concepts.backbones.pooling import Maps, Pool, Pooling, resolve_stages
from captum_concepts.support import running
from captum_concepts.support.checks import check_finite, check_whole, to_tensor
from captum_concepts.support.running import import_sklearn, keep_numpy_state, warn_user

if TYPE_CHECKING:
    from captum_concepts.backbones.backbone import Backbone

#: Largest number of places of the maps, drawn evenly over images.
MAX_PLACES = 50_000
#: How directions are found: for activations of at least 0, and for those of any sign.
NMF, KMEANS = "nmf", "kmeans"
METHODS = (NMF, KMEANS)


def fit_activations(
    backbone: nn.Module | Backbone,
    images: Tensor | np.ndarray | Iterable[Any],
    n_concepts: int,
    pool: Pool,
    maps: Maps | None,
    batch_size: int,
    seed: int,
) -> dict[str, Any]:
    """Find directions in the activations of images, with boundaries through the mean embedding."""
    check_whole("n_concepts", n_concepts, 1)
    features, pooling = resolve_stages(backbone, pool, maps, "backbone")
    places, embeddings, _ = activations(features, pooling, images, batch_size)
    check_finite("images", places)
    method = NMF if (places >= 0).all() else KMEANS
    if method == KMEANS:
        warn_user(
            "Some activations are below 0, as those of a network without a ReLU: the directions lead to the centres of "
            "clusters (K-means), in place of a non-negative factorisation."
        )
    cavs = nn.functional.normalize(factorise(places, n_concepts, seed, method), dim=1)
    names = [f"concept {number}" for number in range(1, n_concepts + 1)]
    settings = {"method": method, "seed": int(seed), "places": len(places)}
    return {"cavs": cavs, "intercepts": -cavs @ embeddings.mean(0), "names": names, "settings": settings}


class Activations(NamedTuple):
    """Places of maps (n, d), embeddings (N, d), and of which image each place is (n,)."""

    places: Tensor
    embeddings: Tensor
    images: Tensor


@torch.no_grad()
def activations(
    features: nn.Module, pooling: Pooling, images: Tensor | np.ndarray | Iterable[Any], batch_size: int
) -> Activations:
    """Return the activations of images, or of the batches of a loader."""
    in_memory = isinstance(images, Tensor | np.ndarray)
    batches = to_tensor("images", images).split(batch_size) if in_memory else images
    places, embeddings = [], []
    with running.evaluation_mode(features, pooling):
        for batch in batches:
            pixels = running.floating_images(to_tensor("images", read_batch(batch, "images")["images"]))
            output = features(running.to_model(features, pixels))
            maps = pooling.feature_maps(output)
            places.append(maps.flatten(2).transpose(1, 2).flatten(0, 1).float().cpu())
            embeddings.append(pooling(output, None).float().cpu())
    if not embeddings:
        raise ValueError("Expected argument `images` to hold at least one image but it is empty.")
    all_places, all_embeddings = torch.cat(places), torch.cat(embeddings)
    counts = torch.tensor([len(part) // len(rows) for part, rows in zip(places, embeddings, strict=True)])
    sizes = torch.tensor([len(rows) for rows in embeddings])
    owners = torch.arange(len(all_embeddings)).repeat_interleave(counts.repeat_interleave(sizes))
    stride = max(1, -(-len(all_places) // MAX_PLACES))
    return Activations(all_places[::stride], all_embeddings, owners[::stride])


def factorise(places: Tensor, n_concepts: int, seed: int, method: str) -> Tensor:
    """Return directions (L, d) of places (n, d).

    Those of a non-negative matrix factorisation, or from the mean to the centre of each cluster of K-means: of
    activations of any sign 0 means nothing.
    """
    if n_concepts > min(places.shape):
        raise ValueError(
            f"Expected argument `n_concepts` to be at most {min(places.shape)}, the rank of the activations, but got "
            f"{n_concepts}."
        )
    with keep_numpy_state():
        if method == KMEANS:
            centred = (places - places.mean(0)).numpy()
            kmeans = import_sklearn("cluster").KMeans
            directions = kmeans(n_concepts, n_init=1, random_state=seed).fit(centred).cluster_centers_
        else:
            nmf = import_sklearn("decomposition").NMF
            model = nmf(n_concepts, init="nndsvda", max_iter=400, tol=1e-3, random_state=seed).fit(places.numpy())
            directions = model.components_
    return torch.from_numpy(directions).to(places)
