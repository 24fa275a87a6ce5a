"""Models of PyC as chains: each stretch against the model's own queries, and the metrics on them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import quantus
import torch
from torch import Tensor, nn

from captum_concepts import BottleneckCBM, from_pyc
from captum_concepts.backbones.layers import LayerFeatures
from quantus_concepts import CEM, CGIM

torch_concepts = pytest.importorskip("torch_concepts", reason="the models are those of PyC")

CONCEPTS = ["red", "long", "spotted"]
IMAGES = torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))


def backbone() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(3, 5, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())


def pyc(
    task: str = "categorical", concepts: str = "binary", kind: str = "ConceptBottleneckModel", **settings: Any
) -> Any:
    # The task first, and one more among the concepts, so that no order holds by chance.
    annotations = torch_concepts.Annotations(
        labels=["bird", "red", "alive", "long", "spotted"],
        cardinalities=[4 if task == "categorical" else 1, 1, 1, 2 if concepts == "categorical" else 1, 1],
        types=[task, "binary", "binary", concepts, "binary"],
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return getattr(torch_concepts.nn, kind)(
            input_size=(3, 8, 8),
            annotations=annotations,
            task_names=["bird", "alive"],
            backbone=backbone(),
            latent_size=5,
            **settings,
        ).eval()


@pytest.fixture(scope="module", params=["in plates", "one by one"])
def model(request: pytest.FixtureRequest) -> Any:
    return pyc(plate=request.param == "in plates")


@torch.no_grad()
def test_each_stretch_is_the_models_own(model: Any) -> None:
    chain = from_pyc(model, task="bird")
    assert isinstance(chain, BottleneckCBM)
    logits = model(query=[*CONCEPTS, "bird", "alive"], input=IMAGES).logits
    values = chain.concept_predictor(IMAGES)
    torch.testing.assert_close(values, torch.cat([logits[name].tensor for name in CONCEPTS], 1).sigmoid())
    torch.testing.assert_close(chain(IMAGES), logits["bird"].tensor)
    torch.testing.assert_close(chain.head(values), logits["bird"].tensor)
    alive = from_pyc(model, task="alive")(IMAGES)
    torch.testing.assert_close(alive, torch.cat([torch.zeros(4, 1), logits["alive"].tensor], 1))
    assert not chain.training


def test_training_the_model_changes_the_chain(model: Any) -> None:
    chain = from_pyc(nn.DataParallel(model), task="bird")
    values = torch.full((2, 3), 0.5, requires_grad=True)
    logits = chain.head(values)
    (gradient,) = torch.autograd.grad(logits[:, 1].sum(), values)
    assert gradient.abs().min() > 0
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2)
    try:
        assert not torch.equal(chain.head(values), logits)
    finally:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.div_(2)


@torch.no_grad()
def test_maps_sum_to_the_logit_without_its_bias(model: Any) -> None:
    features = LayerFeatures(model.backbone, "1")
    chain = from_pyc(model, features, task="bird")
    maps = chain.concept_maps(IMAGES)
    assert maps.shape == (4, 3, 6, 6)
    latent = model.backbone(IMAGES)
    logits = chain.concept_layer.layer(latent) - chain.concept_layer.layer(torch.zeros(1, 5))
    torch.testing.assert_close(5 * maps.mean((2, 3)), logits)
    torch.testing.assert_close(chain.concept_maps(IMAGES, [2, 0]), maps[:, [2, 0]])
    targets = torch.tensor([[0], [1], [2], [0]])
    torch.testing.assert_close(chain.concept_maps(IMAGES, targets)[:, 0], maps[torch.arange(4), targets[:, 0]])
    with pytest.raises(ValueError, match="`maps`"):
        from_pyc(model, task="bird").concept_maps(IMAGES)


def test_concept_metrics_in_one_quantus_call(model: Any) -> None:
    chain = from_pyc(model, task="bird")
    images = IMAGES.numpy()
    with torch.no_grad():
        classes = chain(IMAGES).argmax(1).numpy()
    labels = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0]])
    scores = quantus.evaluate(
        metrics={"CGIM": CGIM(np.eye(4, 3), per="concept"), "CEM": CEM(labels)},
        xai_methods={"Gradient": {"method": "Gradient"}},
        model=chain,
        x_batch=images,
        y_batch=classes,
        explain_func_kwargs={},
    )
    assert len(scores["Gradient"]["CEM"]) == 4
    assert set(scores["Gradient"]["CEM"]) <= {0.0, 1.0}
    assert len(scores["Gradient"]["CGIM"]) == 3


@pytest.mark.parametrize("plate", [True, False])
@torch.no_grad()
def test_each_state_of_a_categorical_concept_is_a_value(plate: bool) -> None:
    model = pyc(concepts="categorical", plate=plate)
    chain = from_pyc(model, LayerFeatures(model.backbone, "1"), task="bird")
    logits = model(query=[*CONCEPTS, "bird"], input=IMAGES).logits
    red, long, spotted = (logits[name].tensor for name in CONCEPTS)
    values = chain.concept_predictor(IMAGES)
    assert values.shape == (4, 4)
    torch.testing.assert_close(values, torch.cat([red.sigmoid(), long.softmax(1), spotted.sigmoid()], 1))
    torch.testing.assert_close(chain(IMAGES), logits["bird"].tensor)
    assert chain.bounded
    # A correction names a state, and is what the model makes of it as evidence.
    states = [f"long::{state}" for state in model.concept_annotations.concept("long").states or (0, 1)]
    torch.testing.assert_close(
        chain.intervene(IMAGES, states, [0, 1]),
        chain.head(torch.cat([values[:, :1], torch.tensor([[0.0, 1.0]]).expand(4, -1), values[:, 3:]], 1)),
    )
    assert chain.concept_maps(IMAGES, [3, 0]).shape == (4, 2, 6, 6)
    torch.testing.assert_close(chain.concept_maps(IMAGES, [3]), chain.concept_maps(IMAGES)[:, 3:])


def black_box() -> nn.Module:
    annotations = torch_concepts.Annotations(labels=["bird", "red"], cardinalities=[1, 1], types=["binary"] * 2)
    return torch_concepts.nn.BlackBox(input_size=5, annotations=annotations, latent_size=5)


REFUSED = {
    "a module of another library": (lambda: nn.Linear(2, 2), {}, "got Linear. Build the chain"),
    "a model of embeddings": (
        lambda: pyc(kind="ConceptEmbeddingModel"),
        {"task": "bird"},
        "got ConceptEmbeddingModel. Its tasks read embeddings",
    ),
    "a number as a concept": (
        lambda: pyc(concepts="continuous"),
        {"task": "bird"},
        r"\['long'\] \(1 in all\) are of another type \('continuous' for one\)",
    ),
    "a black box": (black_box, {}, "got BlackBox. Build the chain"),
    "another inference": (
        lambda: pyc(inference=torch_concepts.nn.AncestralSamplingInference),
        {"task": "bird"},
        "setup_inference",
    ),
    "two tasks": (pyc, {}, r"`task` to name one of the tasks of the model, \['bird', 'alive'\]"),
    "features that are none": (pyc, {"features": "resnet18", "task": "bird"}, "`features`"),
    "features cut too early": (
        pyc,
        {"features": nn.Conv2d(3, 5, 3), "task": "bird"},
        r"`features`, pooled, to give the latent \(N, 5\) .* of width 5",
    ),
    "no such pool": (pyc, {"pool": "max", "task": "bird"}, "`pool`"),
    "no such maps": (pyc, {"maps": 3, "task": "bird"}, "`maps`"),
    "no such task": (pyc, {"task": "brid"}, "Did you mean 'bird'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_other_models_are_refused_with_what_to_pass(case: str) -> None:
    build, arguments, message = REFUSED[case]
    with pytest.raises((TypeError, ValueError), match=message):
        from_pyc(build(), **arguments)


def test_the_whole_model_is_no_backbone(model: Any) -> None:
    with pytest.raises(ValueError, match="`features` to be the backbone of the model"):
        from_pyc(model, model, task="bird")


def test_a_categorical_concept_is_corrected_by_its_states() -> None:
    chain = from_pyc(pyc(concepts="categorical"), task="bird")
    with pytest.raises(ValueError, match=r"none is 'long'\. The nearest are \['long::1', 'long::0'\]"):
        chain.intervene(IMAGES, "long", 1)


def test_models_of_lightning() -> None:
    loss = torch_concepts.nn.ConceptLoss(binary=nn.BCEWithLogitsLoss(), categorical=nn.CrossEntropyLoss())
    model = pyc(lightning=True, loss=loss, optim_class=torch.optim.Adam, optim_kwargs={"lr": 0.1})
    values: Tensor = from_pyc(model, task="bird").concept_predictor(IMAGES)
    assert values.shape == (4, 3)
