"""CEM gain and the baselines of CEM: by hand, by the reference, and what models that do not look score."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from quantus_concepts.functional import cem, cem_gain, class_recital, commonest_concept, interval
from reference import comparisons
from refusals import refusals

#: Four images of two classes; the concepts are on 4, 2 and 1 of them.
LABELS = torch.tensor([[1, 1, 0], [1, 1, 0], [1, 0, 0], [1, 0, 1]])
CLASSES = torch.tensor([0, 0, 1, 1])


def test_by_hand() -> None:
    named = torch.eye(3)[[1, 1, 1, 2]]
    # Concept 1 is on 1 of the 3 others, 1 of 3, 2 of 3; concept 2 on none of the others.
    np.testing.assert_allclose(cem_gain(named, LABELS), [2 / 3, 2 / 3, -2 / 3, 1], atol=1e-7)
    # Ties go to the lower index: the first two are 1 and 0, or 2 and 0, and concept 0 gains nothing.
    np.testing.assert_allclose(cem_gain(named, LABELS, 2), [1 / 3, 1 / 3, -1 / 3, 1 / 2], atol=1e-7)
    # Image 3 is no longer scored, nor among the others.
    named[3] = 0
    np.testing.assert_allclose(cem_gain(named, LABELS), [1 / 2, 1 / 2, -1, np.nan], atol=1e-7)
    assert cem_gain(named[:1], LABELS[:1]).isnan().all()


def test_baselines_by_hand() -> None:
    commonest = commonest_concept(LABELS)
    np.testing.assert_allclose(commonest, [[1, 0.5, 0.25]] * 4)
    np.testing.assert_allclose(cem(commonest, LABELS), [1, 1, 1, 1])
    np.testing.assert_allclose(cem(commonest, LABELS, 2), [1, 1, 0.5, 0.5])
    np.testing.assert_allclose(cem_gain(commonest, LABELS, 2).mean(), 0, atol=1e-7)
    class_concepts = torch.tensor([[0.2, 0.9, 0.0], [0.3, 0.0, 0.4]])
    recital = class_recital(class_concepts, CLASSES)
    np.testing.assert_array_equal(recital, class_concepts[[0, 0, 1, 1]])
    np.testing.assert_allclose(cem(recital, LABELS), [1, 1, 0, 1])
    np.testing.assert_allclose(cem_gain(recital, LABELS), [2 / 3, 2 / 3, -1 / 3, 1], atol=1e-7)


@pytest.mark.parametrize("top_l", [1, 3, 6])
def test_agrees_with_the_reference(top_l: int) -> None:
    generator = torch.Generator().manual_seed(top_l)
    importance = torch.randn(25, 6, generator=generator).round()
    importance[3, 0], importance[7] = torch.nan, 0
    labels = (torch.rand(25, 6, generator=generator) < 0.4).int()
    actual = cem_gain(importance, labels, top_l)
    np.testing.assert_allclose(actual, comparisons.cem_gain(importance, labels, top_l), atol=1e-6)
    assert actual.isnan().equal(cem(importance, labels, top_l).isnan())


@pytest.mark.parametrize("top_l", [1, 2])
def test_what_does_not_look_gains_nothing_and_an_oracle_the_rest(top_l: int) -> None:
    generator = torch.Generator().manual_seed(0)
    prevalence = torch.linspace(0.1, 0.9, 12)
    labels = (torch.rand(400, 12, generator=generator) < prevalence).int()
    assert labels.sum(1).ge(top_l).all()
    named = torch.randn(12, generator=generator).expand(400, -1)
    assert cem_gain(named, labels, top_l).mean().abs() < 1e-6
    # An oracle that names the rarest concept that is there reaches 1 less its prevalence.
    rarest = labels * torch.arange(12, 0, -1.0)
    best = 1 - torch.stack([prevalence.expand(400, -1)[i, labels[i].bool()][:top_l] for i in range(400)]).mean(1)
    np.testing.assert_allclose(cem_gain(rarest, labels, top_l), best, atol=0.08)


def test_shuffled_images_gain_nothing_within_the_interval() -> None:
    covered = []
    for seed in range(200):
        generator = torch.Generator().manual_seed(seed)
        labels = (torch.rand(120, 8, generator=generator) < torch.linspace(0.2, 0.8, 8)).int()
        values = labels + 0.3 * torch.randn(120, 8, generator=generator)
        assert seed or cem_gain(values, labels).mean() > 0.3
        shuffled = values[torch.randperm(120, generator=generator)]
        low, high = interval(cem_gain(shuffled, labels), (-1, 1))
        covered.append(low <= 0 <= high)
    assert np.mean(covered) >= 0.92


test_refused = refusals(
    (lambda: cem_gain(torch.ones(2, 3), torch.ones(2, 4)), r"`concept_labels` .* \(2, 3\) but got \(2, 4\)"),
    (lambda: cem_gain(torch.ones(2, 3), torch.ones(2, 3) * 255), "`concept_labels` to hold only 0 and 1"),
    (lambda: cem_gain(torch.ones(2, 3), torch.ones(2, 3), top_l=4), r"`top_l` to lie in \[1, 3\]"),
    (lambda: commonest_concept(torch.ones(3)), r"`concept_labels` to have shape \(N, L\)"),
    (lambda: commonest_concept(torch.full((2, 3), 0.5)), "`concept_labels` to hold only 0 and 1"),
    (lambda: class_recital(torch.ones(2), torch.tensor([0])), r"`class_concepts` to have shape \(K, L\)"),
    (lambda: class_recital(torch.ones(2, 3) * 50, torch.tensor([0])), "`class_concepts` .*Divide percentages"),
    (lambda: class_recital(torch.ones(2, 3), torch.tensor([0, 2])), r"`classes` to lie in \[0, 1\]"),
    (lambda: class_recital(torch.ones(2, 3), torch.tensor([-1, 0])), r"`classes` to lie in \[0, 1\]"),
    (lambda: class_recital(torch.ones(2, 3), torch.tensor([True, False])), "`classes` to hold indices"),
    error=(TypeError, ValueError),
)
