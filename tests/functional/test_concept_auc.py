"""Concept AUC: by hand, against loops over pairs, under changes that it must not see, and its interval."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from quantus_concepts.functional import concept_auc, concept_auc_interval
from quantus_concepts.functional.concepts import concept_auc as module
from reference import concept_auc as reference


def test_by_hand() -> None:
    values = [[1.0, 5.0], [2.0, 5.0], [2.0, 5.0], [3.0, 5.0]]
    concepts = [[0, 1], [0, 0], [1, 1], [1, 0]]
    # Of four pairs three are won and one is equal; values that are all equal know nothing.
    assert concept_auc(values, concepts).tolist() == [3.5 / 4, 0.5]
    # Within the classes {0, 2} and {1, 3} both pairs are won.
    assert concept_auc(values, concepts, classes=[0, 1, 0, 1]).tolist()[0] == 1
    # A concept that all show, or none, and one with a value that is no number.
    undefined = concept_auc([[1.0, 1.0, 1.0], [2.0, 2.0, math.nan]], [[1, 0, 0], [1, 0, 1]])
    assert undefined.isnan().all()
    assert concept_auc(values, concepts, classes=range(4)).isnan().all()


@pytest.mark.parametrize("decimals", [0, 1, 9])
def test_against_loops_over_pairs(decimals: int) -> None:
    rng = np.random.default_rng(decimals)
    for n in (6, 17, 40):
        values = rng.normal(size=(2, n, 5)).round(decimals)
        concepts, classes = (rng.random((n, 5)) < rng.random(5)).astype(int), rng.integers(0, 4, n)
        for given in (None, classes):
            found = concept_auc(values, concepts, given)
            expected = [reference.concept_auc(each.tolist(), concepts.tolist(), given) for each in values]
            np.testing.assert_allclose(found, expected, atol=1e-12)
        found = concept_auc_interval(values[0], concepts, classes)
        np.testing.assert_allclose(found, reference.interval(values[0], concepts, classes.tolist()), atol=1e-9)


def test_a_concept_at_a_time_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    values, concepts, classes = rng.normal(size=(3, 50, 7)), rng.integers(0, 2, (50, 7)), rng.integers(0, 4, 50)
    values[1, 3, 2] = math.nan

    def scores() -> list[np.ndarray]:
        found = [concept_auc(values, concepts).numpy(), concept_auc(values, concepts, classes).numpy()]
        return [*found, np.array([concept_auc_interval(each, concepts, classes) for each in values])]

    together = scores()
    monkeypatch.setattr(module, "_AT_ONCE", 1)
    for alone, expected in zip(scores(), together, strict=True):
        np.testing.assert_allclose(alone, expected, rtol=1e-12)


def test_an_interval_has_a_width_and_stays_within_its_bounds() -> None:
    concepts, classes = torch.arange(40)[:, None] % 2, torch.arange(40) % 5
    low, high = concept_auc_interval(concepts.double(), concepts, classes)
    # All right: Wilson's of 20 images.
    assert (round(low, 3), high) == (0.839, 1)
    low, high = concept_auc_interval(torch.zeros(40, 1), concepts, classes)
    assert low < 0.5 < high
    assert all(map(math.isnan, concept_auc_interval(concepts.double(), concepts, torch.zeros(40, dtype=int))))
    assert all(map(math.isnan, concept_auc_interval(concepts.double(), torch.zeros_like(concepts), classes)))


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match="`concepts`"):
        concept_auc(torch.zeros(4, 2), torch.zeros(4, 3))
    with pytest.raises(ValueError, match="`concepts`"):
        concept_auc(torch.zeros(4, 2), torch.full((4, 2), 0.5))
    with pytest.raises(ValueError, match="`classes`"):
        concept_auc(torch.zeros(4, 2), torch.zeros(4, 2), [0, 1])
