"""The paper's methods by name: Captum's own numbers, on the model as it is, whatever else is in the batch."""

from __future__ import annotations

import copy
import pickle
import warnings

import numpy as np
import pytest
import torch
from captum.attr import (
    GuidedBackprop,
    GuidedGradCam,
    InputXGradient,
    IntegratedGradients,
    LayerGradCam,
    NoiseTunnel,
    Saliency,
)
from torch import Tensor, nn
from torch.nn import functional

from captum_concepts.attributions.methods import (
    METHOD_NAMES,
    PAPER_METHODS,
    SMOOTHED_METHODS,
    build_method,
    build_methods,
)
from refusals import refusals
from untouched import untouched

SETTINGS = {"n_samples": 3, "n_steps": 4}
SMOOTHED = ("SmoothGrad", "IG + SmoothGrad")

pytestmark = pytest.mark.filterwarnings("ignore:Setting backward hooks:UserWarning")


class Net(nn.Module):
    """Layers of its own names, so that a layer of another model does not fit by accident."""

    def __init__(self, seed: int = 0, last: str = "last") -> None:
        super().__init__()
        with torch.random.fork_rng([]):
            torch.manual_seed(seed)
            self.first = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(inplace=True), nn.Dropout(0.5))
            self.add_module(last, nn.Sequential(nn.Conv2d(4, 6, 3, stride=2), nn.ReLU(inplace=True)))
            self.head = nn.Linear(6, 5)
        self.last_name = last

    @property
    def maps(self) -> nn.Module:
        return self.get_submodule(self.last_name)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.maps(self.first(images)).mean((2, 3)))


class ActivatesFirst(nn.Module):
    """A residual network whose ReLUs share their inputs with the connection around them; one is used twice."""

    def __init__(self, relu: nn.Module) -> None:
        super().__init__()
        with torch.random.fork_rng([]):
            torch.manual_seed(0)
            self.stem = nn.Conv2d(3, 4, 3, padding=1)
            self.convolutions = nn.ModuleList(nn.Conv2d(4, 4, 3, padding=1) for _ in range(2))
            self.head = nn.Linear(4, 5)
        self.relu = relu

    def forward(self, images: Tensor) -> Tensor:
        maps = self.stem(images)
        for convolution in self.convolutions:
            maps = maps + convolution(self.relu(maps))
        return self.head(maps.mean((2, 3)))


def guided_by_hand(model: nn.Module, images: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Springenberg et al.: positive gradients at positive inputs pass. Knows nothing of Captum."""

    def let_positive_pass(_relu: nn.Module, _inputs: object, output: Tensor) -> None:
        output.register_hook(lambda gradient: gradient.clamp(min=0))

    model = copy.deepcopy(model).eval()
    for module in model.modules():
        if isinstance(module, nn.ReLU):
            module.register_forward_hook(let_positive_pass)
    inputs = torch.tensor(images, requires_grad=True)
    model(inputs)[torch.arange(len(images)), torch.tensor(targets)].sum().backward()
    return inputs.grad.numpy()


@pytest.fixture
def model() -> Net:
    return Net().eval()


@pytest.fixture
def images() -> np.ndarray:
    generator = np.random.default_rng(0)
    # Ranges differ between images, as the noise must.
    return (generator.random((5, 3, 12, 10)) * generator.random((5, 1, 1, 1))).astype(np.float32)


@pytest.fixture
def targets() -> np.ndarray:
    return np.array([0, 4, 2, 2, 1])


def upsample(maps: Tensor, images: Tensor) -> Tensor:
    return functional.interpolate(maps, images.shape[2:], mode="bilinear", align_corners=False)


def smooth_by_hand(method, images, targets, share=0.15, **kwargs):
    """SmoothGrad as printed: image by image, the noise from seed 0."""
    results = []
    for image, target in zip(images, targets, strict=True):
        with torch.random.fork_rng([]):
            torch.manual_seed(0)
            noise = torch.randn(3, *image.shape) * share * (image.max() - image.min())
        copies = (image + noise).requires_grad_()
        results.append(method.attribute(copies, target=int(target), **kwargs).mean(0))
    return torch.stack(results)


def captum_maps(name: str, model: nn.Module, layer: nn.Module, images: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """What Captum says, called as its documentation does."""
    x, y = torch.tensor(images, requires_grad=True), torch.tensor(targets)
    calls = {
        "Grad-CAM": lambda: upsample(LayerGradCam(model, layer).attribute(x, y, relu_attributions=True), x),
        "vanilla gradient": lambda: Saliency(model).attribute(x, y, abs=False),
        "SmoothGrad": lambda: smooth_by_hand(Saliency(model), x.detach(), y, abs=False),
        "integrated gradients": lambda: IntegratedGradients(model).attribute(x, target=y, n_steps=4),
        "IG + SmoothGrad": lambda: smooth_by_hand(IntegratedGradients(model), x.detach(), y, n_steps=4),
        "gradient x input": lambda: InputXGradient(model).attribute(x, y),
        "guided backpropagation": lambda: GuidedBackprop(model).attribute(x, y),
        "guided Grad-CAM": lambda: GuidedGradCam(model, layer).attribute(x, y, interpolate_mode="bilinear"),
        "Grad-CAM + SmoothGrad": lambda: upsample(
            smooth_by_hand(LayerGradCam(model, layer), x.detach(), y, relu_attributions=True), x
        ),
        "gradient x input + SmoothGrad": lambda: smooth_by_hand(InputXGradient(model), x.detach(), y),
        "guided backpropagation + SmoothGrad": lambda: smooth_by_hand(GuidedBackprop(model), x.detach(), y),
        "guided Grad-CAM + SmoothGrad": lambda: smooth_by_hand(
            GuidedGradCam(model, layer), x.detach(), y, interpolate_mode="bilinear"
        ),
    }
    return calls[name]().detach().numpy()


@pytest.mark.parametrize("name", [*PAPER_METHODS, *SMOOTHED_METHODS])
def test_small_model(model, images, targets, name):
    expected = captum_maps(name, model, model.maps, images, targets)
    explain = build_method(name, **SETTINGS)
    # The layer is found anew in each model.
    explain(Net(1, "end").eval(), images, targets)
    result = pickle.loads(pickle.dumps(explain))(model, images, targets)
    assert result.shape == (5, 1 if name.startswith("Grad-CAM") else 3, 12, 10)
    scale = np.abs(expected).max()
    assert scale > 0
    np.testing.assert_allclose(result / scale, expected / scale, atol=1e-5)


def test_guided_where_a_relu_shares_its_input(images, targets):
    with pytest.raises(ValueError, match=r"layers of type nn\.ReLU"):
        build_method("guided backpropagation")(ActivatesFirst(nn.ReLU6()), images, targets)
    network = ActivatesFirst(nn.ReLU())
    expected = guided_by_hand(network, images, targets)
    result = build_method("guided backpropagation")(network, images, targets)
    np.testing.assert_allclose(result, expected, atol=1e-7)
    # Captum's own does not keep the uses of a tensor apart: the reason for the copies.
    assert np.abs(captum_maps("guided backpropagation", network, network.stem, images, targets) - expected).max() > 1e-3


class Functional(Net):
    def forward(self, images: Tensor) -> Tensor:
        return super().forward(functional.relu(images - 0.5).relu())


def test_functions_cannot_be_guided(images, targets):
    explain, network = build_method("guided Grad-CAM", layer="first"), Functional().eval()
    with pytest.warns(UserWarning, match="calls 2 of its 4 ReLUs as functions") as caught:
        explain(network, images, targets)
    assert len([warning for warning in caught if "as functions" in str(warning.message)]) == 1
    network.first[1] = network.last[1] = nn.Identity()
    with pytest.raises(ValueError, match="leave the guided methods out"):
        explain(network, images, targets)


@pytest.mark.parametrize("name", METHOD_NAMES)
def test_nothing_depends_on_the_batch(model, images, targets, name):
    explain = build_method(name, **SETTINGS)
    every = explain(model, images, targets)
    order = np.array([4, 1, 3])
    np.testing.assert_allclose(explain(model, images[order], targets[order]), every[order], atol=1e-6)
    small = build_method(name, batch_size=2, **SETTINGS)(model, images, targets)
    if name in SMOOTHED:
        # The noise comes in portions of as many copies, in the same order.
        assert np.corrcoef(small.ravel(), every.ravel())[0, 1] > 0.999
    np.testing.assert_allclose(small, every, atol=1e-6)


@pytest.mark.parametrize("name", METHOD_NAMES)
def test_nothing_of_the_users_is_changed(model, images, targets, name):
    model.train()
    model.first[2].eval()
    with untouched(model, images, targets), warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isfinite(build_method(name, **SETTINGS)(model, images, targets)).all()


def test_noise(model, images, targets):
    fixed = build_method("SmoothGrad", stdev=0.3, n_samples=3)(model, images, targets)
    # Captum's tunnel, one image at a time.
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        tunnel = NoiseTunnel(Saliency(model))
        expected = tunnel.attribute(torch.tensor(images[:1]), nt_samples=3, stdevs=0.3, target=0, abs=False)
    np.testing.assert_array_equal(fixed[:1], expected.numpy())
    # A constant image has no range, and so gets no noise.
    constant = np.full_like(images, 0.5)
    np.testing.assert_allclose(
        build_method("SmoothGrad", noise=5.0, n_samples=2)(model, constant, targets),
        build_method("vanilla gradient")(model, constant, targets),
        atol=1e-7,
    )


def test_baseline(model, images, targets):
    of_channels, x = torch.tensor([0.1, 0.2, 0.3])[None, :, None, None].expand(1, 3, 12, 10), torch.tensor(images)
    expected = IntegratedGradients(model).attribute(x, of_channels, torch.tensor(targets), n_steps=4)
    result = build_method("integrated gradients", baseline=(0.1, 0.2, 0.3), **SETTINGS)(model, images, targets)
    np.testing.assert_allclose(result, expected.detach().numpy(), atol=1e-6)
    expected = smooth_by_hand(IntegratedGradients(model), x, targets, baselines=of_channels, n_steps=4)
    smooth = build_method("IG + SmoothGrad", baseline=of_channels[0].numpy(), **SETTINGS)(model, images, targets)
    np.testing.assert_allclose(smooth, expected.detach().numpy(), atol=1e-6)
    with pytest.raises(ValueError, match=r"`baseline` to have shape \(C,\) or \(C, H, W\)"):
        build_method("integrated gradients", baseline=np.zeros(2))(model, images, targets)


test_refused = refusals(
    (lambda: build_method("integrated gradients", baseline=np.ones((2, 2))), "`baseline` to be a number"),
    (lambda: build_method("integrated gradients", baseline=np.nan), "`baseline` to be finite"),
    (lambda: build_methods("Grad-CAM"), "`names` to be a sequence of names"),
    (lambda: build_method("SmoothGrad", n_samples=2.5), "`n_samples` to be a whole number"),
    error=(TypeError, ValueError),
)
