from __future__ import annotations

import numpy as np
import pytest
import torch

from quantus_concepts.functional import upsample
from reference import clm as reference
from refusals import refusals

# Up, down, mixed, equal, one cell; whole ratios and others.
SIZES = [
    ((28, 28), (224, 160)),
    ((5, 9), (13, 50)),
    ((6, 1), (3, 8)),
    ((1, 1), (9, 4)),
    ((14, 20), (14, 10)),
    ((90, 61), (32, 61)),
]


def random_maps(count, shape, dtype=torch.float32, seed=0):
    return torch.rand(count, *shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def test_by_hand():
    # Four pixels for two cells: centres at -1/4, 1/4, 3/4, 5/4 of a cell, clamped at the edges.
    along = torch.tensor([0.0, 1.0, 3.0, 4.0])
    expected = along[None, :] + 2 * along[:, None]
    assert torch.equal(upsample(torch.tensor([[[0.0, 4.0], [8.0, 12.0]]]), (4, 4))[0], expected)


@pytest.mark.parametrize(("shape", "size"), SIZES[1:])
def test_agrees_with_the_reference(shape, size):
    maps = random_maps(1, shape, torch.float64)
    np.testing.assert_allclose(upsample(maps, size)[0], reference.upsample(maps[0], size), atol=1e-12)


@pytest.mark.parametrize("size", [(13, 13), (100, 37)])
def test_plateaus_stay_plateaus_at_any_level(size):
    # Rows of one value each: the pixels of a row of the image are equal with any rounding.
    levels = random_maps(50, (7, 1))
    image = upsample(levels.expand(50, 7, 7), size)
    assert torch.equal(image, image[:, :, :1].expand_as(image))
    assert torch.equal(upsample(levels.mT.expand(50, 7, 7), size[::-1]), image.mT)


def test_precision_is_not_that_of_autocast():
    maps = random_maps(2, (7, 7))
    expected = upsample(maps, (50, 50))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(upsample(maps, (50, 50)), expected)


test_refused = refusals(
    (lambda: upsample(torch.ones(4, 4), (8, 8)), r"`maps` to have shape \(B, h, w\)"),
    (lambda: upsample(torch.ones(1, 4, 4), (8, 0)), r"`size` to be \(M1, M2\)"),
)
