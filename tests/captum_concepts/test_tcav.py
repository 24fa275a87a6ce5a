"""TCAV: what it must find and must not, Captum's own numbers, and nothing left behind."""

from __future__ import annotations

import copy
import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from captum.concept import TCAV, Classifier, Concept
from matplotlib.container import ErrorbarContainer
from PIL import Image
from torch import Tensor, nn

from captum_concepts import tcav_folders
from captum_concepts.bank.directions import Fitting, fit_drawn
from captum_concepts.tcav.folders import TCAVScores
from captum_concepts.tcav.score import (
    LayerScore,
    TCAVScore,
    needed_directions,
    permutation_score,
    random_splits,
    tcav_contrast,
    tcav_score,
)
from reference import comparisons
from simulated_device import simulated_device
from untouched import untouched

pytestmark = pytest.mark.filterwarnings("ignore:Without `transform` the network")


class Net(nn.Module):
    """Class 0 sees red, class 1 does not; both bend with the image."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.features = nn.Sequential(nn.Conv2d(3, 6, 3, stride=2, bias=False), nn.ReLU(), nn.Dropout(0.5))
        weight = torch.randn(6, 3, 3, 3, generator=generator) * 0.3
        weight[:2, 1:] = 0
        weight[:2, 0] = weight[:2, 0].abs()
        weight[2:, 0] = 0
        self.hidden = nn.Linear(6, 6, bias=False)
        self.head = nn.Linear(6, 2, bias=False)
        with torch.no_grad():
            self.features[0].weight.copy_(weight)
            self.hidden.weight.copy_(torch.eye(6))
            self.head.weight.copy_(torch.tensor([[1.0, 1, 0, 0, 0, 0], [0, 0, 1, -1, 1, -1]]))

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.hidden(self.features(images).mean((2, 3))).tanh())


def scenes(n: int, seed: int) -> Tensor:
    return torch.rand(n, 3, 12, 10, generator=torch.Generator().manual_seed(seed))


def with_patch(images: Tensor) -> Tensor:
    images = images.clone()
    for i in range(len(images)):
        row, column = (5 * i) % 7, (3 * i) % 5
        images[i, 0, row : row + 5, column : column + 5] += 2
    return images


POSITIVE = with_patch(scenes(16, 1))
NEGATIVE = scenes(40, 2)
INPUTS = with_patch(scenes(9, 3))


@pytest.fixture
def model() -> Net:
    return Net().eval()


def everything(score: TCAVScore) -> list[float]:
    return [value for layer in score.layers.values() for value in (layer.score, *layer.random_scores, layer.p_value)]


class Brightness(nn.Module):
    """The mean of an image, and a logit that rises with it only above 0.5."""

    def __init__(self) -> None:
        super().__init__()
        self.mean = nn.AdaptiveAvgPool2d(1)
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, images: Tensor) -> Tensor:
        return self.scale * (self.mean(images).mean(1).flatten(1) - 0.5) ** 2


def flat_images(*means: float) -> Tensor:
    return torch.tensor(means)[:, None, None, None].expand(-1, 3, 4, 4)


#: Along brightness the logit rises for 0.6, 0.7 and 0.9 and falls for 0.2.
LIT = flat_images(0.2, 0.6, 0.7, 0.9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_sets_of_equal_mean_are_undecided_at_any_scale(dtype):
    """Twice the same four images on either side: nothing to decide in any draw, however the model rounds."""
    generator = torch.Generator().manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Identity(), nn.Linear(12, 2, bias=False)).to(dtype)
    for scale in (1e-3, 1e3):
        negative = (torch.rand(1, 3, 2, 2, generator=generator) * scale).expand(8, -1, -1, -1)
        concept = negative[:4] * 1.5
        scores = tcav_score(model, ["1"], concept, negative, concept, 0, n_samples=4, n_random=3)
        layer = scores.layers["1"]
        assert layer.undecided == 3
        assert np.isnan([*layer.random_scores, layer.random_mean]).all()
        # What is undecided counts as extreme.
        assert layer.p_value == 1
        assert not math.isnan(layer.score)
        assert not layer.passed


class Fitted(Classifier):
    """The direction of `ConceptBank.fit` for Captum's own TCAV."""

    def __init__(self, method: str) -> None:
        self.method = method

    def train_and_eval(self, dataloader: Any, **kwargs: Any) -> dict[str, Tensor]:
        features, labels = (torch.cat(parts) for parts in zip(*(batch[:2] for batch in dataloader), strict=True))
        # In the order of the experiment: its concept comes first.
        self.order = list(dict.fromkeys(labels.tolist()))
        fitting = Fitting(self.method, len(labels), len(labels), 1.0, seed=0, hold_back=0)
        self.direction = fit_drawn(features, (labels == self.order[0]).numpy()[:, None], fitting).cavs
        return {"accs": torch.ones(2)}

    def weights(self) -> Tensor:
        return torch.cat([self.direction, -self.direction])

    def classes(self) -> list[int]:
        return self.order


@pytest.mark.parametrize("method", ["svm", "mean"])
def test_agrees_with_captums_tcav(model, method, tmp_path):
    layers = ["features", "hidden"]
    targets = torch.tensor([0, 1, 0, 1, 1, 0, 0, 1, 1])
    actual = tcav_score(model, layers, POSITIVE, NEGATIVE, INPUTS, targets, n_samples=12, n_random=4, method=method)
    images = torch.cat([POSITIVE, NEGATIVE])
    splits = random_splits(np.arange(16), np.arange(16, 56), 12, 4, 0)
    sets = [
        [Concept(2 * i + k, f"c{k}", [images[torch.tensor(rows)]]) for k, rows in enumerate(split)]
        for i, split in enumerate(splits)
    ]
    captums = TCAV(model, layers, classifier=Fitted(method), save_path=str(tmp_path))
    with torch.random.fork_rng([]):
        scores = captums.interpret(INPUTS.clone().requires_grad_(), sets, target=targets)
    for name in layers:
        shares = [round(9 * float(scores[f"{a.id}-{b.id}"][name]["sign_count"][0])) / 9 for a, b in sets]
        assert (actual.layers[name].score, *actual.layers[name].random_scores) == tuple(shares)
    # The draws differ enough for the agreement to mean something.
    assert len({*actual.layers["hidden"].random_scores}) > 1


def test_contrast():
    undefined = TCAVScore(math.nan, 0.5, {})
    assert tcav_contrast(TCAVScore(1.0, 0.5, {}), TCAVScore(0.25, 0.625, {})).baseline == -0.125
    layer = {"a": LayerScore(1.0, 0.0, True, 0.5, (0.5,))}
    assert tcav_contrast(TCAVScore(1.0, 0.5, layer), TCAVScore(0.25, 0.625, layer)) == (0.75, -0.125)
    assert math.isnan(tcav_contrast(TCAVScore(1.0, 0.75, layer), undefined).score)


def test_batches_and_kinds_of_target_do_not_matter(model):
    args = (["hidden"], POSITIVE, NEGATIVE, INPUTS)
    expected = tcav_score(model, *args, 1, n_random=10)
    layer = expected.layers["hidden"]
    assert not layer.passed
    assert math.isnan(expected.score)
    assert everything(expected) == everything(tcav_score(model, *args, torch.ones(9, dtype=torch.long), n_random=10))
    assert everything(expected) == everything(tcav_score(model, *args, 1, batch_size=4, n_random=10))
    with untouched(model.train(), INPUTS), torch.inference_mode():
        assert everything(expected) == everything(tcav_score(model, *args, 1, n_random=10))


@pytest.mark.parametrize("method", ["svm", "mean"])
def test_mean_derivative_is_autograds(model, method):
    actual = tcav_score(model, ["hidden"], POSITIVE, NEGATIVE, INPUTS, 0, method=method, n_random=1).layers["hidden"]
    (positive, negative), _ = random_splits(np.arange(16), np.arange(16, 56), 100, 1, 0)
    images = torch.cat([POSITIVE, NEGATIVE])[torch.from_numpy(np.concatenate([positive, negative]))]
    hidden = model.features(INPUTS).mean((2, 3)).detach().requires_grad_()
    (gradients,) = torch.autograd.grad(model.head(model.hidden(hidden).tanh())[:, 0].sum(), hidden)
    # `hidden` is the identity.
    examples = model.features(images).mean((2, 3)).detach()
    fitting = Fitting(method, 16, 24, 1.0, seed=0, hold_back=0)
    direction = fit_drawn(examples, np.arange(40)[:, None] < 16, fitting).cavs[0]
    derivatives = gradients @ (direction / direction.norm())
    assert actual.derivative == pytest.approx(float(derivatives.mean()), rel=1e-3)
    assert actual.score == pytest.approx(float((derivatives > 0).float().mean()))


def test_permutation_test_of_dead_layers_and_of_its_numbers(model):
    assert needed_directions(1, 0.05) == needed_directions(5, 0.05) == 99
    assert needed_directions(6, 0.05) == 119
    assert needed_directions(3, 0.01) == 299
    with torch.no_grad():
        model.features[0].weight.zero_()
    layer = tcav_score(model, ["features"], POSITIVE, NEGATIVE, INPUTS, 0, n_random=9).layers["features"]
    assert layer.undecided == 10
    assert np.isnan([layer.score, layer.derivative, layer.p_value, layer.p_score, layer.p_adjusted]).all()
    assert not layer.passed


@pytest.mark.parametrize("n_negative", [8, 19, 20])
def test_too_few_random_images_are_said_where_p_is_printed(model, n_negative):
    arguments = (model, ["hidden"], POSITIVE, NEGATIVE[:n_negative], INPUTS, 0)
    if n_negative < 20:
        with pytest.warns(UserWarning, match=f"rests on {n_negative} images"):
            score = tcav_score(*arguments, method="mean", n_random=9)
        assert repr(score).endswith(f"({n_negative} random images are too few))")
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            score = tcav_score(*arguments, method="mean", n_random=9)
        assert "few" not in repr(score)
    assert score.layers["hidden"].n_negative == n_negative


def test_permutation_test_keeps_its_size():
    """Concept images drawn from the random images: directions are mean differences, derivatives those of a network."""
    n_random_images, rng = 60, np.random.default_rng(60)
    n_tests, p_values = 400, []
    for seed in range(n_tests):
        gradients = rng.normal(size=(30, 8)) + rng.normal(size=8)
        images = rng.exponential(size=(20 + n_random_images, 8))
        splits = random_splits(np.arange(20), np.arange(20, 20 + n_random_images), None, 99, seed)
        directions = np.array([images[with_it].mean(0) - images[without].mean(0) for with_it, without in splits])
        derivatives = gradients @ (directions / np.linalg.norm(directions, axis=1, keepdims=True)).T
        layer = permutation_score(np.stack([(derivatives > 0).mean(0), derivatives.mean(0)], 1))
        assert layer.p_value == comparisons.permutation_p(layer.derivative, layer.random_derivatives)
        p_values.append((layer.p_value, layer.p_score))
    for level, most in ((0.05, 0.06), (0.01, 0.02)):
        # At most two standard errors above what is promised.
        limit = most + 2 * math.sqrt(most * (1 - most) / n_tests)
        assert (np.mean(np.array(p_values) <= level, 0) <= limit).all()


@pytest.mark.parametrize(
    ("positive", "negative", "inputs", "message"),
    [
        (POSITIVE[:1], NEGATIVE, INPUTS, "`concept_images` to hold at least 2 .* but got 1"),
        (POSITIVE, NEGATIVE[:3], INPUTS, "`negative_images` to hold at least 4 .* but got 3"),
        (POSITIVE, NEGATIVE, INPUTS * math.nan, "`inputs` to be finite"),
    ],
)
def test_bad_input(model, positive, negative, inputs, message):
    with pytest.raises(ValueError, match=message):
        tcav_score(model, ["hidden"], positive, negative, inputs, 0, n_random=10)
    with pytest.raises(TypeError, match="`layers` to be a sequence of names, at least one, but got 'hidden'"):
        tcav_score(model, "hidden", positive, negative, inputs, 0)


# Concepts in folders


def write(folder: Path, *levels: int) -> None:
    folder.mkdir(parents=True)
    for level in levels:
        Image.new("RGB", (4, 4), (level,) * 3).save(folder / f"{level}.png")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bright concept, one amid the random sets, one of its own negatives, and four sets from dark to less dark."""
    root = tmp_path_factory.mktemp("concepts")
    write(root / "bright", 220, 230, 240)
    write(root / "nothing", 64, 66)
    write(root / "own" / "positive", 10, 12)
    write(root / "own" / "negative", 90, 100)
    for number, level in enumerate((30, 50, 80, 100)):
        write(root / f"random_{number}", level, level + 4)
    return root


def score_folders(root: Path, model: nn.Module | None = None, **settings: object) -> TCAVScores:
    return tcav_folders(model or Brightness(), ["mean"], root, LIT, 0, **settings)


def test_random_directions_by_hand(tmp_path: Path) -> None:
    write(tmp_path / "bright", 200, 240)
    write(tmp_path / "random", *range(40, 72, 4))
    scores = score_folders(tmp_path, method="mean")
    layer = scores["bright"].layers["mean"]
    # Brightness is the only axis: the derivative is 2 (brightness - 1/2), its mean .2, and the mean of three channels
    # rises by 1 / sqrt 3 along their unit direction. Random directions are this one or its opposite.
    assert layer.score == 0.75
    assert layer.derivative == pytest.approx(0.2 / math.sqrt(3), rel=1e-4)
    # Where both sides are equally bright it is neither, and counts as extreme.
    derivatives = np.array(layer.random_derivatives)
    np.testing.assert_allclose(np.abs(derivatives[~np.isnan(derivatives)]), layer.derivative, rtol=1e-4)
    assert 0 < layer.undecided < 50
    assert {score for score in layer.random_scores if not math.isnan(score)} == {0.25, 0.75}
    assert layer.p_value == layer.p_score == layer.p_adjusted == 1
    assert not layer.passed


def test_sides_of_random_directions() -> None:
    positive, negative = np.arange(7), np.arange(7, 27)
    concept, *random = random_splits(positive, negative, None, 50, seed=0)
    for with_it, without in (concept, *random):
        assert (len({*with_it}), len({*without})) == (7, 13)
        assert {*with_it}.isdisjoint(without)
    assert {*concept[0]} == {*positive}
    assert all({*with_it, *without} == {*negative} for with_it, without in random)
    assert len({tuple(sorted(with_it)) for with_it, _ in random}) == 50
    # Half of the images without it are left for the other side; `n_samples` is the most.
    assert [len(side) for side in random_splits(negative, positive, None, 1, 0)[1]] == [3, 4]
    assert [len(side) for side in random_splits(positive, negative, 5, 1, 0)[1]] == [5, 5]


class Red(nn.Module):
    """Class 0 rises with red in all images, and with green and blue in half of them."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(6, 6, bias=False)
        nn.init.eye_(self.hidden.weight)

    def forward(self, images: Tensor) -> Tensor:
        values = self.hidden(torch.cat([images[..., :2].mean((2, 3)), images[..., 2:].mean((2, 3))], 1))
        red, other = values[:, [0, 3]], values[:, [1, 2, 4, 5]]
        return torch.stack([red.sum(1) + 8 * (other - 0.5).square().sum(1), -red.sum(1)], 1)


def test_what_a_class_uses_passes_and_random_images_do_not(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)

    def fill(name: str, red: int) -> None:
        (tmp_path / name).mkdir()
        for i in range(20):
            pixels = rng.integers(60, 160, (4, 4, 3)) + np.array([red, 0, 0])
            Image.fromarray(pixels.astype(np.uint8)).save(tmp_path / name / f"{i}.png")

    fill("red", 90)
    fill("nothing", 0)
    for number in range(6):
        fill(f"random{number}", 0)
    inputs = torch.rand(40, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    model = Red()
    with untouched(model, inputs):
        scores = tcav_folders(model, ["hidden"], tmp_path, inputs, 0, method="mean", batch_size=5)
    red, nothing = scores["red"].layers["hidden"], scores["nothing"].layers["hidden"]
    assert red.score > 0.9
    assert red.passed
    assert red.p_value == 1 / 100
    assert red.derivative > max(red.random_derivatives)
    assert not nothing.passed
    # Two tests: Holm doubles the smaller p.
    assert red.p_adjusted == 2 / 100
    frame = scores.to_frame().set_index("concept")
    assert frame["p_adjusted"].to_dict() == {"nothing": nothing.p_value, "red": 0.02}
    assert frame.loc["red", "derivative"] == red.derivative
    with simulated_device() as simulation:
        there = tcav_folders(copy.deepcopy(model).to(simulation.device), ["hidden"], tmp_path, inputs, 0, method="mean")
    assert there["red"].layers == scores["red"].layers


def test_scores_are_drawn_with_their_spread(root: Path) -> None:
    scores = score_folders(root, alpha=1.0)
    figure, ax = scores.plot()
    layer_scores = [score.layers["mean"] for score in scores.values()]
    heights = [bar.get_height() for bar in ax.patches]
    assert heights == pytest.approx([*(layer.score for layer in layer_scores), layer_scores[0].random_mean])
    # Only the bar of random images has a spread.
    whiskers = [bar.lines[2][0].get_segments()[0][:, 1] for bar in ax.containers if isinstance(bar, ErrorbarContainer)]
    random = layer_scores[0].random_scores
    np.testing.assert_allclose(whiskers, [[np.nanmin(random), np.nanmax(random)]])
    # The test rests on derivatives, which are drawn with the stars.
    below = figure.axes[1]
    for score, range_, bar in zip(scores.values(), below.patches[::2], below.patches[1::2], strict=True):
        layer = score.layers["mean"]
        unit = np.nanmean(np.square(layer.random_derivatives)) ** 0.5
        assert bar.get_height() == pytest.approx(layer.derivative / unit)
        ends = range_.get_y(), range_.get_y() + range_.get_height()
        assert ends == pytest.approx((np.nanmin(layer.random_derivatives), np.nanmax(layer.random_derivatives)) / unit)
    assert [text.get_text() for text in below.texts] == ["*"] * 3


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (torch.full((3, 4, 4), math.nan), "layer 'mean' to give finite numbers but .* for 17 of 17 images"),
        (torch.zeros(3, 2, 2), r"`transform` .* `inputs`, \(C, H, W\) = \(3, 4, 4\), but got \(3, 2, 2\)"),
    ],
)
def test_what_a_transform_gives_is_checked(root: Path, given: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        score_folders(root, transform=lambda image: given)
