"""Methods named by one text: the paper's, Captum's classes, and one's own in three lines."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from captum.attr import DeepLift, IntegratedGradients, LayerActivation, Occlusion, Saliency
from torch import nn

from captum_concepts.attributions.methods import build_method
from quantus_concepts.studies.attribution.methods import method_from_spec


@pytest.fixture
def model() -> nn.Module:
    layers = [nn.Conv2d(3, 4, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5)]
    return nn.Sequential(*layers).eval()


@pytest.fixture
def images() -> np.ndarray:
    return np.random.default_rng(0).random((3, 3, 16, 24)).astype(np.float32)


TARGETS = np.array([0, 4, 2])


def captum_says(attribution, images, **kwargs):
    inputs = torch.tensor(images, requires_grad=True)
    return attribution.attribute(inputs, target=torch.tensor(TARGETS), **kwargs).detach().numpy()


def test_names_in_any_case(model, images):
    settings = {"n_samples": 2, "n_steps": 3, "noise": 0.3, "seed": 2}
    expected = build_method("IG + SmoothGrad", **settings)(model, images, TARGETS)
    np.testing.assert_array_equal(method_from_spec("IG + SMOOTHGRAD", **settings)(model, images, TARGETS), expected)


def test_captums_classes(model, images):
    result = method_from_spec("Saliency")(model, images, TARGETS)
    np.testing.assert_allclose(result, captum_says(Saliency(model), images), atol=1e-7)
    result = method_from_spec("captum.attr.IntegratedGradients", n_steps=5, baseline=(0.1, 0.2, 0.3))
    baselines = torch.tensor([0.1, 0.2, 0.3])[None, :, None, None].expand(1, 3, 16, 24)
    expected = captum_says(IntegratedGradients(model), images, n_steps=5, baselines=baselines)
    np.testing.assert_allclose(result(model, images, TARGETS), expected, atol=1e-6)
    result = method_from_spec("layeractivation", layer="1")(model, images, TARGETS)
    maps = LayerActivation(model, model[1]).attribute(torch.tensor(images)).sum(1, keepdim=True)
    expected = nn.functional.interpolate(maps, (16, 24), mode="bilinear", align_corners=False).detach()
    np.testing.assert_allclose(result, expected, atol=1e-5)
    last = method_from_spec("LayerGradCam")(model, images, TARGETS)
    assert last.shape == (3, 1, 16, 24)


def test_perturbations_are_of_squares(model, images):
    window = {"sliding_window_shapes": (3, 2, 3), "strides": (3, 2, 3)}
    occlusion = method_from_spec("Occlusion")(model, images, TARGETS)
    np.testing.assert_allclose(occlusion, captum_says(Occlusion(model), images, **window), atol=1e-6)
    # Squares of 2 x 3 pixels: removing each is what the window does, step by step.
    ablation = method_from_spec("FeatureAblation")(model, images, TARGETS)
    np.testing.assert_allclose(ablation, occlusion, atol=1e-6)
    blocks = ablation.reshape(3, 3, 8, 2, 8, 3)
    assert (blocks == blocks[:, :1, :, :1, :, :1]).all()
    assert len(np.unique(ablation[0])) > 32
    shap = method_from_spec("KernelShap")(model, images, TARGETS)
    assert len(np.unique(shap[0])) > 32
    blocks = shap.reshape(3, 3, 8, 2, 8, 3)
    assert (blocks == blocks[:, :1, :, :1, :, :1]).all()
    # Sampled, it points the same way: 192 squares of no relation would give 0 with a deviation of 0.07.
    assert np.corrcoef(shap.ravel(), ablation.ravel())[0, 1] > 0.3


OWN = """
import numpy as np
from captum.attr import DeepLift

def my_method(model):
    return DeepLift(model)

def brightness(model, inputs, targets, **kwargs):
    return inputs * 2

not_callable = 3
"""


@pytest.mark.filterwarnings("ignore:Setting forward, backward hooks:UserWarning")
def test_ones_own(model, images, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(OWN)
    with_captum = method_from_spec(f"{path}:my_method", batch_size=2)
    expected = captum_says(DeepLift(model), images)
    np.testing.assert_allclose(with_captum(model, images, TARGETS), expected, atol=1e-6)
    np.testing.assert_array_equal(method_from_spec(f"{path}:brightness")(model, images, TARGETS), 2 * images)
    with pytest.raises(TypeError, match="to be a function but got int"):
        method_from_spec(f"{path}:not_callable")
    with pytest.raises(ValueError, match=r"to have 'my_metod' but it has not. Nearest: \['my_method'\]"):
        method_from_spec(f"{path}:my_metod")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("gradcam", r"Nearest: \['XGradCAM', 'Grad-CAM', 'GradCAM\+\+'\]"),
        ("lime-cbm", r'explains values of concepts: build_method\("LIME-CBM"\)\(cbm.head'),
        ("NoiseTunnel", r"NoiseTunnel needs \['attribution_method'\]"),
        ("GradientAttribution", "only what Captum's methods derive from"),
        ("ShapleyValues", "Use ShapleyValueSampling"),
        ("NeuronGradient", "explains a neuron"),
        ("nowhere.py:method", "with a file that exists"),
        ("no_such_module:method", "No module named 'no_such_module'"),
    ],
)
def test_bad_specs(spec, message):
    with pytest.raises(ValueError, match=message):
        method_from_spec(spec)
