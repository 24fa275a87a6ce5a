"""Backbones of every family, built without weights, against the embedding of the model itself."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import NamedTuple

import open_clip
import pytest
import timm
import torch
from open_clip.timm_model import TimmModel
from safetensors.torch import load, save
from torch import Tensor, nn
from torchvision import models

from captum_concepts.backbones import Backbone, from_open_clip, from_timm, from_torchvision
from captum_concepts.backbones.pools import AttentionPool, LatentPool, MeanThen, Projected, TokenPool, to_grid


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
    factory: Callable[..., Backbone]
    build: Callable[[], nn.Module]
    size: tuple[int, int]
    channels: int
    linear: bool
    # torchvision: the name of the last linear layer, to be replaced by an Identity.
    last: str = ""


def torchvision_name(name: str) -> Callable[[], nn.Module]:
    return lambda: models.get_model(name, weights=None)


def timm_name(name: str, **kwargs) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        if not timm.is_model(name):
            pytest.skip(f"timm {timm.__version__} has no {name}")
        return timm.create_model(name, **kwargs)

    return build


def timm_prr() -> nn.Module:
    if not hasattr(timm.layers, "AttentionPoolPrr"):
        pytest.skip(f"timm {timm.__version__} has no such pooling")
    return timm.create_model("test_vit", global_pool="prr")


SMALL = {"depth": 2, "embed_dim": 16, "num_heads": 2, "num_classes": 5}
SWIN = {"img_size": 64, "window_size": 4, "embed_dim": 8, "depths": (1, 2), "num_heads": (2, 2)}
LAST_OF_TIMM = ("fc.", "classifier.", "head.fc.", "head.weight", "head.bias")
TV, TIMM, CLIP = from_torchvision, from_timm, from_open_clip
FAMILIES = {
    "torchvision resnet": Family(TV, lambda: small_resnet(), (64, 96), 512, True, "fc"),
    "torchvision resnext": Family(
        TV,
        lambda: models.ResNet(models.resnet.Bottleneck, [1, 1, 1, 1], groups=2, width_per_group=4),
        (64, 64),
        2048,
        True,
        "fc",
    ),
    "torchvision regnet": Family(TV, torchvision_name("regnet_x_400mf"), (64, 64), 400, True, "fc"),
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
    "timm resnet without classifier": Family(TIMM, timm_name("test_resnet", num_classes=0), (64, 64), 96, True),
    "timm regnet": Family(TIMM, timm_name("regnetx_002"), (64, 64), 368, True),
    "timm efficientnet": Family(TIMM, timm_name("test_efficientnet"), (64, 64), 256, True),
    "timm swin": Family(TIMM, timm_name("swin_tiny_patch4_window7_224", **SWIN), (64, 64), 16, True),
    "timm swin v2": Family(TIMM, timm_name("swinv2_tiny_window8_256", **SWIN), (64, 64), 16, True),
    "timm convnext": Family(TIMM, timm_name("test_convnext"), (64, 96), 64, False),
    "timm maxvit": Family(TIMM, timm_name("test_maxvit", img_size=96), (96, 96), 128, True),
    "timm coatnet": Family(TIMM, timm_coatnet, (32, 32), 24, False),
    "timm vit": Family(TIMM, timm_name("vit_tiny_patch16_224", img_size=(32, 48), **SMALL), (32, 48), 16, False),
    "timm deit": Family(TIMM, timm_name("deit_tiny_patch16_224", img_size=32, **SMALL), (32, 32), 16, False),
    "timm dinov2": Family(TIMM, timm_name("vit_small_patch14_reg4_dinov2", img_size=28, **SMALL), (28, 28), 16, False),
    "timm clip": Family(TIMM, timm_name("vit_base_patch16_clip_224", img_size=32, **SMALL), (32, 32), 16, False),
    "timm vit mean, then norm": Family(TIMM, timm_name("test_vit2"), (64, 64), 64, False),
    "timm vit mean": Family(TIMM, timm_name("test_vit2", fc_norm=False), (64, 64), 64, True),
    "timm siglip": Family(
        TIMM, timm_name("vit_base_patch16_siglip_224", img_size=(32, 48), **SMALL), (32, 48), 16, False
    ),
    "timm siglip over prefix": Family(TIMM, timm_name("test_vit3", img_size=64), (64, 64), 96, False),
    "timm eva": Family(TIMM, timm_name("eva02_tiny_patch14_224", img_size=28, **SMALL), (28, 28), 16, False),
    "timm eva class token": Family(
        TIMM, timm_name("eva02_tiny_patch14_224", img_size=28, global_pool="token", **SMALL), (28, 28), 16, False
    ),
    "timm eva attention": Family(
        TIMM, timm_name("vit_pe_core_tiny_patch16_384", img_size=32, **SMALL), (32, 32), 16, False
    ),
    "open_clip vit": Family(CLIP, clip_vit, (32, 32), 12, False),
    "open_clip vit oblong": Family(CLIP, lambda: clip_vit(image_size=(32, 48)), (32, 48), 12, False),
    "open_clip vit mean": Family(CLIP, lambda: clip_vit(pool_type="avg"), (32, 32), 12, True),
    "open_clip vit norm after pool": Family(
        CLIP, lambda: clip_vit(pool_type="avg", final_ln_after_pool=True), (32, 32), 12, False
    ),
    "open_clip rn50": Family(
        CLIP, lambda: clip(image_size=96, layers=[1, 1, 1, 1], width=8, head_width=32), (96, 96), 12, False
    ),
    "open_clip siglip": Family(CLIP, lambda: Tower("test_vit3", pool="map", proj="none"), (160, 160), 96, False),
    "open_clip eva": Family(CLIP, lambda: Tower("test_vit", pool="token", proj=""), (160, 160), 12, False),
    "open_clip convnext": Family(CLIP, lambda: Tower("test_convnext", pool="", proj="linear"), (64, 96), 12, False),
    "open_clip resnet linear": Family(
        CLIP, lambda: Tower("test_resnet", pool="avg", proj="linear", proj_bias=True), (64, 64), 12, True
    ),
    "open_clip resnet mlp": Family(CLIP, lambda: Tower("test_resnet", pool="avg", proj="mlp"), (64, 64), 12, False),
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
        getattr(model, "visual", model)(images)
        for norm in norms:
            norm.eval()


@pytest.fixture(scope="module", params=FAMILIES)
def case(request: pytest.FixtureRequest) -> Case:
    family = FAMILIES[request.param]
    generator = torch.Generator().manual_seed(0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = family.build().eval().double()
    images = torch.randn(2, 3, *family.size, generator=generator, dtype=torch.float64)
    randomise(model, images, generator)
    return Case(family, model, family.factory(model), images)


def own_embedding(case: Case) -> Tensor:
    """Return the embedding that the host itself calls its embedding."""
    model = case.model
    if case.family.factory is from_open_clip:
        return model.encode_image(case.images)
    if case.family.factory is from_timm:
        return model.forward_head(model.forward_features(case.images), pre_logits=True)
    headless = copy.deepcopy(model)
    parent, _, name = case.family.last.rpartition(".")
    setattr(headless.get_submodule(parent), name, nn.Identity())
    return headless(case.images)


def parts(backbone: Backbone) -> nn.ModuleDict:
    """Return the modules a model over this backbone registers."""
    pool = {} if isinstance(backbone.pool, str) else {"pool": backbone.pool}
    return nn.ModuleDict({"features": backbone.features, **pool})


def with_parts(backbone: Backbone, modules: nn.ModuleDict) -> Backbone:
    """Return the backbone over other modules of the same kind."""
    pool = "mean" if isinstance(backbone.pool, str) else modules["pool"]
    maps = None if backbone.maps is None else pool.maps
    return Backbone(modules["features"], pool, maps, backbone.channels)


@torch.no_grad()
def test_embedding_is_that_of_the_model(case: Case) -> None:
    expected = own_embedding(case)
    embedding = case.backbone.embed(case.images)
    assert embedding.shape == (2, case.family.channels)
    assert case.backbone.channels == case.family.channels
    # Two images apart enough, so that agreement says something.
    assert (expected[0] - expected[1]).abs().max() > 1e-3
    torch.testing.assert_close(embedding, expected, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_maps_average_to_the_embedding_only_if_said_so(case: Case) -> None:
    features = case.backbone.features(case.images)
    maps = case.backbone.feature_maps(features)
    assert maps.shape[:2] == (2, case.family.channels)
    assert maps.ndim == 4
    # A stride each way: h and w are neither swapped nor those of another layout.
    height, width = case.family.size
    assert maps.shape[2] * width == maps.shape[3] * height
    assert maps.shape[2] * maps.shape[3] > 1
    assert torch.isfinite(maps).all()
    assert case.backbone.linear_pool is case.family.linear
    gap = (maps.mean((2, 3)) - own_embedding(case)).abs().max().item()
    assert (gap < 1e-9) is case.family.linear


@torch.no_grad()
def test_local_evidence_reads_each_position_alone(case: Case) -> None:
    backbone, pool = case.backbone, case.backbone.pool
    features = backbone.features(case.images)
    if isinstance(pool, str):
        # What a layer attribution sees at `features` are then the maps themselves.
        assert backbone.feature_maps(features) is features
        return
    maps = backbone.feature_maps(features)
    rows, columns = maps.shape[2:]
    outer: Callable[[Tensor], Tensor] = nn.Identity()
    if isinstance(pool, Projected):
        pool, outer = pool.pool, pool.projection
    for i, j in [(0, 0), (0, columns - 1), (rows - 1, 0), (rows - 1, columns - 1)]:
        if isinstance(pool, MeanThen):
            alone = pool(features[:, :, i : i + 1, j : j + 1])
        elif isinstance(pool, AttentionPool):
            alone = torch.cat([attention_on(pool, one, i * columns + j) for one in features.split(1)])
        else:
            alone = read_alone(pool, features, features[:, pool.prefix + i * columns + j, None])
        torch.testing.assert_close(outer(alone), maps[:, :, i, j], rtol=1e-9, atol=1e-9)


def read_alone(pool: nn.Module, tokens: Tensor, token: Tensor) -> Tensor:
    """Return what a pool of tokens gives if a patch token is the class token, or the only one to pool."""
    if isinstance(pool, LatentPool):
        return pool.after(pool.attention(token))
    assert isinstance(pool, TokenPool)
    before = tokens[:, : pool.mean_from or 0]
    return pool(torch.cat([before, token], 1))


def attention_on(pool: AttentionPool, features: Tensor, position: int) -> Tensor:
    """Return what CLIP's pool gives for one image when its query is set so that it attends to one position.

    Of each head's query is asked a score of 1000 with the key of that position and 0 with all others.
    """
    pool = copy.deepcopy(pool)
    attention = pool.attention
    flat = features.flatten(2)[0].T
    keys = attention.k_proj(torch.cat([flat.mean(0, keepdim=True), flat]) + attention.positional_embedding)
    wanted = torch.zeros(len(keys), 1, dtype=keys.dtype)
    wanted[1 + position] = 1000.0
    queries = [torch.linalg.lstsq(k, wanted).solution for k in keys.chunk(attention.num_heads, 1)]
    attention.q_proj.weight.zero_()
    attention.q_proj.bias.copy_(torch.cat(queries).squeeze(1))
    return pool(features)


def test_modules_hold_each_parameter_once(case: Case) -> None:
    modules = parts(case.backbone)
    state = modules.state_dict()
    pointers = [value.data_ptr() for value in state.values() if value.numel()]
    assert len(pointers) == len(set(pointers))
    own = {id(parameter): name for name, parameter in case.model.named_parameters()}
    for parameter in modules.parameters():
        # The user's own, not a copy: otherwise a KeyError.
        own.pop(id(parameter))
    # Left out is the classifier and, of CLIP, the text tower.
    if case.family.factory is from_open_clip:
        assert not [name for name in own.values() if name.startswith("visual.")]
    else:
        last = case.family.last or LAST_OF_TIMM
        assert all(name.startswith(last) for name in own.values())


@torch.no_grad()
def test_safetensors_round_trip(case: Case) -> None:
    modules = parts(case.backbone)
    saved = save(modules.state_dict())
    other = copy.deepcopy(modules)
    for parameter in other.parameters():
        parameter.zero_()
    zeroed = with_parts(case.backbone, other)
    expected = case.backbone.embed(case.images)
    assert (zeroed.embed(case.images) - expected).abs().max() > 1e-3
    other.load_state_dict(load(saved))
    torch.testing.assert_close(zeroed.embed(case.images), expected)
    torch.testing.assert_close(
        zeroed.feature_maps(zeroed.features(case.images)),
        case.backbone.feature_maps(case.backbone.features(case.images)),
    )


def test_gradients_reach_images_and_the_users_parameters(case: Case) -> None:
    images = case.images.clone().requires_grad_()
    first = next(p for p in case.model.parameters() if p.ndim == 4)
    embedding = case.backbone.embed(images)
    # Weighted, for the sum over channels of a normed vector does not depend on the vector.
    loss = (embedding * torch.linspace(-1, 1, embedding.shape[1], dtype=embedding.dtype)).sum()
    for gradient in torch.autograd.grad(loss, [images, first]):
        assert gradient.abs().max() > 0
    assert all(parameter.grad is None for parameter in case.model.parameters())


def test_modes_are_left_alone(case: Case) -> None:
    model = case.model
    frozen = next(module for module in model.modules() if not list(module.children()))
    try:
        model.train()
        frozen.eval()
        before = [module.training for module in model.modules()]
        backbone = case.family.factory(model)
        with torch.no_grad():
            copy.deepcopy(backbone).embed(case.images)
        assert [module.training for module in model.modules()] == before
        assert not any(module._forward_hooks for module in model.modules())
    finally:
        model.eval()


@torch.no_grad()
def test_all_of_it_moves(case: Case) -> None:
    """On the meta device every tensor left behind on the CPU is an error."""
    modules = copy.deepcopy(parts(case.backbone)).to("meta")
    moved = with_parts(case.backbone, modules)
    features = moved.features(case.images.to("meta"))
    assert moved.embed_features(features).shape == (2, case.family.channels)
    assert moved.feature_maps(features).is_meta


def test_names_build_without_touching_the_random_state() -> None:
    before = torch.get_rng_state()
    assert from_torchvision("resnet18").channels == 512
    assert from_timm("test_resnet").channels == 96
    assert torch.equal(torch.get_rng_state(), before)


@torch.no_grad()
def test_training_the_model_changes_the_backbone() -> None:
    model = timm.create_model("test_convnext").eval()
    backbone = from_timm(model)
    images = torch.ones(1, 3, 64, 64)
    model.head.norm.bias.fill_(0.0)
    before = backbone.embed(images)
    model.head.norm.bias.fill_(2.0)
    torch.testing.assert_close(backbone.embed(images), before + 2)


class OwnForward(models.ResNet):
    def _forward_impl(self, x: Tensor) -> Tensor:
        return self.fc(self.layer4(x).amax((2, 3)))


class Renamed(models.ResNet):
    """A subclass that runs as its family does."""


def small_resnet(cls: type = models.ResNet) -> nn.Module:
    return cls(models.resnet.BasicBlock, [1, 1, 1, 1], num_classes=2)


def resnet_with(pool: nn.Module) -> nn.Module:
    model = small_resnet()
    model.avgpool = pool
    return model


def patched() -> nn.Module:
    model = small_resnet()
    model.forward = lambda x: x.flatten(1)
    return model


REFUSED = {
    "other library": (from_torchvision, timm_name("test_resnet"), "timm.models.resnet.ResNet"),
    "unknown torchvision": (from_torchvision, torchvision_name("squeezenet1_1"), "squeezenet.SqueezeNet"),
    "own network": (from_torchvision, lambda: nn.Sequential(nn.Conv2d(3, 4, 1)), "Sequential"),
    "own forward": (from_torchvision, lambda: small_resnet(OwnForward), "OwnForward"),
    "patched forward": (from_torchvision, patched, "ResNet"),
    "max pool": (from_torchvision, lambda: resnet_with(nn.AdaptiveMaxPool2d(1)), "with `avgpool` = Adaptive"),
    "finer pool": (from_torchvision, lambda: resnet_with(nn.AdaptiveAvgPool2d(2)), "with `avgpool` = Adaptive"),
    "unknown timm": (from_timm, timm_name("test_nfnet"), "NormFreeNet"),
    "distilled": (
        from_timm,
        timm_name("deit_tiny_distilled_patch16_224", img_size=32, **SMALL),
        "VisionTransformerDistilled",
    ),
    "timm max": (from_timm, timm_name("test_resnet", global_pool="max"), "global pooling 'max'"),
    "timm no pool": (
        from_timm,
        timm_name("test_convnext", num_classes=0, global_pool=""),
        "global pooling '' instead of 'avg'",
    ),
    "timm max of tokens": (from_timm, timm_name("test_vit", global_pool="max"), "global pooling 'max'"),
    "timm refined tokens": (from_timm, timm_prr, "AttentionPoolPrr"),
    "timm other tower": (from_open_clip, lambda: Tower("test_byobnet", pool="", proj="linear"), "ByobNet"),
    "coca": (
        from_open_clip,
        lambda: clip_vit(attentional_pool=True, attn_pooler_heads=2, attn_pooler_queries=3),
        "with an attentional pooler",
    ),
    "text tower": (from_open_clip, lambda: clip_vit().transformer, "Transformer"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_unknown_pooling_is_refused(name: str) -> None:
    factory, build, message = REFUSED[name]
    model = build()
    with pytest.raises(ValueError, match="family whose pooling is known") as caught:
        factory(model)
    text = str(caught.value)
    assert message in text
    assert "ResNet" in text
    assert "PostHocCBM(features, bank, head, pool=..., maps=...)" in text


def test_subclass_that_runs_as_its_family_is_accepted() -> None:
    assert from_torchvision(small_resnet(Renamed)).linear_pool


@pytest.mark.parametrize(
    ("factory", "name", "nearest"), [(from_torchvision, "resnet81", "resnet18"), (from_timm, "tes_vit", "test_vit")]
)
def test_unknown_name_lists_the_nearest(factory: Callable[..., Backbone], name: str, nearest: str) -> None:
    with pytest.raises(ValueError, match=rf"but got '{name}'\. Nearest: .*'{nearest}'"):
        factory(name)


def test_images_of_a_wrong_size() -> None:
    with pytest.raises(ValueError, match=r"shape \(N, 3, 32, 32\) but got \(1, 3, 32, 40\)"):
        from_torchvision(tv_vit()).embed(torch.zeros(1, 3, 32, 40))
    with pytest.raises(ValueError, match="to be square"):
        from_timm(timm.create_model("test_vit2")).embed(torch.zeros(1, 3, 32, 48))
    with pytest.raises(ValueError, match=r"shape \(N, C, H, W\) but got \(3, 32, 32\)"):
        from_timm(timm.create_model("test_resnet")).embed(torch.zeros(3, 32, 32))


def test_tokens_become_a_grid_row_by_row() -> None:
    tokens = torch.arange(6.0).reshape(1, 6, 1)
    assert to_grid(tokens, (2, 3)).tolist() == [[[[0, 1, 2], [3, 4, 5]]]]
    assert to_grid(tokens[:, :4], None).tolist() == [[[[0, 1], [2, 3]]]]
    with pytest.raises(ValueError, match="2 x 2 patch tokens but got 6"):
        to_grid(tokens, None)
    with pytest.raises(ValueError, match="2 x 2 patch tokens but got 6"):
        to_grid(tokens, (2, 2))


def test_backbone_by_hand() -> None:
    backbone = Backbone(nn.Identity(), lambda f: f.amax((2, 3)), lambda f: 2 * f, channels=1)
    images = torch.tensor([[[[1.0, 2.0], [3.0, 6.0]]]])
    assert backbone.embed(images).tolist() == [[6.0]]
    assert not backbone.linear_pool
    mean = Backbone(nn.Identity(), "mean", lambda f: 2 * f, channels=1)
    assert mean.embed(images).tolist() == [[6.0]]
    assert mean.embed_features(images / 3).tolist() == [[2.0]]
    assert mean.linear_pool
