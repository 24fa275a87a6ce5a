from __future__ import annotations

import numpy as np
import pytest
import torch

from quantus_concepts.functional import relative_contrast
from reference import attribution as reference
from refusals import refusals

SCORES = torch.tensor([[0.6, 0.8, torch.nan, 0.4], [0.3, 0.1, 0.2, torch.nan], [0.0, 0.0, 0.2, 0.2]]).double()
WITH = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0], [0, 1, 1, 1]]).bool()
WITHOUT = torch.tensor([[0, 0, 0, 1], [1, 0, 0, 0], [0, 1, 1, 0]]).bool()


def test_by_hand():
    result = relative_contrast(SCORES, WITH, WITHOUT)
    np.testing.assert_allclose(result.score.value, [0.6, 0.2, 0.1])
    np.testing.assert_allclose(result.drop.value, [0.75, 0.5, 0.25])
    assert relative_contrast(WITHOUT.logical_not() * -3.0, WITH | True, WITHOUT).correlation.value.item() == -1
    # deviations (0.3, -0.1, -0.2) and (0.25, 0, -0.25): 0.125 / sqrt(0.14 * 0.125)
    assert result.correlation.value.item() == pytest.approx(0.125 / (0.14 * 0.125) ** 0.5)


def test_agrees_with_the_reference():
    n_images, generator = 60, torch.Generator().manual_seed(60)
    scores = torch.randn(9, n_images, generator=generator) + torch.linspace(1, 0, 9)[:, None]
    scores[torch.rand(9, n_images, generator=generator) < 0.2] = torch.nan
    with_ = torch.rand(9, n_images, generator=generator) < 0.9
    without = torch.rand(9, n_images, generator=generator) < torch.linspace(0.2, 0.8, 9)[:, None]
    result = relative_contrast(scores, with_, without, n_resamples=200)
    curve, drop, correlation = reference.relative_contrast(scores.tolist(), with_.tolist(), without.tolist())
    for estimate, expected in zip(result, (curve, drop, correlation), strict=True):
        np.testing.assert_allclose(estimate.value, expected, atol=1e-6)
        assert ((estimate.low < estimate.value) & (estimate.value < estimate.high)).all()


def test_coverage_of_the_interval():
    generator = torch.Generator().manual_seed(1)
    none = torch.zeros(1, 60, dtype=torch.bool)
    hits = 0
    for seed in range(100):
        score = relative_contrast(torch.rand(1, 60, generator=generator), none, none, 400, seed).score
        hits += int((score.low <= 0.5).item() and (score.high >= 0.5).item())
    # 95 %, less about one of a bootstrap of 60; below 87 with a probability under 1 in 500
    assert hits >= 87


def test_without_a_defined_score_or_any_variation_it_is_undefined():
    scores = SCORES.clone()
    scores[1] = torch.nan
    result = relative_contrast(scores, WITH, WITHOUT)
    for value in result.score:
        np.testing.assert_array_equal(value.isnan(), [False, True, False])
    assert result.correlation.value.isnan()
    assert not result.drop.value.isnan().any()
    ones = torch.ones(3, 20, dtype=torch.bool)
    constant = relative_contrast(torch.full((3, 20), 0.3), ones, torch.rand(3, 20) < 0.5)
    assert all(value.isnan() for value in constant.correlation)


def test_the_seed_alone_decides_the_interval():
    generator = torch.Generator().manual_seed(2)
    scores, with_ = torch.rand(4, 50, generator=generator), torch.rand(4, 50, generator=generator) < 0.8
    without = torch.rand(4, 50, generator=generator) < 0.5
    state = torch.get_rng_state()
    first, same, other = (relative_contrast(scores, with_, without, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(state, torch.get_rng_state())
    for a, b, c in zip(first, same, other, strict=True):
        assert all(torch.equal(x, y) for x, y in zip(a, b, strict=True))
        assert not torch.equal(a.low, c.low)


test_refused = refusals(
    (lambda: relative_contrast(*torch.ones(2, 2, 3), torch.ones(2, 2)), "`correct_without` to have shape"),
    (lambda: relative_contrast(*torch.full((3, 2, 3), 0.5)), "`correct_with` to hold only 0 and 1"),
    (lambda: relative_contrast(*torch.ones(3, 2, 3), n_resamples=99), "`n_resamples` to be at least 100"),
)
