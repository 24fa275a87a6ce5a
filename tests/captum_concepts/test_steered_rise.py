"""SteeredRISE: RISE itself at lambda 0, the score at lambda 1, and whatever an attribution owes its hosts."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor, nn

from captum_concepts.attributions.steered_rise import RandomMasks, SteeredRISE
from reference.clm import upsample
from tiny_models import seeded

SETTINGS = {"n_masks": 40, "cells": (3, 4), "seed": 5}
TARGETS = torch.tensor([0, 2, 4, 1, 3])


def net(seed: int = 0) -> nn.Module:
    parts = (nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.5), nn.Flatten(), nn.Linear(396, 5))
    return seeded(nn.Sequential(*parts).eval(), seed)


@pytest.fixture
def images() -> Tensor:
    return torch.randn(5, 3, 11, 13, generator=torch.Generator().manual_seed(0))


def coverage_score(images: Tensor, masks: Tensor, targets: Tensor | None) -> Tensor:
    """Score a mask by how much of the upper half it shows, weighted by the image."""
    share = masks[:, : masks.shape[1] // 2].mean((1, 2))
    return share * images.flatten(1).mean(1).sigmoid() * (1 if targets is None else 1 / (1 + targets))


def slow_masks(size: tuple[int, int], p: float = 0.5) -> np.ndarray:
    """Return masks by RISE's recipe: grids enlarged pixel by pixel in float64, and cut out."""
    masks = RandomMasks.draw(SETTINGS["n_masks"], size, SETTINGS["cells"], p, SETTINGS["seed"])
    lengths = [(s + 1) * math.ceil(side / s) for side, s in zip(size, SETTINGS["cells"], strict=True)]
    enlarged = [upsample(grid, lengths) for grid in masks.grids]
    places = zip(enlarged, masks.rows.tolist(), masks.columns.tolist(), strict=True)
    return np.stack([mask[top : top + size[0], left : left + size[1]] for mask, top, left in places])


def rise_by_hand(model: nn.Module, images: Tensor, targets: Tensor, lam: float = 0.0, p: float = 0.5) -> np.ndarray:
    """RISE and its steered form, one mask and one image at a time."""
    masks = slow_masks(tuple(images.shape[2:]), p)
    maps = np.zeros((len(images), *images.shape[2:]))
    with torch.no_grad():
        for i, image in enumerate(images):
            for mask in masks:
                visible = torch.as_tensor(mask, dtype=images.dtype)
                weight = 0.0
                if lam < 1:
                    weight += (1 - lam) * float(model((image * visible)[None]).softmax(1)[0, targets[i]])
                if lam > 0:
                    weight += lam * float(coverage_score(image[None], visible[None], targets[i : i + 1]))
                maps[i] += weight * mask
    return maps / (len(masks) * p)


@pytest.mark.parametrize(("lam", "dtype"), [(0, torch.float64), (0.7, torch.float32), (1, torch.float64)])
def test_agrees_with_a_plain_rise_over_the_same_masks(images, lam, dtype):
    model, images = net().to(dtype), images.to(dtype)
    attribution = SteeredRISE(model, coverage_score)
    maps = attribution.attribute(images, TARGETS, lam=lam, p=0.4, **SETTINGS)
    assert maps.shape == (5, 1, 11, 13)
    assert maps.dtype == dtype
    assert maps.is_contiguous()
    np.testing.assert_allclose(maps[:, 0], rise_by_hand(model, images, TARGETS, lam, 0.4), atol=1e-6, rtol=0)
    (shaped,) = attribution.attribute((images,), TARGETS, input_shaped=True, lam=lam, p=0.4, **SETTINGS)
    assert shaped.shape == images.shape
    torch.testing.assert_close(shaped.sum(1, keepdim=True), maps)


def test_lambda_0_is_rise_without_a_score_and_lambda_1_does_not_ask_the_model(images):
    model = net()
    alone = SteeredRISE(model).attribute(images, TARGETS, lam=0, **SETTINGS)

    def never(*arguments: object) -> Tensor:
        pytest.fail("called")

    assert torch.equal(SteeredRISE(model, never).attribute(images, TARGETS, lam=0, **SETTINGS), alone)
    only_score = SteeredRISE(never, coverage_score).attribute(images, TARGETS, lam=1, **SETTINGS)
    between = SteeredRISE(model, coverage_score).attribute(images, TARGETS, lam=0.25, **SETTINGS)
    torch.testing.assert_close(between, 0.75 * alone + 0.25 * only_score, atol=1e-6, rtol=0)


def test_by_hand():
    masks = RandomMasks(torch.tensor([[[1.0, 0], [0, 0]]]), torch.tensor([0]), torch.tensor([0]), (2, 2))
    # Two cells become three pixels: the first cell, half of each, and the second cell, which is cut off.
    down = torch.tensor([[1.0, 0], [0.5, 0.5]])
    torch.testing.assert_close(masks.render(slice(0, 1))[0], down @ masks.grids[0] @ down.T)


def test_masks_have_the_requested_mean_and_range():
    masks = RandomMasks.draw(2000, (28, 30), (7, 7), 0.3, seed=1).render(slice(None))
    assert masks.min() >= 0
    assert masks.max() <= 1
    # Every pixel is kept with probability 0.3 on average: its mean over masks has a deviation of at most 0.01.
    assert abs(masks.mean((0,)) - 0.3).max() < 0.05
    assert abs(float(masks.mean()) - 0.3) < 0.005
    rows = RandomMasks.draw(4000, (28, 30), (7, 7)).rows
    assert sorted(set(rows.tolist())) == [0, 1, 2, 3]
    assert stats.chisquare(rows.bincount().numpy()).pvalue > 1e-3


def test_depends_on_neither_batch_nor_company(images):
    attribution = SteeredRISE(net(), coverage_score)
    maps = attribution.attribute(images, TARGETS, **SETTINGS)
    again = attribution.attribute(images, TARGETS, batch_size=7, **SETTINGS)
    torch.testing.assert_close(again, maps, atol=1e-6, rtol=0)
    order = torch.tensor([4, 0, 2])
    moved = attribution.attribute(images[order], TARGETS[order], **SETTINGS)
    torch.testing.assert_close(moved, maps[order], atol=1e-6, rtol=0)
    assert torch.equal(attribution.attribute(images, TARGETS, **SETTINGS), maps)
    assert not torch.allclose(attribution.attribute(images, TARGETS, **{**SETTINGS, "seed": 6}), maps, atol=1e-3)


def test_baselines_show_where_the_mask_hides(images):
    attribution = SteeredRISE(net())
    settings = {**SETTINGS, "lam": 0, "target": TARGETS}
    plainly = attribution.attribute(images, **settings)
    assert torch.equal(attribution.attribute(images, baselines=torch.zeros(1, 3, 11, 13), **settings), plainly)
    # An image hidden by itself is always seen, so that all masks weigh the same.
    maps = attribution.attribute((images,), baselines=(images,), batch_size=3, **settings)[0]
    masks = torch.tensor(slow_masks((11, 13))).float().mean(0) / 0.5
    with torch.no_grad():
        probability = net()(images).softmax(1).gather(1, TARGETS[:, None])
    torch.testing.assert_close(maps[:, 0], probability[:, :, None] * masks, atol=1e-6, rtol=0)


def test_further_arguments_follow_their_images(images):
    scale = torch.arange(5.0)[:, None]
    attribution = SteeredRISE(lambda images, scale, shift: images.flatten(1)[:, :5] * scale + shift)
    settings = {**SETTINGS, "lam": 0}
    maps = attribution.attribute(images, TARGETS, (scale, 1.0), batch_size=2, **settings)
    for i in range(5):
        attribution_alone = SteeredRISE(lambda x, i=i: x.flatten(1)[:, :5] * i + 1.0)
        expected = attribution_alone.attribute(images[i : i + 1], int(TARGETS[i]), **settings)
        torch.testing.assert_close(maps[i : i + 1], expected, atol=1e-6, rtol=0)


def test_activations_and_half_precision():
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 1)).to(torch.bfloat16)
    images = torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16)
    settings = {"lam": 0, "n_masks": 10, "cells": 4}
    maps = SteeredRISE(model).attribute(images, activation="sigmoid", **settings)
    assert maps.dtype == torch.float32
    model, images = model.float(), images.float()
    exact = SteeredRISE(model).attribute(images, activation="sigmoid", **settings)
    torch.testing.assert_close(maps, exact, atol=0.01, rtol=0)
    same = SteeredRISE(lambda x: model(x)[:, 0].sigmoid()).attribute(images, 0, activation="none", **settings)
    torch.testing.assert_close(same, exact)
    with pytest.raises(ValueError, match="model of one output"):
        SteeredRISE(model).attribute(images, **settings)


def test_bad_arguments(images):
    attribution = SteeredRISE(net(), coverage_score)
    with pytest.raises(ValueError, match="`target` to name one of 5 classes but got None"):
        attribution.attribute(images, None, **SETTINGS)
    with pytest.raises(ValueError, match="Use 'softmax' or 'sigmoid'"):
        attribution.attribute(images, TARGETS, activation="none", **SETTINGS)
    with pytest.raises(ValueError, match=r"`lam` to lie in \[0, 1\]"):
        attribution.attribute(images, TARGETS, lam=1.5, **SETTINGS)
    for target, message in ((5, "since there are 5, but got 5"), (-1, "but got -1 at 0")):
        with pytest.raises(ValueError, match=message):
            attribution.attribute(images, target, **SETTINGS)
    with pytest.raises(ValueError, match="`cells` to be a whole number or two"):
        attribution.attribute(images, TARGETS, cells=(3, 3, 3))


@pytest.mark.parametrize(
    ("score", "message"),
    [
        (None, "`score_func` for `lam` = 0.5 but it is None"),
        (lambda x, m, t: torch.full((len(m),), 3.5), "from 3.5 to 3.5"),
        (lambda x, m, t: torch.where(m.mean((1, 2)) > 0.6, torch.nan, 0.5), "got NaN"),
        (lambda x, m, t: torch.zeros(len(m), 1), "one score for each mask"),
    ],
)
def test_bad_scores(images, score, message):
    with pytest.raises(ValueError, match=message):
        SteeredRISE(net(), score).attribute(images, TARGETS, **SETTINGS)
