"""Faithfulness as a Quantus metric: model calls, perturbations, controls, and what cannot be scored."""

from __future__ import annotations

from itertools import permutations
from math import exp
from typing import Any

import numpy as np
import pytest
import torch
from quantus.functions.perturb_func import noisy_linear_imputation
from torch import Tensor, nn

from captum_concepts.support.running import keep_numpy_state
from quantus_concepts import Faithfulness
from quantus_concepts.metrics.faithfulness import PixelPerturbation, descend, solve_system
from reference import faithfulness as reference

WEIGHTS = np.array([[0.4, 0.3], [0.2, 0.1]])


class Weighing(nn.Module):
    """p of class 0 is the weighted mean of the pixels; keeps every image it is shown."""

    def __init__(self, weights: np.ndarray = WEIGHTS, logits: bool = False) -> None:
        super().__init__()
        self.register_buffer("weights", torch.as_tensor(weights))
        self.logits = logits
        self.seen: list[Tensor] = []

    def forward(self, images: Tensor) -> Tensor:
        self.seen.append(images.clone())
        p = (images.mean(1) * self.weights).sum((1, 2))
        return torch.stack([4 * p, 0 * p], 1) if self.logits else torch.stack([p, 1 - p], 1)


N, SIZE = 5, 12
RANDOM_WEIGHTS = np.random.default_rng(3).dirichlet(np.full(SIZE * SIZE, 0.3)).reshape(SIZE, SIZE)
PHOTOGRAPHS = np.random.default_rng(1).random((N, 3, SIZE, SIZE))
MAPS = np.random.default_rng(2).normal(size=(N, 1, SIZE, SIZE))


def score(model: nn.Module, x: np.ndarray, a: np.ndarray, metric: Faithfulness | None = None, **kwargs: Any) -> Any:
    metric = metric or Faithfulness(outputs="probabilities")
    return metric(model, x, **{"y_batch": np.zeros(len(x), int), "a_batch": a, **kwargs})


class TestByHand:
    """Four white pixels that weigh 0.4, 0.3, 0.2 and 0.1, and a black that takes them away."""

    images = np.ones((1, 1, 2, 2))

    def test_one_threshold(self):
        # of the 50 levels 12 perturb nothing, 13 one pixel, 12 two and 13 three
        metric = Faithfulness(outputs="probabilities", thresholds=(100,))
        (faithfulness,) = score(Weighing(), self.images, WEIGHTS[None, None], metric)
        low, high = (13 * 0.1 + 12 * 0.3 + 13 * 0.6) / 50, (13 * 0.4 + 12 * 0.7 + 13 * 0.9) / 50
        assert (low, high) == (pytest.approx(0.254), pytest.approx(0.506))
        assert metric.sufficiency == [pytest.approx(exp(-0.254))]
        assert metric.necessity == [pytest.approx(1 - exp(-0.506))]
        assert faithfulness == pytest.approx(0.525290, abs=1e-5)

    def test_the_best_of_two_thresholds(self):
        # below 26 % there are 13 levels, of which the last takes one pixel
        metric = Faithfulness(outputs="probabilities", thresholds=(26, 100))
        score(Weighing(), self.images, WEIGHTS[None, None], metric)
        assert metric.sufficiency == [pytest.approx(exp(-0.1 / 13))]
        assert metric.necessity == [pytest.approx(1 - exp(-0.506))]

    def test_the_softmax_of_logits(self):
        metric = Faithfulness(thresholds=(52,))
        score(Weighing(logits=True), self.images, WEIGHTS[None, None], metric)
        p = {k: 1 / (1 + exp(-4 * remaining)) for k, remaining in enumerate((1, 0.6, 0.3))}
        # below 52 %: 12 levels of no pixel, 13 of one, 1 of two
        high = (13 * (p[0] - p[1]) + p[0] - p[2]) / 26
        assert metric.necessity == [pytest.approx(1 - exp(-high))]

    def test_the_true_map_is_best_and_its_reverse_worst_of_all_orders(self):
        model, metric = Weighing(), Faithfulness(outputs="probabilities", thresholds=(60, 100))
        orders = np.array(list(permutations((1.0, 2.0, 3.0, 4.0)))).reshape(-1, 1, 2, 2)
        scores = np.array(score(model, np.ones((24, 1, 2, 2)), orders, metric))
        # heavier pixels first is 4, 3, 2, 1
        assert orders[scores.argmax()].ravel().tolist() == [4, 3, 2, 1]
        assert orders[scores.argmin()].ravel().tolist() == [1, 2, 3, 4]
        for part in (metric.sufficiency, metric.necessity):
            assert part[int(scores.argmax())] == max(part)
            assert part[int(scores.argmin())] == min(part)
        assert np.sort(scores)[-2] < scores.max() - 1e-3


@pytest.mark.parametrize("perturbation", ["black", "uniform", "gaussian", "road"])
def test_the_true_map_beats_chance_and_its_reverse_does_not_reach_it(perturbation):
    weights, x = RANDOM_WEIGHTS, PHOTOGRAPHS
    # What each pixel of grey adds to the output, and so loses with it.
    truth = np.broadcast_to(0.5 * weights, (len(x), 1, *weights.shape))

    def mean(a):
        metric = Faithfulness(perturbation, thresholds=(10, 20), outputs="probabilities")
        return float(np.mean(score(Weighing(weights), x, a, metric)))

    chance = [mean(np.random.default_rng(i).normal(size=truth.shape)) for i in range(3)]
    assert mean(truth) > 1.5 * max(chance)
    assert mean(-truth) < 0.5 * min(chance)


def change_by(replacement):
    """Return a function that gives some pixels of an image a replacement, a number or an image."""

    def perturb(image, pixels):
        changed = image.copy()
        for row, column in pixels:
            changed[:, row, column] = np.broadcast_to(replacement, image.shape)[:, row, column]
        return changed

    return perturb


@pytest.mark.parametrize(
    ("perturbation", "noise", "thresholds"),
    [
        ("black", None, (95, 20, 50)),
        ("black", None, (100,)),
        ("road", 0, (10, 20)),
        ("uniform", 0.1, (100,)),
        ("gaussian", 0.05, (100,)),
    ],
)
def test_agrees_with_the_reference(perturbation, noise, thresholds):
    x, a, weights = PHOTOGRAPHS, MAPS, RANDOM_WEIGHTS
    perturbs = [reference.road if perturbation == "road" else change_by(0)] * len(x)
    if perturbation in ("uniform", "gaussian"):
        replacements = PixelPerturbation(perturbation, noise=noise).prepare(x, torch.as_tensor(x)).replacements.numpy()
        noises = replacements - x
        # Every image, channel and pixel has its own.
        assert len(np.unique(noises)) == noises.size
        assert noises.std() == pytest.approx(0.1 / 3**0.5 if perturbation == "uniform" else 0.05, abs=0.005)
        assert perturbation == "gaussian" or 0.095 < np.abs(noises).max() <= 0.1
        perturbs = [change_by(replacement) for replacement in replacements]
    metric = Faithfulness(perturbation, thresholds=thresholds, noise=noise, outputs="probabilities")
    scores = score(Weighing(weights), x, a, metric)

    def predict(image):
        return float((image.mean(0) * weights).sum())

    expected = [
        reference.scores(predict, image, heat_map, perturb, thresholds)
        for image, heat_map, perturb in zip(x, a[:, 0], perturbs, strict=True)
    ]
    atol = 1e-9 if perturbation == "black" else 1e-6
    np.testing.assert_allclose(np.stack([scores, metric.sufficiency, metric.necessity], 1), expected, atol=atol)


class TestModelCalls:
    def test_every_perturbed_image_once_for_all_thresholds(self):
        model, x = Weighing(RANDOM_WEIGHTS), PHOTOGRAPHS
        score(model, x, MAPS, Faithfulness(outputs="probabilities", thresholds=(10, 20, 30, 40)))
        images = torch.cat(model.seen)
        # 144 pixels: 1, 3, ..., 39 % are 20 different numbers of pixels
        assert len(images) == 5 * (1 + 2 * 20)
        assert len(images.unique(dim=0)) == len(images)
        assert {len(part) for part in model.seen} == {5}

    def test_chunk_size(self):
        expected = score(Weighing(RANDOM_WEIGHTS), PHOTOGRAPHS, MAPS)
        for chunk_size, most in ((3, 3), (1000, 450)):
            model, metric = Weighing(RANDOM_WEIGHTS), Faithfulness(outputs="probabilities", chunk_size=chunk_size)
            np.testing.assert_allclose(score(model, PHOTOGRAPHS, MAPS, metric), expected, rtol=1e-12)
            assert max(len(part) for part in model.seen) == most


class TestPerturbations:
    """Replacements of pixels, in the units of the model's images."""

    @staticmethod
    def replacements(x: np.ndarray, kind: str = "black", **kwargs: Any) -> np.ndarray:
        prepared = PixelPerturbation(kind, **kwargs).prepare(x, torch.as_tensor(x))
        return prepared.replacements.numpy()

    def test_black_of_every_kind_of_images(self):
        x = PHOTOGRAPHS[:2].copy()
        mean, std = [0.5, 0.4, 0.3], [0.2, 0.25, 0.3]
        normalised = self.replacements(x, mean=mean, std=std)
        np.testing.assert_allclose(normalised[1, :, 4, 5], [-2.5, -1.6, -1])
        assert (self.replacements(x, pixel_range=(-1, 1)) == -1).all()
        # without settings: 0, or the darkest value of the image if it is lower
        np.testing.assert_array_equal(self.replacements(x), 0 * x)
        x[1] -= 0.7
        dark = self.replacements(x)
        assert (dark[0] == 0).all()
        assert (dark[1] == x[1].min()).all()

    def test_noise_is_a_share_of_the_range(self):
        x = PHOTOGRAPHS[:2].copy()
        unit = self.replacements(x, "gaussian") - x
        np.testing.assert_allclose(self.replacements(x, "gaussian", noise=0.4) - x, 2 * unit, atol=1e-6)
        np.testing.assert_allclose(self.replacements(x, "gaussian", pixel_range=(0, 255)) - x, 255 * unit, rtol=1e-4)
        std = np.array([0.2, 0.25, 0.5])
        scaled = self.replacements(x, "gaussian", mean=[0.5] * 3, std=std) - x
        np.testing.assert_allclose(scaled, unit / std[:, None, None], atol=1e-5)

    def test_imputing_a_hole_together_or_alone_is_what_quantus_solves(self):
        rng = np.random.default_rng(1)
        masks = np.zeros((3, 20, 20), dtype=bool)
        # Most of the image, scattered pixels, and none.
        masks[0, 2:18, 1:20] = True
        masks[1] = rng.random((20, 20)) < 0.5
        images = rng.random((3, 2, 20, 20))
        with keep_numpy_state():
            expected = [noisy_linear_imputation(images[row], np.flatnonzero(masks[row]), 0.0) for row in range(2)]
        for imputed, atol in ((solve_system, 1e-12), (descend, 1e-8)):
            filled = imputed(torch.as_tensor(images), torch.as_tensor(masks))
            np.testing.assert_allclose(filled[:2], np.stack(expected), atol=atol)
            np.testing.assert_array_equal(filled[2], images[2])
            alone = imputed(torch.as_tensor(images[1:2]), torch.as_tensor(masks[1:2]))
            np.testing.assert_array_equal(alone[0], filled[1])
            assert not imputed(torch.zeros(3, 1, 20, 20), torch.as_tensor(masks)).any()

    def test_noise_on_imputed_pixels_only(self):
        model, x = Weighing(RANDOM_WEIGHTS), PHOTOGRAPHS[:1]
        score(model, x, MAPS[:1], Faithfulness("road", thresholds=(20,), outputs="probabilities"))
        quiet = Weighing(RANDOM_WEIGHTS)
        score(quiet, x, MAPS[:1], Faithfulness("road", thresholds=(20,), noise=0, outputs="probabilities"))
        images, without = torch.cat(model.seen), torch.cat(quiet.seen)
        changed = (without != torch.as_tensor(x)).any(1, keepdim=True).expand_as(images)
        assert torch.equal(images[~changed], without[~changed])
        assert (images - without)[changed].std() == pytest.approx(0.01, rel=0.1)


class TestRandomness:
    def test_the_seed_decides(self):
        for kind in ("gaussian", "road"):
            first, second = (
                score(
                    Weighing(RANDOM_WEIGHTS),
                    PHOTOGRAPHS,
                    MAPS,
                    Faithfulness(kind, thresholds=(10, 20), outputs="probabilities", seed=seed),
                )
                for seed in (0, 1)
            )
            assert not np.isclose(first, second).any()

    def test_equal_pixels_are_not_taken_from_the_upper_edge(self):
        """A map that is 0 but for one pixel: which irrelevant pixels go first is left to chance."""
        x = np.random.default_rng(1).random((20, 3, SIZE, SIZE))
        a = np.zeros((20, 1, 12, 12))
        a[:, :, 11, 11] = 1
        model = Weighing(RANDOM_WEIGHTS)
        score(model, x, a, Faithfulness(thresholds=(30,), outputs="probabilities"))
        perturbed = (torch.cat(model.seen[1:]).view(20, 2, -1, 3, 12, 12) == 0).all(3).double()
        upper, lower = perturbed[:, 0, -1, :6].sum((1, 2)), perturbed[:, 0, -1, 6:].sum((1, 2))
        # 29 % of 144 are 41 pixels, half of them expected in either half
        assert (upper + lower == 41).all()
        assert abs(upper.mean() - 20.5) < 2
        assert perturbed[:, 0, -1, 11, 11].sum() == 0
        assert perturbed[:, 1, :, 11, 11].all()


class TestExplanations:
    """Maps of every form, and those that cannot be scored."""

    def test_channels_are_summed_after_abs(self):
        x, a = PHOTOGRAPHS, np.random.default_rng(5).normal(size=(5, 3, 12, 12))
        model = Weighing(RANDOM_WEIGHTS)
        summed = score(model, x, a.sum(1, keepdims=True))
        np.testing.assert_allclose(score(model, x, a), summed)
        np.testing.assert_allclose(score(model, x, a.sum(1)), summed)
        absolute = score(model, x, a, Faithfulness(outputs="probabilities", abs=True))
        np.testing.assert_allclose(absolute, score(model, x, np.abs(a).sum(1, keepdims=True)))
        assert not np.allclose(absolute, summed)

    @pytest.mark.parametrize(
        ("spoil", "reason"),
        [
            (lambda a: a.__setitem__(1, 0.25), r"the same at every pixel, .* \(1 of 5 samples\)"),
            (lambda a: a.__setitem__((1, 0, 3, 4), np.nan), r"hold NaN or infinity \(1 of 5 samples\)"),
        ],
    )
    def test_an_undefined_sample_leaves_the_other_scores_alone(self, spoil, reason):
        model, x, a = Weighing(RANDOM_WEIGHTS), PHOTOGRAPHS, MAPS.copy()
        expected = np.array(score(model, x, a))
        spoil(a)
        metric = Faithfulness(outputs="probabilities")
        with pytest.warns(UserWarning, match=f"Faithfulness: scores are NaN where .*{reason}"):
            scores = score(model, x, a, metric)
        expected[1] = np.nan
        np.testing.assert_allclose(scores, expected)
        np.testing.assert_array_equal(np.isnan([metric.sufficiency, metric.necessity]), [np.isnan(expected)] * 2)
        assert metric.undefined == 1
        assert np.isnan(metric.records[-1].chance)

    def test_a_model_that_gives_nan(self):
        x = PHOTOGRAPHS
        model = Weighing(np.where(RANDOM_WEIGHTS > 0, 1e38, 0).astype(np.float32), logits=True)
        with pytest.warns(UserWarning, match=r"the model's outputs are not finite \(5 of 5 samples\)"):
            assert np.isnan(score(model, x, MAPS, Faithfulness())).all()


REFUSED = {
    "noise for black": (lambda: Faithfulness("black", noise=0.1), r"no argument `noise` with .*black"),
    "two normalisations": (
        lambda: Faithfulness(mean=[0.5], std=[1], pixel_range=(0, 1)),
        r"either `mean` and `std` or argument `pixel_range`",
    ),
    "no model": (lambda: score(None, PHOTOGRAPHS, MAPS), r"needs argument `model`"),
    "mean of other channels": (
        lambda: score(Weighing(), PHOTOGRAPHS, MAPS, Faithfulness(mean=[0.5], std=[1])),
        r"`mean` to have 3 numbers",
    ),
    "thresholds below a pixel": (
        lambda: score(Weighing(), np.ones((1, 1, 2, 2)), WEIGHTS[None, None], Faithfulness(thresholds=(20,))),
        r"`thresholds` to reach a pixel",
    ),
    "logits for probabilities": (
        lambda: score(Weighing(RANDOM_WEIGHTS, logits=True), PHOTOGRAPHS, MAPS),
        r"probabilities, .* Pass outputs='logits'",
    ),
    "a single logit": (
        lambda: score(nn.Sequential(nn.Flatten(), nn.LazyLinear(1)), PHOTOGRAPHS, MAPS, Faithfulness()),
        r"an output for each class, at least two, but got one\. Give a head of one logit z two outputs",
    ),
}


@pytest.mark.parametrize(("call", "message"), REFUSED.values(), ids=REFUSED)
def test_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
