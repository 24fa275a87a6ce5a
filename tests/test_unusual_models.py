"""Models without gradients, weights or hooks: a right answer, or one error that says what to do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from captum.attr import DeepLift, GuidedBackprop, LayerGradCam, NoiseTunnel, Occlusion, Saliency
from torch import nn

from captum_concepts import SteeredRISE, build_method, explain_func, tcav_score
from captum_concepts._support.running import evaluation_mode
from captum_concepts.backbones.embedding import embed
from quantus_concepts import CEM, IDR, MCS, Faithfulness
from tiny_models import small_network

# Torch says that its own forms are deprecated, and that quantised layers have no gradient.
pytestmark = [pytest.mark.filterwarnings("ignore:.*deprecated"), pytest.mark.filterwarnings("ignore:quantized")]

N, SIZE = 4, 12
OCCLUSION = {"sliding_window_shapes": (3, 4, 4), "strides": (3, 4, 4)}


@pytest.fixture
def model() -> nn.Sequential:
    return small_network()


@pytest.fixture
def images() -> np.ndarray:
    return np.random.default_rng(0).random((N, 3, SIZE, SIZE)).astype(np.float32)


def scripted(model: nn.Module) -> nn.Module:
    return torch.jit.script(model)


def traced(model: nn.Module) -> nn.Module:
    return torch.jit.trace(model, torch.zeros(1, 3, SIZE, SIZE))


def frozen(model: nn.Module) -> nn.Module:
    return torch.jit.freeze(torch.jit.script(model))


def quantised(model: nn.Module) -> nn.Module:
    return torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8)


def tcav(model: nn.Module, images: np.ndarray, layer: str = "0") -> Any:
    x = torch.from_numpy(images)
    return tcav_score(model, [layer], x[:2] + 1, x, x, 0, n_samples=2, n_random=2)


@pytest.mark.parametrize("form", [scripted, traced, frozen])
class TestScriptModules:
    def test_what_needs_inputs_and_outputs_only_is_as_of_the_model(self, form, model, images):
        other = form(model)
        masks = np.zeros((N, 1, SIZE, SIZE), dtype=int)
        masks[..., 2:8, 2:9] = 1
        with torch.no_grad():
            labels = model(torch.from_numpy(images)).argmax(1).numpy()
        explain = explain_func(Saliency)
        for name, method in {
            "Saliency": explain,
            "SmoothGrad": explain_func(lambda m: NoiseTunnel(Saliency(m)), nt_samples=2),
            "Occlusion": explain_func(Occlusion, **OCCLUSION),
            "integrated gradients": build_method("integrated gradients", n_steps=3),
        }.items():
            np.testing.assert_allclose(
                method(other, images, labels), method(model, images, labels), rtol=1e-4, atol=1e-6, err_msg=name
            )
        for metric in (
            Faithfulness(thresholds=(20, 60)),
            MCS(other, labels, masks=masks),
            IDR(images * (1 - masks).astype(np.float32), masks=masks, disable_warnings=True),
        ):
            outputs, expected = (
                metric(module, images, labels, explain_func=explain, a_batch=explain(module, images, labels))
                for module in (other, model)
            )
            np.testing.assert_allclose(outputs, expected, rtol=1e-4, atol=1e-6, err_msg=metric.name)

    @pytest.mark.parametrize(
        "explain",
        [
            explain_func(LayerGradCam, layer="0"),
            explain_func(GuidedBackprop),
            explain_func(DeepLift),
            build_method("Grad-CAM", layer="0"),
            build_method("Grad-CAM"),
            build_method("guided backpropagation"),
        ],
        ids=repr,
    )
    def test_what_needs_hooks_is_refused(self, form, explain, model, images):
        other = form(model)
        with pytest.raises(ValueError, match=r"ScriptModule|`layer` to name a layer|layers of type nn\.ReLU"):
            explain(other, images, 0)

    def test_tcav_is_refused(self, form, model, images):
        other = form(model)
        with pytest.raises(ValueError, match="a ScriptModule, and TCAV at layer '0' needs hooks"):
            tcav(other, images)


def test_a_scripted_layer_of_a_python_model_is_refused(model, images):
    mixed = nn.Sequential(scripted(model[:2]), *model[2:]).eval()
    for call in (
        lambda: explain_func(LayerGradCam, layer="0.0")(mixed, images, 0),
        lambda: explain_func(GuidedBackprop)(mixed, images, 0),
        lambda: tcav(mixed, images, "0.0"),
    ):
        with pytest.raises(ValueError, match="ScriptModule"):
            call()
    maps = explain_func(Saliency)(mixed, images, 0)
    np.testing.assert_allclose(maps, explain_func(Saliency)(model, images, 0), rtol=1e-4, atol=1e-7)


def test_eval_mode_of_scripted_models_comes_and_goes(model):
    fixed = frozen(model)
    other = scripted(model.train())
    with evaluation_mode(other, fixed, None):
        assert not any(module.training for module in other.modules())
    assert all(module.training for module in other.modules())
    assert not hasattr(fixed, "training")


def test_quantised_models_have_scores_but_no_gradients(model, images):
    small = quantised(model)
    labels = np.zeros(N, dtype=int)
    for call in (lambda: explain_func(Saliency)(small, images, 0), lambda: tcav(small, images)):
        with pytest.raises(ValueError, match=r"Quantised models, .* have none: explain the model before it was"):
            call()
    assert explain_func(Occlusion, **OCCLUSION)(small, images, 0).any()
    assert SteeredRISE(small).attribute(torch.from_numpy(images), target=1, lam=0, n_masks=4, cells=4).any()
    maps = np.random.default_rng(0).random((N, SIZE, SIZE))
    scores, expected = (Faithfulness(thresholds=(30,))(module, images, labels, maps) for module in (small, model))
    np.testing.assert_allclose(scores, expected, atol=0.01)
    # Nothing in it is a floating-point parameter.
    flat = quantised(nn.Sequential(nn.Flatten(), nn.Linear(3 * SIZE**2, 3)).eval())
    assert np.isfinite(Faithfulness(thresholds=(30,))(flat, images, labels, maps)).all()
    with pytest.raises(ValueError, match="Quantised models"):
        explain_func(Saliency)(flat, images, 0)


def test_models_without_weights_are_refused(model, images):
    meta = small_network().to("meta")
    for call in (
        lambda: explain_func(Saliency)(meta, images, 0),
        lambda: build_method("Grad-CAM")(meta, images, 0),
        lambda: tcav(meta, images),
        lambda: embed(meta, [torch.from_numpy(images)]),
        lambda: SteeredRISE(meta).attribute(torch.from_numpy(images), 0, lam=0),
    ):
        with pytest.raises(ValueError, match=r"to have weights but it is on the meta device"):
            call()


@pytest.mark.parametrize("targets", [np.array([0, 1, 3, 2]), np.array([0, 1, -1, 2])])
def test_targets_out_of_range(targets, model, images):
    wrong = int(targets[2])
    for explain in (
        explain_func(Saliency),
        explain_func(LayerGradCam, layer="0"),
        explain_func(Occlusion, **OCCLUSION),
        build_method("SmoothGrad", n_samples=2),
        build_method("guided Grad-CAM"),
    ):
        with pytest.raises(ValueError, match=rf"`targets` to hold indices of outputs from 0 .*but got {wrong} at 2"):
            explain(model, images, targets)
        # One image, for which torch takes -1 for the last output.
        with pytest.raises(ValueError, match=rf"`targets` to hold .* but got {wrong} at 0"):
            explain(model, images[:1], targets[2:3])
    assert not any(module._forward_hooks or module._backward_hooks for module in model.modules())


def test_targets_of_a_model_of_one_number(images):
    with pytest.raises(ValueError, match=r"to return outputs \(N, K\), of which .* but got shape \(4,\)"):
        explain_func(Saliency)(nn.Sequential(nn.Flatten(), nn.Linear(3 * SIZE**2, 1), nn.Flatten(0)), images, 0)


@pytest.mark.parametrize(
    ("batch_size", "error", "message"),
    [(0, ValueError, "to be at least 1 but got 0"), (-3, ValueError, "got -3"), (2.5, TypeError, "a whole number")],
)
def test_batch_sizes_of_metrics(batch_size, error, message, model, images):
    labels = np.zeros(N, dtype=int)
    maps = np.random.default_rng(0).random((N, SIZE, SIZE))
    for call in (
        lambda: Faithfulness()(model, images, labels, maps, batch_size=batch_size),
        lambda: CEM(np.ones((N, 3), int))(None, np.ones((N, 3)), labels, np.ones((N, 3)), batch_size=batch_size),
    ):
        with pytest.raises(error, match=f"`batch_size` .*{message}"):
            call()
