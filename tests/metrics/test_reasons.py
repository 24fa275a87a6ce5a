"""Each undefined score of MCS, IDR, IIR and Faithfulness is counted by reason, with one warning."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import known_truth
from known_truth import World
from quantus_concepts import IIR, Faithfulness

METRICS = ("MCS", "IDR", "IIR")


def run_metric(
    world: World, name: str, explain: Any = known_truth.knows, labels: Any = None, **settings: Any
) -> tuple[Any, list[float], list[str]]:
    """Return a metric after a call, its scores, and what it warned of."""
    metric, call = known_truth.metric_and_call(name, world, explain, **settings)
    if labels is not None:
        call["y_batch"] = labels(call["y_batch"])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        scores = metric(**call)
    return metric, scores, [str(warning.message) for warning in caught]


@pytest.mark.parametrize("name", METRICS)
def test_all_images_misclassified(name: str, world: World) -> None:
    metric, scores, warned = run_metric(world, name, labels=lambda classes: 1 - classes)
    assert np.isnan(scores).all()
    assert metric.records[-1].reasons == {"the model misclassifies the image": 8}
    assert warned == [f"{name}: scores are NaN where the model misclassifies the image (8 of 8 samples)."]


@pytest.mark.parametrize("name", METRICS)
def test_defined_scores_give_no_warning(name: str, world: World) -> None:
    metric, scores, warned = run_metric(world, name)
    assert np.isfinite(scores).all()
    assert (metric.records[-1].reasons, warned) == ({}, [])


@pytest.mark.parametrize(("name", "chance"), [("MCS", 0.0), ("IDR", 0.5), ("IIR", np.nan)])
def test_chance(name: str, chance: float, world: World) -> None:
    metric, _, _ = run_metric(world, name)
    np.testing.assert_equal(metric.records[-1].chance, chance)


def test_which_model(world: World) -> None:
    wrong = world.scene_labels.copy()
    wrong[[1, 2]] = 1 - wrong[[1, 2]]
    labels = world.object_labels.copy()
    labels[[2, 5, 6]] = 1 - labels[[2, 5, 6]]
    world.scene_labels = wrong
    metric, scores, _ = run_metric(world, "MCS", labels=lambda classes: labels)
    assert np.flatnonzero(np.isnan(scores)).tolist() == [1, 2, 5, 6]
    # the second image is wrong for both, and counts once
    assert metric.records[-1].reasons == {
        "the model misclassifies the image": 3,
        "the contrast model misclassifies the image": 1,
    }


@pytest.mark.parametrize("name", METRICS)
def test_each_sample_counts_once(name: str, world: World) -> None:
    """Images 0 and 1 have no mask, 1 and 2 are misclassified."""
    world.masks[:2] = False

    def labels(classes: np.ndarray) -> np.ndarray:
        return np.where(np.isin(np.arange(8), [1, 2]), 1 - classes, classes)

    metric, scores, warned = run_metric(world, name, labels=labels)
    assert np.flatnonzero(np.isnan(scores)).tolist() == [0, 1, 2]
    assert metric.records[-1].reasons == {
        "masks are empty or full, of samples 0, 1": 2,
        "the model misclassifies the image": 1,
    }
    assert len(warned) == 1


def test_attribution_of_zero(world: World) -> None:
    metric, scores, warned = run_metric(world, "IIR", known_truth.zero)
    assert np.isnan(scores).all()
    reason = "attributions are 0 inside the mask, so that no change is relative to them"
    assert metric.records[-1].reasons == {f"the explanation method failed: {reason}": 8}
    assert len(warned) == 1
    assert f"{reason} (8 of 8 samples)" in warned[0]


def test_counterpart_misclassified(world: World) -> None:
    # where the object is, which the model leaves out as long as it is there
    world.scenes[3, known_truth.SCENE, world.masks[3, 0]] += 10 if world.scene_labels[3] == 0 else -10
    metric, scores, _ = run_metric(world, "IDR")
    assert np.flatnonzero(np.isnan(scores)).tolist() == [3]
    assert metric.records[-1].reasons == {"the model misclassifies the counterpart": 1}


def test_share_converged(world: World) -> None:
    sign = 1 if world.scene_labels[4] == 0 else -1
    world.patched[4, known_truth.SCENE] += sign * 5 * world.masks[4, 0]
    metric, scores, _ = run_metric(world, "IIR")
    assert np.flatnonzero(np.isnan(scores)).tolist() == [4]
    assert metric.records[-1].reasons == {"the model sees the patch (`converged` is false)": 1}
    assert metric.converged_share == 7 / 8
    before = IIR(world.patched)
    assert np.isnan(before.converged_share)
    assert len(before.converged) == len(before.logit_distance) == 0


def test_a_counterpart_that_is_the_image(world: World) -> None:
    world.scenes[5] = world.images[5]
    with pytest.raises(ValueError, match=r"`counterpart` to differ from `x_batch` but image 5 is identical"):
        run_metric(world, "IDR")
    # an image without a mask has nothing to differ in
    world.masks[5] = False
    _, scores, _ = run_metric(world, "IDR")
    assert np.flatnonzero(np.isnan(scores)).tolist() == [5]


def test_faithfulness_has_no_chance_and_warns_of_constant_maps(world: World) -> None:
    metric = Faithfulness()
    with pytest.warns(UserWarning, match=r"the same at every pixel.*\(8 of 8 samples\)"):
        scores = metric(world.scene_model, world.images, world.scene_labels, np.ones_like(world.images))
    assert np.isnan(scores).all()
    assert np.isnan(metric.records[-1].chance)
    assert sum(metric.records[-1].reasons.values()) == 8
