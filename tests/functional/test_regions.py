from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from quantus_concepts.functional import point_hits, regions, threshold_hits
from reference import clm as reference
from reference.chance import at_chance
from refusals import refusals

NAN = float("nan")
ALPHAS = (1, 3, 6)


def every_pixel(size):
    """Points (M1 * M2, 1, 2), one at the centre of each pixel."""
    y, x = torch.meshgrid(torch.arange(size[0]), torch.arange(size[1]), indexing="ij")
    return torch.stack([x, y], -1).reshape(-1, 1, 2).float()


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


class TestPointHits:
    # 12 pixels in a row with values 12, 11, ... 1: the region of alpha is the first alpha of them.
    FALLING = torch.arange(12.0, 0, -1).reshape(1, 1, 12)

    @pytest.mark.parametrize(
        ("x", "expected"),
        [
            (0.0, [1, 1, 1, 0.5]),
            (0.4, [1, 1, 1, 0.5]),
            (0.5, [0, 0.5, 1, 0]),  # to the nearest pixel, halves up
            (1.49, [0, 0.5, 1, 0]),
            (1.5, [0, 0, 1, 0]),
            (2.0, [0, 0, 1, 0]),
            (3.0, [0, 0, 0, 0]),
            (-0.5, [1, 1, 1, 0.5]),
            (-1.0, [1, 1, 1, 0.5]),  # half a pixel beyond the border
            (12.0, [0, 0, 0, 0]),
        ],
    )
    def test_by_hand(self, x, expected):
        hits = point_hits(self.FALLING, torch.tensor([[[x, 0.0]]]), (1, 12), (1, 1.5, 3, 0.5))
        assert hits.tolist() == [expected]

    def test_ties_share_what_is_left_of_the_region(self):
        # Values 3, 2, 2, 2, 1 ... 1: after the one larger pixel, alpha - 1 of the region for three pixels.
        maps = torch.tensor([[[3.0, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1]]])
        for x in (1.0, 2.0, 3.0):
            hits = point_hits(maps.double(), torch.tensor([[[x, 0.0]]]), (1, 12), (1, 2, 3, 4, 6))
            np.testing.assert_allclose(hits, [[0, 1 / 3, 2 / 3, 1, 1]], atol=1e-15)
        np.testing.assert_allclose(
            point_hits(maps.double(), torch.tensor([[[9.0, 0.0]]]), (1, 12), (4, 5, 12)), [[0, 1 / 8, 1]], atol=1e-15
        )

    def test_x_is_the_column(self):
        maps = torch.arange(24.0).reshape(1, 4, 6)
        assert point_hits(maps, torch.tensor([[[5.0, 3.0]]]), (4, 6), (0.5,)).item() == 1
        assert point_hits(maps, torch.tensor([[[3.0, 3.0]]]), (4, 6), (0.5,)).item() == 0
        assert point_hits(maps, torch.tensor([[[0.0, 3.0]]]), (4, 6), (3,)).item() == 1
        assert point_hits(maps, torch.tensor([[[5.0, 2.0]]]), (4, 6), (3,)).item() == 0

    def test_the_best_visible_place_counts(self):
        points = torch.tensor([[[5.0, 0.0], [0.0, 0.0]], [[5.0, 0.0], [NAN, 0.0]], [[NAN, NAN], [NAN, NAN]]])
        hits = point_hits(self.FALLING.expand(3, 1, 12), points, (1, 12), (1, 6))
        np.testing.assert_array_equal(hits, [[1, 1], [0, 1], [NAN, NAN]])

    @pytest.mark.parametrize("bad", [NAN, torch.inf, -torch.inf])
    def test_a_map_that_is_not_finite_is_undefined_wherever_the_place_is(self, bad):
        maps = torch.rand(2, 7, 7)
        maps[0, 6, 6] = bad
        hits = point_hits(maps, torch.ones(2, 1, 2), (56, 56), ALPHAS)
        assert hits[0].isnan().all()
        assert hits[1].isfinite().all()

    @pytest.mark.parametrize("value", [0.0, 0.1, -0.3, 1e6 + 0.1, 1e-38, -1e30])
    @pytest.mark.parametrize(
        ("shape", "size"),
        [((7, 7), (224, 224)), ((5, 3), (13, 37)), ((1, 1), (9, 9)), ((14, 14), (8, 8)), ((6, 6), (6, 6))],
    )
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_a_constant_map_scores_exactly_alpha_twelfths(self, value, shape, size, dtype):
        alphas = (0.01, 1, 2.5, 3, 6, 12)
        maps = torch.full((1, *shape), value, dtype=dtype)
        points = torch.tensor([[[3.0, 2.0]]])
        expected = (torch.tensor(alphas, dtype=torch.float64) / 12).to(dtype)
        hits = point_hits(maps, points, size, alphas)[0]
        if dtype == torch.float32:
            assert torch.equal(hits, expected)
        else:
            np.testing.assert_allclose(hits, expected, rtol=1e-15)

    @pytest.mark.parametrize(
        ("shape", "size"),
        [((7, 7), (16, 16)), ((5, 3), (13, 11)), ((1, 4), (9, 16)), ((20, 11), (8, 13)), ((12, 12), (12, 12))],
    )
    @pytest.mark.parametrize("places", [1, 3])
    def test_agrees_with_the_reference(self, shape, size, places):
        maps, points = random_case(shape, size, places=places)
        expected = reference.point_hits(maps, points, size, (0.1, *ALPHAS, 12))
        assert np.isfinite(expected).any(1).sum() == (8 if places == 3 else 6)
        np.testing.assert_allclose(point_hits(maps, points, size, (0.1, *ALPHAS, 12)), expected, atol=1e-6)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_agrees_with_the_reference_under_ties(self, dtype):
        # Whole numbers and weights that are sixteenths: ties are exact in both.
        maps, points = random_case((4, 4), (16, 16), count=30, dtype=dtype)
        maps = torch.where(maps.isfinite(), maps.sign(), maps)
        expected = reference.point_hits(maps, points, (16, 16), ALPHAS)
        assert ((expected > 0) & (expected < 1)).sum() > 5
        np.testing.assert_allclose(point_hits(maps, points, (16, 16), ALPHAS), expected, atol=1e-6)

    @pytest.mark.parametrize("kind", ["noise", "tied", "peak"])
    @pytest.mark.parametrize("alpha", [0.37, 1, 6])
    def test_hits_of_all_pixels_add_up_to_the_region(self, kind, alpha):
        # Hence a uniformly random place scores alpha / 12 in expectation, on any map.
        cells = torch.randn(1, 6, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        if kind == "tied":
            cells = cells.round()
        elif kind == "peak":
            cells = torch.zeros_like(cells).index_fill(2, torch.tensor([2]), 1.0)
        size = (24, 20)
        points = every_pixel(size)
        hits = point_hits(cells.expand(len(points), 6, 5), points, size, (alpha,))
        assert hits.sum().item() == pytest.approx(alpha * 24 * 20 / 12, abs=1e-9)

    @pytest.mark.parametrize("alpha", [1, 3, 6])
    def test_white_noise_scores_alpha_twelfths(self, alpha):
        # At the size of the image pixels are exchangeable: chance for any place, here always the same.
        maps = torch.randn(20 * 400, 16, 16, generator=torch.Generator().manual_seed(0))
        hits = point_hits(maps, torch.tensor([[[7.0, 3.0]]]).expand(len(maps), 1, 2), (16, 16), (alpha,))
        assert at_chance(hits.reshape(20, 400), alpha / 12)
        assert not at_chance(hits.reshape(20, 400), alpha / 12 + 0.06)

    @pytest.mark.parametrize("kind", ["noise", "corner", "tied"])
    @pytest.mark.parametrize("alpha", [1, 3, 6])
    def test_random_places_score_alpha_twelfths_on_any_map(self, kind, alpha):
        generator = torch.Generator().manual_seed(0)
        maps = torch.randn(20 * 400, 5, 5, generator=generator)
        if kind == "corner":
            maps = maps - 9 * torch.arange(25.0).reshape(5, 5)
        elif kind == "tied":
            maps = (maps > 1).float()
        # Uniform over pixels: from half a pixel before the first to half a pixel after the last.
        points = torch.rand(len(maps), 1, 2, generator=generator) * torch.tensor([30.0, 20.0]) - 0.5
        hits = point_hits(maps, points, (20, 30), (alpha,))
        assert at_chance(hits.reshape(20, 400), alpha / 12)
        if kind == "corner":
            # Places that know where the map is high are not at chance.
            assert not at_chance(point_hits(maps, points / 3, (20, 30), (alpha,)).reshape(20, 400), alpha / 12)

    def test_bounds_and_monotonous_in_alpha(self):
        maps, points = random_case((7, 7), (32, 32), count=40, places=1)
        hits = point_hits(maps, points, (32, 32), tuple(np.linspace(0.2, 12, 20)))
        hits = hits[hits.isfinite().all(1)]
        assert len(hits) == 34
        assert ((hits >= 0) & (hits <= 1)).all()
        assert (hits.diff(dim=1) >= 0).all()
        assert (hits[:, -1] == 1).all()

    @pytest.mark.parametrize("chunk", [1, 3 * 32 * 32, 2**30])
    def test_no_hit_depends_on_the_batch_or_the_chunk(self, monkeypatch, chunk):
        maps, points = random_case((7, 7), (32, 32), count=40, dtype=torch.float32)
        hits = point_hits(maps, points, (32, 32), ALPHAS)
        monkeypatch.setattr(regions, "_CHUNK_OF_THREAD", chunk)
        np.testing.assert_array_equal(point_hits(maps, points, (32, 32), ALPHAS), hits)
        one_by_one = [point_hits(maps[i : i + 1], points[i : i + 1], (32, 32), ALPHAS) for i in range(40)]
        np.testing.assert_array_equal(torch.cat(one_by_one), hits)
        # As one of several parts of its map, too.
        parts = regions.pixels_of(torch.stack([points.flip(0), points], 1), (32, 32))
        np.testing.assert_array_equal(regions.hits_of_parts(maps, parts, (32, 32), ALPHAS)[:, 1], hits)
        order = torch.randperm(40, generator=torch.Generator().manual_seed(1))
        np.testing.assert_array_equal(point_hits(maps[order], points[order], (32, 32), ALPHAS), hits[order])

    def test_arguments_are_not_changed(self):
        maps, points = random_case((7, 7), (7, 7))
        maps.requires_grad_(True)
        before = maps.detach().clone(), points.clone()
        assert not point_hits(maps, points, (7, 7), ALPHAS).requires_grad
        np.testing.assert_array_equal(maps.detach(), before[0])
        np.testing.assert_array_equal(points, before[1])

    @pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
    def test_a_gpu_agrees_with_the_cpu(self):
        maps, points = random_case((7, 7), (64, 64), count=40)
        hits = point_hits(maps.cuda(), points.cuda(), (64, 64), ALPHAS)
        assert hits.is_cuda
        np.testing.assert_allclose(hits.cpu(), point_hits(maps, points, (64, 64), ALPHAS), atol=1e-6)


class TestThresholdHits:
    def test_by_hand(self):
        # Four pixels for two cells: 0, 1, 3, 4.
        maps = torch.tensor([[[0.0, 4.0]]]).expand(5, 1, 2)
        points = torch.tensor([[[0.0, 0]], [[1.0, 0]], [[2.0, 0]], [[4.0, 0]], [[NAN, 0]]])
        np.testing.assert_array_equal(threshold_hits(maps, points, (1, 4), 3.0), [0, 0, 1, 1, NAN])
        np.testing.assert_array_equal(threshold_hits(maps, points, (1, 4), 3.1), [0, 0, 0, 1, NAN])

    @pytest.mark.parametrize(("shape", "size"), [((7, 7), (16, 16)), ((5, 3), (13, 11)), ((20, 11), (8, 13))])
    def test_agrees_with_the_reference(self, shape, size):
        maps, points = random_case(shape, size, count=40)
        for threshold in (-0.5, 0.0, 0.7):
            expected = reference.threshold_hits(maps, points, size, threshold)
            assert np.nanmin(expected) == 0
            assert np.nanmax(expected) == 1
            np.testing.assert_array_equal(threshold_hits(maps, points, size, threshold), expected)


def hits(**changed: Any) -> Tensor:
    return point_hits(**{"maps": torch.zeros(2, 7, 7), "points": torch.zeros(2, 1, 2), "size": (9, 9), **changed})


test_refused = refusals(
    (lambda: hits(maps=torch.ones(7, 7)), r"`maps` to have shape \(B, h, w\)"),
    (lambda: hits(maps=torch.ones(2, 0, 7)), "`maps` to have at least one entry"),
    (lambda: hits(points=torch.ones(2, 2)), r"`points` to have shape \(B, Q, 2\)"),
    (lambda: hits(points=torch.ones(2, 0, 2)), "`points` to have at least one entry"),
    (lambda: hits(size=(9,)), r"`size` to be \(M1, M2\)"),
    (lambda: hits(alphas=(0,)), r"`alphas` to lie in \(0, 12\]"),
    (lambda: hits(alphas=()), "`alphas` to hold at least one"),
    (lambda: hits(points=torch.full((2, 1, 2), 9.1)), "`points` .* 2 of them are outside, .* map 0, place 0 with"),
    (lambda: hits(points=torch.full((2, 1, 2), torch.inf)), r"`points` .*\(x, y\) = \(inf, inf\).*NaN where"),
    (
        lambda: threshold_hits(torch.zeros(2, 7, 7), torch.tensor([[[3.0, 8.0]], [[torch.nan, 99.0]]]), (4, 12), 0.5),
        r"`points` .* 1 of them .* with \(x, y\) = \(3, 8\)\. It would be inside",
    ),
    (lambda: threshold_hits(torch.zeros(2, 7, 7), torch.zeros(2, 1, 2), (9, 9), torch.nan), "`threshold` to lie"),
)
