"""Orders of interventions and the values after them, by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from quantus_concepts.functional import intervene_values, intervention_counts, intervention_ranks
from refusals import refusals

VALUES = torch.tensor([[0.9, 0.2, 0.6], [0.5, 0.0, 0.3]])
TARGETS = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 1.0]])
WEIGHTS = torch.tensor([[-9.0, 1.0, 1.0], [1.0, 0.1, 2.0]])


@pytest.mark.parametrize(
    ("n", "expected"),
    [(1, (0, 1)), (3, (0, 1, 2, 3)), (8, (0, 1, 2, 4, 8)), (11, (0, 1, 2, 4, 11))],
)
def test_counts_double(n: int, expected: tuple[int, ...]) -> None:
    assert intervention_counts(n) == expected


def test_orders_by_hand() -> None:
    # Distances to 0.5: .4 .3 .1 and 0 .5 .2.
    ranks = intervention_ranks("uncertainty", VALUES, TARGETS)
    assert ranks.tolist() == [[2, 1, 0], [0, 2, 1]]
    # Distances to .9, .2, .2: 0 0 .4 and .4 .2 .1; the first of equal ones goes first.
    boundary = torch.tensor([0.9, 0.2, 0.2])
    assert intervention_ranks("uncertainty", VALUES, TARGETS, boundary=boundary).tolist() == [[0, 1, 2], [2, 1, 0]]
    # |weight x change|: .9 .2 .6 and .5 .1 1.4.
    ranks = intervention_ranks("contribution", VALUES, TARGETS, weights=WEIGHTS)
    assert ranks.tolist() == [[0, 2, 1], [1, 2, 0]]
    # Of (0, 1) and (2) the means are .55 and .6, .3 and 1.4: a group does not win by its size.
    ranks = intervention_ranks("contribution", VALUES, TARGETS, weights=WEIGHTS, groups=[0, 0, 1])
    assert ranks.tolist() == [[1, 1, 0], [1, 1, 0]]


def test_random_order_is_uniform_and_that_of_its_image() -> None:
    values = torch.zeros(600, 3)
    ranks = intervention_ranks("random", values, values, seed=3)
    assert (ranks.sort(1).values == torch.arange(3)).all()
    # Each of six orders a hundred times, give or take five standard deviations.
    counts = torch.unique(ranks, dim=0, return_counts=True)[1]
    assert len(counts) == 6
    assert (counts - 100).abs().max() < 5 * np.sqrt(600 * 5 / 36)
    later = intervention_ranks("random", values[:50], values[:50], seed=3, first=200)
    assert torch.equal(later, ranks[200:250])
    assert not torch.equal(intervention_ranks("random", values, values, seed=4), ranks)


def test_values_after_answers_by_hand() -> None:
    ranks = torch.tensor([[2, 1, 0], [0, 0, 1]])
    intervened = intervene_values(VALUES, TARGETS, ranks, (0, 1, 3))
    assert torch.equal(intervened[0], VALUES)
    torch.testing.assert_close(intervened[1], torch.tensor([[0.9, 0.2, 0.0], [0.0, 1.0, 0.3]]))
    assert torch.equal(intervened[2], TARGETS)


test_refused = refusals(
    (lambda: intervention_ranks("contribution", VALUES, TARGETS), "`weights`"),
    (lambda: intervention_ranks("random", VALUES, TARGETS[:, :2]), r"`targets` .*\(2, 3\) but got \(2, 2\)"),
    (lambda: intervention_ranks("random", VALUES, TARGETS, groups=[0, 2, 2]), "`groups` to hold the numbers 0, 1, 2,"),
    (lambda: intervention_ranks("uncertainty", VALUES, TARGETS, boundary=[0.5, 0.5]), "`boundary` to be one number or"),
    (lambda: intervene_values(VALUES, TARGETS, torch.zeros(2, 2), [1]), r"`ranks` .*\(2, 3\) but .* \(2, 2\)"),
)
