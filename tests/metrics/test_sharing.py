"""`shared_passes`: how often a model runs inside and outside a block, and that no score is stale."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import quantus
import torch

from metric_inputs import predicted
from quantus_concepts import CEM, CGIM, CLM, evaluate, shared_passes
from tiny_models import N_CLASSES, N_CONCEPTS, SharingConceptModel

N, SIZE, BATCH = 12, 12, 4
FEATURES = 4 * 6 * (SIZE // 3) ** 2 * BATCH  # bytes of the features of one batch


@pytest.fixture
def images():
    return np.random.default_rng(0).normal(size=(N, 3, SIZE, SIZE)).astype(np.float32)


@pytest.fixture
def model():
    return SharingConceptModel()


def make_metrics() -> dict[str, Any]:
    rng = np.random.default_rng(1)
    parts = np.array([0, 1, -1, 2, 0])
    return {
        "CGIM": CGIM(rng.uniform(size=(N_CLASSES, N_CONCEPTS))),
        "CEM": CEM(rng.integers(0, 2, (N, N_CONCEPTS)), top_l=2),
        "CLM": CLM(6.0, points=rng.uniform(0, SIZE, (N, 3, 2)), part_of_concept=parts, top_l=2),
    }


def run(
    function: Callable[..., Any], model: SharingConceptModel, images: np.ndarray, names: tuple[str, ...], n_methods: int
) -> tuple[Any, int]:
    """Return the results of an evaluation, and how many batches went through the backbone."""
    every = make_metrics()
    methods = {f"method {number}": np.ones((N, 1, SIZE, SIZE), np.float32) for number in range(n_methods)}
    call = {"model": model, "x_batch": images, "y_batch": predicted(model, images), "agg_func": list}
    call |= {"explain_func_kwargs": {}, "call_kwargs": {"call": {"batch_size": BATCH}}, "verbose": False}
    before = model.runs
    results = function({name: every[name] for name in names}, methods, **call)
    return results, model.runs - before


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize(("names", "n_methods"), [(("CEM",), 1), (("CGIM", "CEM", "CLM"), 3)])
def test_the_backbone_sees_each_image_once_in_a_block(names, n_methods, channels_last, model, images):
    if channels_last:  # in memory, as photographs are stored
        images = images.transpose(0, 2, 3, 1).copy().transpose(0, 3, 1, 2)
    alone, n_alone = run(quantus.evaluate, model, images, names, n_methods)
    assert n_alone == len(names) * n_methods * N // BATCH
    with shared_passes():
        stock, n_stock = run(quantus.evaluate, model, images, names, n_methods)
    ours, n_ours = run(evaluate, model, images, names, n_methods)
    assert n_stock == n_ours == N // BATCH
    np.testing.assert_equal(stock, alone)
    np.testing.assert_equal(ours.results, alone)


def test_other_images_rows_and_models_are_not_mixed_up(images):
    models = SharingConceptModel(), SharingConceptModel(seed=3)
    arrays = images, images[:, :, ::-1].copy()
    expected, shared = [], []
    for into, block in ((expected, False), (shared, True)):
        metric = make_metrics()["CLM"]
        with shared_passes() if block else shared_passes(memory=0):
            for model in models:
                for array in arrays:
                    for batch_size in (N, 5, N):
                        into.append(metric(model, array, predicted(models[0], images), batch_size=batch_size))
    np.testing.assert_allclose(shared, expected, rtol=1e-5)
    assert len({tuple(scores) for scores in shared}) == 4


def test_what_is_kept_is_bounded_and_freed_with_the_block(images):
    model = SharingConceptModel()
    y = predicted(model, images)
    with shared_passes(memory=1.5 * FEATURES / 2**20):
        metrics = make_metrics()
        before = model.runs
        metrics["CEM"](model, images, y, batch_size=BATCH)
        assert model.runs == before + 3
        # Values and logits of every batch are kept, features of the first batch only.
        metrics["CGIM"](model, images, y, batch_size=BATCH)
        assert model.runs == before + 3
        metrics["CLM"](model, images, y, batch_size=BATCH)
        assert model.runs == before + 5
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


def test_a_block_ends_with_an_exception(model, images):
    y = predicted(model, images)
    metric = make_metrics()["CEM"]
    metric(model, images, y)
    with pytest.raises(ValueError, match="y_batch"), shared_passes():
        metric(model, images, y + N_CLASSES)
    before = model.runs
    metric(model, images, y)
    assert model.runs == before + 1


class WritesToFeatures(SharingConceptModel):
    """Its pooling writes to the features, as an in-place activation does."""

    def values_from_features(self, features: torch.Tensor) -> torch.Tensor:
        return super().values_from_features(features.sub_(1.0))


def test_features_that_a_model_writes_to_are_computed_again(images):
    models = WritesToFeatures(), WritesToFeatures(seed=3)
    models[1].concept_predictor.features = models[0].features
    y = predicted(models[0], images)

    def score():
        return [metric(model, images, y) for model in models for metric in make_metrics().values()]

    expected = score()
    with shared_passes():
        np.testing.assert_equal(score(), expected)
