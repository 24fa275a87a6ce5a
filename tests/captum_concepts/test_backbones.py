"""Backbones of every family, built without weights, against the embedding of the model itself."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import timm
import torch
from torch import Tensor, nn
from torchvision import models

from backbone_families import (
    FAMILIES,
    Case,
    build_case,
    clip_vit,
    own_embedding,
    small_resnet,
    timm_name,
    timm_prr,
    tv_vit,
)
from captum_concepts.backbones import Backbone, from_open_clip, from_timm, from_torchvision
from captum_concepts.backbones.pools import AttentionPool, MeanThen, Projected, to_grid

#: One family for each kind of pool, from all libraries.
FEW = (
    "torchvision densenet",
    "torchvision convnext",
    "torchvision vit with representation",
    "timm siglip",
    "timm vit mean, then norm",
    "timm eva attention",
    "open_clip rn50",
    "open_clip vit norm after pool",
    "open_clip siglip",
    "open_clip resnet mlp",
    "transformers Dinov2 classifier",
    "transformers SigLIP",
)


@pytest.fixture(scope="module", params=FAMILIES)
def case(request: pytest.FixtureRequest) -> Case:
    return build_case(FAMILIES[request.param])


@pytest.fixture(scope="module", params=FEW)
def one_of_a_pool(request: pytest.FixtureRequest) -> Case:
    return build_case(FAMILIES[request.param])


@torch.no_grad()
def test_embedding_is_that_of_the_model_and_the_mean_of_maps_only_if_linear(case: Case) -> None:
    expected = own_embedding(case)
    embedding = case.backbone.embed(case.images)
    assert embedding.shape == (2, case.family.channels)
    assert case.backbone.channels == case.family.channels
    # Two images apart enough, so that agreement says something.
    assert (expected[0] - expected[1]).abs().max() > 1e-3
    torch.testing.assert_close(embedding, expected, rtol=1e-4, atol=1e-5)
    maps = case.backbone.feature_maps(case.backbone.features(case.images))
    assert maps.shape[:2] == (2, case.family.channels)
    assert maps.ndim == 4
    # A stride each way: h and w are neither swapped nor those of another layout.
    height, width = case.family.size
    assert maps.shape[2] * width == maps.shape[3] * height
    assert maps.shape[2] * maps.shape[3] > 1
    assert torch.isfinite(maps).all()
    assert case.backbone.linear_pool is case.family.linear
    gap = (maps.mean((2, 3)) - expected).abs().max().item()
    assert (gap < 1e-9) is case.family.linear


@torch.no_grad()
def test_local_evidence_reads_each_position_alone(one_of_a_pool: Case) -> None:
    case = one_of_a_pool
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
            alone = torch.cat([attention_on(pool, sample, i * columns + j) for sample in features.split(1)])
        else:
            # The token of a patch as the class token, if there is one, and as the only patch.
            prefix = features.shape[1] - rows * columns
            alone = pool(torch.cat([features[:, prefix + i * columns + j, None]] * (1 + prefix), 1))
        torch.testing.assert_close(outer(alone), maps[:, :, i, j], rtol=1e-9, atol=1e-9)


def attention_on(pool: AttentionPool, features: Tensor, position: int) -> Tensor:
    """Return what CLIP's pool gives for one image when its query is set so that it attends to one position.

    Of each head's query is asked a score of 1000 with the key of that position and 0 with all others.
    """
    pool = copy.deepcopy(pool)
    attention = pool.attention
    flat = features.flatten(2)[0].T
    keys = attention.k_proj(torch.cat([flat.mean(0, keepdim=True), flat]) + attention.positional_embedding)
    position_key = torch.zeros(len(keys), 1, dtype=keys.dtype)
    position_key[1 + position] = 1000.0
    queries = [torch.linalg.lstsq(k, position_key).solution for k in keys.chunk(attention.num_heads, 1)]
    attention.q_proj.weight.zero_()
    attention.q_proj.bias.copy_(torch.cat(queries).squeeze(1))
    return pool(features)


def test_modules_hold_each_parameter_once(one_of_a_pool: Case) -> None:
    case = one_of_a_pool
    pool = {} if isinstance(case.backbone.pool, str) else {"pool": case.backbone.pool}
    modules = nn.ModuleDict({"features": case.backbone.features, **pool})
    pointers = [value.data_ptr() for value in modules.state_dict().values() if value.numel()]
    assert len(pointers) == len(set(pointers))
    names = {id(parameter): name for name, parameter in case.model.named_parameters()}
    for parameter in modules.parameters():
        # The user's own, not a copy: otherwise a KeyError.
        names.pop(id(parameter))
    # Left out is the classifier.
    if case.family.factory is from_torchvision:
        assert all(name.startswith(case.family.embedding) for name in names.values())


def test_gradients_reach_images_and_the_users_parameters(one_of_a_pool: Case) -> None:
    case = one_of_a_pool
    images = case.images.clone().requires_grad_()
    first = next(p for p in case.model.parameters() if p.ndim == 4)
    embedding = case.backbone.embed(images)
    # Weighted, for the sum over channels of a normed vector does not depend on the vector.
    loss = (embedding * torch.linspace(-1, 1, embedding.shape[1], dtype=embedding.dtype)).sum()
    for gradient in torch.autograd.grad(loss, [images, first]):
        assert gradient.abs().max() > 0
    assert all(parameter.grad is None for parameter in case.model.parameters())


class OwnForward(models.ResNet):
    def _forward_impl(self, x: Tensor) -> Tensor:
        return self.fc(self.layer4(x).amax((2, 3)))


def resnet_with(name: str, value: object) -> nn.Module:
    model = small_resnet()
    setattr(model, name, value)
    return model


REFUSED = {
    "other library": (from_torchvision, timm_name("test_resnet"), "timm.models.resnet.ResNet"),
    "own forward": (from_torchvision, lambda: small_resnet(OwnForward), "OwnForward"),
    "patched forward": (from_torchvision, lambda: resnet_with("forward", torch.flatten), "ResNet"),
    "max pool": (from_torchvision, lambda: resnet_with("avgpool", nn.AdaptiveMaxPool2d(1)), "`avgpool` = Adaptive"),
    "timm max": (from_timm, timm_name("test_resnet", global_pool="max"), "global pooling 'max'"),
    "timm refined tokens": (from_timm, timm_prr, "AttentionPoolPrr"),
    "coca": (
        from_open_clip,
        lambda: clip_vit(attentional_pool=True, attn_pooler_heads=2, attn_pooler_queries=3),
        "with an attentional pooler",
    ),
}


def test_names_build_networks_without_weights() -> None:
    assert from_torchvision("resnet18").channels == 512
    assert from_timm("test_resnet").channels == 96
    with pytest.raises(ValueError, match=r"Nearest: .*'resnet18'"):
        from_torchvision("resnet81")


@pytest.mark.parametrize("name", REFUSED)
def test_unknown_pooling_is_refused(name: str) -> None:
    factory, build, message = REFUSED[name]
    with pytest.raises(ValueError, match=f"{message}.*PostHocCBM"):
        factory(build())


def test_images_of_a_wrong_size() -> None:
    with pytest.raises(ValueError, match=r"shape \(N, C, 32, 32\) but got \(1, 3, 32, 40\)"):
        from_torchvision(tv_vit()).embed(torch.zeros(1, 3, 32, 40))
    with pytest.raises(ValueError, match="to be square"):
        from_timm(timm.create_model("test_vit2")).embed(torch.zeros(1, 3, 32, 48))


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


def test_normalisation() -> None:
    images = torch.rand(2, 3, 4, 4)
    backbone = Backbone(nn.Conv2d(3, 2, 1), "mean", None, 2, ((0.5,) * 3, (0.25, 0.5, 1.0)))
    expected = (images - 0.5) / torch.tensor([0.25, 0.5, 1.0])[:, None, None]
    torch.testing.assert_close(backbone.normalise(images), expected)
    torch.testing.assert_close(backbone.normalise(images[0]), expected[0])
    for deviation in (0.0, float("nan")):
        with pytest.raises(ValueError, match="`normalisation` to be"):
            Backbone(nn.Conv2d(3, 2, 1), "mean", None, 2, ((0.5,) * 3, (0.5, 0.5, deviation)))
    with pytest.raises(ValueError, match="with C = 3, but got"):
        backbone.normalise(images[:, :2])
    with pytest.raises(TypeError, match="`images` to hold numbers in"):
        backbone.normalise(images.byte())
    with pytest.raises(ValueError, match="`normalisation` to be"):
        Backbone(nn.Conv2d(3, 2, 1), "mean", None, 2, (0.5, 0.5, 0.5))
    with pytest.raises(ValueError, match="`normalisation` to the Backbone"):
        Backbone(nn.Conv2d(3, 2, 1), "mean", None, 2).normalise(images)


class LightningModule(nn.Module):
    """The part of Lightning's module that the factories read."""


class Trained(LightningModule):
    def __init__(self, **parts: nn.Module) -> None:
        super().__init__()
        self.loss = nn.CrossEntropyLoss()
        for name, part in parts.items():
            setattr(self, name, part)


def test_the_network_inside_wrappers_of_a_training_is_cut() -> None:
    network = small_resnet().eval()
    backbone = from_torchvision(nn.DataParallel(Trained(net=network)))
    assert backbone.features.get_submodule("layer4") is network.layer4
    compiled = nn.Module()
    compiled.add_module("_orig_mod", network)
    assert from_torchvision(compiled).features.get_submodule("layer4") is network.layer4
    with pytest.raises(ValueError, match=r"Trained, of whose parts .* have weights"):
        from_torchvision(Trained(teacher=network, student=nn.Linear(2, 2)))
