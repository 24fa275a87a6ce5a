from __future__ import annotations

import numpy as np
import pytest
import torch

from quantus_concepts.functional import point_hits, threshold_hits
from quantus_concepts.functional.attribution import regions
from reference import clm as reference
from refusals import refusals

NAN = float("nan")
ALPHAS = (1, 3, 6)


def random_case(shape, size, count=12, places=2, seed=0, dtype=torch.float64):
    """Maps and places, some not visible, some just beside the image, and maps that are not finite."""
    generator = torch.Generator().manual_seed(seed)
    maps = torch.randn(count, *shape, generator=generator, dtype=dtype)
    # From half a pixel before the border to half a pixel after it.
    points = torch.rand(count, places, 2, generator=generator, dtype=dtype)
    points = points * (torch.tensor([size[1], size[0]]) + 1) - 1
    points[1, 0] = NAN
    points[2] = NAN
    points[3, 0, 1] = NAN
    maps[4, 0, 0] = NAN
    maps[5, 0, 0] = torch.inf
    maps[6, 0, 0] = -torch.inf
    return maps, points


# 12 pixels in a row with values 12, 11, ... 1: the region of alpha is the first alpha of them.
FALLING = torch.arange(12.0, 0, -1).reshape(1, 1, 12)


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        (0.0, [1, 1, 1, 0.5]),
        (0.5, [0, 0.5, 1, 0]),  # to the nearest pixel, halves up
        (1.49, [0, 0.5, 1, 0]),
        (1.5, [0, 0, 1, 0]),
        (-1.0, [1, 1, 1, 0.5]),  # half a pixel beyond the border
        (12.0, [0, 0, 0, 0]),
    ],
)
def test_hits_by_hand(x, expected):
    hits = point_hits(FALLING, torch.tensor([[[x, 0.0]]]), (1, 12), (1, 1.5, 3, 0.5))
    assert hits.tolist() == [expected]


def test_hits_ties_share_what_is_left_of_the_region():
    # Values 3, 2, 2, 2, 1 ... 1: after the one larger pixel, alpha - 1 of the region for three pixels.
    maps = torch.tensor([[[3.0, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1]]])
    for x in (1.0, 2.0, 3.0):
        hits = point_hits(maps.double(), torch.tensor([[[x, 0.0]]]), (1, 12), (1, 2, 3, 4, 6))
        np.testing.assert_allclose(hits, [[0, 1 / 3, 2 / 3, 1, 1]], atol=1e-15)
    np.testing.assert_allclose(
        point_hits(maps.double(), torch.tensor([[[9.0, 0.0]]]), (1, 12), (4, 5, 12)), [[0, 1 / 8, 1]], atol=1e-15
    )


def test_hits_the_best_visible_place_counts_and_x_is_the_column():
    points = torch.tensor([[[5.0, 0.0], [0.0, 0.0]], [[5.0, 0.0], [NAN, 0.0]], [[NAN, NAN], [NAN, NAN]]])
    hits = point_hits(FALLING.expand(3, 1, 12), points, (1, 12), (1, 6))
    np.testing.assert_array_equal(hits, [[1, 1], [0, 1], [NAN, NAN]])
    for x, y, hit in ((5.0, 3.0, 1), (3.0, 3.0, 0), (5.0, 2.0, 0)):
        assert point_hits(torch.arange(24.0).view(1, 4, 6), torch.tensor([[[x, y]]]), (4, 6), (0.5,)).item() == hit


@pytest.mark.parametrize("value", [0.1, 1e6 + 0.1, -1e30])
@pytest.mark.parametrize(("shape", "size"), [((7, 7), (224, 224)), ((5, 3), (13, 37)), ((14, 14), (8, 8))])
def test_hits_a_constant_map_scores_exactly_alpha_twelfths(value, shape, size):
    alphas = (0.01, 1, 2.5, 3, 6, 12)
    hits = point_hits(torch.full((1, *shape), value), torch.tensor([[[3.0, 2.0]]]), size, alphas)
    assert torch.equal(hits[0], (torch.tensor(alphas, dtype=torch.float64) / 12).float())


@pytest.mark.parametrize(
    ("shape", "size", "places"),
    [((5, 3), (13, 11), 3), ((1, 4), (9, 16), 1), ((20, 11), (8, 13), 3), ((12, 12), (12, 12), 1)],
)
def test_hits_agrees_with_the_reference(shape, size, places):
    maps, points = random_case(shape, size, places=places)
    expected = reference.point_hits(maps, points, size, (0.1, *ALPHAS, 12))
    assert np.isfinite(expected).any(1).sum() == (8 if places == 3 else 6)
    np.testing.assert_allclose(point_hits(maps, points, size, (0.1, *ALPHAS, 12)), expected, atol=1e-6)


def test_hits_agrees_with_the_reference_under_ties():
    # Whole numbers and weights that are sixteenths: ties are exact in both.
    maps, points = random_case((4, 4), (16, 16), count=30)
    maps = torch.where(maps.isfinite(), maps.sign(), maps)
    expected = reference.point_hits(maps, points, (16, 16), ALPHAS)
    assert ((expected > 0) & (expected < 1)).sum() > 5
    np.testing.assert_allclose(point_hits(maps, points, (16, 16), ALPHAS), expected, atol=1e-6)


@pytest.mark.parametrize("chunk", [1, 3 * 32 * 32])
def test_hits_no_hit_depends_on_the_batch_or_the_chunk(monkeypatch, chunk):
    maps, points = random_case((7, 7), (32, 32), count=40, dtype=torch.float32)
    hits = point_hits(maps, points, (32, 32), ALPHAS)
    monkeypatch.setattr(regions, "_CHUNK_OF_THREAD", chunk)
    np.testing.assert_array_equal(point_hits(maps, points, (32, 32), ALPHAS), hits)
    one_by_one = [point_hits(maps[i : i + 1], points[i : i + 1], (32, 32), ALPHAS) for i in range(40)]
    np.testing.assert_array_equal(torch.cat(one_by_one), hits)
    # As one of several parts of its map, too.
    parts = regions.pixels_of(torch.stack([points.flip(0), points], 1), (32, 32))
    np.testing.assert_array_equal(regions.pixel_hits(maps, parts, (32, 32), ALPHAS)[:, 1], hits)


def test_thresholds_by_hand():
    # Four pixels for two cells: 0, 1, 3, 4.
    maps = torch.tensor([[[0.0, 4.0]]]).expand(5, 1, 2)
    points = torch.tensor([[[0.0, 0]], [[1.0, 0]], [[2.0, 0]], [[4.0, 0]], [[NAN, 0]]])
    np.testing.assert_array_equal(threshold_hits(maps, points, (1, 4), 3.0), [0, 0, 1, 1, NAN])
    np.testing.assert_array_equal(threshold_hits(maps, points, (1, 4), 3.1), [0, 0, 0, 1, NAN])


@pytest.mark.parametrize(("shape", "size"), [((5, 3), (13, 11)), ((20, 11), (8, 13))])
def test_thresholds_agrees_with_the_reference(shape, size):
    maps, points = random_case(shape, size, count=40)
    expected = reference.threshold_hits(maps, points, size, 0.3)
    assert (np.nanmin(expected), np.nanmax(expected)) == (0, 1)
    np.testing.assert_array_equal(threshold_hits(maps, points, size, 0.3), expected)


test_refused = refusals(
    (lambda: point_hits(torch.ones(2, 7, 7), torch.ones(2, 2), (9, 9)), r"`points` to have shape \(B, Q, 2\)"),
    (lambda: point_hits(torch.ones(2, 7, 7), torch.ones(2, 0, 2), (9, 9)), "`points` to have at least one entry"),
    (lambda: point_hits(torch.ones(2, 7, 7), torch.ones(2, 1, 2), (9, 9), ()), "`alphas` to hold at least one"),
    (lambda: point_hits(torch.ones(2, 7, 7), torch.zeros(2, 1, 2), (9, 9), (0,)), r"`alphas` to lie in \(0, 12\]"),
    (lambda: point_hits(torch.ones(2, 7, 7), torch.full((2, 1, 2), 9.1), (9, 9)), "`points` .* 2 of them are outside"),
    (
        lambda: threshold_hits(torch.zeros(2, 7, 7), torch.tensor([[[3.0, 8.0]], [[torch.nan, 99.0]]]), (4, 12), 0.5),
        r"`points` .* 1 of them .* with \(x, y\) = \(3, 8\)\. It would be inside",
    ),
)
