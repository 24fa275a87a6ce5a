"""Metrics of rated explanations, through their classifiers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from captum.attr import Saliency
from torch import Tensor, nn

from captum_concepts import explain_func
from quantus_concepts import Faithfulness
from quantus_concepts.datasets.ratings.explanations import ConceptExplanation, Explanation, MapExplanation
from quantus_concepts.datasets.ratings.rated import RatedExplanations
from quantus_concepts.metrics import Explainer, metric_values
from quantus_concepts.metrics.pasta.rated_metrics import FAITHFULNESS, SENSITIVITY
from quantus_concepts.pasta.applications.correlations import sparseness

SIZE = 8
MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.25, 0.5)
FAST = {"thresholds": (6,), "n_samples": 3}


class Classifier(nn.Module):
    """Two linear maps of an image; dropout tells whether it is in eval mode."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        weights = torch.randn(3, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(seed))
        self.weights = nn.Parameter(weights / 5)
        self.dropout = nn.Dropout(0.5)

    def forward(self, images: Tensor) -> Tensor:
        return torch.einsum("nchw,kchw->nk", self.dropout(images), self.weights)


def constant(model: nn.Module, inputs: np.ndarray, targets: np.ndarray, **kwargs: Any) -> np.ndarray:
    return np.broadcast_to(np.arange(1.0, SIZE + 1), (len(inputs), 1, SIZE, SIZE)).copy()


def inputs_themselves(model: nn.Module, inputs: Any, targets: np.ndarray, **kwargs: Any) -> np.ndarray:
    return np.asarray(inputs)


def failing(model: nn.Module, inputs: Any, targets: np.ndarray, **kwargs: Any) -> np.ndarray:
    raise RuntimeError("out of ideas")


def rated(n: int = 12, size: int = SIZE) -> RatedExplanations:
    """Items of explainers a, b and c in turn; those of c are concepts."""
    rng = np.random.default_rng(0)
    explanations: list[Explanation] = [
        ConceptExplanation({"wing": 1.0})
        if index % 3 == 2
        else MapExplanation(torch.as_tensor(rng.random((3, size, size))).float(), torch.as_tensor(rng.random((4, 4))))
        for index in range(n)
    ]
    return RatedExplanations(
        explanations,
        rng.integers(1, 6, (n, 5, 6)).astype(float),
        np.arange(n).astype(str),
        np.array(["a", "b", "c"] * n)[:n],
        np.array(["cat"] * n),
        np.array(["set"] * n),
        np.array(["map", "map", "concepts"] * n)[:n],
        "made up",
    )


@pytest.fixture
def explainer() -> Explainer:
    return Explainer(Classifier(), inputs_themselves, mean=MEAN, std=STD)


def test_sparseness_needs_no_classifier() -> None:
    ratings = rated()
    (values,) = metric_values(ratings).values()
    np.testing.assert_array_equal(values, sparseness(ratings.explanations))
    assert np.isnan(values).tolist() == [False, False, True] * 4


def test_explanations_without_an_explainer_and_concepts_have_no_value(explainer: Explainer) -> None:
    values = metric_values(rated(), {"b": explainer, "c": explainer}, **FAST)
    assert list(values) == ["Sparseness", *FAITHFULNESS, *SENSITIVITY]
    for name in (*FAITHFULNESS, *SENSITIVITY):
        assert np.isfinite(values[name]).tolist() == [False, True, False] * 4


@pytest.mark.parametrize(("name", "kind"), FAITHFULNESS.items())
def test_faithfulness_is_of_the_rated_map_and_the_predicted_class(name: str, kind: str, explainer: Explainer) -> None:
    ratings = rated()
    values = metric_values(ratings, {"a": explainer}, noise=0.3, **FAST)[name]
    images, maps = explainer.inputs([ratings.explanations[index] for index in (0, 3, 6, 9)])
    np.testing.assert_allclose(images[1, 2] * 0.5 + 0.3, ratings.explanations[3].image[2], atol=1e-6)
    assert maps.shape == (4, SIZE, SIZE)
    model = explainer.model.eval()
    with torch.no_grad():
        y = model(images).argmax(1).numpy()
    assert len(set(y)) > 1
    noise = 0.3 if kind in ("uniform", "gaussian") else None
    metric = Faithfulness(kind, thresholds=(6,), mean=MEAN, std=STD, noise=noise)
    np.testing.assert_allclose(values[::3], metric(model, images.numpy(), y, maps.numpy()), rtol=1e-4)


class TestSensitivity:
    @pytest.mark.parametrize("name", SENSITIVITY)
    def test_an_explanation_that_never_changes_has_none(self, name: str) -> None:
        values = metric_values(rated(), {"a": Explainer(Classifier(), constant)}, **FAST)[name]
        np.testing.assert_array_equal(values[::3], 0)

    def test_one_that_is_the_image_changes_by_the_noise(self) -> None:
        """The norm of 192 draws is sqrt(192) times their deviation, up to some per cent."""
        ratings = rated()
        values = metric_values(ratings, {"a": Explainer(Classifier(), inputs_themselves)}, noise=0.1, **FAST)
        norms = np.array([float(ratings.explanations[index].image.norm()) for index in (0, 3, 6, 9)])
        uniform, gaussian = (values[name][::3] * norms / 192**0.5 for name in SENSITIVITY)
        np.testing.assert_allclose(uniform, 0.1 / 3**0.5, rtol=0.15)
        np.testing.assert_allclose(gaussian, 0.1, rtol=0.2)
        more = metric_values(ratings, {"a": Explainer(Classifier(), inputs_themselves)}, noise=0.1, thresholds=(6,))
        for name in SENSITIVITY:
            # the maximum of ten draws, the first three of which are the same
            assert (more[name][::3] >= values[name][::3]).all()
            assert (more[name][::3] > values[name][::3]).any()

    def test_noise_is_in_units_of_the_picture(self, explainer: Explainer) -> None:
        """Where images are normalised, so is the noise: an explanation in the picture's units sees the same."""

        def picture(model: nn.Module, inputs: Any, targets: np.ndarray, **kwargs: Any) -> np.ndarray:
            mean, std = (np.array(value)[:, None, None] for value in (MEAN, STD))
            return np.asarray(inputs) * std + mean

        plain = metric_values(rated(), {"a": Explainer(Classifier(), inputs_themselves)}, **FAST)
        normalised = metric_values(rated(), {"a": Explainer(Classifier(), picture, mean=MEAN, std=STD)}, **FAST)
        for name in SENSITIVITY:
            # other draws, since the images are others
            np.testing.assert_allclose(normalised[name][::3], plain[name][::3], rtol=0.3)

    def test_a_method_that_fails_costs_its_sensitivity_only(self) -> None:
        explainers = {"a": Explainer(Classifier(), failing), "b": Explainer(Classifier(), inputs_themselves)}
        with pytest.warns(UserWarning, match=r"NaN where explainer 'a' failed: RuntimeError: out of ideas"):
            values = metric_values(rated(), explainers, **FAST)
        for name in SENSITIVITY:
            assert np.isfinite(values[name]).tolist() == [False, True, False] * 4
        assert np.isfinite(values["Faithfulness (black)"][::3]).all()
        without = metric_values(rated(), {"a": Explainer(Classifier())}, **FAST)
        assert np.isnan(without["MaxSensitivity (uniform)"]).all()


def test_batches_and_sizes(explainer: Explainer) -> None:
    expected = metric_values(rated(), {"a": explainer}, **FAST)
    in_batches = metric_values(rated(), {"a": explainer}, batch_size=3, num_workers=1, **FAST)
    for name, values in expected.items():
        np.testing.assert_allclose(in_batches[name], values, rtol=1e-4)
    # images of two sizes, brought to that of the classifier
    mixed, larger = rated(), rated(size=20)
    explanations = [*mixed.explanations[:6], *larger.explanations[6:]]
    ratings = RatedExplanations(**{**_fields(mixed), "explanations": explanations})
    resizing = Explainer(Classifier(), inputs_themselves, mean=MEAN, std=STD, size=(SIZE, SIZE))
    resized = metric_values(ratings, {"a": resizing}, **FAST)
    for name, values in expected.items():
        np.testing.assert_allclose(resized[name][:6], values[:6], rtol=1e-4)
        assert np.isfinite(resized[name][6::3]).all()


def test_a_classifier_that_returns_no_tensor(explainer: Explainer) -> None:
    class InADict(Classifier):
        def forward(self, images: Tensor) -> Any:
            return {"aux": images, "logits": super().forward(images)}

    saliency = explain_func(Saliency)
    expected = metric_values(rated(), {"a": Explainer(Classifier(), saliency, mean=MEAN, std=STD)}, **FAST)
    in_a_dict = metric_values(rated(), {"a": Explainer(InADict(), saliency, mean=MEAN, std=STD)}, **FAST)
    for name, values in expected.items():
        np.testing.assert_array_equal(in_a_dict[name], values)
        assert np.isfinite(values[::3]).all()


def _fields(ratings: RatedExplanations) -> dict[str, Any]:
    names = ("votes", "image_ids", "explainer_ids", "labels", "datasets", "modalities", "name")
    return {name: getattr(ratings, name) for name in names}


def test_nothing_is_changed(explainer: Explainer) -> None:
    model = explainer.model.train()
    np_state, torch_state = np.random.get_state()[1].tobytes(), torch.get_rng_state()  # noqa: NPY002
    first = metric_values(rated(), {"a": explainer}, **FAST)
    second = metric_values(rated(), {"a": explainer}, **FAST)
    for name in first:
        np.testing.assert_array_equal(first[name], second[name])
    other = metric_values(rated(), {"a": explainer}, seed=1, **FAST)
    assert (other["MaxSensitivity (uniform)"][::3] != first["MaxSensitivity (uniform)"][::3]).all()
    assert model.training
    assert model.dropout.training
    assert model.weights.grad is None
    assert np_state == np.random.get_state()[1].tobytes()  # noqa: NPY002
    assert torch.equal(torch_state, torch.get_rng_state())


CASES: dict[str, tuple[Any, type[Exception], str]] = {
    "an explainer nobody rated": (
        lambda e: metric_values(rated(), {"aa": e}),
        ValueError,
        r"explainer ids but got 'aa'\. Did you mean 'a'",
    ),
    "a function for an explainer": (
        lambda e: metric_values(rated(), {"a": constant}),
        TypeError,
        r"an Explainer under 'a' but got function",
    ),
    "a model that is none": (lambda e: Explainer(constant), TypeError, r"`model` to be a torch.nn.Module"),
    "half a normalisation": (lambda e: Explainer(Classifier(), std=STD), ValueError, r"`mean` and `std` together"),
}


@pytest.mark.parametrize("case", CASES)
def test_bad_input(case: str, explainer: Explainer) -> None:
    call, error, match = CASES[case]
    with pytest.raises(error, match=match):
        call(explainer)
