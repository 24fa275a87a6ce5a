"""explain_func: Captum's own numbers, in the form Quantus takes, and nothing of the user's changed."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from captum.attr import (
    Attribution,
    GradientShap,
    GuidedGradCam,
    InputXGradient,
    IntegratedGradients,
    LayerActivation,
    LayerGradCam,
    NoiseTunnel,
    Saliency,
)
from torch import Tensor, nn
from torch.nn import functional

from captum_concepts.attributions.coam import CoAM
from captum_concepts.attributions.controls import SobelEdges
from captum_concepts.attributions.explain import explain_func
from untouched import untouched


class Net(nn.Module):
    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        with torch.random.fork_rng([]):
            torch.manual_seed(seed)
            self.features = nn.Sequential(nn.Conv2d(3, 4, 3, stride=2), nn.ReLU(), nn.Dropout(0.5))
            self.head = nn.Linear(4, 5)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.features(images).mean((2, 3)))


@pytest.fixture
def model() -> Net:
    return Net().eval()


@pytest.fixture
def images() -> np.ndarray:
    return np.random.default_rng(0).random((7, 3, 12, 10)).astype(np.float32)


@pytest.fixture
def targets() -> np.ndarray:
    return np.array([0, 4, 2, 2, 1, 3, 0])


CAVS = torch.randn(5, 4, generator=torch.Generator().manual_seed(3))


def captum(attribution, images, targets, **kwargs):
    return attribution.attribute(torch.tensor(images).requires_grad_(), target=torch.tensor(targets), **kwargs).detach()


def smoothed(model):
    return NoiseTunnel(Saliency(model))


CLASSES = {
    "Saliency": (explain_func(Saliency, abs=False), lambda m: Saliency(m), {"abs": False}),
    "IntegratedGradients": (
        explain_func(IntegratedGradients, multiply_by_inputs=False, n_steps=5, baselines=0.5),
        lambda m: IntegratedGradients(m, multiply_by_inputs=False),
        {"n_steps": 5, "baselines": 0.5},
    ),
    "GuidedGradCam": (explain_func(GuidedGradCam, layer="features"), lambda m: GuidedGradCam(m, m.features), {}),
}


@pytest.mark.filterwarnings("ignore:Setting")
@pytest.mark.parametrize("name", CLASSES)
def test_pixel_attributions_are_captums_own(model, images, targets, name):
    explain, build, kwargs = CLASSES[name]
    expected = captum(build(model), images, targets, **kwargs)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = explain(model=model, inputs=images, targets=targets)
    assert result.shape == images.shape
    assert result.dtype == np.float32
    np.testing.assert_allclose(result, expected.numpy(), atol=1e-6)
    assert result.std() > 0


@pytest.mark.parametrize("interpolate", ["bilinear", "nearest"])
def test_layer_maps_are_upsampled(model, images, targets, interpolate):
    maps = captum(LayerGradCam(model, model.features), images, targets)
    align = None if interpolate == "nearest" else False
    expected = functional.interpolate(maps, (12, 10), mode=interpolate, align_corners=align)
    explain = explain_func(LayerGradCam, layer="features", interpolate=interpolate)
    result = explain(model, images, targets)
    assert result.shape == (7, 1, 12, 10)
    np.testing.assert_allclose(result, expected.numpy(), atol=1e-6)


def test_batch_size_does_not_matter(model, images, targets):
    batch_sizes = []
    hook = model.features.register_forward_hook(lambda module, args, output: batch_sizes.append(len(output)))
    result = explain_func(InputXGradient, batch_size=3)(model, images, targets)
    hook.remove()
    assert max(batch_sizes) == 3
    np.testing.assert_allclose(result, captum(InputXGradient(model), images, targets).numpy(), atol=1e-6)


def test_tables(targets):
    head = nn.Linear(6, 5).eval()
    values = np.random.default_rng(0).standard_normal((7, 6)).astype(np.float32)
    theta = head.weight.detach().numpy()[targets]
    np.testing.assert_allclose(explain_func(Saliency, abs=False)(head, values, targets), theta, rtol=1e-6)
    np.testing.assert_allclose(explain_func(InputXGradient)(head, values, targets), theta * values, rtol=1e-6)


STOCHASTIC = {
    "NoiseTunnel": explain_func(smoothed, nt_samples=3, stdevs=0.1),
    "GradientShap": explain_func(GradientShap, n_samples=3, baselines=np.zeros((2, 3, 12, 10))),
}


@pytest.mark.parametrize("name", STOCHASTIC)
def test_same_seed_same_result_and_global_generators_untouched(model, images, targets, name):
    explain = STOCHASTIC[name]
    with untouched(model, images), warnings.catch_warnings():
        warnings.simplefilter("error")
        first = explain(model, images, targets)
    torch.rand(3)
    np.random.rand(3)  # noqa: NPY002
    np.testing.assert_array_equal(explain(model, images, targets), first)
    unseeded = explain_func(smoothed, nt_samples=2, seed=None)
    assert not np.array_equal(unseeded(model, images, targets), unseeded(model, images, targets))


def test_rescaled_maps_order_pixels_as_before_and_quantus_takes_them(model, images, targets):
    negative = -CAVS.abs()
    plain = explain_func(CoAM, layer="features", cavs=negative)(model, images, targets)
    rescaled = explain_func(CoAM, layer="features", cavs=negative, rescale=True)(model, images, targets)
    assert (plain <= 0).all()
    np.testing.assert_allclose(rescaled.min((1, 2, 3)), 0)
    np.testing.assert_allclose(rescaled.max((1, 2, 3)), 1)
    span = plain.max((1, 2, 3), keepdims=True) - plain.min((1, 2, 3), keepdims=True)
    np.testing.assert_allclose(rescaled, (plain - plain.min((1, 2, 3), keepdims=True)) / span, atol=1e-6)
    assert not explain_func(SobelEdges, rescale=True)(model, np.ones_like(images), targets).any()


def test_channels_are_summed_where_they_are_not_the_inputs(model, images, targets):
    every = explain_func(InputXGradient)(model, images, targets)
    summed = explain_func(InputXGradient, channels="sum")(model, images, targets)
    np.testing.assert_allclose(summed, every.sum(1, keepdims=True), atol=1e-6)
    maps = LayerActivation(model, model.features).attribute(torch.tensor(images))
    maps = functional.interpolate(maps, (12, 10), mode="bilinear", align_corners=False).detach().numpy()
    every = explain_func(LayerActivation, layer="features", channels="keep")(model, images)
    np.testing.assert_allclose(every, maps, atol=1e-6)
    summed = explain_func(LayerActivation, layer="features")(model, images)
    np.testing.assert_allclose(summed, maps.sum(1, keepdims=True), atol=1e-5)


def test_forms_of_targets(model, images, targets):
    explain, one_hot = explain_func(Saliency), np.eye(5)[targets]
    expected = explain(model, images, targets)
    for same in (targets.tolist(), targets.astype(float), targets[:, None], one_hot > 0):
        np.testing.assert_array_equal(explain(model, images, same), expected)
    np.testing.assert_array_equal(explain(model, images, 3), explain(model, images, np.full(7, 3)))


class PlainGradient(Attribution):
    """A gradient by hand; Captum's methods turn gradients on themselves."""

    def attribute(self, inputs: Tensor, target: Tensor) -> Tensor:
        return torch.autograd.grad(self.forward_func(inputs).gather(1, target[:, None]).sum(), inputs)[0]


@pytest.mark.parametrize("explain", [explain_func(PlainGradient), explain_func(GuidedGradCam, layer="features")])
def test_model_is_left_as_it_was_and_evaluated_in_eval_mode(model, images, targets, explain):
    expected = explain(model, images, targets)
    model.train()
    model.features[0].eval()
    model.head.weight.requires_grad_(False)
    leaf = torch.tensor(images, requires_grad=True)
    for mode in (torch.no_grad, torch.inference_mode):
        with untouched(model, leaf), mode():
            result = explain(model, leaf, targets)
        # Dropout would show if the model had stayed in train mode.
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize(
    ("explain", "change", "message"),
    [
        (explain_func(Saliency), {"inputs": np.full((7, 3, 12, 10), np.nan)}, r"`inputs` to be finite"),
        (explain_func(lambda m: Saliency(Net(9))), {}, r"explains another Net"),
        (explain_func(Saliency), {"targets": np.arange(6)}, r"`targets` .* \(N,\) = \(7,\)"),
        (explain_func(Saliency), {"targets": np.array([0, 1, -1, 2, 0, 0, 0])}, r"outputs from 0, but got -1 at 2"),
        (explain_func(LayerGradCam, layer="head"), {}, r"got \(7, 1\).*keeps the spatial"),
        (explain_func(IntegratedGradients, return_convergence_delta=True), {}, "to be one tensor but got tuple"),
        (explain_func(LayerGradCam, layer="features"), {"model": lambda x: x}, "`model` to be an nn"),
    ],
)
def test_bad_calls(model, images, targets, explain, change, message):
    with pytest.raises((TypeError, ValueError), match=message):
        explain(**{"model": model, "inputs": images, "targets": targets, **change})


def test_other_forms_of_models_and_inputs(model, images, targets):
    # For one image torch takes -1 for the last output.
    with pytest.raises(ValueError, match=r"from 0.* but got -1 at 0"):
        explain_func(Saliency)(model, images[:1], [-1])
    result = explain_func(Saliency)(lambda x: x.mean((2, 3)), images, 0)
    np.testing.assert_allclose(result[:, 0], 1 / 120, rtol=1e-6)
    assert (result[:, 1:] == 0).all()
    model.double()
    assert explain_func(InputXGradient)(model, images, targets).dtype == np.float64
    model.bfloat16()
    assert explain_func(InputXGradient)(model, images, targets).dtype == np.float32
    # Series: maps with one axis of places.
    layers = nn.Conv1d(2, 3, 3, stride=2), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(3, 5)
    of_series, series = nn.Sequential(*layers).eval(), np.random.default_rng(0).random((7, 2, 15)).astype(np.float32)
    maps = captum(LayerGradCam(of_series, of_series[0]), series, targets)
    expected = functional.interpolate(maps, 15, mode="linear", align_corners=False)
    result = explain_func(LayerGradCam, layer="0")(of_series, series, targets)
    np.testing.assert_allclose(result, expected.numpy(), atol=1e-6)


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda m: explain_func(Saliency(m)), TypeError, "a Captum attribution class"),
        (lambda m: explain_func(LayerGradCam, layer=m.features), TypeError, "`layer` to be the dotted name"),
        (lambda m: explain_func(CoAM.of, target=3), ValueError, r"without \['target'\]"),
        (lambda m: explain_func(IntegratedGradients, n_step=3), ValueError, "unexpected keyword argument 'n_step'"),
    ],
)
def test_bad_arguments(model, build, error, message):
    with pytest.raises(error, match=message):
        build(model)
