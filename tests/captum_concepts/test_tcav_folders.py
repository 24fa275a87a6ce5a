"""TCAV of folders: scores and test by hand, random images at chance, and folders that say too little."""

from __future__ import annotations

import copy
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from captum_concepts import tcav_folders
from captum_concepts.tcav.score import TCAVScore
from simulated_device import simulated_device
from untouched import untouched

pytestmark = pytest.mark.filterwarnings("ignore:Without `transform` the network")


class Brightness(nn.Module):
    """The mean of an image, and a logit that rises with it only above 0.5."""

    def __init__(self) -> None:
        super().__init__()
        self.mean = nn.AdaptiveAvgPool2d(1)
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, images: Tensor) -> Tensor:
        return self.scale * (self.mean(images).mean(1).flatten(1) - 0.5) ** 2


def flat(*means: float) -> Tensor:
    return torch.tensor(means)[:, None, None, None].expand(-1, 3, 4, 4)


#: Along brightness the logit rises for 0.6, 0.7 and 0.9 and falls for 0.2.
INPUTS = flat(0.2, 0.6, 0.7, 0.9)


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


def found_in(root: Path, model: nn.Module | None = None, **settings: object) -> dict[str, TCAVScore]:
    return tcav_folders(model or Brightness(), ["mean"], root, INPUTS, 0, **settings)


@pytest.mark.parametrize("method", ["svm", "mean"])
def test_scores_by_hand(root: Path, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Four sets are fewer than a test needs, and as many as one can follow by hand.
    monkeypatch.setattr("captum_concepts.tcav.folders.LEAST_SETS", 4)
    found = found_in(root, method=method)
    assert list(found) == ["bright", "nothing", "own"]
    bright, nothing, own = (each.layers["mean"] for each in found.values())
    assert bright.scores == (0.75,) * 4
    # Brighter than two of the sets and darker than two: what knows nothing is at chance.
    assert nothing.scores == (0.75, 0.75, 0.25, 0.25)
    assert nothing.score == 0.5
    assert nothing.p_value == pytest.approx(1)
    assert not nothing.passed
    # Each set against the three others, from the darkest.
    expected = [0.25, (0.75 + 2 * 0.25) / 3, (2 * 0.75 + 0.25) / 3, 0.75]
    for each in (bright, nothing, own):
        np.testing.assert_allclose(each.random_scores, expected)
        assert each.random_mean == pytest.approx(0.5)
    # Their deviation .2151657, times 3 / 4 for what sets share, times sqrt(5 / 4): .1804220; .25 is 1.385641 of it,
    # beyond which Student's t with 3 degrees lies with .1300 on either side.
    assert bright.p_value == pytest.approx(0.2600, abs=1e-4)
    assert math.isnan(found["bright"].score)
    assert found_in(root, alpha=0.3)["bright"].score == 0.75
    # Of its own negatives: one score, and no test.
    assert own.scores == (0.25,)
    assert math.isnan(own.p_value)


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
        for i in range(24):
            pixels = rng.integers(60, 160, (4, 4, 3)) + np.array([red, 0, 0])
            Image.fromarray(pixels.astype(np.uint8)).save(tmp_path / name / f"{i}.png")

    fill("red", 90)
    fill("nothing", 0)
    for number in range(6):
        fill(f"random{number}", 0)
    inputs = torch.rand(40, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    model = Red()
    with untouched(model, inputs):
        found = tcav_folders(model, ["hidden"], tmp_path, inputs, 0, method="mean", batch_size=5)
    red, nothing = found["red"].layers["hidden"], found["nothing"].layers["hidden"]
    assert min(red.scores) > 0.9
    assert red.passed
    assert not nothing.passed
    assert nothing.p_value > 0.1
    with simulated_device() as simulation:
        there = tcav_folders(copy.deepcopy(model).to(simulation.device), ["hidden"], tmp_path, inputs, 0, method="mean")
    assert there["red"].layers == found["red"].layers


def test_folders_that_say_too_little(tmp_path: Path) -> None:
    write(tmp_path / "bright", 220, 230)
    for number, level in enumerate((30, 50)):
        write(tmp_path / f"random_{number}", level, level + 4)
    with pytest.warns(UserWarning, match="Expected at least 5 folders of random images for p-values but got 2"):
        found = found_in(tmp_path)
    assert found["bright"].layers["mean"].score == 0.75
    assert math.isnan(found["bright"].layers["mean"].p_value)
    # The same images twice: what has no direction is undecided.
    for number in (2, 3, 4):
        write(tmp_path / f"random_{number}", 30, 34)
    twice = found_in(tmp_path)["bright"].layers["mean"]
    assert math.isnan(twice.p_value)
    assert twice.score == 0.75
    with pytest.raises(ValueError, match=r"layer 'mean' to give finite numbers but .* for 12 of 12 images"):
        found_in(tmp_path, transform=lambda image: torch.full((3, 4, 4), math.nan))
    with pytest.raises(ValueError, match=r"`transform` .* `inputs`, \(C, H, W\) = \(3, 4, 4\), but got \(3, 2, 2\)"):
        found_in(tmp_path, transform=lambda image: torch.zeros(3, 2, 2))


def test_scores_are_drawn_with_their_spread(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("captum_concepts.tcav.folders.LEAST_SETS", 4)
    found = found_in(root)
    figure, ax = found.plot()
    heights = [bar.get_height() for bar in ax.patches]
    each = [score.layers["mean"] for score in found.values()]
    assert heights == pytest.approx([*(layer.score for layer in each), each[0].random_mean])
    assert [label.get_text() for label in ax.get_xticklabels()] == ["bright", "nothing", "own", "random"]
    # The concept between the sets reaches from .25 to .75.
    (line,) = ax.containers[3].lines[2]
    assert line.get_segments()[0][:, 1].tolist() == pytest.approx([0.25, 0.75])
    stars = sum(text.get_text() == "*" for text in ax.texts)
    assert stars == sum(layer.passed for layer in each)
    figure.canvas.draw()
