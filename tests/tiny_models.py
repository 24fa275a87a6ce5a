"""Models small enough to follow by hand, with the members of a concept model and nothing else."""

from __future__ import annotations

import torch
from torch import Tensor, nn

N_CONCEPTS = 5
N_CLASSES = 4
N_CHANNELS = 6


def seeded(module: nn.Module, seed: int = 0) -> nn.Module:
    """Draw the parameters of a module from a seed."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) / 2)
    return module


class Predictor(nn.Module):
    """Image to concept values: mean-pooled features times a matrix."""

    def __init__(self, features: nn.Module, cavs: Tensor) -> None:
        super().__init__()
        self.features = features
        self.register_buffer("cavs", cavs)

    def forward(self, images: Tensor) -> Tensor:
        return self.features(images).mean((2, 3)) @ self.cavs.T


class TinyConceptModel(nn.Module):
    """The least a model must be to be evaluated on images; it does not share its features."""

    def __init__(self, seed: int = 0, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            features = nn.Sequential(nn.Conv2d(3, N_CHANNELS, 3, stride=3), nn.BatchNorm2d(N_CHANNELS), nn.ReLU())
            self.head = nn.Sequential(nn.Linear(N_CONCEPTS, N_CLASSES), nn.Dropout(0.5))
        self.concept_predictor = Predictor(features, torch.randn(N_CONCEPTS, N_CHANNELS, generator=generator))
        self.to(dtype)
        self.eval()

    @property
    def features(self) -> nn.Module:
        return self.concept_predictor.features

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.concept_predictor(images))

    def concept_maps(self, images: Tensor, concepts: Tensor | None = None) -> Tensor:
        return self.maps(self.features(images), concepts)

    def maps(self, features: Tensor, concepts: Tensor | None) -> Tensor:
        every = torch.einsum("ld,ndhw->nlhw", self.concept_predictor.cavs, features)
        if concepts is None:
            return every
        index = concepts.expand(len(every), -1) if concepts.ndim == 1 else concepts
        return every.gather(1, index[:, :, None, None].expand(-1, -1, *every.shape[2:]))


class SharingConceptModel(TinyConceptModel):
    """The same model, and it shares its features; counts how often the backbone runs."""

    def __init__(self, seed: int = 0, dtype: torch.dtype = torch.float32) -> None:
        super().__init__(seed, dtype)
        self.runs = 0
        self.features.register_forward_hook(self._count)

    def _count(self, *args: object) -> None:
        self.runs += 1

    def values_from_features(self, features: Tensor) -> Tensor:
        return features.mean((2, 3)) @ self.concept_predictor.cavs.T

    def maps_from_features(self, features: Tensor, concepts: Tensor | None = None) -> Tensor:
        return self.maps(features, concepts)
