"""Substitutions: by hand, against loops, and of what sees everything, recites or guesses."""

from __future__ import annotations

import math

import numpy as np
import torch

from quantus_concepts.functional import group_choice, movement, recital, substitution
from refusals import refusals

NAN = math.nan
VALUES = torch.tensor([[0.9, 0.1, 0.5], [0.4, 0.6, 0.2], [0.5, 0.5, 0.5], [NAN, 0.9, 0.1], [0.7, 0.2, 0.8]])


def test_by_hand() -> None:
    # Seen and gone; overlooked and still there; 0.5 is present; not known; put in is none of the concepts.
    added, removed = torch.tensor([0, 0, 1, 1, -1]), torch.tensor([1, 1, 2, 2, 0])
    scores = substitution(VALUES, added, removed)
    np.testing.assert_array_equal(scores.added, [1, 0, 1, NAN, NAN])
    np.testing.assert_array_equal(scores.removed, [1, 0, 0, NAN, NAN])


def test_recital_by_hand() -> None:
    class_concepts = torch.tensor([[1, 0, 1], [1, 1, 0], [1, 1, 1], [0, 1, 0], [0, 0, 0]])
    # Both; one of two; all three at the threshold; a value is unknown; a class without concepts.
    np.testing.assert_array_equal(recital(VALUES, class_concepts), [1, 0, 1, NAN, NAN])


def test_movement_by_hand() -> None:
    before = torch.tensor([[0.2, 0.9, 0.5, 0.5], [0.1, 0.8, 0.3, 0.4], [0.0, 0.0, 0.0, 0.0], [0.5, 0.5, 0.5, 0.5]])
    after = torch.tensor([[0.8, 0.3, 0.5, 0.5], [0.3, 0.4, 0.2, 0.7], [0.0, 0.0, 0.0, 0.0], [0.9, 0.5, 0.1, 0.5]])
    moved = movement(before, after, torch.tensor([0, 0, 0, 0]), torch.tensor([1, 1, 1, -1]))
    np.testing.assert_allclose(moved.added, [0.6, 0.2, 0, 0.4], atol=1e-6)
    np.testing.assert_allclose(moved.removed, [0.6, 0.4, 0, NAN], atol=1e-6)
    np.testing.assert_allclose(moved.others, [0, 0.2, 0, 0.4 / 3], atol=1e-6)
    # Nothing else; (0.2 + 0.4) / 2 beside 0.2; nothing at all; the one touched beside three others.
    np.testing.assert_allclose(moved.selectivity, [1, 0.6, NAN, 0.75], atol=1e-6)


def test_against_loops() -> None:
    rng = np.random.default_rng(0)
    n, n_concepts = 60, 7
    before, after = (torch.as_tensor(rng.normal(size=(n, n_concepts))) for _ in range(2))
    added, removed = (torch.as_tensor(rng.integers(-1, n_concepts, n)) for _ in range(2))
    scores, moved = substitution(after, added, removed, 0.1), movement(before, after, added, removed)
    for i in range(n):
        a, r, row = int(added[i]), int(removed[i]), after[i].tolist()
        plus = NAN if a < 0 else float(row[a] >= 0.1)
        minus = NAN if a < 0 or r < 0 or a == r else float(row[r] < 0.1)
        change = (after[i] - before[i]).tolist()
        others = np.mean([abs(change[c]) for c in range(n_concepts) if c not in (a, r)])
        touched = [abs(change[c]) for c in range(n_concepts) if c in (a, r)]
        share = np.mean(touched) / (np.mean(touched) + others) if touched else NAN
        expected = [NAN if a < 0 else change[a], NAN if r < 0 else -change[r], others, share]
        np.testing.assert_array_equal([scores.added[i], scores.removed[i]], [plus, minus])
        np.testing.assert_allclose([moves[i] for moves in moved], expected, atol=1e-12)


def test_group_choice_by_hand() -> None:
    similarity = torch.tensor([[0.1, 0.5, 0.9], [0.5, 0.5, 0.9], [0.1, 0.2, 0.9], [0.1, 0.2, 0.9]])
    groups, group_of_image = torch.tensor([0, 0, 1]), torch.tensor([0, 0, 1, 2])
    # The larger of two; of equal ones the first; the only one; a group without options.
    assert group_choice(similarity, groups, group_of_image).tolist() == [1, 0, 2, -1]
    # Above it, equal to it, above it.
    none = torch.tensor([0.6, 0.5, 0.95, 0.0])
    assert group_choice(similarity, groups, group_of_image, none).tolist() == [-1, 0, -1, -1]


test_refused = refusals(
    # What -1 has become would be scored as the 256th of 300 concepts.
    (lambda: substitution(torch.zeros(1, 300), torch.tensor([255]).byte(), [0]), "`added` to have a signed dtype"),
    (lambda: substitution(torch.ones(2), [0, 1], [1, 0]), r"`values` to have shape \(N, L\)"),
    (lambda: substitution(torch.ones(2, 3), [0, 1], [1, 3]), r"`removed` to lie in \[-1, 2\] .*Pass -1 for none"),
    (lambda: recital(torch.ones(2, 3), torch.ones(2, 2)), r"`class_concepts` .*\(2, 3\) but got \(2, 2\)"),
    (lambda: recital(torch.ones(2, 3), torch.ones(2, 3) / 2), "`class_concepts` to hold only 0 and 1"),
    (lambda: movement(torch.ones(2, 3), torch.ones(2, 3), [0, 3], [1, 0]), r"`added` to lie in \[-1, 2\]"),
    (lambda: group_choice(torch.full((2, 3), torch.nan), [0, 0, 1], [0, 1]), "`similarity` to be finite"),
)
