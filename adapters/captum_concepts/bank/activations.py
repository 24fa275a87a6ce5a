"""Concepts without labels: directions that activations of a backbone are made of."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.decomposition import NMF
from torch import Tensor, nn

from captum_concepts._support.checks import to_tensor
from captum_concepts._support.running import evaluation_mode, floating_images, kept_numpy_state, seeded_generators
from captum_concepts._support.running import to_model as on_model
from captum_concepts.backbones.batches import read_batch
from captum_concepts.backbones.pooling import Pooling

#: Places of the maps that are looked at, drawn evenly over images.
MAX_PLACES = 50_000
#: Concepts that may be active in one place, passes over the places, places at once.
TOP_K, EPOCHS, BATCH = 4, 20, 256


@torch.no_grad()
def activations(features: nn.Module, pooling: Pooling, images: Any, batch_size: int) -> tuple[Tensor, Tensor]:
    """Return places of the maps (n, d) and embeddings (N, d) of images, or of the batches of a loader."""
    whole = isinstance(images, Tensor | np.ndarray)
    batches = to_tensor("images", images).split(batch_size) if whole else images
    places, embeddings = [], []
    with evaluation_mode(features, pooling):
        for batch in batches:
            given = floating_images(to_tensor("images", read_batch(batch, "images")["images"]))
            found = features(on_model(features, given))
            maps = pooling.feature_maps(found)
            places.append(maps.flatten(2).transpose(1, 2).flatten(0, 1).float().cpu())
            embeddings.append(pooling(found, None).float().cpu())
    if not embeddings:
        raise ValueError("Expected argument `images` to hold at least one image but it is empty.")
    every = torch.cat(places)
    return every[:: max(1, -(-len(every) // MAX_PLACES))], torch.cat(embeddings)


def factorise(places: Tensor, n_concepts: int, seed: int) -> Tensor:
    """Return directions (L, d) of a non-negative matrix factorisation of places (n, d)."""
    if (places < 0).any():
        raise ValueError(
            "Expected activations of at least 0, as after a ReLU, for method='nmf' but some are negative. Cut the "
            "network behind a ReLU, or pass method='sae_top_k'."
        )
    if n_concepts > min(places.shape):
        raise ValueError(
            f"Expected argument `n_concepts` to be at most {min(places.shape)}, the rank of the activations, but got "
            f"{n_concepts}."
        )
    with kept_numpy_state():
        model = NMF(n_concepts, init="nndsvda", max_iter=400, tol=1e-3, random_state=seed).fit(places.numpy())
    return torch.from_numpy(model.components_).to(places)


def autoencode(places: Tensor, n_concepts: int, seed: int) -> Tensor:
    """Return directions (L, d), the decoder of a sparse autoencoder of places in which few concepts are active."""
    shift = places.mean(0)
    centred = (places - shift) / (places - shift).norm(dim=1).mean().clamp(min=1e-12)
    top = min(TOP_K, n_concepts)
    with seeded_generators(torch.device("cpu"), seed):
        # Places themselves are a start from which every concept is active somewhere.
        start = centred[torch.randperm(len(centred))[:n_concepts]]
        start = torch.cat([start, torch.randn(n_concepts - len(start), places.shape[1])])
        decoder = nn.Parameter(nn.functional.normalize(start, dim=1))
        encoder = nn.Parameter(decoder.detach().clone())
        optimiser = torch.optim.Adam([encoder, decoder], lr=1e-3)
        for _ in range(EPOCHS):
            for rows in torch.randperm(len(centred)).split(BATCH):
                codes = (centred[rows] @ encoder.T).relu()
                kept = codes.topk(top, dim=1)
                sparse = torch.zeros_like(codes).scatter(1, kept.indices, kept.values)
                loss = (sparse @ decoder - centred[rows]).square().sum(1).mean()
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                with torch.no_grad():
                    decoder.copy_(nn.functional.normalize(decoder, dim=1))
    return decoder.detach()
