from __future__ import annotations

import numpy as np
import pytest
import torch

from quantus_concepts.functional.votes import check_votes, join_votes
from reference import ratings as reference
from refusals import refusals

NAN = np.nan
VOTES = np.array([[1, 2, 2, 5, 5], [3, NAN, 4, NAN, NAN], [NAN] * 5, [5, 5, 5, 1, 1], [2, 4, 1, 3, NAN]])


def test_by_hand():
    np.testing.assert_array_equal(join_votes(VOTES), [2, 3, NAN, 5, 1])
    np.testing.assert_array_equal(join_votes(VOTES, "mean"), [3, 3.5, NAN, 17 / 5, 2.5])
    np.testing.assert_array_equal(join_votes(VOTES, "median"), [2, 3.5, NAN, 5, 2.5])


@pytest.mark.parametrize("how", ["mode", "mean", "median"])
def test_agree_with_the_reference(how):
    generator = np.random.default_rng(0)
    votes = generator.integers(1, 6, (200, 5)).astype(float)
    votes[generator.random(votes.shape) < 0.3] = NAN
    np.testing.assert_allclose(join_votes(votes, how), reference.join(votes, how))
    # any leading axes, any order of annotators
    shaped = join_votes(votes.reshape(20, 10, 5), how)
    np.testing.assert_array_equal(shaped.ravel(), join_votes(votes[:, ::-1], how))


def test_tensors_and_no_annotator():
    np.testing.assert_array_equal(join_votes(torch.tensor([[1, 1, 4]])), [1])
    for how in ("mode", "mean", "median"):
        np.testing.assert_array_equal(join_votes(np.zeros((2, 0)), how), [NAN, NAN])


test_refused = refusals(
    (lambda: join_votes(np.ones((1, 2)), "medain"), "`how` to be one of .* Did you mean 'median'"),
    (lambda: check_votes("votes", 3), r"`votes` .*shape \(..., A\)"),
    *(
        (
            lambda bad=bad: join_votes(np.array([[1, bad, 3]])),
            rf"`votes` to hold whole votes of 1 to 5.* got {bad:g} at \(0, 1\); 1 of 3",
        )
        for bad in (0, 6, 2.5, np.inf)
    ),
)
