from __future__ import annotations

import numpy as np
import pytest
import torch

from quantus_concepts.functional import cem, is_ranked, rank_concepts
from reference import cem as reference
from refusals import refusals

IMPORTANCE = torch.tensor([[0.9, -5.0, 0.5, 0.1], [1.0, 1.0, 0.0, 2.0], [torch.nan, 1.0, 2.0, 3.0]])
LABELS = torch.tensor([[1, 1, 0, 1], [0, 1, 1, 1], [1, 1, 1, 1]])


@pytest.mark.parametrize(
    ("top_l", "expected"),
    [(1, [1, 1, np.nan]), (2, [1 / 2, 1 / 2, np.nan]), (3, [2 / 3, 2 / 3, np.nan]), (4, [3 / 4, 3 / 4, np.nan])],
)
def test_by_hand(top_l, expected):
    np.testing.assert_allclose(cem(IMPORTANCE, LABELS, top_l), expected, atol=1e-7)


@pytest.mark.parametrize(("n_concepts", "tied"), [(1, False), (5, True), (31, False), (31, True)])
def test_agrees_with_the_reference(n_concepts, tied):
    generator = torch.Generator().manual_seed(n_concepts)
    importance = torch.randn(25, n_concepts, generator=generator)
    importance = importance.round() if tied else importance
    importance[3, 0] = torch.nan
    labels = torch.rand(25, n_concepts, generator=generator) < 0.4
    for top_l in sorted({1, min(3, n_concepts), n_concepts}):
        np.testing.assert_allclose(
            cem(importance, labels, top_l), reference.cem(importance, labels.int(), top_l), atol=1e-6
        )


def test_ranking_is_signed_and_ties_go_to_the_lower_index():
    importance = torch.tensor([[0.5, -9.0, 2.0, 2.0], [-1.0, -1.0, -1.0, -3.0], [0.0, -0.0, 0.0, 1.0]])
    assert rank_concepts(importance, 3).tolist() == [[2, 3, 0], [0, 1, 2], [3, 0, 1]]


def test_zero_rows_rank_nothing():
    importance = torch.tensor([[0.0, 0.0], [-0.0, 0.0], [0.0, -1.0], [torch.nan, 0.0], [0.0, 1e-40]])
    assert is_ranked(importance).tolist() == [False, False, True, False, True]
    assert cem(importance, torch.ones(5, 2)).isnan().tolist() == [True, True, False, True, False]


def test_only_eligible_concepts_are_ranked_and_keep_their_index():
    importance = torch.tensor([[5.0, 1.0, -torch.inf, 3.0, 1.0]])
    eligible = torch.tensor([False, True, True, False, True])
    assert rank_concepts(importance, 3, eligible).tolist() == [[1, 4, 2]]


@pytest.mark.parametrize("decimals", [0, 1, 9])
def test_the_first_of_many_concepts_are_those_of_a_stable_sort(decimals):
    """Also with ties among the first or just after them, and values that are not finite."""
    importance = torch.randn(200, 40, generator=torch.Generator().manual_seed(decimals)).round(decimals=decimals)
    importance[:3] = torch.tensor([torch.nan, torch.inf, -torch.inf])[:, None]
    importance[3, 5], importance[4, [2, 7]], importance[5] = torch.nan, torch.inf, 0.0
    importance[6, :9] = torch.tensor([5.0, 4.0, 4.0, 6.0, 4.0, 7.0, 8.0, 4.0, 9.0])
    for top in (1, 5, 9):
        expected = importance.argsort(dim=1, descending=True, stable=True)[:, :top]
        assert torch.equal(rank_concepts(importance, top), expected)


test_refused = refusals(
    (lambda: rank_concepts(torch.ones(2, 3), 4), r"`top` to lie in \[1, 3\]"),
    (lambda: rank_concepts(torch.ones(2, 3), 2, torch.eye(3)[0] > 0), r"`top` .* \[1, 1\], the number of eligible"),
    (lambda: rank_concepts(torch.ones(2, 3), 1, torch.arange(3)), "`eligible` to hold only 0 and 1"),
    (lambda: cem(torch.ones(2, 3), torch.ones(3, 2)), r"`concept_labels` .* \(2, 3\) but got \(3, 2\)"),
    (lambda: cem(torch.ones(2, 3), torch.full((2, 3), 0.5)), "`concept_labels` to hold only 0 and 1 but got 0.5"),
    (lambda: cem(torch.ones(2, 3), torch.ones(2, 3), top_l=4), r"`top_l` to lie in \[1, 3\] but got 4"),
)
