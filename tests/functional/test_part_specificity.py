"""Part specificity by hand and against loops; its optimum and chance are in the contract of CLM."""

from __future__ import annotations

import numpy as np
import torch

from quantus_concepts.functional import part_specificity
from reference import part_specificity as reference
from refusals import refusals

NAN = float("nan")


def test_by_hand():
    # Own part hit, others 1/2 and 0; own part hidden; no other part visible; weights 1 and 3 of the others.
    hits = torch.tensor([[1, 0.5, 0], [1, NAN, 0], [0.5, NAN, NAN], [0, 1, 0.2]])
    own, elsewhere = part_specificity(hits, torch.tensor([0, 1, 0, 0]))
    difference = own - elsewhere
    np.testing.assert_allclose(elsewhere, [0.25, NAN, NAN, 0.6], atol=1e-7)
    np.testing.assert_allclose(difference, [0.75, NAN, NAN, -0.6], atol=1e-7)
    own, elsewhere = part_specificity(hits, torch.tensor([0, 1, 0, 0]), torch.tensor([9.0, 1, 3]))
    difference = own - elsewhere
    np.testing.assert_allclose(elsewhere, [0.125, NAN, NAN, 0.4], atol=1e-7)
    np.testing.assert_allclose(difference, [0.875, NAN, NAN, -0.4], atol=1e-7)


def test_agrees_with_the_reference():
    generator = torch.Generator().manual_seed(0)
    hits = torch.rand(60, 5, generator=generator)
    hits[torch.rand(60, 5, generator=generator) < 0.5] = NAN
    parts = torch.randint(5, (60,), generator=generator)
    weights = torch.tensor([1.0, 0, 2, 5, 3])
    found = part_specificity(hits, parts, weights)
    for ours, theirs in zip(
        (found.others, found.difference),
        reference.part_specificity(hits.tolist(), parts.tolist(), weights),
        strict=True,
    ):
        np.testing.assert_allclose(ours, np.array(theirs, dtype=float), atol=1e-6)


test_refused = refusals(
    (lambda: part_specificity(torch.ones(2, 3) * 2, torch.tensor([0, 1])), r"`hits` to lie in \[0, 1\]"),
    (lambda: part_specificity(torch.ones(2, 3), torch.tensor([0, 3])), r"`parts` to lie in \[0, 2\]"),
    (lambda: part_specificity(torch.ones(2, 3), [0, 1], -torch.ones(3)), r"`weights` to lie in \[0, inf\]"),
)
