from __future__ import annotations

import numpy as np
import pytest
import torch

from quantus_concepts.functional import positive_percentile
from reference import attribution as reference
from refusals import refusals


def test_by_hand_over_several_channels():
    maps = np.array([[[[1.0, -5.0], [0.0, 3.0]], [[1.0, 1.0], [-1.0, 1.0]]]])
    # positive parts summed: 2, 1, 0, 4
    np.testing.assert_allclose(positive_percentile(maps, 100), [[[[0.5, 0.25], [0, 1]]]])
    # the 50th percentile of 0, 1, 2, 4 is 1.5: 1.5 / 1.5, 1 / 1.5, 0, 1.5 / 1.5
    np.testing.assert_allclose(positive_percentile(maps, 50), [[[[1, 2 / 3], [0, 1]]]])


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(("size", "percentile"), [((1, 1), 99.0), ((2, 3), 50.0), ((7, 29), 99.0), ((16, 16), 100.0)])
def test_agrees_with_the_reference(channels, size, percentile):
    rng = np.random.default_rng(size[0] * size[1] + channels)
    maps = rng.normal(size=(6, channels, *size)) ** 3
    # mostly zero, all negative, constant, ties
    maps[1] *= rng.random(maps[1].shape) < 0.02
    maps[2] = -np.abs(maps[2])
    maps[3] = 0.4
    maps[4] = maps[4].round()
    expected = reference.positive_percentile(maps, percentile)
    np.testing.assert_allclose(positive_percentile(maps, percentile), expected, atol=1e-6)
    without = positive_percentile(maps[:, 0], percentile)
    np.testing.assert_allclose(without, reference.positive_percentile(maps[:, :1], percentile)[:, 0], atol=1e-6)


def test_what_is_not_finite_spoils_its_image_only():
    maps = np.random.default_rng(2).normal(size=(3, 2, 20, 20))
    maps[1, 0, 2, 2] = -np.inf
    scaled = positive_percentile(maps)
    assert np.isnan(scaled[1]).all()
    assert np.isfinite(scaled[[0, 2]]).all()


@pytest.mark.parametrize("dtype", [np.float64, np.int64, np.uint8, bool])
def test_kinds_of_numbers(dtype):
    maps = (np.arange(12).reshape(1, 1, 3, 4) % 2).astype(dtype)
    scaled = positive_percentile(maps)
    assert scaled.dtype == (dtype if np.dtype(dtype).kind == "f" else np.float32)
    np.testing.assert_array_equal(scaled, maps)


@pytest.mark.parametrize("percentile", [50.0, 99.0])
def test_half_precision_takes_the_way_of_accelerators_to_the_same_values(percentile):
    # Values that half precision holds exactly, so that only the selection can differ.
    maps = np.random.default_rng(3).integers(-50, 50, (4, 3, 13, 11)).astype(np.float32)
    half = positive_percentile(torch.as_tensor(maps).half(), percentile)
    assert half.dtype == torch.float16
    np.testing.assert_allclose(half.float(), positive_percentile(maps, percentile), atol=2e-3)


test_refused = refusals(
    (lambda: positive_percentile(torch.ones(3)), r"`a` to have shape \(N, L, \.\.\.\)"),
    (lambda: positive_percentile(torch.ones(2, 3), 0), r"`percentile` to lie in \(0, 100\]"),
)
