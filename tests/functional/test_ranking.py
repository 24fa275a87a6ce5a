from __future__ import annotations

import pytest
import torch

from quantus_concepts.functional import is_ranked, rank_concepts
from reference import cem as reference
from refusals import refusals


def test_order_is_signed_and_ties_go_to_the_lower_index():
    importance = torch.tensor([[0.5, -9.0, 2.0, 2.0], [-1.0, -1.0, -1.0, -3.0], [0.0, -0.0, 0.0, 1.0]])
    assert rank_concepts(importance, 3).tolist() == [[2, 3, 0], [0, 1, 2], [3, 0, 1]]


def test_only_eligible_concepts_are_ranked_and_keep_their_index():
    importance = torch.tensor([[5.0, 1.0, -torch.inf, 3.0, 1.0]])
    eligible = torch.tensor([False, True, True, False, True])
    assert rank_concepts(importance, 3, eligible).tolist() == [[1, 4, 2]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_agrees_with_selection_one_maximum_at_a_time(dtype):
    generator = torch.Generator().manual_seed(0)
    for n_concepts in (1, 2, 9, 40):
        # Few levels: every row has ties.
        importance = torch.randint(-3, 4, (12, n_concepts), generator=generator).to(dtype) / 2
        eligible = torch.rand(n_concepts, generator=generator) < 0.7
        eligible[0] = True
        top = int(eligible.sum())
        assert rank_concepts(importance, n_concepts).tolist() == [reference.rank(row) for row in importance.tolist()]
        assert rank_concepts(importance, top, eligible).tolist() == [
            reference.rank(row, eligible.tolist()) for row in importance.tolist()
        ]


test_refused = refusals(
    (lambda: rank_concepts(torch.ones(3), 1), r"`importance` to have shape \(N, L\)"),
    (lambda: rank_concepts(torch.ones(2, 3), 4), r"`top` to lie in \[1, 3\]"),
    (lambda: rank_concepts(torch.ones(2, 3), 1, torch.ones(2)), r"`eligible` .*\(L,\) = \(3,\)"),
    (lambda: rank_concepts(torch.ones(2, 3), 1, torch.arange(3)), "`eligible` to hold only 0 and 1"),
    (
        lambda: rank_concepts(torch.ones(2, 3), 2, torch.eye(3)[0] > 0),
        r"`top` .* \[1, 1\], the number of eligible concepts, but got 2",
    ),
    (lambda: is_ranked(torch.ones(3)), r"`importance` to have shape \(N, L\)"),
)
