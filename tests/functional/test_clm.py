from __future__ import annotations

import numpy as np
import pytest
import torch

from quantus_concepts.functional import clm
from reference import clm as reference
from refusals import refusals

NAN = float("nan")
HITS = torch.tensor([[1.0, NAN, 0.0, 0.5], [NAN, NAN, 1.0, 0.0], [0.0, 1.0, 1.0, NAN]])


@pytest.mark.parametrize(
    ("top_l", "expected"), [(1, [1, NAN, 0]), (2, [1, NAN, 1 / 2]), (3, [1 / 2, 1, 2 / 3]), (4, [1 / 2, 1 / 2, 2 / 3])]
)
def test_by_hand(top_l, expected):
    np.testing.assert_allclose(clm(HITS, top_l), expected, atol=1e-7)


def test_agrees_with_the_reference():
    generator = torch.Generator().manual_seed(0)
    hits = torch.rand(40, 6, generator=generator)
    hits[torch.rand(40, 6, generator=generator) < 0.5] = NAN
    for top_l in range(1, 7):
        np.testing.assert_allclose(clm(hits, top_l), reference.clm(hits, top_l), atol=1e-6)
        # As metrics call it: several l at once, of several explanations.
        both = clm(torch.stack([hits, hits]), (1, top_l))
        np.testing.assert_array_equal(both[1], torch.stack([clm(hits, 1), clm(hits, top_l)], 1))


test_refused = refusals(
    (lambda: clm(torch.tensor(1.0), 1), r"`hits` to have shape \(..., l_max\)"),
    (lambda: clm(torch.ones(2, 3), 4), r"`top_l` to lie in \[1, 3\]"),
)
