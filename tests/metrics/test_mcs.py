"""MCS as a Quantus metric."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch

import known_truth
from known_truth import Reader, World
from quantus_concepts import MCS
from reference import attribution as reference

score = partial(known_truth.score, "MCS", normalise=True)


# a map of what the model uses is 1 there under the one and 0 under the other; the rest does not look at the model
@pytest.mark.parametrize(
    ("explainer", "expected"), [("knows", 1), ("always", 0), ("never", 0), ("constant", 0), ("zero", 0)]
)
@pytest.mark.parametrize("normalise", [False, True])
def test_controls(explainer, expected, normalise, world):
    scores = score(world, getattr(known_truth, explainer), normalise=normalise)
    np.testing.assert_array_equal(scores, [expected] * 8)


def test_by_hand_each_model_explains_its_own_label(world):
    """Maps that hold the explained class: 0.5 and 0.25 inside the mask, normalised or not by nothing."""

    def explain(model, inputs, targets, **kwargs):
        value = 0.5 if model.uses == "object" else 0.25
        return np.broadcast_to((value + 0.125 * targets)[:, None, None, None], (len(inputs), 1, 12, 12))

    expected = 0.25 + 0.125 * (world.object_labels - world.scene_labels)
    np.testing.assert_allclose(score(world, explain, normalise=False), expected)
    assert len(set(expected)) == 3


@pytest.mark.parametrize("normalise", [True, False])
def test_agrees_with_the_reference(normalise, world):
    rng = np.random.default_rng(0)
    maps = {"object": rng.normal(size=(8, 3, 12, 12)), "scene": rng.normal(size=(8, 3, 12, 12))}

    def explain(model, inputs, targets, **kwargs):
        return known_truth.looked_up(world.images, maps[model.uses])(model, inputs, targets)

    first, second = (
        reference.concept_attribution(reference.positive_percentile(part) if normalise else part, world.masks)
        for part in (maps["object"], maps["scene"])
    )
    np.testing.assert_allclose(score(world, explain, normalise=normalise), reference.mcs(first, second), atol=1e-6)


def test_abs_counts_what_is_negative(world):
    def negative(**kwargs):
        return -known_truth.knows(**kwargs)

    assert score(world, negative) == [0.0] * 8
    assert score(world, negative, abs=True) == [1.0] * 8


def test_a_random_region_is_the_baseline():
    world = World(1000)
    scores = np.array(score(world, random_region=True, seed=1))
    # under the one model the map is 1 on 20 pixels, under the other on the other 124; the region is 20 of 144 pixels
    expected = (20 - 124) / 144
    assert abs(scores.mean() - expected) < 2.576 * scores.std() / 1000**0.5
    np.testing.assert_array_equal(score(world, random_region=True, seed=1, call={"batch_size": 7}), scores)
    assert (score(world, random_region=True, seed=2) != scores).any()


def test_a_second_model_with_other_classes(world):
    class More(Reader):
        def forward(self, x):
            return torch.nn.functional.pad(super().forward(x), (3, 0))

    metric = MCS(More("scene"), world.scene_labels + 3, world.masks)
    scores = metric(world.object_model, world.images, world.object_labels, explain_func=known_truth.knows)
    assert scores == [1.0] * 8


def test_which_model_misclassifies(world):
    world.scene_labels[[1, 2]] = 1 - world.scene_labels[[1, 2]]
    labels = world.object_labels.copy()
    labels[[2, 5, 6]] = 1 - labels[[2, 5, 6]]
    metric, call = known_truth.metric_and_call("MCS", world, call={"y_batch": labels}, disable_warnings=True)
    assert np.flatnonzero(np.isnan(metric(**call))).tolist() == [1, 2, 5, 6]
    # The third image is wrong for both, and counts once. Labels of their own come before the explained classes.
    assert metric.records[-1].reasons == {
        "the model misclassifies the image": 3,
        "the contrast model misclassifies the image": 1,
    }
    metric, call = known_truth.metric_and_call("MCS", world, labels=labels, disable_warnings=True)
    assert np.flatnonzero(np.isnan(metric(**call))).tolist() == [1, 2, 5, 6]
