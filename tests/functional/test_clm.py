import numpy as np
import pytest
import torch

from quantus_concepts.functional import clm
from reference import clm as reference

NAN = float("nan")
HITS = torch.tensor([[1.0, NAN, 0.0, 0.5], [NAN, NAN, 1.0, 0.0], [0.0, 1.0, 1.0, NAN]])


@pytest.mark.parametrize(
    ("top_l", "expected"),
    [(1, [1, NAN, 0]), (2, [1, NAN, 1 / 2]), (3, [1 / 2, 1, 2 / 3]), (4, [1 / 2, 1 / 2, 2 / 3])],
)
def test_by_hand(top_l, expected):
    np.testing.assert_allclose(clm(HITS, top_l), expected, atol=1e-7)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_agrees_with_the_reference(dtype):
    generator = torch.Generator().manual_seed(0)
    hits = torch.rand(40, 6, generator=generator, dtype=dtype)
    hits[torch.rand(40, 6, generator=generator) < 0.5] = NAN
    for top_l in range(1, 7):
        scores = clm(hits, top_l)
        assert scores.dtype == dtype
        np.testing.assert_allclose(scores, reference.clm(hits, top_l), atol=1e-6)


@pytest.mark.parametrize(
    ("hits", "top_l", "error", "message"),
    [
        (HITS, 5, ValueError, r"`top_l` to lie in \[1, 4\], the number of ranked concepts, but got 5"),
        (HITS, 0, ValueError, "`top_l` to lie in"),
        (HITS, 1.0, TypeError, "`top_l` to be an int but got float"),
        (HITS[0], 1, ValueError, r"`hits` to have shape \(N, l_max\) but got \(4,\)"),
        (HITS * 2, 1, ValueError, r"`hits` to lie in \[0, 1\].*from 0.0 to 2.0"),
        (-HITS, 1, ValueError, r"from -1\.0 to -?0\.0"),
        (HITS > 0, 1, TypeError, "floating-point dtype but got torch.bool"),
    ],
)
def test_bad_input(hits, top_l, error, message):
    with pytest.raises(error, match=message):
        clm(hits, top_l)
