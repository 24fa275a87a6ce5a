"""Metrics of rated maps, through their classifier."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from captum.attr import Saliency
from torch import Tensor, nn

from captum_concepts import explain_func
from quantus_concepts import Faithfulness
from quantus_concepts.metrics.pasta.rated_metrics import FAITHFULNESS, SENSITIVITY, measure_maps

N, SIZE = 4, 8
MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.25, 0.5)
FAST = {"thresholds": (6,), "n_samples": 3}
RNG = np.random.default_rng(0)
IMAGES = torch.as_tensor(RNG.random((N, 3, SIZE, SIZE))).float()
MAPS = torch.as_tensor(RNG.random((N, 4, 4)))
NORMALISED = {"mean": MEAN, "std": STD}


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


def measured(explain: Any = None, model: nn.Module | None = None, **settings: Any) -> dict[str, np.ndarray]:
    return measure_maps(model or Classifier(), IMAGES, MAPS, explain, **FAST | settings)


def test_without_a_method_there_is_no_sensitivity():
    assert list(measured()) == [*FAITHFULNESS]
    assert list(measured(constant)) == [*FAITHFULNESS, *SENSITIVITY]


@pytest.mark.parametrize(("name", "kind"), FAITHFULNESS.items())
def test_faithfulness_is_of_the_map_and_the_predicted_class(name, kind):
    values = measured(noise=0.3, **NORMALISED)[name]
    mean, std = (torch.tensor(value)[:, None, None] for value in (MEAN, STD))
    images, model = (IMAGES - mean) / std, Classifier().eval()
    maps = torch.nn.functional.interpolate(MAPS[:, None].float(), (SIZE, SIZE), mode="bilinear")[:, 0]
    with torch.no_grad():
        y = model(images).argmax(1).numpy()
    assert len(set(y)) > 1
    noise = 0.3 if kind in ("uniform", "gaussian") else None
    metric = Faithfulness(kind, thresholds=(6,), mean=MEAN, std=STD, noise=noise)
    np.testing.assert_allclose(values, metric(model, images.numpy(), y, maps.numpy()), rtol=1e-4)


@pytest.mark.parametrize("name", SENSITIVITY)
def test_an_explanation_that_never_changes_has_no_sensitivity(name):
    np.testing.assert_array_equal(measured(constant)[name], 0)


def picture(model: nn.Module, inputs: Any, targets: np.ndarray, **kwargs: Any) -> np.ndarray:
    mean, std = (np.array(value)[:, None, None] for value in (MEAN, STD))
    return np.asarray(inputs) * std + mean


# Where images are normalised, so is the noise.
@pytest.mark.parametrize(("explain", "settings"), [(inputs_themselves, {}), (picture, NORMALISED)])
def test_one_that_is_the_image_changes_by_the_noise(explain, settings):
    """The norm of 192 draws is sqrt(192) times their deviation, up to some per cent."""
    values = measured(explain, noise=0.1, **settings)
    norms = IMAGES.flatten(1).norm(dim=1).numpy()
    uniform, gaussian = (values[name] * norms / 192**0.5 for name in SENSITIVITY)
    np.testing.assert_allclose(uniform, 0.1 / 3**0.5, rtol=0.15)
    np.testing.assert_allclose(gaussian, 0.1, rtol=0.2)
    more = measured(explain, noise=0.1, n_samples=10, **settings)
    for name in SENSITIVITY:
        # The maximum of ten draws, the first three of which are the same.
        assert (more[name] >= values[name]).all()
        assert (more[name] > values[name]).any()


def test_a_method_that_fails_costs_its_sensitivity_only_and_the_model_keeps_its_mode():
    model = Classifier().train()
    with pytest.warns(UserWarning, match=r"NaN where the method failed: RuntimeError: out of ideas"):
        values = measured(failing, model)
    for name in SENSITIVITY:
        assert np.isnan(values[name]).all()
    assert np.isfinite(values["Faithfulness (black)"]).all()
    assert model.training


def test_no_value_depends_on_the_batch_size():
    expected, in_batches = measured(inputs_themselves), measured(inputs_themselves, batch_size=3)
    for name, values in expected.items():
        np.testing.assert_allclose(in_batches[name], values, rtol=1e-4)


def test_a_classifier_that_returns_no_tensor():
    class InADict(Classifier):
        def forward(self, images):
            return {"aux": images, "logits": super().forward(images)}

    saliency = explain_func(Saliency)
    expected, in_a_dict = measured(saliency, **NORMALISED), measured(saliency, InADict(), **NORMALISED)
    for name, values in expected.items():
        np.testing.assert_array_equal(in_a_dict[name], values)
        assert np.isfinite(values).all()
