"""Small models: concept models that can be followed by hand, a plain network, and classifiers of transformers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from captum_concepts import BottleneckCBM

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
        self.register_buffer("absent_values", torch.randn(N_CONCEPTS, generator=generator) / 4, persistent=False)
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


def two_concepts() -> BottleneckCBM:
    """Return a model whose values are its inputs, and whose first class reads -2 times the second concept."""
    head, layer = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)
    head.weight.data, layer.weight.data = torch.tensor([[1.0, -2.0], [0.0, 1.0]]), torch.eye(2)
    return BottleneckCBM(nn.Identity(), layer, head, pool=lambda rows: rows, activation=None).eval()


def small_network() -> nn.Sequential:
    """Return a plain network from images to three classes."""
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        parts = (nn.Conv2d(3, 6, 3, stride=3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 3))
        return nn.Sequential(*parts).eval()


TRANSFORMER = {
    "image_size": 32,
    "patch_size": 8,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
}
_TEXT = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
_SWIN = {"patch_size": 2, "embed_dim": 8, "depths": [1, 1], "num_heads": [1, 2], "window_size": 4}
#: Kinds of transformers' classifiers: the settings, and the layer with the maps.
CLASSIFIERS: dict[str, tuple[dict[str, Any], str]] = {
    "ResNet": (
        {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "layer_type": "basic"},
        "resnet.encoder.stages.1",
    ),
    "ViT": (TRANSFORMER, "vit.embeddings.patch_embeddings.projection"),
    "ConvNext": (
        {"num_stages": 2, "hidden_sizes": [8, 16], "depths": [1, 1], "patch_size": 2},
        "convnext.encoder.stages.1",
    ),
    "Swin": ({"image_size": 32, **_SWIN}, "swin.embeddings.patch_embeddings.projection"),
    "CLIP": (
        {"vision_config": TRANSFORMER, "text_config": _TEXT, "projection_dim": 8},
        "vision_model.embeddings.patch_embedding",
    ),
}


def transformers_classifier(kind: str) -> nn.Module:
    """Return a classifier of transformers with three classes, for images of 32 pixels."""
    transformers = pytest.importorskip("transformers", reason="the models are those of transformers")
    config = getattr(transformers, f"{kind}Config")(**CLASSIFIERS[kind][0])
    config.num_labels = 3
    model: nn.Module = getattr(transformers, f"{kind}ForImageClassification")(config).eval()
    return model
