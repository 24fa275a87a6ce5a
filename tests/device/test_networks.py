"""Networks of the three factories and of transformers on the simulated device, from images to explanations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import timm
import torch
from captum.attr import Saliency
from open_clip.transformer import VisionTransformer
from torch import nn
from torchvision import models

from both_devices import Work, assert_near, assert_same
from captum_concepts import (
    BottleneckCBM,
    CoAM,
    ConceptBank,
    PostHocCBM,
    embed,
    explain_func,
    from_open_clip,
    from_timm,
    from_torchvision,
    from_transformers,
)
from quantus_concepts import CEM
from tiny_models import TRANSFORMER

N, SIZE, N_CONCEPTS, N_CLASSES = 4, 32, 5, 3
IMAGES = np.random.default_rng(0).normal(size=(N, 3, SIZE, SIZE)).astype(np.float32)
CLASSES = np.arange(N) % N_CLASSES


def resnet() -> nn.Module:
    model = models.ResNet(models.resnet.BasicBlock, [1, 1, 1, 1], num_classes=N_CLASSES)
    # Maps of 4 x 4 also of small images.
    model.layer3 = model.layer4 = nn.Identity()
    return model


def timm_vit() -> nn.Module:
    small = {"depth": 2, "embed_dim": 16, "num_heads": 2, "img_size": SIZE, "patch_size": 8}
    return timm.create_model("vit_tiny_patch16_224", num_classes=N_CLASSES, **small)


def of_transformers(name: str) -> nn.Module:
    transformers = pytest.importorskip("transformers", reason="the models are those of transformers")
    kind = getattr(transformers, name)
    model: nn.Module = kind(kind.config_class(**TRANSFORMER))
    return model


both = pytest.mark.parametrize("held", [assert_same, assert_near], ids=["simulated", "real"])
FAMILIES: dict[str, tuple[Callable[..., Any], Callable[[], nn.Module]]] = {
    "torchvision resnet": (from_torchvision, resnet),
    "torchvision vit": (from_torchvision, lambda: models.VisionTransformer(SIZE, 8, 2, 2, 16, 32)),
    "timm vit": (from_timm, timm_vit),
    "open_clip vit": (from_open_clip, lambda: VisionTransformer(SIZE, 8, 16, 2, 2, 2.0, output_dim=12)),
    "transformers siglip": (from_transformers, lambda: of_transformers("SiglipVisionModel")),
}


@both
@pytest.mark.parametrize("family", FAMILIES)
def test_concept_models_over_every_factory(family: str, held: Callable[[Work], None]) -> None:
    factory, build = FAMILIES[family]

    def work(device: torch.device) -> Any:
        backbone = factory(build().eval().to(device))
        bank = ConceptBank.random(N_CONCEPTS, backbone.channels)
        cbm = PostHocCBM(backbone, bank, nn.Linear(N_CONCEPTS, N_CLASSES).eval())
        cbm.absent_values = torch.zeros(N_CONCEPTS)
        cbm.to(device)
        return explained(cbm) | {"embedded": embed(backbone, [torch.from_numpy(IMAGES)])}

    held(work)


def explained(model: Any) -> dict[str, Any]:
    labels = np.arange(N * N_CONCEPTS).reshape(N, N_CONCEPTS) % 2
    with torch.no_grad():
        values = model.concept_predictor(torch.from_numpy(IMAGES).to(next(model.parameters()).device))
    return {
        "values": values,
        "maps": explain_func(CoAM.of)(model, IMAGES, CLASSES),
        "gradient": explain_func(Saliency)(model, IMAGES, CLASSES),
        "CEM": CEM(labels)(model, IMAGES, CLASSES),
    }


@both
def test_bottleneck_models(held: Callable[[Work], None]) -> None:
    def work(device: torch.device) -> Any:
        features = nn.Sequential(nn.Conv2d(3, 6, 4, stride=4), nn.ReLU())
        layer, head = nn.Linear(6, N_CONCEPTS), nn.Linear(N_CONCEPTS, N_CLASSES)
        return explained(BottleneckCBM(features, layer, head).eval().to(device))

    held(work)
