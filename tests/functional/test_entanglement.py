"""Entanglement: by hand, against loops over pairs, its optimum, copies and random directions."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from captum_concepts import ConceptBank
from quantus_concepts.functional import baseline_range, entanglement
from reference import entanglement as reference
from refusals import refusals

#: Independent fair concepts.
INDEPENDENT = [[0, 0], [0, 1], [1, 0], [1, 1]]


def test_by_hand() -> None:
    # Copies, opposites and a half right angle of independent concepts.
    assert entanglement([[1.0, 0.0], [3.0, 0.0]], INDEPENDENT).tolist() == pytest.approx([1, 1])
    assert entanglement([[1.0, 0.0], [-3.0, 0.0]], INDEPENDENT).tolist() == pytest.approx([1, 1])
    assert entanglement([[1.0, 0.0], [1.0, 1.0]], INDEPENDENT).tolist() == pytest.approx([math.sqrt(0.5)] * 2)
    # Labels that agree in three of four images correlate by 1 / sqrt(3); the third concept is none of two.
    labels = [[0, 0, 1], [0, 1, 1], [1, 1, 1], [1, 1, 1]]
    found = entanglement([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], labels)
    assert found.tolist() == pytest.approx([1 / math.sqrt(3), 1 / math.sqrt(3), math.nan], nan_ok=True)
    # Opposite labels with opposite directions are right, and with the same direction the worst.
    opposite = [[0, 1], [1, 0]]
    assert entanglement([[1.0], [-2.0]], opposite).tolist() == pytest.approx([0, 0])
    assert entanglement([[1.0], [2.0]], opposite).tolist() == pytest.approx([2, 2])
    # A direction of length 0 is none.
    assert entanglement([[1.0, 0.0], [0.0, 0.0]], INDEPENDENT).isnan().all()


def test_against_loops() -> None:
    rng = np.random.default_rng(0)
    for n, n_concepts in ((5, 2), (30, 6), (60, 9)):
        directions, concepts = rng.normal(size=(n_concepts, 7)), (rng.random((n, n_concepts)) < 0.4).astype(int)
        concepts[:, 1] = 0
        expected = reference.entanglement(directions.tolist(), concepts.tolist())
        np.testing.assert_allclose(entanglement(directions, concepts), expected, atol=1e-12)


def test_directions_that_lean_as_labels_do_are_best_and_random_ones_are_not() -> None:
    generator = torch.Generator().manual_seed(0)
    shared = torch.rand(400, 1, generator=generator)
    concepts = ((torch.rand(400, 8, generator=generator) + shared) > 1).double()
    correlations = torch.corrcoef(concepts.T)
    # Rows of its root have the correlations as cosines.
    best = torch.linalg.cholesky(correlations)
    assert entanglement(best, concepts).max() < 1e-9
    torch.testing.assert_close(entanglement(5 * best, concepts), entanglement(best, concepts), atol=1e-12, rtol=0)
    draws = [entanglement(torch.randn(8, 64, generator=generator), concepts).mean().item() for _ in range(39)]
    low, high = baseline_range(draws)
    # Random directions are orthogonal, but for 1 / sqrt(64): off by what labels correlate.
    off = correlations.fill_diagonal_(torch.nan).nanmean().item()
    assert 0.2 < low < off < high < 0.6
    bank = ConceptBank(torch.ones(8, 3))
    assert entanglement(bank.cavs, concepts).mean().item() == pytest.approx(1 - off)


test_refused = refusals(
    (lambda: entanglement(torch.eye(3), torch.zeros(4, 2)), "`concepts` to have shape"),
    (lambda: entanglement(torch.eye(2), torch.full((4, 2), 0.5)), "`concepts` to hold only 0 and 1"),
)
