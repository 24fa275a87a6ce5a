"""IDR as a Quantus metric."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import known_truth
from reference import attribution as reference

score = partial(known_truth.score, "IDR")


# inside the mask with and without the object: 0 and 1; 1 and 0.2; 0 and 0.2; equal; equal
@pytest.mark.parametrize(
    ("explainer", "expected"), [("knows", 1), ("always", 0), ("never", 1), ("constant", 0), ("zero", 0)]
)
def test_controls(explainer, expected, world):
    assert score(world, getattr(known_truth, explainer)) == [expected] * 8


@pytest.mark.parametrize("normalise", [True, False])
def test_agrees_with_the_reference(normalise, world):
    rng = np.random.default_rng(0)
    maps = rng.normal(size=(16, 3, 12, 12))
    explain = known_truth.looked_up(np.concatenate([world.images, world.scenes]), maps)
    treated = reference.positive_percentile(maps) if normalise else maps
    g = reference.concept_attribution(treated, np.concatenate([world.masks, world.masks]))
    np.testing.assert_array_equal(score(world, explain, normalise=normalise), reference.idr(g[:8], g[8:]))


def test_without_the_feature_the_same_class_is_explained(world):
    explained = []

    def explain(model, inputs, targets, **kwargs):
        explained.append((bool(known_truth.object_mask(inputs).any()), len(inputs), list(targets)))
        return known_truth.knows(model, inputs, targets)

    score(world, explain)
    assert (True, 8, list(world.scene_labels)) in explained
    assert (False, 8, list(world.scene_labels)) in explained


def test_images_classified_wrongly_with_or_without_the_feature_are_undefined(world):
    for images in (world.images, world.scenes):
        images[3, known_truth.SCENE] = 1 - images[3, known_truth.SCENE]
    # Inside the mask only: the counterpart shows something else there.
    world.scenes[5, known_truth.SCENE][world.masks[5, 0]] = 40 * (1 - 2 * world.scene_labels[5])
    metric, call = known_truth.metric_and_call("IDR", world, disable_warnings=True)
    np.testing.assert_array_equal(metric(**call), np.where(np.isin(np.arange(8), [3, 5]), np.nan, 1))
    reasons = {"the model misclassifies the image": 1, "the model misclassifies the counterpart": 1}
    assert metric.records[-1].reasons == reasons


def test_the_counterpart_is_not_the_image_itself(world):
    world.scenes[5] = world.images[5]
    with pytest.raises(ValueError, match=r"`counterpart` to differ from `x_batch` but image 5 is identical"):
        score(world)
    # An image without a mask has nothing to differ in.
    world.masks[5] = False
    np.testing.assert_array_equal(np.isnan(score(world)), np.arange(8) == 5)


def test_photographs_of_one_scene(world):
    # A fixed camera: the images are alike outside the masks, and counterparts were taken with another exposure.
    noise = np.random.default_rng(0).normal(0, 0.3, world.scenes.shape).astype(np.float32)
    assert score(world, counterpart=np.roll(world.scenes, 1, 0) + noise) is not None
