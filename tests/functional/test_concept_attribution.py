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
    np.testing.assert_allclose(concept_attribution(maps, masks), expected, atol=1e-6)


def test_a_map_that_is_not_finite_anywhere_is_undefined():
    maps = MAPS.clone()
    maps[0, 1, 1, 1] = -torch.inf
    np.testing.assert_array_equal(concept_attribution(maps, MASKS), [np.nan, 1, np.nan])


def test_random_masks_keep_their_size_and_every_pixel_is_equally_likely():
    masks = torch.zeros(8000, 1, 4, 5)
    masks[:, :, :2, :2] = 1
    moved = random_masks(masks, torch.Generator().manual_seed(0))
    assert (moved.sum((1, 2, 3)) == 4).all()
    # 4 of 20 pixels; 4 standard errors of a share of 8000
    assert (moved.float().mean((0, 1)) - 0.2).abs().max() < 4 * (0.2 * 0.8 / 8000) ** 0.5


test_refused = refusals(
    (lambda: concept_attribution(torch.ones(2, 4, 4), torch.ones(2, 1, 4, 4)), r"`maps` .*\(N, C, H, W\)"),
    (lambda: concept_attribution(torch.ones(2, 3, 4, 4), torch.ones(2, 1, 4, 4) / 2), "`masks` to hold only 0"),
    (lambda: random_masks(torch.zeros(2, 3, 3), torch.Generator()), r"`masks` to have shape \(N, 1, H, W\)"),
)
