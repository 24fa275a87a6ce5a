"""Backbones of transformers, built from tiny configurations, against the models' own outputs."""

from __future__ import annotations

import copy
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from safetensors.torch import load, save
from torch import Tensor, nn

from captum_concepts import Backbone, ConceptBank, PostHocCBM, from_torchvision, from_transformers

transformers = pytest.importorskip("transformers", reason="the models are those of transformers")

TOKENS = {
    "image_size": 32,
    "patch_size": 8,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
}
TEXT = {**TOKENS, "vocab_size": 8, "max_position_embeddings": 4, "bos_token_id": 0, "eos_token_id": 1}
STAGES = {"hidden_sizes": [8, 12], "depths": [1, 1]}
SWIN = {"embed_dim": 8, "depths": [1, 1], "num_heads": [2, 2], "window_size": 2, "patch_size": 4, "image_size": 32}
CLIP_BOTH = {"vision_config": TOKENS, "text_config": TEXT}


class Family(NamedTuple):
    model: str
    settings: dict[str, Any]
    own: Callable[[Any, Tensor], Tensor]
    channels: int
    linear: bool
    grid: tuple[int, int] = (4, 4)
    size: tuple[int, int] = (32, 32)


def read_by(name: str) -> Callable[[Any, Tensor], Tensor]:
    """Return what a classifier reads, seen by replacing it."""

    def own(model: Any, images: Tensor) -> Tensor:
        headless = copy.copy(model)
        headless._modules = {**model._modules, name: nn.Identity()}
        return headless(images).logits.flatten(1)

    return own


def pooler(model: Any, images: Tensor) -> Tensor:
    return model(images).pooler_output.flatten(1)


def class_token(model: Any, images: Tensor) -> Tensor:
    return model(images).last_hidden_state[:, 0]


def image_features(model: Any, images: Tensor) -> Tensor:
    found = model.get_image_features(images)
    # A tensor before version 5.
    return found if isinstance(found, Tensor) else found.pooler_output


CLASSIFIER = read_by("classifier")
FAMILIES = {
    "ResNet": Family(
        "ResNetModel", {**STAGES, "embedding_size": 8, "layer_type": "basic"}, pooler, 12, True, (4, 6), (32, 48)
    ),
    "ResNet classifier": Family(
        "ResNetForImageClassification", {**STAGES, "embedding_size": 8, "num_labels": 3}, CLASSIFIER, 12, True
    ),
    "ConvNext": Family(
        "ConvNextModel", {**STAGES, "num_stages": 2, "patch_size": 4}, pooler, 12, False, (4, 6), (32, 48)
    ),
    "ConvNext classifier": Family(
        "ConvNextForImageClassification", {**STAGES, "num_stages": 2, "patch_size": 4}, CLASSIFIER, 12, False
    ),
    "Swin": Family("SwinModel", SWIN, pooler, 16, True),
    "Swin, padded": Family("SwinModel", SWIN, pooler, 16, True, (4, 6), (26, 46)),
    "Swin classifier": Family("SwinForImageClassification", SWIN, CLASSIFIER, 16, True),
    "ViT": Family("ViTModel", TOKENS, class_token, 16, False),
    "ViT classifier": Family("ViTForImageClassification", TOKENS, CLASSIFIER, 16, False),
    "DeiT": Family("DeiTForImageClassification", TOKENS, CLASSIFIER, 16, False),
    "Dinov2": Family("Dinov2Model", TOKENS, pooler, 16, False, (5, 5), (40, 40)),
    "Dinov2 classifier": Family("Dinov2ForImageClassification", TOKENS, CLASSIFIER, 32, False),
    "CLIP": Family("CLIPModel", {**CLIP_BOTH, "projection_dim": 12}, image_features, 12, False),
    "CLIP vision": Family("CLIPVisionModel", TOKENS, pooler, 16, False),
    "CLIP vision projected": Family(
        "CLIPVisionModelWithProjection",
        {**TOKENS, "projection_dim": 12},
        lambda model, images: model(images).image_embeds,
        12,
        False,
    ),
    "CLIP classifier": Family("CLIPForImageClassification", CLIP_BOTH, CLASSIFIER, 16, True),
    "SigLIP": Family("SiglipModel", CLIP_BOTH, image_features, 16, False),
    "SigLIP vision": Family("SiglipVisionModel", TOKENS, pooler, 16, False),
    "SigLIP classifier": Family("SiglipForImageClassification", CLIP_BOTH, CLASSIFIER, 16, True),
}


def built(name: str, settings: dict[str, Any]) -> nn.Module:
    kind = getattr(transformers, name, None)
    if kind is None:
        pytest.skip(f"transformers {transformers.__version__} has no {name}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = kind(kind.config_class(**settings)).eval().double()
        with torch.no_grad():
            # Off the initial ones and zeros, under which leaving out a norm or a bias is not seen.
            for parameter in model.parameters():
                if parameter.ndim <= 1:
                    parameter.add_(0.3 * torch.randn_like(parameter))
    return model


class Case(NamedTuple):
    family: Family
    model: nn.Module
    backbone: Backbone
    images: Tensor


@pytest.fixture(scope="module", params=FAMILIES)
def case(request: pytest.FixtureRequest) -> Case:
    family = FAMILIES[request.param]
    model = built(family.model, family.settings)
    images = torch.randn(2, 3, *family.size, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return Case(family, model, from_transformers(model), images)


@torch.no_grad()
def test_embedding_and_maps_are_those_of_the_model(case: Case) -> None:
    expected = case.family.own(case.model, case.images)
    embedding = case.backbone.embed(case.images)
    assert embedding.shape == (2, case.family.channels) == (2, case.backbone.channels)
    # Two images apart enough, so that agreement says something.
    assert (expected[0] - expected[1]).abs().max() > 1e-3
    torch.testing.assert_close(embedding, expected, rtol=1e-9, atol=1e-9)

    maps = case.backbone.feature_maps(case.backbone.features(case.images))
    assert maps.shape == (2, case.family.channels, *case.family.grid)
    assert case.backbone.linear_pool is case.family.linear
    assert ((maps.mean((2, 3)) - expected).abs().max() < 1e-9) == case.family.linear


@torch.no_grad()
def test_maps_read_each_position_as_the_model_reads_its_embedding(case: Case) -> None:
    backbone = case.backbone
    if isinstance(backbone.pool, str):
        return
    features = backbone.features(case.images)
    maps = backbone.feature_maps(features)
    for i, j in ((0, 1), (maps.shape[2] - 1, 0)):
        if features.ndim == 4:
            alone = features[:, :, i : i + 1, j : j + 1]
        else:
            patches = maps.shape[2] * maps.shape[3]
            token = features[:, features.shape[1] - patches + i * maps.shape[3] + j, None]
            # Once as the class token, and once as the only patch.
            prefix = features.shape[1] - patches
            alone = torch.cat([token] * (1 + prefix), 1)
        torch.testing.assert_close(backbone.pool(alone), maps[:, :, i, j], rtol=1e-9, atol=1e-9)


@torch.no_grad()
def test_a_concept_model_holds_each_parameter_once(case: Case) -> None:
    cbm = PostHocCBM(case.backbone, ConceptBank.random(2, case.family.channels), nn.Linear(2, 3)).eval().double()
    saved = save(cbm.state_dict())
    before = cbm(case.images)
    for parameter in cbm.parameters():
        parameter.add_(1)
    cbm.load_state_dict(load(saved))
    assert torch.equal(cbm(case.images), before)
    own = {id(parameter) for parameter in case.model.parameters()}
    assert {id(parameter) for parameter in cbm.features.parameters()} <= own
    assert not cbm.training


@torch.no_grad()
def test_images_of_another_size_are_told() -> None:
    vit = from_transformers(built("SiglipVisionModel", TOKENS))
    with pytest.raises(ValueError, match=r"\(N, C, 32, 32\) but got \(1, 3, 16, 64\)"):
        vit.embed(torch.zeros(1, 3, 16, 64).double())
    any_size = from_transformers(built("Dinov2Model", TOKENS))
    with pytest.raises(ValueError, match="to be square"):
        any_size.embed(torch.zeros(1, 3, 32, 48).double())


def test_what_a_processor_returns_and_a_name_are_told() -> None:
    vit = from_transformers(built("ViTModel", TOKENS))
    with pytest.raises(TypeError, match=r'but got BatchFeature\. .* pass its "pixel_values"\.'):
        vit.features(transformers.BatchFeature({"pixel_values": torch.zeros(1, 3, 32, 32)}))
    with pytest.raises(TypeError, match=r"the name 'own/vit'\. Load it first, with `AutoModelFor"):
        from_transformers("own/vit")


def test_the_factory_of_another_library_is_named() -> None:
    with pytest.raises(ValueError, match=r"ViTModel\. Give it to `from_transformers`, or pass its parts"):
        from_torchvision(built("ViTModel", TOKENS))


class OwnForward(transformers.ViTModel):
    def forward(self, pixel_values: Tensor, **kwargs: Any) -> Any:
        return super().forward(pixel_values, **kwargs)


def without_head() -> nn.Module:
    return built("SiglipVisionModel", {**TOKENS, "vision_use_head": False})


@pytest.mark.parametrize(
    "build",
    [
        lambda: nn.Conv2d(3, 4, 3),
        lambda: built("BeitModel", TOKENS),
        lambda: OwnForward(transformers.ViTConfig(**TOKENS)),
        without_head,
    ],
    ids=["another library", "another family", "a forward pass of its own", "no pooling"],
)
def test_others_are_refused_with_what_to_pass(build: Callable[[], nn.Module]) -> None:
    with pytest.raises(ValueError, match=r"transformers family .* Pass its parts yourself: PostHocCBM\(features"):
        from_transformers(build())


def test_the_processor_tells_the_normalisation() -> None:
    model = built("ViTModel", TOKENS)
    processor = transformers.ViTImageProcessor(image_mean=[0.1, 0.2, 0.3], image_std=[0.5, 0.6, 0.7])
    backbone = from_transformers(model, processor)
    assert backbone.normalisation == ((0.1, 0.2, 0.3), (0.5, 0.6, 0.7))
    # What the processor itself makes of bytes, of which `normalise` takes the share of 255.
    image = torch.randint(0, 256, (3, 32, 32), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    own = processor(image, do_resize=False, return_tensors="pt")["pixel_values"]
    torch.testing.assert_close(backbone.normalise(image[None] / 255), own)
    both = SimpleNamespace(image_processor=transformers.ViTImageProcessor(do_normalize=False))
    assert from_transformers(model, both).normalisation == ((0.0,) * 3, (1.0,) * 3)
    plain = transformers.ViTImageProcessor(do_rescale=False, image_mean=[51.0] * 3, image_std=[255.0] * 3)
    assert from_transformers(model, plain).normalisation == ((0.2,) * 3, (1.0,) * 3)


def test_the_name_on_the_hub_is_the_source(tmp_path: Any) -> None:
    model: Any = built("ViTModel", TOKENS)
    assert from_transformers(model).source is None
    model.config._name_or_path = "google/vit-base-patch16-224"
    assert from_transformers(model).source == "transformers:ViTModel:google/vit-base-patch16-224"
    model.config._name_or_path = str(tmp_path)
    assert from_transformers(model).source is None
