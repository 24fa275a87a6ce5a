"""Small models of every family of backbones, without weights, and what each says that its embedding is."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

import open_clip
import pytest
import timm
import torch
from open_clip.timm_model import TimmModel
from torch import Tensor, nn
from torchvision import models

from captum_concepts import Backbone, from_open_clip, from_timm, from_torchvision, from_transformers


def small_resnet(cls: type = models.ResNet) -> nn.Module:
    return cls(models.resnet.BasicBlock, [1, 1, 1, 1], num_classes=2)


def tv_vit(**kwargs) -> nn.Module:
    return models.VisionTransformer(
        image_size=32, patch_size=8, num_layers=2, num_heads=2, hidden_dim=16, mlp_dim=32, **kwargs
    )


def tv_maxvit() -> nn.Module:
    return models.MaxVit(
        input_size=(32, 32),
        stem_channels=8,
        partition_size=2,
        block_channels=[8, 16],
        block_layers=[1, 1],
        head_dim=4,
        stochastic_depth_prob=0.0,
    )


def tv_swin() -> nn.Module:
    return models.SwinTransformer(patch_size=[4, 4], embed_dim=8, depths=[2, 2], num_heads=[2, 2], window_size=[4, 4])


def tv_efficientnet() -> nn.Module:
    config = models.efficientnet.MBConvConfig
    return models.EfficientNet([config(1, 3, 1, 8, 8, 1), config(6, 3, 2, 8, 16, 1)], dropout=0.2, last_channel=64)


def tv_convnext() -> nn.Module:
    config = models.convnext.CNBlockConfig
    return models.ConvNeXt([config(8, 16, 1), config(16, None, 2)], layer_scale=1.0)


def timm_coatnet() -> nn.Module:
    """Return a model of the MaxxVit family with an MLP after its pool."""
    config = timm.models.MaxxVitCfg(
        embed_dim=(16, 32), depths=(1, 1), block_type=("C", "T"), stem_width=8, head_hidden_size=24
    )
    return timm.models.MaxxVit(config, img_size=32)


def clip(**vision) -> nn.Module:
    """Return an open_clip model whose image tower is small; its text tower is as small as it goes."""
    text = {"context_length": 4, "vocab_size": 8, "width": 8, "heads": 1, "layers": 1}
    return open_clip.CLIP(embed_dim=12, vision_cfg={"image_size": 32, **vision}, text_cfg=text)


def clip_vit(**vision) -> nn.Module:
    return clip(patch_size=8, width=16, head_width=8, layers=2, **vision)


class Tower(nn.Module):
    """An open_clip model with a timm tower, which no config makes small enough."""

    def __init__(self, name: str, **kwargs) -> None:
        super().__init__()
        self.visual = TimmModel(name, embed_dim=12, image_size=160, **kwargs)

    def encode_image(self, images: Tensor) -> Tensor:
        return self.visual(images)


class Family(NamedTuple):
    """A factory, a small model of its library, and what is known of the embedding."""

    factory: Callable[..., Backbone]
    build: Callable[[], nn.Module]
    size: tuple[int, int]
    channels: int
    linear: bool
    #: What the model itself gives as its embedding, or the name of the layer that reads it.
    embedding: Callable[[Any, Tensor], Tensor] | str = ""


def torchvision_name(name: str) -> Callable[[], nn.Module]:
    return lambda: models.get_model(name, weights=None)


def timm_name(name: str, **kwargs) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        if not timm.is_model(name):
            pytest.skip(f"timm {timm.__version__} has no {name}")
        return timm.create_model(name, **kwargs)

    return build


def transformers_model(name: str, settings: dict[str, Any]) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        transformers = pytest.importorskip("transformers", reason="the models are those of transformers")
        kind = getattr(transformers, name, None)
        if kind is None:
            pytest.skip(f"transformers {transformers.__version__} has no {name}")
        return kind(kind.config_class(**settings))

    return build


def of_transformers(
    name: str, embedding: Any, channels: int, linear: bool, size: tuple[int, int] = (32, 32), **settings: Any
) -> Family:
    return Family(from_transformers, transformers_model(name, settings), size, channels, linear, embedding)


def pooler(model: Any, images: Tensor) -> Tensor:
    return model(images).pooler_output.flatten(1)


def class_token(model: Any, images: Tensor) -> Tensor:
    return model(images).last_hidden_state[:, 0]


def image_features(model: Any, images: Tensor) -> Tensor:
    output = model.get_image_features(images)
    # A tensor before version 5.
    return output if isinstance(output, Tensor) else output.pooler_output


def timm_prr() -> nn.Module:
    if not hasattr(timm.layers, "AttentionPoolPrr"):
        pytest.skip(f"timm {timm.__version__} has no such pooling")
    return timm.create_model("test_vit", global_pool="prr")


SMALL = {"depth": 2, "embed_dim": 16, "num_heads": 2, "num_classes": 5}
SWIN = {"img_size": 64, "window_size": 4, "embed_dim": 8, "depths": (1, 2), "num_heads": (2, 2)}
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
HF_SWIN = {"embed_dim": 8, "depths": [1, 1], "num_heads": [2, 2], "window_size": 2, "patch_size": 4, "image_size": 32}
CLIP_BOTH = {"vision_config": TOKENS, "text_config": TEXT}
TV, TIMM, CLIP = from_torchvision, from_timm, from_open_clip
FAMILIES = {
    "torchvision resnet": Family(TV, small_resnet, (64, 96), 512, True, "fc"),
    "torchvision efficientnet": Family(TV, tv_efficientnet, (64, 64), 64, True, "classifier.1"),
    "torchvision mobilenet v2": Family(
        TV, lambda: models.mobilenet_v2(width_mult=0.25), (64, 64), 1280, True, "classifier.1"
    ),
    "torchvision densenet": Family(
        TV,
        lambda: models.DenseNet(growth_rate=4, block_config=(1, 1, 1, 2), num_init_features=8),
        (64, 64),
        12,
        True,
        "classifier",
    ),
    "torchvision inception": Family(
        TV,
        lambda: models.inception_v3(weights=None, init_weights=False, transform_input=True),
        (107, 107),
        2048,
        True,
        "fc",
    ),
    "torchvision swin": Family(TV, tv_swin, (32, 48), 16, True, "head"),
    "torchvision convnext": Family(TV, tv_convnext, (32, 48), 16, False, "classifier.2"),
    "torchvision maxvit": Family(TV, tv_maxvit, (32, 32), 16, False, "classifier.5"),
    "torchvision mobilenet v3": Family(
        TV, torchvision_name("mobilenet_v3_small"), (64, 96), 1024, False, "classifier.3"
    ),
    "torchvision vit": Family(TV, tv_vit, (32, 32), 16, False, "heads.head"),
    "torchvision vit with representation": Family(
        TV, lambda: tv_vit(representation_size=12), (32, 32), 12, False, "heads.head"
    ),
    "timm resnet": Family(TIMM, timm_name("test_resnet"), (64, 96), 96, True),
    "timm swin": Family(TIMM, timm_name("swin_tiny_patch4_window7_224", **SWIN), (64, 64), 16, True),
    "timm convnext": Family(TIMM, timm_name("test_convnext"), (64, 96), 64, False),
    "timm maxvit": Family(TIMM, timm_name("test_maxvit", img_size=96), (96, 96), 128, True),
    "timm coatnet": Family(TIMM, timm_coatnet, (32, 32), 24, False),
    "timm vit": Family(TIMM, timm_name("vit_tiny_patch16_224", img_size=(32, 48), **SMALL), (32, 48), 16, False),
    "timm dinov2": Family(TIMM, timm_name("vit_small_patch14_reg4_dinov2", img_size=28, **SMALL), (28, 28), 16, False),
    "timm vit mean, then norm": Family(TIMM, timm_name("test_vit2"), (64, 64), 64, False),
    "timm siglip": Family(
        TIMM, timm_name("vit_base_patch16_siglip_224", img_size=(32, 48), **SMALL), (32, 48), 16, False
    ),
    "timm siglip over prefix": Family(TIMM, timm_name("test_vit3", img_size=64), (64, 64), 96, False),
    "timm eva": Family(TIMM, timm_name("eva02_tiny_patch14_224", img_size=28, **SMALL), (28, 28), 16, False),
    "timm eva attention": Family(
        TIMM, timm_name("vit_pe_core_tiny_patch16_384", img_size=32, **SMALL), (32, 32), 16, False
    ),
    "open_clip vit": Family(CLIP, clip_vit, (32, 32), 12, False),
    "open_clip vit mean": Family(CLIP, lambda: clip_vit(pool_type="avg"), (32, 32), 12, True),
    "open_clip vit norm after pool": Family(
        CLIP, lambda: clip_vit(pool_type="avg", final_ln_after_pool=True), (32, 32), 12, False
    ),
    "open_clip rn50": Family(
        CLIP, lambda: clip(image_size=96, layers=[1, 1, 1, 1], width=8, head_width=32), (96, 96), 12, False
    ),
    "open_clip siglip": Family(CLIP, lambda: Tower("test_vit3", pool="map", proj="none"), (160, 160), 96, False),
    "open_clip convnext": Family(CLIP, lambda: Tower("test_convnext", pool="", proj="linear"), (64, 96), 12, False),
    "open_clip resnet linear": Family(
        CLIP, lambda: Tower("test_resnet", pool="avg", proj="linear", proj_bias=True), (64, 64), 12, True
    ),
    "open_clip resnet mlp": Family(CLIP, lambda: Tower("test_resnet", pool="avg", proj="mlp"), (64, 64), 12, False),
    "transformers ResNet": of_transformers(
        "ResNetModel", pooler, 12, True, size=(32, 48), **STAGES, embedding_size=8, layer_type="basic"
    ),
    "transformers ResNet classifier": of_transformers(
        "ResNetForImageClassification", "classifier", 12, True, **STAGES, embedding_size=8, num_labels=3
    ),
    "transformers ConvNext": of_transformers(
        "ConvNextModel", pooler, 12, False, size=(32, 48), **STAGES, num_stages=2, patch_size=4
    ),
    "transformers Swin": of_transformers("SwinModel", pooler, 16, True, **HF_SWIN),
    "transformers ViT": of_transformers("ViTModel", class_token, 16, False, **TOKENS),
    "transformers DeiT": of_transformers("DeiTForImageClassification", "classifier", 16, False, **TOKENS),
    "transformers Dinov2": of_transformers("Dinov2Model", pooler, 16, False, size=(40, 40), **TOKENS),
    "transformers Dinov2 classifier": of_transformers(
        "Dinov2ForImageClassification", "classifier", 32, False, **TOKENS
    ),
    "transformers CLIP": of_transformers("CLIPModel", image_features, 12, False, **CLIP_BOTH, projection_dim=12),
    "transformers CLIP vision": of_transformers("CLIPVisionModel", pooler, 16, False, **TOKENS),
    "transformers CLIP classifier": of_transformers("CLIPForImageClassification", "classifier", 16, True, **CLIP_BOTH),
    "transformers SigLIP": of_transformers("SiglipModel", image_features, 16, False, **CLIP_BOTH),
    "transformers SigLIP classifier": of_transformers(
        "SiglipForImageClassification", "classifier", 16, True, **CLIP_BOTH
    ),
}


class Case(NamedTuple):
    family: Family
    model: nn.Module
    backbone: Backbone
    images: Tensor


def randomise(model: nn.Module, images: Tensor, generator: torch.Generator) -> None:
    """Move norms and biases off their initial ones and zeros, under which leaving one out is not seen."""

    def noise(tensor: Tensor) -> Tensor:
        return 0.3 * torch.randn(tensor.shape, generator=generator, dtype=tensor.dtype)

    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim <= 1 or parameter.shape.numel() == max(parameter.shape):
                parameter.add_(noise(parameter))
        norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]
        for norm in norms:
            norm.train()
            norm.momentum = 1.0
        # Statistics of the images themselves: without, the signal of an untrained network dies on its way.
        if norms:
            getattr(model, "visual", model)(images)
        for norm in norms:
            norm.eval()


def build_case(family: Family) -> Case:
    generator = torch.Generator().manual_seed(0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = family.build().eval().double()
    images = torch.randn(2, 3, *family.size, generator=generator, dtype=torch.float64)
    randomise(model, images, generator)
    return Case(family, model, family.factory(model), images)


def own_embedding(case: Case) -> Tensor:
    """Return the embedding that the model itself calls its embedding, or that its last layer reads."""
    model: Any = case.model
    if callable(case.family.embedding):
        return case.family.embedding(model, case.images)
    if case.family.factory is from_open_clip:
        return model.encode_image(case.images)
    if case.family.factory is from_timm:
        return model.forward_head(model.forward_features(case.images), pre_logits=True)
    headless: Any = copy.deepcopy(model)
    parent, _, name = case.family.embedding.rpartition(".")
    setattr(headless.get_submodule(parent), name, nn.Identity())
    output = headless(case.images)
    return getattr(output, "logits", output).flatten(1)
