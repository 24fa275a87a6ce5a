"""CoAM: the formula, the hosts it works in, and what it refuses."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
import torch
from captum.attr import LayerGradCam, NoiseTunnel
from captum.metrics import infidelity, sensitivity_max
from torch import Tensor, nn

from captum_concepts import Backbone, ConceptBank, PostHocCBM
from captum_concepts.attributions.coam import CoAM
from captum_concepts.backbones.pooling import project_maps
from reference.concept_bank import concept_map
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


@pytest.mark.parametrize(
    "target",
    [2, np.int64(2), torch.tensor(2), torch.tensor([2]), torch.tensor([2, 2, 2], dtype=torch.int32), [2, 2, 2]],
    ids=repr,
)
def test_target_of_all(model, cavs, images, target):
    coam = CoAM(model, "features", cavs)
    every, single = coam.attribute(images), coam.attribute(images, target)
    assert every.shape == (3, 5, 4, 6)
    torch.testing.assert_close(single, every[:, 2:3])


@pytest.mark.parametrize("kind", [torch.tensor, list, np.array])
def test_target_of_each(model, cavs, images, kind):
    coam = CoAM(model, "features", cavs)
    every, per_image = coam.attribute(images), coam.attribute(images, kind([4, 0, 1]))
    torch.testing.assert_close(per_image, torch.stack([every[0, 4:5], every[1, 0:1], every[2, 1:2]]))


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

    model, cavs = Shifted(), cavs[:, :3]
    coam = CoAM(model, "layer", cavs)
    shift = torch.tensor(0.5)
    torch.testing.assert_close(
        coam.attribute(images, 1, shift), project_maps((images - 0.5).relu(), cavs, torch.tensor([1]))
    )
    before = coam.attribute(images, 1, additional_forward_args=shift, attribute_to_layer_input=True)
    torch.testing.assert_close(before, project_maps(images - 0.5, cavs, torch.tensor([1])))


def test_tuple_in_tuple_out(model, cavs, images):
    coam = CoAM(model, "features", cavs)
    result = coam.attribute((images,), 1)
    assert isinstance(result, tuple)
    assert len(result) == 1
    torch.testing.assert_close(result[0], coam.attribute(images, 1))


def test_cavs_of_a_bank_an_array_or_a_list(model, cavs, images):
    class Bank:
        def __init__(self) -> None:
            self.cavs = cavs

    expected = CoAM(model, "features", cavs).attribute(images)
    for form in (Bank(), cavs.numpy(), cavs.tolist(), nn.Parameter(cavs), cavs.double()):
        torch.testing.assert_close(CoAM(model, "features", form).attribute(images), expected)


def test_half_precision_features_give_float32_maps(cavs, images):
    layer = nn.Identity()
    features = images[:, :, :4, :4].bfloat16()
    maps = CoAM(layer, layer, cavs[:, :3]).attribute(features, 0)
    torch.testing.assert_close(maps, project_maps(features.float(), cavs[:, :3], torch.tensor([0])))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        under = CoAM(layer, layer, cavs[:, :3]).attribute(features.float(), 0)
    torch.testing.assert_close(under, maps, atol=0, rtol=0)


def test_order_of_samples_and_batch_size_do_not_matter(model, cavs, images):
    coam = CoAM(model, "features", cavs)
    maps = coam.attribute(images)
    torch.testing.assert_close(coam.attribute(images.flip(0)), maps.flip(0))
    torch.testing.assert_close(torch.cat([coam.attribute(image[None]) for image in images]), maps)


def test_input_shaped(model, cavs, images):
    coam = CoAM(model, "features", cavs)
    shaped = coam.attribute(images, 2, input_shaped=True)
    assert shaped.shape == images.shape
    assert shaped.is_contiguous()
    upsampled = nn.functional.interpolate(coam.attribute(images, 2), (9, 13), mode="bilinear", align_corners=False)
    torch.testing.assert_close(shaped.sum(1, keepdim=True), upsampled)
    torch.testing.assert_close(shaped[:, 0], shaped[:, 2])


def test_infidelity_is_zero_where_the_map_is_the_gradient():
    # f(x) = mean(x) of one channel, whose CoAM on x = 1 / (h w) is c x / 1: the gradient itself for c = 1.
    layer = nn.Identity()

    def forward(images: Tensor) -> Tensor:
        return layer(images).mean((1, 2, 3))

    def perturb(inputs: Tensor) -> tuple[Tensor, Tensor]:
        noise = torch.randn(inputs.shape)
        return noise, inputs - noise

    images = torch.full((2, 1, 4, 5), 1 / 20)
    attributions = CoAM(forward, layer, [[1.0]]).attribute(images, target=0, input_shaped=True)
    score = infidelity(forward, perturb, images, attributions)
    torch.testing.assert_close(score, torch.zeros(2), atol=1e-9, rtol=0)


@pytest.mark.parametrize("input_shaped", [False, True])
def test_sensitivity_max(model, cavs, images, input_shaped):
    coam = CoAM(model, "features", cavs)

    def same(inputs: Tensor) -> Tensor:
        return inputs

    def scaled(inputs: Tensor) -> Tensor:
        return 1.1 * inputs

    settings = {"target": torch.tensor([0, 4, 2]), "n_perturb_samples": 3, "input_shaped": input_shaped}
    assert sensitivity_max(coam.attribute, images, same, **settings).tolist() == [0.0, 0.0, 0.0]
    # Without the bias of the convolution the maps are homogeneous: 10 % more input is 10 % more map.
    nn.init.zeros_(model.features[0].bias)
    score = sensitivity_max(coam.attribute, images, scaled, **settings)
    torch.testing.assert_close(score, torch.full((3,), 0.1), atol=1e-5, rtol=0)


@pytest.mark.parametrize("target", [None, 2, [4, 0, 1], torch.tensor([4, 0, 1])], ids=repr)
@pytest.mark.parametrize("is_tuple", [False, True])
def test_noise_tunnel(model, cavs, images, target, is_tuple):
    coam = CoAM(model, "features", cavs)
    torch.manual_seed(0)
    smooth = NoiseTunnel(coam).attribute(
        (images,) if is_tuple else images, target=target, nt_samples=4, nt_samples_batch_size=3, stdevs=1e-4
    )
    if is_tuple:
        (smooth,) = smooth
    plain = coam.attribute(images, target)
    torch.testing.assert_close(smooth, plain, atol=1e-3, rtol=0)
    assert not torch.equal(smooth, plain)


def test_log_usage_keeps_the_method(model, cavs, images):
    coam = CoAM(model, "features", cavs)
    torch.testing.assert_close(CoAM.attribute.__wrapped__(coam, images, 1), coam.attribute(images, 1))
    names = list(inspect.signature(LayerGradCam.attribute).parameters)[:5]
    assert list(inspect.signature(CoAM.attribute).parameters)[:5] == names
    assert coam.multiplies_by_inputs
    assert not coam.has_convergence_delta()


def test_leaves_nothing_behind(model, cavs, images):
    leaf = images.clone().requires_grad_()
    with untouched(model.train(), leaf):
        CoAM(model, "features", cavs).attribute(leaf, 1, input_shaped=True)


def test_leaves_no_hook_after_an_exception(model, cavs, images):
    def broken(images: Tensor) -> Tensor:
        model.features(images)
        raise RuntimeError("later layer")

    with untouched(model), pytest.raises(RuntimeError, match="later layer"):
        CoAM(broken, model.features, cavs).attribute(images)
    with untouched(model), pytest.raises(ValueError, match="width of `cavs`"):
        CoAM(model, "features", torch.ones(2, 7)).attribute(images)


@pytest.mark.parametrize(
    ("target", "error", "message"),
    [
        (5, ValueError, r"from 0 to 4, since there are 5, but got 5 at 0"),
        ([0, -1, 2], ValueError, r"from 0 to 4.*but got -1 at 1"),
        ([0, 1], ValueError, r"\(N,\) = \(3,\).*got shape \(2,\)"),
        (0.5, TypeError, r"integers\) but got float32"),
        (True, TypeError, r"integers\) but got bool"),
        ([[1, 1], [1, 0], [0, 1]], ValueError, r"one 1 and 0 else in each row"),
        (np.array(["1", "2", "0"]), TypeError, r"a tensor or an array of numbers but got ndarray"),
    ],
    ids=str,
)
def test_bad_target_is_refused_before_the_forward_pass(model, cavs, images, target, error, message):
    def forward(images: Tensor) -> Tensor:
        pytest.fail("the model was run")

    with pytest.raises(error, match=message):
        CoAM(forward, model.features, cavs).attribute(images, target)


def test_name_needs_a_module(model, cavs):
    with pytest.raises(TypeError, match="Pass the layer itself"):
        CoAM(lambda images: model(images), "features", cavs)


@pytest.mark.parametrize(
    ("change", "d", "target", "message"),
    [
        (lambda x: x.flatten(1), 3, 0, r"\(N, d, h, w\) with d = 3 but it gives \(3, 351\)"),
        (lambda x: x.flatten(2), 3, 0, r"before the pooling"),
        (lambda x: x.permute(0, 2, 3, 1), 3, 0, r"gives \(3, 9, 13, 3\).*come last"),
        (lambda x: x[:, :2], 3, 0, r"gives \(3, 2, 9, 13\).*fitted on the channels"),
        # Of the width of its maps, and so not taken for channels last.
        (lambda x: x[:, :2], 13, 0, r"gives \(3, 2, 9, 13\).*fitted on the channels"),
        (lambda x: x[:2], 3, [0, 1, 0], r"\(N,\) = \(2,\)"),
    ],
    ids=["flat", "tokens", "channels last", "width", "width of the maps", "merges samples"],
)
def test_unfit_layer(images, change, d, target, message):
    layer = nn.Identity()
    layer.register_forward_hook(lambda _module, _inputs, output: change(output))
    with pytest.raises(ValueError, match=message):
        CoAM(layer, layer, torch.ones(2, d)).attribute(images, target)


def test_names_stand_for_indices(model, images):
    bank = ConceptBank.random(3, 4, ["red wing", "long tail", "hooked bill"])
    coam = CoAM(model, "features", bank)
    assert torch.equal(coam.attribute(images, "long tail"), coam.attribute(images, 1))
    assert torch.equal(coam.attribute(images, ["red wing", "long tail", "red wing"]), coam.attribute(images, [0, 1, 0]))
    chain = PostHocCBM(model.features, bank, nn.Linear(3, 2)).eval()
    for concept_model in (chain, chain.concept_predictor):
        assert torch.equal(CoAM.of(concept_model).attribute(images, "hooked bill"), chain.concept_maps(images, [2]))
    smooth = NoiseTunnel(coam).attribute(images, target="long tail", nt_samples=2, stdevs=0.0)
    assert torch.allclose(smooth, coam.attribute(images, 1))
    with pytest.raises(ValueError, match=r"but got 'longtail'\. The nearest are \['long tail'"):
        coam.attribute(images, "longtail")
    with pytest.raises(ValueError, match=r"but got 'red wing'\. They have no names here: give a ConceptBank"):
        CoAM(model, "features", bank.cavs).attribute(images, "red wing")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x: x[0], r"shape \(3, 9, 13\) .*One image is a batch of one: pass `inputs\[None\]`"),
        (lambda x: x.permute(0, 2, 3, 1), r"shape \(3, 9, 13, 3\) .*Move the channels to the second axis"),
        (lambda x: (x * 9).to(torch.uint8), r"fails on uint8 .*levels divided by 255"),
        (lambda x: x.double(), r"fails on float64 .*Pass `inputs.to\(torch.float32\)`"),
    ],
    ids=["one image", "channels last", "levels", "type"],
)
def test_images_as_no_model_takes_them(model, cavs, images, change, message):
    chain = PostHocCBM(nn.Sequential(model.features, nn.BatchNorm2d(4)), ConceptBank(cavs), nn.Linear(5, 2)).eval()
    for coam in (CoAM(chain.features, "1", cavs), CoAM.of(chain)):
        with pytest.raises(ValueError, match=message):
            coam.attribute(change(images), 0)


def test_one_image_that_a_model_takes(model, cavs, images):
    with pytest.raises(ValueError, match=r"it gives \(4, .*One image is a batch of one"):
        CoAM(model.features, model.features, cavs).attribute(images[0], 0)


def test_a_cut_backbone_names_the_network(images):
    with pytest.raises(TypeError, match=r"but got Backbone\. Pass the network that it was cut from"):
        CoAM(Backbone(nn.Conv2d(3, 4, 1), "mean", None, 4), "0", torch.ones(2, 4))


def test_input_shaped_refuses(model, cavs, images):
    coam = CoAM(model, "features", cavs)
    with pytest.raises(ValueError, match=r"maps of 5 concepts do not fit"):
        coam.attribute(images, input_shaped=True)
    with pytest.raises(ValueError, match=r"one image tensor.*got \[\(3, 3, 9, 13\), \(3, 3, 9, 13\)\]"):
        coam.attribute((images, images), 0, input_shaped=True)


def test_targets_of_one_meaning_are_taken(model, cavs, images):
    coam = CoAM(model, "features", cavs)
    expected = coam.attribute(images, torch.tensor([4, 0, 1]))
    for same in ([4, 0, 1], np.array([4.0, 0.0, 1.0]), np.array([[4], [0], [1]]), np.eye(5)[[4, 0, 1]]):
        assert torch.equal(coam.attribute(images, same), expected)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda cavs: cavs[0], r"`cavs` to have shape \(L, d\)"),
        (lambda cavs: cavs[:0], r"`cavs` .* got \(0, 4\)"),
        (lambda cavs: cavs * torch.tensor([1, 1, 0, 1, 1])[:, None], r"`cavs` .* zeros in rows \[2\]"),
        (lambda cavs: cavs * float("nan"), "`cavs` to be finite"),
    ],
    ids=["one vector", "none", "zeros", "NaN"],
)
def test_bad_cavs(model, cavs, change, message):
    with pytest.raises(ValueError, match=message):
        CoAM(model, "features", change(cavs))
