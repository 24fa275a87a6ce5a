"""Orders of interventions and the values after them, by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from quantus_concepts.functional import intervene_values, intervention_counts, intervention_ranks, simulate_answers
from quantus_concepts.functional.concepts.interventions import spent_ranks
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


def test_answers_of_people_who_err_and_abstain() -> None:
    truth = (torch.rand(400, 5, generator=torch.Generator().manual_seed(0)) < 0.3).int()
    assert torch.equal(simulate_answers(truth), truth.float())
    assert torch.equal(simulate_answers(truth, 1.0), 1 - truth.float())
    assert simulate_answers(truth, abstention_rate=1.0).isnan().all()
    answers = simulate_answers(truth, 0.2, 0.4, seed=3)
    is_withheld = answers.isnan()
    is_wrong = (answers != truth) & ~is_withheld
    # Of 2,000 questions, and of the 1,200 answers: five standard deviations.
    assert abs(is_withheld.float().mean().item() - 0.4) < 5 * np.sqrt(0.24 / 2000)
    assert abs(is_wrong.sum().item() / (~is_withheld).sum().item() - 0.2) < 5 * np.sqrt(0.16 / 1200)
    # Errors of a concept do not depend on the label, nor on another concept.
    for rows in (truth == 1, truth == 0):
        assert abs((is_wrong & rows).sum().item() / (~is_withheld & rows).sum().item() - 0.2) < 0.07
    both = torch.cat([simulate_answers(truth, 0.2, seed=3) != truth, is_withheld], 1)
    assert (torch.corrcoef(both.T.float()) - torch.eye(10)).abs().max() < 0.25
    # A larger rate adds errors; batches give what all images give.
    fewer = simulate_answers(truth, 0.1, 0.4, seed=3)
    assert ((fewer != truth) & ~is_withheld <= is_wrong).all()
    torch.testing.assert_close(
        simulate_answers(truth[100:150], 0.2, 0.4, seed=3, first=100), answers[100:150], equal_nan=True
    )
    assert not torch.equal(simulate_answers(truth, 0.2, seed=4), simulate_answers(truth, 0.2, seed=3))


def test_costs_by_hand() -> None:
    # Asked in the order 2, 0, 1 and 0, 1, 2 with the costs 1, 2 and 5.
    ranks = torch.tensor([[1, 2, 0], [0, 1, 2]])
    assert spent_ranks(ranks, [1, 2, 5], None).tolist() == [[5, 7, 4], [0, 2, 7]]
    assert torch.equal(spent_ranks(ranks, [1, 1, 1], None), ranks)
    # A budget of 6 pays for 2 and 0, and for 0 and 1: it does not go on to what is cheaper.
    intervened = intervene_values(VALUES, TARGETS, spent_ranks(ranks, [1, 2, 5], None), (4, 6, 8))
    torch.testing.assert_close(intervened[0], torch.stack([VALUES[0], torch.tensor([0.0, 1.0, 0.3])]))
    torch.testing.assert_close(intervened[1], torch.tensor([[1.0, 0.2, 0.0], [0.0, 1.0, 0.3]]))
    assert torch.equal(intervened[2], TARGETS)
    # A group is paid for once.
    assert spent_ranks(torch.tensor([[1, 1, 0]]), [3, 2], [0, 0, 1]).tolist() == [[4, 4, 1]]


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
    (lambda: simulate_answers(TARGETS, 1.5), "`error_rate` to lie in"),
    (lambda: simulate_answers(TARGETS, abstention_rate=-1), "`abstention_rate` to lie in"),
    (lambda: simulate_answers(VALUES), "`concepts` to hold only 0 and 1"),
    (lambda: spent_ranks(torch.zeros(1, 3), [1, 2], None), "`costs` to have shape"),
    (lambda: spent_ranks(torch.zeros(1, 3), [1, 2, 0], None), "`costs` to hold whole numbers from 1"),
    (lambda: spent_ranks(torch.zeros(1, 3), [1, 2, 0.5], None), "`costs` to hold whole numbers from 1"),
    (lambda: intervene_values(VALUES, TARGETS, torch.zeros(2, 2), [1]), r"`ranks` .*\(2, 3\) but .* \(2, 2\)"),
)
