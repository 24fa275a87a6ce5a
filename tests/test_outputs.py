"""Models that return what is no tensor: every metric and method gives what it gives of the logits by themselves."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import timm
import torch
from captum.attr import DeepLift, GuidedBackprop, LayerActivation, LayerGradCam, Saliency
from torch import Tensor, nn

from captum_concepts import LayerFeatures, PostHocCBM, explain_func, tcav_score
from captum_concepts.backbones.embedding import embed
from captum_concepts.support.running import tensor_output
from quantus_concepts import CEM, CGIM, CLM, IDR, IIR, MCS, Faithfulness, Patch
from tiny_models import CLASSIFIERS, small_network, transformers_classifier

pytest.importorskip("transformers", reason="the models are those of transformers")

N, SIZE, N_CLASSES, N_CONCEPTS = 6, 32, 3, 4


def maps_of_tokens(output: Any) -> Tensor:
    """Tokens (N, T, d), a class token before them where their number is no square, to maps."""
    tokens = tensor_output(output)
    side = int(tokens.shape[1] ** 0.5)
    return tokens[:, -side * side :].transpose(1, 2).unflatten(2, (side, side))


#: The backbone of each kind of classifier, and what makes maps of its output.
FAMILIES: dict[str, tuple[str, Any]] = {
    "ResNet": ("resnet", None),
    "ViT": ("vit", maps_of_tokens),
    "Swin": ("swin", maps_of_tokens),
    "CLIP": ("vision_model", maps_of_tokens),
}


class Form(nn.Module):
    """A model in which the logits come in some form, or out of it."""

    def __init__(self, model: nn.Module, form: Callable[[Any], Any]) -> None:
        super().__init__()
        self.model = model
        self.form = form

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.form(self.model(*args, **kwargs))


def logits_of(output: Any) -> Any:
    return output.logits


FORMS = {
    "tuple": lambda logits: (logits, logits * 2),
    "list": lambda logits: [None, logits],
    "dict": lambda logits: {"aux": logits * 2, "logits": logits},
    "first of a dict": lambda logits: {"out": logits, "aux": logits * 2},
}


@pytest.fixture
def model(family: str) -> nn.Module:
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        return transformers_classifier(family)


@pytest.fixture
def images() -> np.ndarray:
    return np.random.default_rng(0).random((N, 3, SIZE, SIZE)).astype(np.float32)


def score_all(model: nn.Module, other: nn.Module, images: np.ndarray) -> dict[str, list[float]]:
    """Every metric that asks a model about images."""
    with torch.no_grad():
        labels = tensor_output(model(torch.from_numpy(images))).argmax(1).numpy()
    masks = np.zeros((N, 1, SIZE, SIZE), dtype=int)
    masks[:, :, 4:20, 6:18] = 1
    quiet: dict[str, Any] = {"disable_warnings": True}
    metrics = {
        "MCS": MCS(other, labels, masks=masks, **quiet),
        "IDR": IDR(images * (1 - masks).astype(np.float32), masks=masks, **quiet),
        "IIR": IIR(patched=np.where(masks, images[::-1], images), average=True, tolerance=1e6, masks=masks, **quiet),
        "IIR with patches": IIR(
            patch=Patch(images[::-1], steps=2, tolerance=1e6), average=True, masks=masks, labels=labels, **quiet
        ),
        "Faithfulness": Faithfulness(thresholds=(10, 50), **quiet),
    }
    explain = explain_func(Saliency)
    maps = explain(model, images, labels)
    return {name: metric(model, images, labels, explain_func=explain, a_batch=maps) for name, metric in metrics.items()}


@pytest.mark.parametrize("family", FAMILIES)
def test_metrics_and_explanations_of_images(family, model, images):
    scores = score_all(model, copy.deepcopy(model), images)
    expected = score_all(Form(model, logits_of), Form(copy.deepcopy(model), logits_of), images)
    for name, expected_scores in expected.items():
        np.testing.assert_array_equal(scores[name], expected_scores, err_msg=name)
    for name in ("IIR with patches", "Faithfulness"):
        assert np.isfinite(scores[name]).any(), name
    layer, targets = CLASSIFIERS[family][1], np.arange(N) % N_CLASSES
    maps = explain_func(LayerGradCam, layer=layer)(model, images, targets)
    assert np.abs(maps).max() > 0
    by_hand = explain_func(LayerGradCam, layer=f"model.{layer}")(Form(model, logits_of), images, targets)
    np.testing.assert_array_equal(maps, by_hand)
    assert not any(module._forward_hooks for module in model.modules())


def loader(images: np.ndarray) -> list[tuple[Tensor, Tensor, Tensor]]:
    labels = torch.arange(N) % N_CLASSES
    concepts = torch.from_numpy(np.random.default_rng(1).permuted(np.tile([[0], [1]], (N // 2, N_CONCEPTS)), axis=0))
    return [(torch.from_numpy(images), labels, concepts)]


def concept_scores(cbm: nn.Module, images: np.ndarray) -> dict[str, list[float]]:
    _, labels, concepts = loader(images)[0]
    rng = np.random.default_rng(2)
    metrics = {
        "CGIM": CGIM(rng.random((N_CLASSES, N_CONCEPTS))),
        "CEM": CEM(concepts.numpy()),
        "CLM": CLM(alpha=3, points=rng.uniform(0, SIZE, (N, 2, 2)), part_of_concept=[0, 1, -1, 0], top_l=2),
    }
    return {name: metric(cbm, images, labels.numpy()) for name, metric in metrics.items()}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("stretch", ["backbone", "LayerFeatures"])
def test_concept_models_and_metrics(stretch, family, model, images):
    layer, (backbone, maps) = CLASSIFIERS[family][1], FAMILIES[family]
    if stretch == "backbone":
        # Both kinds of output, that of the backbone and its last hidden state, give one model.
        features = model.get_submodule(backbone)
        by_hand: nn.Module = Form(features, lambda output: output.last_hidden_state)
    else:
        maps = None
        features, by_hand = LayerFeatures(model, layer), LayerFeatures(Form(model, logits_of), f"model.{layer}")
    settings: dict[str, Any] = {"maps": maps, "n_pos": N // 2, "n_neg": N // 2, "method": "mean", "min_images": 1}
    cbm = PostHocCBM.fit(features, loader(images), **settings)
    expected = PostHocCBM.fit(by_hand, loader(images), **settings)
    x = torch.from_numpy(images)
    with torch.no_grad():
        torch.testing.assert_close(cbm(x), expected(x), rtol=0, atol=0)
        torch.testing.assert_close(cbm.concept_maps(x), expected.concept_maps(x), rtol=0, atol=0)
    scores = concept_scores(cbm, images)
    for name, expected_scores in concept_scores(expected, images).items():
        np.testing.assert_array_equal(scores[name], expected_scores, err_msg=name)


@pytest.mark.parametrize("name", FORMS)
def test_tuples_lists_and_dicts(name, images):
    plain = small_network()
    model = Form(plain, FORMS[name])
    targets = np.arange(N) % N_CLASSES
    for explain in (explain_func(GuidedBackprop), explain_func(DeepLift)):
        np.testing.assert_array_equal(explain(model, images, targets), explain(plain, images, targets))
    scores, expected = (score_all(form, copy.deepcopy(form), images) for form in (model, plain))
    for metric, expected_scores in expected.items():
        np.testing.assert_array_equal(scores[metric], expected_scores, err_msg=metric)
    x = torch.from_numpy(images)
    numbers = {"n_samples": 2, "n_random": 3, "target": 1}
    score = tcav_score(model, ["model.0"], x[:2] + 1, x[2:], x, **numbers).layers["model.0"]
    assert score == tcav_score(plain, ["0"], x[:2] + 1, x[2:], x, **numbers).layers["0"]


def test_a_pyramid_of_maps_is_its_deepest(images):
    """timm's `features_only` gives a list of maps, the deepest last."""
    with torch.random.fork_rng([]):
        pyramid = timm.create_model("resnet10t", features_only=True, out_indices=(0, 1, 2)).eval()
    x = torch.from_numpy(images)
    with torch.no_grad():
        expected = pyramid(x)[-1].mean((2, 3))
    torch.testing.assert_close(embed(pyramid, loader(images)).features, expected)
    # What is no map among them makes it the outputs of a classifier, the first of which counts.
    logits = torch.rand(2, 3)
    assert tensor_output((logits, torch.rand(2, 4, 5, 5))) is logits
    assert tensor_output([logits, logits + 1]) is logits


def test_outputs_without_a_tensor(images):
    plain = small_network()
    model = Form(plain, lambda logits: {"scores": "none"})
    # Captum says so itself.
    with pytest.raises(AttributeError, match="'dict' object has no attribute 'shape'"):
        explain_func(Saliency)(model, images, 0)
    # What only looks at a layer needs no output.
    activations = explain_func(LayerActivation, layer="model.0")(model, images)
    np.testing.assert_array_equal(activations, explain_func(LayerActivation, layer="0")(plain, images))
