"""What MCS, IDR and IIR share: masks, reasons, the check that a method repeats itself, methods that fail."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import pytest
import quantus
import torch
from captum.attr import NoiseTunnel, Saliency

import known_truth
from captum_concepts import explain_func
from known_truth import World
from quantus_concepts import IDR, IIR, MCS, Faithfulness, positive_percentile, shared_passes
from quantus_concepts.functional.attribution.faithfulness import pixel_counts
from tiny_models import TinyConceptModel

N = 8
NAMES = ["MCS", "IDR", "IIR"]


def metric(name: str, world: World, **settings: Any) -> Any:
    return known_truth.metric_and_call(name, world, **settings)[0]


def call(name: str, world: World, **arguments: Any) -> dict[str, Any]:
    return known_truth.metric_and_call(name, world, call=arguments)[1]


@pytest.mark.parametrize("name", NAMES)
def test_masks_bound_come_before_those_of_the_call(name, world):
    arguments = call(name, world, explain_func=known_truth.random)
    expected = metric(name, world)(**arguments)
    assert len(set(expected)) > 1
    for masks in (world.masks[:, 0].astype(float), torch.as_tensor(world.masks)):
        assert metric(name, world, masks=masks)(**arguments) == expected
    assert metric(name, world, masks=~world.masks)(**arguments, custom_batch={"masks": world.masks}) == expected
    other_masks = world.masks | np.roll(world.masks, 6, 3)
    assert metric(name, world)(**arguments, s_batch=other_masks) == expected
    assert metric(name, world, masks=None)(**arguments, s_batch=other_masks) != expected


@pytest.mark.parametrize("name", NAMES)
def test_an_undefined_score_has_one_reason_and_a_call_one_warning(name, world):
    """Images 0 and 5 have no mask, 1 and 5 are misclassified."""
    tested = metric(name, world)
    assert tested(**call(name, world)) == [1] * N
    assert tested.records[-1].reasons == {}
    np.testing.assert_equal(tested.records[-1].chance, {"MCS": 0, "IDR": 0.5, "IIR": np.nan}[name])
    world.masks[0], world.masks[5] = False, True
    arguments = call(name, world)
    arguments["y_batch"] = np.where(np.isin(np.arange(N), [1, 5]), 1 - arguments["y_batch"], arguments["y_batch"])
    tested = metric(name, world)
    with pytest.warns(UserWarning, match=rf"^{name}: scores are NaN where .* samples 0, 5 \(2 of 8 samp") as caught:
        scores = tested(**arguments)
    assert len(caught) == 1
    np.testing.assert_array_equal(scores, np.where(np.isin(np.arange(N), [0, 1, 5]), np.nan, 1))
    assert tested.undefined == 3
    assert tested.records[-1].reasons == {
        "masks are empty or full, of samples 0, 5": 2,
        "the model misclassifies the image": 1,
    }


@pytest.mark.parametrize("name", NAMES)
def test_normalisation_is_by_sample(name, world):
    """A scale of its own for each image changes nothing, and channels may be missing."""

    def scaled(model, inputs, targets, **kwargs):
        scale = 10.0 ** (np.asarray(inputs).sum((1, 2, 3)) % 7).round()
        return (known_truth.random(model, inputs, targets) * scale[:, None, None, None])[:, 0]

    expected = metric(name, world, normalise=True)(**call(name, world, explain_func=known_truth.random))
    scores = metric(name, world, normalise=True)(**call(name, world, explain_func=scaled))
    np.testing.assert_allclose(scores, expected, atol=1e-9)


def test_normalise_func_and_its_arguments(world):
    half = metric("MCS", world, normalise=True, normalise_func_kwargs={"percentile": 50})
    partial = metric("MCS", world, normalise=True, normalise_func=lambda a: positive_percentile(a, 50))
    arguments = call("MCS", world, explain_func=known_truth.random)
    scores = half(**arguments)
    assert scores == partial(**arguments)
    assert scores != metric("MCS", world, normalise=True)(**arguments)
    host = metric("MCS", world, normalise=True, normalise_func=quantus.normalise_by_max)
    assert np.isfinite(host(**arguments)).all()


def raises(model: Any, inputs: Any, targets: Any, **kwargs: Any) -> np.ndarray:
    raise RuntimeError("no gradient")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("again", [True, False])
def test_a_method_that_fails_for_the_check_or_for_the_second_explanation(again, name, world):
    def second(model, inputs, targets, **kwargs):
        elsewhere = model.uses == "scene" if name == "MCS" else known_truth.object_mask(inputs).any() == (name == "IIR")
        return (raises if again or elsewhere else known_truth.random)(model, inputs, targets)

    arguments = call(name, world, explain_func=second)
    if again:
        arguments["a_batch"] = known_truth.random(arguments["model"], arguments["x_batch"], arguments["y_batch"])
    with pytest.warns(UserWarning, match=f"^{name}: .* failed: .*RuntimeError: no gradient") as caught:
        scores = metric(name, world, labels=arguments["y_batch"])(**arguments)
    assert np.isnan(scores).all()
    assert len(caught) == 1


@pytest.mark.parametrize("name", NAMES)
def test_one_broken_map_costs_one_score(name, world):
    def explain(model, inputs, targets, **kwargs):
        maps = known_truth.random(model, inputs, targets)
        maps[(np.asarray(inputs) == call(name, world)["x_batch"][0]).all((1, 2, 3)), 0, 0, 0] = np.nan
        return maps

    for normalise in (True, False):
        with pytest.warns(UserWarning, match=r"NaN or infinity \(1 of 8 samples\)"):
            scores = metric(name, world, normalise=normalise)(**call(name, world, explain_func=explain))
        np.testing.assert_array_equal(np.isnan(scores), np.arange(N) == 0)


@pytest.mark.parametrize("name", ["MCS", "IIR"])
class TestTheSameMethod:
    """Two samples are explained again, and must equal the explanations passed to the metric."""

    def explanations(self, name: str, world: World, explain: Any = known_truth.random) -> np.ndarray:
        arguments = call(name, world)
        return explain(arguments["model"], arguments["x_batch"], arguments["y_batch"])

    def test_asks_two_samples_and_no_more_than_it_needs(self, name, world):
        batch_sizes = []

        def explain(model, inputs, targets, **kwargs):
            batch_sizes.append(len(inputs))
            return known_truth.random(model, inputs, targets)

        a_batch = self.explanations(name, world)
        with_passed = metric(name, world)(**call(name, world, explain_func=explain), a_batch=a_batch, batch_size=3)
        assert batch_sizes == [2, 3, 3, 2]
        batch_sizes.clear()
        # Without passed explanations nothing is compared.
        assert metric(name, world)(**call(name, world, explain_func=explain)) == with_passed
        assert batch_sizes == [N, N]

    def test_a_method_that_draws_without_a_seed(self, name, world):
        rng = np.random.default_rng(0)

        def noisy(share):
            def explain(model, inputs, targets, **kwargs):
                noise = rng.normal(size=(len(inputs), 1, 12, 12))
                return (1 - share) * known_truth.random(model, inputs, targets) + share * noise

            return explain

        def scores(share, **settings):
            a_batch = self.explanations(name, world, noisy(share))
            arguments = call(name, world, explain_func=noisy(share), a_batch=a_batch)
            return np.asarray(metric(name, world, **settings)(**arguments))

        with pytest.warns(UserWarning, match="seed a method that draws at random, or lower `agreement`"):
            assert np.isnan(scores(1.0)).all()
        # half noise correlates by about a half
        assert np.isfinite(scores(0.5)).all()
        assert np.isfinite(scores(1.0, agreement=-1)).all()
        with pytest.warns(UserWarning, match=r"at least 0\.9 wanted"):
            scores(0.5, agreement=0.9)

    def test_a_deterministic_method_has_to_repeat_itself(self, name, world):
        """Gradient times input looks much like the gradient where inputs are positive, and is another method."""
        arguments = call(name, world, explain_func=known_truth.random)
        a_batch = self.explanations(name, world)
        other = a_batch * (0.5 + np.random.default_rng(0).random(a_batch.shape))
        with pytest.warns(UserWarning, match=r"correlation 0\.9\d, at least 0\.99 wanted"):
            assert np.isnan(metric(name, world)(**arguments, a_batch=other)).all()
        assert np.isfinite(metric(name, world, agreement=-1)(**arguments, a_batch=other)).all()
        with pytest.warns(UserWarning, match="in place of"):
            assert np.isnan(metric(name, world)(**arguments, a_batch=a_batch[..., :6, :6])).all()
        # in single precision, on another scale
        near = (3 * a_batch).astype(np.float32)
        assert np.isfinite(metric(name, world)(**arguments, a_batch=near)).all()

    def test_constant_and_undefined_samples_are_passed_over(self, name, world):
        arguments = call(name, world, explain_func=known_truth.random)
        a_batch = np.random.default_rng(5).normal(size=(N, 1, 12, 12))
        a_batch[0], a_batch[1], a_batch[2] = 0, np.nan, 0.5
        for batch_size in (2, 64):
            own = metric(name, world, labels=arguments["y_batch"])
            with pytest.warns(UserWarning, match=r"called again for 2 samples, it gave .*\(8 of 8 samples\)") as caught:
                scores = own(**arguments, a_batch=a_batch, batch_size=batch_size)
            assert np.isnan(scores).all()
            assert len(caught) == 1
        right = self.explanations(name, world)
        right[0], right[1] = 0, np.nan
        with pytest.warns(UserWarning, match=r"NaN or infinity \(1 of 8 samples\)"):
            assert np.isfinite(metric(name, world)(**arguments, a_batch=right)[3:]).all()


class TestInEvaluate:
    """The traps of quantus.evaluate; nothing else of a call is lost."""

    @pytest.fixture
    def model(self):
        return TinyConceptModel().requires_grad_(False)

    @pytest.fixture
    def images(self):
        # all positive, as photographs in [0, 1]
        return np.random.default_rng(1).random((N, 3, 12, 12), dtype=np.float32)

    @pytest.fixture
    def classes(self, model, images):
        return model(torch.as_tensor(images)).argmax(1).numpy()

    @pytest.fixture
    def evaluate(self, model, images, classes, capsys):
        contrast = TinyConceptModel(seed=1)
        contrast_classes = contrast(torch.as_tensor(images)).argmax(1).numpy()
        masks = np.zeros((N, 1, 12, 12))
        masks[:, :, 3:9, 2:7] = 1
        changed = np.where(masks, 0.9 * images + 0.05, images).astype(np.float32)

        def run(xai_methods, **kwargs):
            results = quantus.evaluate(
                metrics={
                    "MCS": MCS(contrast, contrast_classes),
                    "IDR": IDR(changed),
                    "IIR": IIR(changed, tolerance=10),
                    "RelevanceMass": quantus.RelevanceMassAccuracy(normalise=True, normalise_func=positive_percentile),
                },
                xai_methods=xai_methods,
                model=model,
                x_batch=images,
                y_batch=classes,
                s_batch=masks,
                **kwargs,
            )
            assert "Failed to evaluate" not in capsys.readouterr().out
            for scores in results.values():
                assert np.isfinite(scores["RelevanceMass"]).all()
            return results

        return run

    @pytest.mark.parametrize(
        ("key", "given", "message"),
        [
            ("InputXGradient", {}, r'called again.*write \{"Saliency": \{"method": "Saliency"\}\}'),
            ("mine", np.random.default_rng(0).normal(size=(N, 1, 12, 12)), "it was unknown.*a callable in place of an"),
        ],
    )
    def test_a_key_that_is_not_the_method(self, key, given, message, evaluate):
        with pytest.warns(UserWarning, match=f"IIR: scores are NaN where .*'{key}' failed: .*{message}"):
            results = evaluate({key: given})
        assert all(np.isnan(results[key][name]).all() for name in NAMES)

    def test_arrays_under_the_key_of_their_method(self, evaluate, model, images, classes, recwarn):
        expected = evaluate({"Saliency": {"method": "Saliency"}})["Saliency"]
        results = evaluate({"Saliency": quantus.explain(model, images, classes, method="Saliency")})["Saliency"]
        for name in NAMES:
            np.testing.assert_array_equal(results[name], expected[name])
        assert not [w for w in recwarn if "scores are NaN" in str(w.message)]

    def test_stochastic_but_seeded(self, evaluate, recwarn):
        smooth = explain_func(
            lambda model: NoiseTunnel(Saliency(model)), nt_samples=8, stdevs=0.05, abs=False, channels="sum"
        )
        results = evaluate({"SmoothGrad": smooth}, explain_func_kwargs={})
        assert not [w for w in recwarn if "scores are NaN" in str(w.message)]
        assert np.isfinite(results["SmoothGrad"]["MCS"]).any()


class TestSharing:
    """In one stock `quantus.evaluate` a model predicts the same images once."""

    def results(self, world: World, block: AbstractContextManager[None]) -> tuple[dict[str, Any], list[int], list[int]]:
        model, contrast = world.object_model, world.scene_model
        faint = np.where(world.masks, world.images * np.float32(0.99), world.images)
        settings = {"disable_warnings": True, "return_aggregate": False}
        metrics = {
            "MCS": MCS(contrast, world.scene_labels, **settings),
            "IDR": IDR(world.scenes, **settings),
            "IIR": IIR(faint, **settings),
            "Faithfulness": Faithfulness(thresholds=(10,), **settings),
        }
        methods = {
            "by value": lambda model, inputs, targets, **kwargs: inputs.sum(1, keepdims=True),
            "by square": lambda model, inputs, targets, **kwargs: inputs.sum(1, keepdims=True) ** 2,
        }
        batch_sizes: tuple[list[int], list[int]] = [], []
        hooks = [
            network.register_forward_pre_hook(lambda module, inputs, sizes=sizes: sizes.append(len(inputs[0])))
            for network, sizes in zip((model, contrast), batch_sizes, strict=True)
        ]
        call = {"x_batch": world.images, "y_batch": world.object_labels, "s_batch": world.masks}
        with block:
            results = quantus.evaluate(metrics, methods, model, agg_func=np.asarray, explain_func_kwargs={}, **call)
        for hook in hooks:
            hook.remove()
        return results, *batch_sizes

    def test_predictions_are_made_once_and_scores_stay_to_the_bit(self, world):
        alone, of_model, of_contrast = self.results(world, nullcontext())
        n_perturbed = 2 * len(set(pixel_counts(world.images[0, 0].size, (10,)).tolist()) - {0}) * N
        # MCS the images, IDR and IIR two versions, Faithfulness the images and what it makes of them.
        assert sum(of_model) == 2 * (6 * N + n_perturbed)
        assert sum(of_contrast) == 2 * N
        together, of_model, of_contrast = self.results(world, shared_passes())
        assert sum(of_model) == 3 * N + 2 * n_perturbed
        assert sum(of_contrast) == N
        np.testing.assert_equal(together, alone)
        assert all(np.isfinite(scores).any() for of_method in alone.values() for scores in of_method.values())
