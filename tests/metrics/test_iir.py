"""IIR as a Quantus metric."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import quantus
import torch
from quantus.helpers.enums import ScoreDirection
from torch import nn

import known_truth
from known_truth import World
from quantus_concepts import IIR, Patch, optimise_patch, shared_passes
from reference import attribution as reference

score = partial(known_truth.score, "IIR")


# inside the mask without and with the patch: 1 and 1; 0.2 and 1; 0.2 and 0; 0.3 and 0.3; 0 and 0
@pytest.mark.parametrize(
    ("explainer", "expected", "change"),
    [("knows", 1, 0), ("always", 0, 4), ("never", 0, 1), ("constant", 1, 0), ("zero", np.nan, np.nan)],
)
def test_controls(explainer, expected, change, world):
    explain = getattr(known_truth, explainer)
    metric, call = known_truth.metric_and_call("IIR", world, explain, disable_warnings=True)
    np.testing.assert_array_equal(metric(**call), [expected] * 8)
    # A map of zero has nothing inside the mask that a change could be relative to.
    assert sum(metric.records[-1].reasons.values()) == (8 if explainer == "zero" else 0)
    np.testing.assert_allclose(score(world, explain, average=True), [change] * 8)


@pytest.mark.parametrize("normalise", [True, False])
def test_agrees_with_the_reference(normalise, world):
    rng = np.random.default_rng(0)
    maps = rng.normal(size=(8, 3, 12, 12))
    maps = np.concatenate([maps, maps + 0.2 * rng.normal(size=maps.shape)])
    explain = known_truth.looked_up(np.concatenate([world.scenes, world.patched]), maps)
    treated = reference.positive_percentile(maps) if normalise else maps
    g = reference.concept_attribution(treated, np.concatenate([world.masks, world.masks]))
    scores = score(world, explain, normalise=normalise, average=True)
    np.testing.assert_allclose(scores, reference.perturbation(g[:8], g[8:]), atol=1e-6)
    for threshold in (0.02, 0.1):
        scores = score(world, explain, normalise=normalise, threshold=threshold)
        np.testing.assert_array_equal(scores, reference.iir(g[:8], g[8:], threshold))


def test_direction_is_that_of_the_score(world):
    assert IIR(world.patched).score_direction == ScoreDirection.HIGHER
    assert IIR(world.patched, average=True).score_direction == ScoreDirection.LOWER
    # Which interval its mean has.
    assert (IIR(world.patched).bounds, IIR(world.patched, average=True).bounds) == ((0, 1), (0, np.inf))
    assert IIR.score_direction == ScoreDirection.HIGHER


def test_labels_of_their_own_say_which_images_are_right(world):
    world.scene_labels[3] = 1 - world.scene_labels[3]
    assert score(world, labels=World().scene_labels) == [1.0] * 8


class TestConvergence:
    """Patches that the model sees are left out, counted and reported."""

    @pytest.fixture
    def visible(self, world):
        # far enough for the logits of images 1 and 4, the second to the other class
        for i, by in ((1, 0.2), (4, 5.0)):
            sign = 1 if world.scene_labels[i] == 0 else -1
            world.patched[i, known_truth.SCENE] += sign * by * world.masks[i, 0]
        return world

    def test_unconverged_are_undefined_and_counted(self, visible):
        metric = IIR(visible.patched, masks=visible.masks, tolerance=0.01, normalise=False)
        assert np.isnan(metric.converged_share)
        with pytest.warns(UserWarning, match=r"IIR: scores are NaN where the model sees the patch .* \(2 of 8 samples"):
            scores = metric(visible.blind, visible.scenes, visible.scene_labels, explain_func=known_truth.knows)
        np.testing.assert_array_equal(np.isnan(scores), np.isin(np.arange(8), [1, 4]))
        assert metric.records[-1].reasons == {"the model sees the patch (`converged` is false)": 2}
        assert metric.converged_share == 6 / 8
        assert metric.converged.tolist() == [True, False, True, True, False, True, True, True]

    def test_distance_and_size_by_formula(self, visible):
        metric = IIR(visible.patched, masks=visible.masks, disable_warnings=True)
        metric(visible.blind, visible.scenes, visible.scene_labels, explain_func=known_truth.knows, batch_size=3)
        means = [images[:, known_truth.SCENE].mean((1, 2)) for images in (visible.scenes, visible.patched)]
        before, after = (np.stack([1 - mean, mean], 1) for mean in means)
        expected = np.linalg.norm(after - before, axis=1) / np.linalg.norm(before, axis=1)
        np.testing.assert_allclose(metric.logit_distance, expected, atol=1e-6)
        difference = (visible.patched - visible.scenes).reshape(8, -1)
        np.testing.assert_allclose(metric.patch_size, np.linalg.norm(difference, axis=1), rtol=1e-6)

    def test_tolerance(self, visible):
        # The class must not change with any tolerance.
        metric = IIR(visible.patched, masks=visible.masks, tolerance=100.0, disable_warnings=True)
        metric(visible.blind, visible.scenes, visible.scene_labels, explain_func=known_truth.knows)
        assert np.flatnonzero(~metric.converged).tolist() == [4]
        patch = TestPatches.patch(tolerance=0.2)
        assert (IIR(patch=patch).tolerance, IIR(patch=patch, tolerance=0.3).tolerance) == (0.2, 0.3)


class Pixels(nn.Module):
    """Reads every pixel a little."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self.linear = nn.Linear(3 * known_truth.SIZE**2, 3)
        with torch.no_grad():
            weight = torch.randn(self.linear.weight.shape, generator=torch.Generator().manual_seed(seed))
            self.linear.weight.copy_(0.02 * weight)
            self.linear.bias.copy_(torch.tensor([3.0, 0.0, -1.0]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x.flatten(1))


class TestPatches:
    """`patch=` makes the patched images."""

    @pytest.fixture
    def model(self):
        return Pixels().requires_grad_(False).eval()

    @pytest.fixture
    def normalised(self, world):
        return (world.scenes.clip(0, 1) - 0.5) / 0.25

    @pytest.fixture
    def classes(self, model, normalised):
        return model(torch.as_tensor(normalised)).argmax(1).numpy()

    @staticmethod
    def patch(**kwargs: Any) -> Patch:
        init = (np.random.default_rng(1).random((3, 12, 12), dtype=np.float32) - 0.5) / 0.25
        return Patch(**{"init": init, "mean": [0.5] * 3, "std": [0.25] * 3, "steps": 30, "tolerance": 0.1, **kwargs})

    def test_is_what_optimise_patch_makes(self, model, normalised, classes, world):
        patch = self.patch()
        metric = IIR(patch=patch, masks=world.masks, disable_warnings=True)
        explained_images = []

        def explain(model, inputs, targets, **kwargs):
            explained_images.append(np.array(inputs))
            return known_truth.gradient(model, inputs, targets)

        metric(model, normalised, classes, explain_func=explain)
        photographs, objects = normalised * 0.25 + 0.5, patch.init * 0.25 + 0.5
        settings = {"preprocess": lambda x: (x - 0.5) / 0.25, "steps": 30, "tolerance": 0.1}
        result = optimise_patch(model, photographs, world.masks, objects, **settings)
        np.testing.assert_allclose(explained_images[-1], (result.images - 0.5) / 0.25, atol=1e-5)
        np.testing.assert_allclose(metric.logit_distance, result.relative_distance, atol=1e-5)
        np.testing.assert_allclose(metric.patch_size, result.patch_size / 255 / 0.25, rtol=1e-4)
        np.testing.assert_array_equal(metric.converged, result.converged)
        assert result.converged.any()
        outside = np.broadcast_to(~world.masks, normalised.shape)
        np.testing.assert_array_equal(explained_images[-1][outside], normalised[outside])

    def test_made_once_for_all_methods_inside_a_block(self, model, normalised, classes, world, monkeypatch):
        patch_calls, make = [], Patch.make

        def counting(self, model, x, *args, **kwargs):
            patch_calls.append(len(x))
            return make(self, model, x, *args, **kwargs)

        monkeypatch.setattr(Patch, "make", counting)
        iir = IIR(patch=self.patch(), disable_warnings=True)
        methods = {"one": known_truth.gradient, "Saliency": {"method": "Saliency"}, "three": known_truth.gradient}

        def scores(model=model, masks=world.masks):
            call = {
                "s_batch": masks.astype(float),
                "explain_func_kwargs": {},
                "call_kwargs": {"call": {"batch_size": 3}},
            }
            return quantus.evaluate({"IIR": iir}, methods, model, normalised, classes, **call)

        alone = scores()
        assert patch_calls == [3, 3, 2] * 3
        patch_calls.clear()
        with shared_passes():
            np.testing.assert_equal(scores(), alone)
            assert patch_calls == [3, 3, 2]
            assert np.isfinite(alone["one"]["IIR"]).any()
            # Another model, and other masks, have patches of their own.
            scores(model=Pixels(1).eval())
            assert patch_calls == [3, 3, 2] * 2
            np.testing.assert_equal(scores(masks=np.roll(world.masks, 1, 3)), scores(masks=np.roll(world.masks, 1, 3)))
            assert patch_calls == [3, 3, 2] * 3

    def test_an_image_without_a_mask_has_no_patch(self, model, normalised, classes, world):
        expected = IIR(patch=self.patch(), masks=world.masks, disable_warnings=True)
        scores = expected(model, normalised, classes, explain_func=known_truth.gradient)
        world.masks[2] = False
        metric = IIR(patch=self.patch(), masks=world.masks)
        with pytest.warns(UserWarning, match=r"masks are empty or full, of samples 2 \(1 of 8 samples\)"):
            without_one = metric(model, normalised, classes, explain_func=known_truth.gradient)
        np.testing.assert_array_equal(without_one, np.where(np.arange(8) == 2, np.nan, scores))
        assert metric.patch_size[2] == 0
