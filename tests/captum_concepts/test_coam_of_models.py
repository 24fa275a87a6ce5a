"""CoAM of whole concept models: equal to the model's own maps for every kind of backbone, and in every host."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import numpy as np
import pytest
import timm
import torch
from captum.attr import NoiseTunnel
from captum.metrics import sensitivity_max
from open_clip.transformer import VisionTransformer
from torch import Tensor, nn
from torchvision import models

from captum_concepts import (
    Backbone,
    BottleneckCBM,
    CoAM,
    ConceptBank,
    PostHocCBM,
    explain_func,
    from_open_clip,
    from_timm,
    from_torchvision,
)
from tiny_models import TinyConceptModel
from untouched import untouched

L, K = 5, 3


def maxvit() -> Backbone:
    settings = {"stem_channels": 8, "partition_size": 2, "block_channels": [8, 16], "block_layers": [1, 1]}
    model = models.MaxVit((32, 32), head_dim=8, stochastic_depth_prob=0.0, num_classes=3, **settings)
    return from_torchvision(model)


def vit() -> Backbone:
    return from_torchvision(models.VisionTransformer(32, 8, 2, 2, 16, 32, num_classes=3))


def swin() -> Backbone:
    return from_torchvision(models.SwinTransformer([4, 4], 8, [1, 1], [2, 2], [4, 4], num_classes=3))


def convnext() -> Backbone:
    setting = models.convnext.CNBlockConfig
    return from_torchvision(models.ConvNeXt([setting(8, 16, 1), setting(16, None, 1)], num_classes=3))


def clip() -> Backbone:
    return from_open_clip(VisionTransformer(32, 8, 16, 2, 2, 2.0, output_dim=12))


def timm_vit() -> Backbone:
    settings = {"img_size": 32, "patch_size": 8, "embed_dim": 16, "depth": 2, "num_heads": 2, "num_classes": 3}
    return from_timm(timm.models.VisionTransformer(**settings))


def resnet() -> Backbone:
    model = models.ResNet(models.resnet.BasicBlock, [1, 1, 1, 1], num_classes=3)
    # Maps of 4 x 4 also of small images.
    model.layer3 = model.layer4 = nn.Identity()
    return from_torchvision(model)


BACKBONES = [maxvit, vit, swin, convnext, clip, timm_vit, resnet]


def concept_model(make: Callable[[], Backbone]) -> PostHocCBM:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        backbone = make()
        return PostHocCBM(backbone, ConceptBank.random(L, backbone.channels), nn.Linear(L, K)).eval()


@pytest.fixture(params=BACKBONES, ids=lambda make: make.__name__)
def cbm(request: pytest.FixtureRequest) -> PostHocCBM:
    return concept_model(request.param)


@pytest.fixture
def images() -> Tensor:
    return torch.rand(4, 3, 32, 32, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("form", ["model", "predictor"])
def test_maps_are_those_of_the_model(cbm: PostHocCBM, images: Tensor, form: str) -> None:
    coam = CoAM.of(cbm if form == "model" else cbm.concept_predictor)
    with torch.no_grad():
        expected = cbm.concept_maps(images)
    with untouched(cbm, images):
        assert torch.equal(coam.attribute(images), expected)
    assert torch.equal(CoAM(cbm).attribute(images), expected)
    assert expected.std((2, 3)).min() > 0
    torch.testing.assert_close(coam.attribute(images, 2), expected[:, 2:3])
    targets = torch.tensor([4, 0, 1, 1])
    torch.testing.assert_close(coam.attribute(images, targets), expected[torch.arange(4), targets][:, None])
    (tupled,) = coam.attribute((images,), target=3)
    torch.testing.assert_close(tupled, expected[:, 3:4])
    assert tupled.is_contiguous()
    assert not tupled.requires_grad


def test_class_of_maxvit_was_wrong_by_its_features(images: Tensor) -> None:
    # The CAVs live behind a linear layer and a tanh of the width of the features, which are maps too.
    cbm = concept_model(maxvit)
    features = cbm.features(images)
    assert features.ndim == 4
    wrong = CoAM(cbm.features, cbm.features, cbm.bank).attribute(images) if features.shape[1] == 16 else None
    assert wrong is not None
    assert not torch.allclose(wrong, CoAM.of(cbm).attribute(images), atol=1e-3)
    for form in (cbm, cbm.concept_predictor):
        with pytest.raises(ValueError, match=r"made from that output by `maps`\. Use `CoAM\.of\(model\)`"):
            CoAM(form, "features", cbm.bank)


def test_in_noise_tunnel_and_sensitivity(cbm: PostHocCBM, images: Tensor) -> None:
    coam = CoAM.of(cbm)
    targets = torch.tensor([0, 4, 2, 1])
    smooth = NoiseTunnel(coam).attribute(images, nt_samples=3, stdevs=0.0, target=targets)
    (tupled,) = NoiseTunnel(coam).attribute((images,), nt_samples=3, nt_samples_batch_size=2, stdevs=0.0, target=1)
    near = sensitivity_max(coam.attribute, images, perturb_radius=0.0, target=targets, n_perturb_samples=2)
    torch.testing.assert_close(smooth, coam.attribute(images, targets), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(tupled, coam.attribute(images, 1), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(near, torch.zeros(4), rtol=0, atol=1e-4)


def test_as_a_quantus_explanation(cbm: PostHocCBM, images: Tensor) -> None:
    targets = np.array([0, 4, 2, 1])
    maps = CoAM.of(cbm).attribute(images, torch.tensor(targets))
    expected = nn.functional.interpolate(maps, (32, 32), mode="bilinear", align_corners=False)
    for explain in (explain_func(CoAM.of), explain_func(CoAM), pickle.loads(pickle.dumps(explain_func(CoAM.of)))):
        for model in (cbm, cbm.concept_predictor):
            np.testing.assert_allclose(explain(model, images.numpy(), targets), expected, rtol=1e-4, atol=1e-6)


def test_of_a_traditional_model_and_of_any_with_maps(images: Tensor) -> None:
    backbone = nn.Sequential(nn.Conv2d(3, 6, 4, stride=4), nn.ReLU())
    traditional = BottleneckCBM(backbone, nn.Linear(6, L), nn.Linear(L, K)).eval()
    projected = BottleneckCBM(
        backbone, nn.Sequential(nn.Linear(6, L)), nn.Linear(L, K), project=lambda f, concepts: f[:, concepts]
    ).eval()
    foreign = TinyConceptModel()
    with torch.no_grad():
        assert torch.equal(CoAM(traditional).attribute(images), traditional.concept_maps(images))
        assert torch.equal(CoAM(projected).attribute(images, 2), backbone(images)[:, 2:3])
        assert torch.equal(CoAM(foreign).attribute(images), foreign.concept_maps(images))
        expected = foreign.concept_maps(images)[torch.arange(4), [1, 0, 2, 3]][:, None]
    torch.testing.assert_close(CoAM(foreign).attribute(images, [1, 0, 2, 3]), expected)


def test_training_mode_and_statistics_are_left_alone(images: Tensor) -> None:
    cbm = concept_model(resnet)
    expected = CoAM.of(cbm).attribute(images)
    cbm.train()
    cbm.features.layer1.eval()
    with untouched(cbm):
        assert torch.equal(CoAM.of(cbm).attribute(images), expected)
        assert torch.equal(CoAM(cbm.concept_predictor, cbm.features, cbm.bank).attribute(images), expected)


def test_a_layer_with_other_maps_is_refused_for_the_models_own_concepts(images: Tensor) -> None:
    cbm = PostHocCBM(
        nn.Sequential(nn.Conv2d(3, 4, 4, stride=4), nn.ReLU(), nn.Conv2d(4, 4, 1), nn.ReLU(inplace=True)),
        ConceptBank.random(L, 4),
        nn.Linear(L, K),
    ).eval()
    expected = CoAM.of(cbm).attribute(images)
    # The last layer gives what the whole gives, by whatever name.
    for layer in ("features", "features.3", cbm.features[3]):
        assert torch.equal(CoAM(cbm.concept_predictor, layer, cbm.bank).attribute(images), expected)
    inner = CoAM(cbm.concept_predictor, "features.1", cbm.bank.select([1, 3]))
    message = r"PostHocCBM, are of, but ReLU gives others\. Use `CoAM\.of\(model\)`"
    with untouched(cbm), pytest.raises(ValueError, match=message):
        inner.attribute(images)
    # Vectors of one's own may be of any layer.
    other_concepts = CoAM(cbm.concept_predictor, "features.1", torch.ones(2, 4)).attribute(images)
    torch.testing.assert_close(other_concepts[:, :1], cbm.features[:2](images).mean(1, keepdim=True).detach())


def test_first_of_several_outputs_is_taken(images: Tensor) -> None:
    class Pair(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return x, x.flatten(1)

    layer = Pair()
    torch.testing.assert_close(CoAM(layer, layer, torch.ones(1, 3)).attribute(images), images.mean(1, keepdim=True))


def test_a_models_own_maps_are_of_images_alone(images: Tensor) -> None:
    coam = CoAM.of(TinyConceptModel())
    for arguments in (((images, images),), (images, 1, images), (images, 1, None, True)):
        with pytest.raises(ValueError, match=r"one batch of images, without `additional_forward_args`"):
            coam.attribute(*arguments)
