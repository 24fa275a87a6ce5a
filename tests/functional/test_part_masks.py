"""Masks in the concept location metric: the middle pixel, and the share of the region."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from quantus_concepts.datasets import PaintedBirds
from quantus_concepts.functional import mask_centres, mask_shares, mask_threshold_shares, point_hits, region_scores
from reference import clm as reference
from refusals import refusals

NAN = float("nan")
ALPHAS = (1, 3, 6)


def draw_mask(*rows):
    return torch.tensor([[int(cell == "#") for cell in row] for row in rows])


def hits_of_masks(maps, masks, alphas=ALPHAS):
    return point_hits(maps, mask_centres(masks), tuple(masks.shape[1:]), alphas)


@pytest.fixture(scope="module")
def birds():
    data = PaintedBirds(n_images=80, split="test")
    masks = torch.cat([data.part_masks(i) for i in range(len(data))])
    return masks[masks.flatten(1).any(1)]


def test_centres_by_hand():
    masks = torch.stack(
        [
            draw_mask("##....", "##....", "##...."),  # the two in the middle row are equally near: the first
            draw_mask("#####.", "#.....", "#####."),  # the centroid (19, 11) / 11 lies beside the bend
            draw_mask("#...##", ".#....", "....#."),  # touching at a corner is one part
            draw_mask("......", "......", "......"),
        ]
    )
    expected = [
        [[0, 1], [NAN, NAN], [NAN, NAN]],
        [[2, 0], [NAN, NAN], [NAN, NAN]],
        [[0, 0], [4, 0], [4, 2]],
        [[NAN, NAN]] * 3,
    ]
    np.testing.assert_array_equal(mask_centres(masks), expected)
    assert mask_centres(masks[3:]).shape == (1, 1, 2)
    assert mask_centres(masks[:0]).shape == (0, 1, 2)


@pytest.mark.parametrize("density", [0.03, 0.6])
def test_centres_agrees_with_the_reference(density):
    masks = torch.rand(15, 9, 13, generator=torch.Generator().manual_seed(0)) < density
    for mask, centres in zip(masks, mask_centres(masks), strict=True):
        expected = reference.mask_centres(mask)
        assert sorted(map(tuple, centres[: len(expected)].int().tolist())) == sorted(expected)
        assert centres[len(expected) :].isnan().all()


def test_noise_scores_alpha_twelfths(birds):
    single = birds[~mask_centres(birds)[:, 1:].isfinite().any((1, 2))]
    assert len(single) > 750
    # In blocks of noise every pixel of a mask is still as likely in the region as any other of the image.
    maps = torch.randn(len(single), 8, 8, generator=torch.Generator().manual_seed(1))
    maps = maps.repeat_interleave(12, 1).repeat_interleave(12, 2)
    hits = hits_of_masks(maps, single)
    error = hits.std(0) / len(hits) ** 0.5
    np.testing.assert_array_less((hits.mean(0) - torch.tensor(ALPHAS) / 12).abs(), 3 * error)
    # Counting any marked pixel gave .83, 1.00 and 1.00.
    assert (hits.mean(0) < torch.tensor([0.12, 0.3, 0.55])).all()


def test_shares_of_noise_of_the_mask_itself_and_its_opposite(birds):
    some = birds[:200]
    maps = torch.randn(200, 8, 8, generator=torch.Generator().manual_seed(1)).repeat_interleave(12, 1)
    maps = maps.repeat_interleave(12, 2)
    above = mask_shares(maps, some, ALPHAS) - some.flatten(1).float().mean(1, keepdim=True)
    np.testing.assert_array_less(above.mean(0).abs(), 3 * above.std(0) / len(above) ** 0.5)
    small = tuple(12 * (some.flatten(1).sum(1).min().item() + 0.5) / 96**2 * share for share in (0.1, 0.5))
    assert mask_shares(some.float(), some, small).eq(1).all()
    assert mask_shares(-some.float(), some, ALPHAS).eq(0).all()
    assert mask_threshold_shares(some.float(), some, 0.5).eq(1).all()


@pytest.mark.parametrize("shape", [(13, 37), (4, 4), (50, 60)])
def test_a_constant_map_scores_chance(shape):
    masks = torch.eye(37)[None, :13].bool()
    maps = torch.full((1, *shape), 0.1)
    assert torch.equal(hits_of_masks(maps, masks)[0], torch.tensor(ALPHAS) / 12)
    np.testing.assert_allclose(mask_shares(maps, masks, ALPHAS), 1 / 37, rtol=1e-6)


def test_shares_by_hand():
    # The region of alpha is the first alpha of twelve pixels; marked are the first, the third and the last.
    maps = torch.arange(12.0, 0, -1).reshape(1, 3, 4).expand(2, 3, 4)
    masks = torch.stack([draw_mask("#.#.", "....", "...#"), draw_mask("....", "....", "....")]).bool()
    np.testing.assert_allclose(
        mask_shares(maps, masks, (0.5, 1, 2, 2.5, 3, 12)),
        [[1, 1, 1 / 2, 1.5 / 2.5, 2 / 3, 3 / 12], [NAN] * 6],
        atol=1e-7,
    )
    np.testing.assert_array_equal(mask_threshold_shares(maps, masks, 11), [0.5, NAN])
    np.testing.assert_array_equal(mask_threshold_shares(maps, masks, 13), [NAN, NAN])


def test_shares_ties_share_what_is_left_of_the_region():
    # One larger pixel, marked; three of value 2, one of them marked.
    maps = torch.tensor([[[3.0, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1]]]).double()
    masks = draw_mask("##..........")[None].bool()
    np.testing.assert_allclose(
        mask_shares(maps, masks, (1, 2, 3, 4)), [[1, (1 + 1 / 3) / 2, (1 + 2 / 3) / 3, 2 / 4]], atol=1e-15
    )


@pytest.mark.parametrize(("tied", "shape"), [(True, (9, 13)), (False, (4, 5))])
def test_shares_agrees_with_the_reference(tied, shape):
    generator = torch.Generator().manual_seed(0)
    maps = torch.randn(12, *shape, generator=generator, dtype=torch.float64)
    maps = maps.round() if tied else maps
    masks = torch.rand(12, 9, 13, generator=generator) < 0.2
    masks[0] = False
    maps[1, 0, 0], maps[2, 1, 1] = NAN, torch.inf
    alphas = (0.05, *ALPHAS, 12)
    expected = reference.mask_shares(maps, masks, alphas)
    assert np.isfinite(expected).all(1).sum() == 9
    np.testing.assert_allclose(mask_shares(maps, masks, alphas), expected, atol=1e-12)
    np.testing.assert_allclose(
        mask_threshold_shares(maps, masks, 0.3), reference.mask_threshold_shares(maps, masks, 0.3), atol=1e-12
    )


def test_regions_by_hand():
    maps = torch.tensor([[[9.0, 7, 5, 5], [3, 1, 1, 1]]]).double()
    # The marked pixels hold 9, 5 and 3: 8 + 4 + 2 of 24 above the smallest. The third largest value is 5, which two
    # have: of the named 9, 7, 5, 5 two are marked, and 3 is marked only.
    scores = region_scores(maps, draw_mask("#..#", "#...")[None])
    assert [score.item() for score in scores] == [2 / 5, 14 / 24, 1]
    # Scale and zero do not count.
    again = region_scores(3 * maps - 20, draw_mask("#..#", "#...")[None])
    assert [score.item() for score in again] == pytest.approx([2 / 5, 14 / 24, 1])
    # Pixels of the smallest value name nothing: of a map that names half of the part that half is right.
    named = torch.tensor([[[2.0, 2, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]])
    scores = region_scores(named, draw_mask("####", "....", "....")[None])
    assert [score.item() for score in scores] == [0.5, 1, 1]
    # Two pixels are the largest, and one of them is marked.
    assert region_scores(named, draw_mask("#..#", "...#", "....")[None]).hit.item() == 0.5


@pytest.mark.parametrize(("tied", "shape"), [(True, (9, 13)), (False, (4, 5)), (False, (20, 7))])
def test_regions_agree_with_the_reference(tied, shape):
    generator = torch.Generator().manual_seed(0)
    maps = torch.randn(12, *shape, generator=generator, dtype=torch.float64)
    maps = maps.round() if tied else maps
    maps[3:5] = maps[3:5].clamp(min=0)
    masks = torch.rand(12, 9, 13, generator=generator) < 0.2
    masks[0] = False
    found = torch.stack([*region_scores(maps, masks)], 1)
    assert found[0].isnan().all()
    expected = [reference.region_scores(*pair) for pair in zip(maps[1:], masks[1:], strict=True)]
    np.testing.assert_allclose(found[1:], expected, atol=1e-12)
    maps[1, 0, 0], maps[2, 1, 1] = NAN, torch.inf
    assert torch.stack([*region_scores(maps, masks)], 1).isnan().any(1).tolist() == [True] * 3 + [False] * 9


test_refused = refusals(
    (lambda: mask_centres(torch.ones(1, 4, 4) * 254), "`masks` to hold only 0 and 1 .*A mask of a picture"),
    (lambda: region_scores(torch.ones(2, 4, 4), torch.ones(1, 4, 4)), r"`masks` .*\(2, \*, \*\) but got \(1, 4, 4\)"),
    (lambda: region_scores(torch.ones(1, 4, 4), torch.full((1, 4, 4), 0.5)), "`masks` to hold only 0 and 1"),
    (lambda: mask_shares(torch.ones(2, 4, 4), torch.ones(1, 4, 4)), r"`masks` .*\(2, \*, \*\) but got \(1, 4, 4\)"),
    (lambda: mask_shares(torch.ones(1, 4, 4), torch.ones(1, 4, 4), [13]), r"`alphas` to lie in \(0, 12\]"),
)
