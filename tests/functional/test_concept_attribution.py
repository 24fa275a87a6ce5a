from __future__ import annotations

import numpy as np
import pytest
import torch

from quantus_concepts.functional import concept_attribution, random_masks
from reference import attribution as reference
from refusals import refusals

MAPS = torch.tensor([[[[1.0, -4.0], [0.5, 2.0]], [[-1.0, 1.0], [0.5, 0.0]]]]).repeat(3, 1, 1, 1)
MASKS = torch.tensor([[[[1, 1], [0, 0]]], [[[0, 0], [1, 0]]], [[[0, 0], [0, 0]]]])


def test_by_hand():
    # (1 + 0 + 0 + 1) / 2 pixels; (0.5 + 0.5) / 1; no pixel
    np.testing.assert_array_equal(concept_attribution(MAPS, MASKS), [1.0, 1.0, np.nan])


@pytest.mark.parametrize("channels", [1, 3])
def test_agrees_with_the_reference(channels):
    generator = torch.Generator().manual_seed(channels)
    maps = torch.randn(20, channels, 9, 7, generator=generator)
    masks = torch.rand(20, 1, 9, 7, generator=generator) < 0.3
    masks[4] = False
    masks[5] = True
    expected = reference.concept_attribution(maps, masks)
    for typed_maps in (maps, maps.double()):
        np.testing.assert_allclose(concept_attribution(typed_maps, masks), expected, atol=1e-6)


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_a_map_that_is_not_finite_anywhere_is_undefined(value):
    maps = MAPS.clone()
    maps[0, 1, 1, 1] = value
    np.testing.assert_array_equal(concept_attribution(maps, MASKS), [np.nan, 1, np.nan])


class TestRandomMasks:
    def test_size_stays_and_place_changes(self):
        masks = torch.zeros(50, 1, 9, 11, dtype=torch.bool)
        masks[:, :, 2:5, 3:8] = True
        state = torch.get_rng_state()
        moved = random_masks(masks, torch.Generator().manual_seed(0))
        assert torch.equal(state, torch.get_rng_state())
        assert moved.dtype == torch.bool
        assert (moved.sum((1, 2, 3)) == 15).all()
        assert (moved != masks).flatten(1).any(1).sum() > 40

    def test_every_pixel_is_equally_likely(self):
        masks = torch.zeros(8000, 1, 4, 5)
        masks[:, :, :2, :2] = 1
        share = random_masks(masks, torch.Generator().manual_seed(0)).mean((0, 1))
        # 4 of 20 pixels; 4 standard errors of a share of 8000
        assert (share - 0.2).abs().max() < 4 * (0.2 * 0.8 / 8000) ** 0.5

    def test_no_masks_and_a_wrong_shape(self):
        assert random_masks(torch.zeros(0, 1, 3, 3), torch.Generator()).shape == (0, 1, 3, 3)
        with pytest.raises(ValueError, match=r"`masks` to have shape \(N, 1, H, W\)"):
            random_masks(torch.zeros(2, 3, 3), torch.Generator())


test_refused = refusals(
    (lambda: concept_attribution(torch.ones(2, 4, 4), torch.ones(2, 1, 4, 4)), r"`maps` .*\(N, C, H, W\)"),
    (lambda: concept_attribution(torch.ones(2, 3, 4, 4), torch.ones(2, 3, 4, 4)), r"`masks` .*\(N, 1, H, W\)"),
    (lambda: concept_attribution(torch.ones(2, 3, 4, 4), torch.ones(2, 1, 4, 4) / 2), "`masks` to hold only 0"),
)
