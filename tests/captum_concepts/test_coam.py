"""CoAM: the formula, the hosts it works in, and what it refuses."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from captum.attr import LayerGradCam
from torch import Tensor, nn
from torchvision import models
from torchvision.ops import Permute

from captum_concepts import BottleneckCBM, CoAM, ConceptBank, PostHocCBM, explain_func, from_torchvision
from captum_concepts.backbones.pooling import project_maps
from reference.concept_bank import concept_map
from tiny_models import TinyConceptModel
from untouched import untouched


class Predictor(nn.Module):
    """Concept values from average-pooled features; nothing of it comes from the package."""

    def __init__(self, cavs: Tensor, scale: Tensor | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        d = cavs.shape[1]
        self.features = nn.Sequential(nn.Conv2d(3, d, 3, stride=2), nn.ReLU())
        self.register_buffer("cavs", cavs)
        self.register_buffer("scale", torch.ones(len(cavs)) if scale is None else scale)

    def forward(self, images: Tensor) -> Tensor:
        return self.features(images).mean((2, 3)) @ self.cavs.T / self.scale


@pytest.fixture
def cavs() -> Tensor:
    return torch.randn(5, 4, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def images() -> Tensor:
    # Not square: h and w = 4 and 6 must not be mixed up.
    return torch.rand(3, 3, 9, 13, generator=torch.Generator().manual_seed(2))


@pytest.fixture
def model(cavs: Tensor) -> Predictor:
    return Predictor(cavs)


def test_literal():
    # Two channels of 1 x 2 pixels; (1/2) (3 * 1 + (-1) * 2) = 0.5 and (1/2) (3 * 0 + (-1) * 4) = -2.
    layer = nn.Identity()
    features = torch.tensor([[[[1.0, 0.0]], [[2.0, 4.0]]]])
    maps = CoAM(layer, layer, [[3.0, -1.0], [0.0, 10.0]]).attribute(features)
    assert maps.tolist() == [[[[0.5, -2.0]], [[10.0, 20.0]]]]


def test_reference(model, cavs, images):
    model, cavs, images = model.double(), cavs.double(), images.double()
    maps = CoAM(model, model.features, cavs).attribute(images)
    with torch.no_grad():
        features = model.features(images).numpy()
    expected = [[concept_map(sample, cav) for cav in cavs.numpy()] for sample in features]
    assert maps.dtype == torch.float64
    assert maps.is_contiguous()
    assert not maps.requires_grad
    np.testing.assert_allclose(maps.numpy(), expected, atol=1e-12)
    shaped = CoAM(model, model.features, cavs).attribute(images, 2, input_shaped=True)
    upsampled = nn.functional.interpolate(maps[:, 2:3], (9, 13), mode="bilinear", align_corners=False)
    torch.testing.assert_close(shaped, upsampled.expand(-1, 3, -1, -1) / 3)


def test_targets(model, cavs, images):
    coam = CoAM(model, "features", cavs)
    every = coam.attribute(images)
    assert every.shape == (3, 5, 4, 6)
    for target in (2, torch.tensor([2]), [2, 2, 2]):
        torch.testing.assert_close(coam.attribute(images, target), every[:, 2:3])
    expected = torch.stack([every[0, 4:5], every[1, 0:1], every[2, 1:2]])
    each = [4, 0, 1]
    for target in (each, torch.tensor(each), np.eye(5)[each]):
        torch.testing.assert_close(coam.attribute(images, target), expected)
    torch.testing.assert_close(torch.cat([coam.attribute(image[None]) for image in images]), every)
    named = CoAM(model, "features", ConceptBank.random(3, 4, ["red wing", "long tail", "hooked bill"]))
    assert torch.equal(named.attribute(images, "long tail"), named.attribute(images, 1))
    with pytest.raises(ValueError, match=r"but got 'longtail'\. The nearest are \['long tail'"):
        named.attribute(images, "longtail")


@pytest.mark.parametrize("margin", [False, True])
@pytest.mark.parametrize("target", [3, torch.tensor([0, 4, 2])], ids=["one", "each"])
def test_equals_grad_cam_up_to_a_constant(cavs, images, margin, target):
    # u_j = c_j . mean(E) / s_j, so du_j / dE_k(x) = c_jk / (h w s_j) at every pixel, and Grad-CAM, whose mean
    # over pixels that already is, gives sum_k c_jk E_k / (h w s_j) = CoAM * d / (h w s_j).
    scale = cavs.norm(dim=1) if margin else torch.ones(5)
    model = Predictor(cavs, scale)
    maps = CoAM(model, model.features, cavs).attribute(images, target)
    grad_cam = LayerGradCam(model, model.features).attribute(images, target, relu_attributions=False)
    d, h, w = 4, 4, 6
    scales = scale[torch.as_tensor(target)].reshape(-1, 1, 1, 1)
    torch.testing.assert_close(maps, h * w * scales / d * grad_cam, atol=1e-5, rtol=1e-4)
    assert maps.abs().max() > 0.01


def test_layer_input_and_forward_args(cavs, images):
    class Shifted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.ReLU()

        def forward(self, images: Tensor, shift: Tensor) -> Tensor:
            return self.layer(images - shift).mean((2, 3))

    coam, chosen = CoAM(Shifted(), "layer", cavs[:, :3]), torch.tensor([1])
    after = coam.attribute(images, 1, torch.tensor(0.5))
    torch.testing.assert_close(after, project_maps((images - 0.5).relu(), cavs[:, :3], chosen))
    before = coam.attribute(images, 1, torch.tensor(0.5), attribute_to_layer_input=True)
    torch.testing.assert_close(before, project_maps(images - 0.5, cavs[:, :3], chosen))


@pytest.mark.parametrize(
    ("target", "error", "message"),
    [
        (5, ValueError, r"from 0 to 4, since there are 5, but got 5 at 0"),
        ([0, -1, 2], ValueError, r"from 0 to 4.*but got -1 at 1"),
        ([0, 1], ValueError, r"\(N,\) = \(3,\).*got shape \(2,\)"),
        ("red wing", ValueError, r"but got 'red wing'\. They have no names here: give a ConceptBank"),
    ],
)
def test_a_bad_target_is_refused_before_the_forward_pass(model, cavs, images, target, error, message):
    with pytest.raises(error, match=message):
        CoAM(lambda images: pytest.fail("the model was run"), model.features, cavs).attribute(images, target)


L, K = 5, 3


@pytest.fixture
def behind() -> PostHocCBM:
    """A concept model whose CAVs live behind a linear layer and a tanh of the width of the features."""
    settings = {"stem_channels": 8, "partition_size": 2, "block_channels": [8, 16], "block_layers": [1, 1]}
    maxvit = models.MaxVit((32, 32), head_dim=8, stochastic_depth_prob=0.0, num_classes=3, **settings)
    backbone = from_torchvision(maxvit)
    return PostHocCBM(backbone, ConceptBank.random(L, backbone.channels), nn.Linear(L, K)).eval()


@pytest.fixture
def photos() -> Tensor:
    return torch.rand(4, 3, 32, 32, generator=torch.Generator().manual_seed(1))


def test_maps_of_a_model_are_its_own(behind, photos):
    model, targets = behind, torch.tensor([4, 0, 1, 1])
    with torch.no_grad():
        expected = model.concept_maps(photos)
    assert expected.std((2, 3)).min() > 0
    model.train()
    with untouched(model, photos):
        for coam in (CoAM.of(model), CoAM.of(model.concept_predictor), CoAM(model)):
            assert torch.equal(coam.attribute(photos), expected)
            torch.testing.assert_close(coam.attribute(photos, targets), expected[torch.arange(4), targets][:, None])
    (tupled,) = CoAM.of(model).attribute((photos,), target=3)
    torch.testing.assert_close(tupled, expected[:, 3:4])
    upsampled = nn.functional.interpolate(tupled, (32, 32), mode="bilinear", align_corners=False)
    for explain in (explain_func(CoAM.of), pickle.loads(pickle.dumps(explain_func(CoAM)))):
        np.testing.assert_allclose(explain(model, photos.numpy(), 3), upsampled, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("layer", "cavs", "message"),
    [
        (nn.Flatten(2), torch.ones(2, 3), r"gives \(3, 3, 117\)\. Choose a layer before the pooling"),
        (Permute([0, 2, 3, 1]), torch.ones(2, 3), r"gives \(3, 9, 13, 3\).*channels come last"),
        (nn.Conv2d(3, 2, 1), torch.ones(2, 3), "fitted on the channels"),
        (nn.Identity(), torch.tensor([[0.0, 0, 0], [1, 0, 0]]), r"zeros in rows \[0\]"),
        (nn.Identity(), torch.full((2, 3), torch.nan), "`cavs` to be finite"),
    ],
)
def test_layers_and_vectors_that_do_not_fit(images, layer, cavs, message):
    with pytest.raises(ValueError, match=message):
        CoAM(layer, layer, cavs).attribute(images, 0)


def test_maps_of_traditional_and_other_models(photos):
    backbone = nn.Sequential(nn.Conv2d(3, 6, 4, stride=4), nn.ReLU())
    traditional = BottleneckCBM(backbone, nn.Linear(6, L), nn.Linear(L, K)).eval()
    other = TinyConceptModel()
    with torch.no_grad():
        assert torch.equal(CoAM(traditional).attribute(photos), traditional.concept_maps(photos))
        expected = other.concept_maps(photos)[torch.arange(4), [1, 0, 2, 3]][:, None]
    torch.testing.assert_close(CoAM(other).attribute(photos, [1, 0, 2, 3]), expected)


def test_layers_without_the_maps_of_the_concepts_are_refused(behind, photos):
    assert behind.features(photos).shape[1] == behind.bank.cavs.shape[1]
    for form in (behind, behind.concept_predictor):
        with pytest.raises(ValueError, match=r"made from that output by `maps`\. Use `CoAM\.of\(model\)`"):
            CoAM(form, "features", behind.bank)
    layers = nn.Conv2d(3, 4, 4, stride=4), nn.ReLU(), nn.Conv2d(4, 4, 1), nn.ReLU(inplace=True)
    model = PostHocCBM(nn.Sequential(*layers), ConceptBank.random(L, 4), nn.Linear(L, K)).eval()
    # The last layer gives what the whole gives, by whatever name.
    for layer in ("features", "features.3", model.features[3]):
        maps = CoAM(model.concept_predictor, layer, model.bank).attribute(photos)
        assert torch.equal(maps, CoAM.of(model).attribute(photos))
    inner = CoAM(model.concept_predictor, "features.1", model.bank.select([1, 3]))
    with untouched(model), pytest.raises(ValueError, match=r"are of, but ReLU gives others\. Use `CoAM\.of\(model\)`"):
        inner.attribute(photos)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m, c, x: CoAM(m, "features"), "`layer` and `cavs` together"),
        (lambda m, c, x: CoAM(lambda images: m(images), "features", c), "`layer` to be a module"),
        (lambda m, c, x: CoAM(m), "`forward_func` to be a concept model .* but got Predictor"),
        (lambda m, c, x: CoAM.of(m), "`model` to be a concept model"),
        (lambda m, c, x: CoAM(m, nn.ReLU(), c).attribute(x), "`layer` to take part in the forward pass but ReLU"),
        (lambda m, c, x: CoAM(m, "features", c).attribute(x, input_shaped=True), "`target` to name a concept"),
        (lambda m, c, x: CoAM(m, "features", c).attribute((x, x), 0, input_shaped=True), "`inputs` to be one image"),
        (lambda m, c, x: CoAM(TinyConceptModel()).attribute(x, 0, x), "`inputs` to be one batch of images"),
    ],
)
def test_refused(model, cavs, images, call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call(model, cavs, images)
