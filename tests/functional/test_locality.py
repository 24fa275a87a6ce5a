"""Locality: by hand, by the reference, and what is undefined."""

from __future__ import annotations

import math

import numpy as np
import torch

from quantus_concepts.functional import hide_part, locality
from reference import locality as reference
from refusals import refusals

DRAWN = torch.Generator().manual_seed(0)
NAN = math.nan


def test_by_hand() -> None:
    values = [[1.0, 2.0, 5.0, 7.0]]
    # Part 0 has one concept, part 1 two, part 2 is not visible, and the last concept is about none.
    hidden = [[[0.0, 2.5, 5.0, 7.0], [1.0, 0.0, 4.0, 9.0], [NAN] * 4]]
    # 1 - 0, 2 - .5, 1 - 0.
    expected = torch.tensor([[1.0, 1.5, 1.0, NAN]], dtype=torch.float64)
    torch.testing.assert_close(locality(values, hidden, [0, 1, 1, -1]), expected, equal_nan=True)
    # Of three parts the others count by their concepts: 1 - (2 * .5 + 1 * 2) / 3.
    hidden = [[[0.0] * 4, [0.5] * 4, [-1.0] * 4]]
    scores = locality([[1.0] * 4], hidden, [0, 1, 1, 2])
    torch.testing.assert_close(scores[0, 0], torch.tensor(1 - (2 * 0.5 + 2) / 3, dtype=torch.float64))


def test_a_hidden_part_by_hand() -> None:
    # The disc of a 12 x 12 image has an area of 12 pixels: a radius of 1.95, which nine pixels are within.
    image = torch.zeros(1, 1, 12, 12)
    image[0, 0, 0] = 12
    hidden = hide_part(image, [[[5.0, 6.0], [NAN, NAN]]])
    expected = image.clone()
    expected[0, 0, 5:8, 4:7] = 1
    assert torch.equal(hidden, expected)
    assert torch.equal(hide_part(image, [[[NAN, NAN]]]), image)


def test_against_the_reference() -> None:
    parts = torch.tensor([2, 0, -1, 1, 1, 3])
    values = torch.randn(9, 6, generator=DRAWN, dtype=torch.float64)
    hidden = torch.randn(9, 4, 6, generator=DRAWN, dtype=torch.float64)
    hidden[torch.rand(9, 4, generator=DRAWN) < 0.3] = torch.nan
    expected = reference.locality(values.numpy(), hidden.numpy(), parts.numpy())
    np.testing.assert_allclose(locality(values, hidden, parts), expected, rtol=1e-10)
    assert np.isnan(expected[:, 3]).any()
    images = torch.rand(5, 3, 16, 20, generator=DRAWN, dtype=torch.float64)
    points = torch.rand(5, 2, 2, generator=DRAWN, dtype=torch.float64) * 16
    found = hide_part(images, points)
    for image, places, result in zip(images.numpy(), points.numpy(), found, strict=True):
        np.testing.assert_allclose(result, reference.hide_part(image, places), rtol=1e-12)


test_refused = refusals(
    (lambda: locality(torch.ones(2, 3), torch.ones(2, 4, 2), [0, 1, 2]), "`hidden`"),
    (lambda: locality(torch.ones(2, 3), torch.ones(2, 2, 3), [0, 1, 2]), "`part_of_concept`"),
    (lambda: hide_part(torch.ones(2, 3, 4, 4), torch.ones(2, 2)), "`points`"),
)
