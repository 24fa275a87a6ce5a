"""Leakage: closed forms, a slow reference, data of the papers, and the size of its test."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats

from quantus_concepts.functional import concept_set_ceiling, concept_task_leakage, interconcept_leakage
from quantus_concepts.functional.bottleneck.leakage import discretise
from reference import bottleneck
from refusals import refusals


def one_or_the_other() -> tuple[torch.Tensor, torch.Tensor]:
    """Return two independent fair concepts and their class, one or the other, 400 images."""
    concepts = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]]).repeat(100, 1)
    return concepts, concepts.amax(1)


def test_closed_form() -> None:
    concepts, classes = one_or_the_other()
    # H(y) = H(1/4), and I(c; y) = H(y) - 1/2 H(1/2): the first concept is right (y = 1), or says nothing of y.
    entropy = stats.entropy([1 / 4, 3 / 4])
    share = (entropy - math.log(2) / 2) / entropy
    assert share == pytest.approx(0.3837, abs=1e-4)
    noise = torch.rand(400, generator=torch.Generator().manual_seed(0))
    values = torch.stack([concepts[:, 0].double(), classes.double(), classes + concepts[:, 0] / 2, noise.double()], 1)
    leakage = concept_task_leakage(values, classes, concepts[:, [0, 0, 0, 0]], n_permutations=199)
    # A hard concept leaks nothing; a copy of the class, with the concept or without, all that is left.
    assert leakage.published[:3].tolist() == pytest.approx([0, 0.6163, 0.6163], abs=1e-4)
    assert leakage.scores[:3].tolist() == pytest.approx([0, 0.6163, 0.6163], abs=0.003)
    assert leakage.p[:3].tolist() == pytest.approx([1, 1 / 200, 1 / 200])
    # Noise says nothing about the class, and less than its concept: negative as published, 0 here.
    assert leakage.published[3] == pytest.approx(-0.3837, abs=0.02)
    assert leakage.scores[3] == pytest.approx(0, abs=0.02)


def test_against_the_reference() -> None:
    rng = np.random.default_rng(0)
    n, n_concepts = 60, 4
    concepts = rng.integers(0, 2, (n, n_concepts))
    classes = concepts[:, :2].sum(1) + rng.integers(0, 2, n)
    values = (concepts + 0.3 * classes[:, None] + 0.5 * rng.normal(size=(n, n_concepts))).round(1)
    for n_bins in (2, 5, 8):
        expected = [bottleneck.bins_of(column.tolist(), n_bins) for column in values.T]
        assert discretise(torch.tensor(values.T), n_bins).tolist() == expected
        leakage = concept_task_leakage(values, classes, concepts, n_bins)
        beyond, published = bottleneck.concept_task_leakage(values, classes, concepts, n_bins)
        np.testing.assert_allclose(leakage.published, published, atol=1e-6)
        # The mean of the null is between 0 and what there is.
        assert (leakage.scores.numpy() < beyond).all()
        pairs = interconcept_leakage(values, concepts, n_bins)
        own, published = bottleneck.interconcept_leakage(values, concepts, n_bins)
        np.testing.assert_allclose(pairs.published, published, atol=1e-6)
        off = ~np.eye(n_concepts, dtype=bool)
        assert (pairs.scores.numpy()[off] < own[off]).all()
        torch.testing.assert_close(pairs.scores, pairs.scores.T, equal_nan=True)
    # The null by hand: all places that the two values of one stratum can change.
    values, concepts = np.array([[0.0], [1.0], [0.0], [0.0]]), np.array([[0], [0], [1], [1]])
    leakage = concept_task_leakage(values, np.array([0, 1, 0, 1]), concepts, n_permutations=99)
    beyond, _ = bottleneck.concept_task_leakage(values, np.array([0, 1, 0, 1]), concepts, 8)
    assert beyond[0] == pytest.approx(0.5)
    # Changed places or not, the value says as much.
    assert (leakage.scores[0].item(), leakage.p[0].item()) == pytest.approx((0, 1), abs=1e-6)


def test_p_is_uniform_without_leakage() -> None:
    generator = torch.Generator().manual_seed(0)
    p_task, p_pairs, p_means, scores = [], [], [], []
    for seed in range(60):
        table = torch.rand(10, 6, generator=generator) < 0.5
        classes = torch.randint(10, (150,), generator=generator)
        concepts = table[classes] ^ (torch.rand(150, 6, generator=generator) < 0.1)
        # Classes and other concepts speak through the own concept only.
        values = concepts + 0.4 * torch.randn(150, 6, generator=generator)
        leakage = concept_task_leakage(values, classes, concepts, n_permutations=19, seed=seed)
        pairs = interconcept_leakage(values, concepts, n_permutations=19, seed=seed)
        p_task.append(leakage.p)
        scores.append(leakage.scores)
        p_means += [leakage.mean_p, pairs.mean_p]
        p_pairs.append(pairs.p[*torch.triu_indices(6, 6, 1)])
    # Two-sided, five standard errors; concepts share their images, draws are of twenty values.
    for p in (torch.cat(p_task), torch.cat(p_pairs)):
        shares = [(p <= level + 1e-6).double().mean().item() for level in (0.05, 0.25, 0.5, 0.75, 1.0)]
        assert shares == pytest.approx([0.05, 0.25, 0.5, 0.75, 1.0], abs=0.06)
    shares = [np.mean(np.array(p_means) <= level + 1e-6) for level in (0.05, 0.5, 1.0)]
    assert shares == pytest.approx([0.05, 0.5, 1.0], abs=0.14)
    assert torch.cat(scores).mean().item() == pytest.approx(0, abs=0.003)


def test_leaking_pairs_are_found() -> None:
    generator = torch.Generator().manual_seed(1)
    concepts = torch.rand(400, 3, generator=generator) < 0.5
    values = concepts + 0.2 * torch.randn(400, 3, generator=generator)
    values[:, 0] += concepts[:, 1]
    leakage = interconcept_leakage(values, concepts)
    assert leakage.mean_p == pytest.approx(1 / 40)
    assert leakage.p[0, 1] == leakage.p[1, 0] == pytest.approx(1 / 40)
    assert leakage.scores[0, 1] > 0.1
    assert leakage.scores[0, 2].abs() < 0.03
    assert leakage.scores.diagonal().isnan().all()


def test_one_class_and_constant_values_have_no_score() -> None:
    values, concepts = torch.rand(20, 2, generator=torch.Generator().manual_seed(0)), torch.arange(40).view(20, 2) % 2
    leakage = concept_task_leakage(values, torch.zeros(20, dtype=torch.long), concepts)
    assert leakage.scores.isnan().all()
    assert (leakage.p == 1).all()
    pairs = interconcept_leakage(torch.stack([values[:, 0], torch.ones(20)], 1), concepts)
    assert pairs.scores.isnan().all()


def test_sparse_hard_concepts_keep_their_bins() -> None:
    # One image in twenty: all of eight bins of equal frequency would hold zeros only.
    values = (torch.arange(100) % 20 == 0).float()[None]
    assert len(discretise(values, 8).unique()) == 2


def test_draws_depend_on_the_seed_alone() -> None:
    generator = torch.Generator().manual_seed(0)
    values, classes = torch.randn(80, 3, generator=generator), torch.arange(80) % 4
    concepts = torch.rand(80, 3, generator=generator) < 0.5
    state = torch.get_rng_state()
    first, again, other = (concept_task_leakage(values, classes, concepts, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(first.scores, again.scores)
    assert not torch.equal(first.scores, other.scores)


def test_ceiling_of_small_tables_and_of_the_papers() -> None:
    rng = np.random.default_rng(0)
    concepts, classes = rng.integers(0, 2, (200, 4)), rng.integers(0, 5, 200)
    assert concept_set_ceiling(concepts, classes) == bottleneck.concept_set_ceiling(concepts, classes)
    # The counts of Derm7pt+ (Napoles et al.): 1011 images of 305 distinct rows; 50 rows have images of several classes,
    # 306 in all, of which 80 are not of the commonest class of their row. Ceiling 92.09 %.
    names = np.array([[int(bit) for bit in f"{row:09b}"] for row in range(305)])
    sizes = np.concatenate([np.full(50, 6), np.full(255, 2)])
    sizes[:6] += 1
    sizes[50:245] += 1
    classes = np.zeros(sizes.sum(), dtype=int)
    row_of = np.repeat(np.arange(305), sizes)
    for row in range(50):
        classes[np.flatnonzero(row_of == row)[: 2 if row < 30 else 1]] = 1
    assert (sizes.sum(), sizes[:50].sum(), classes.sum()) == (1011, 306, 80)
    assert concept_set_ceiling(names[row_of], classes) == pytest.approx(0.9209, abs=1e-4)


def test_tabular_toy() -> None:
    # TabularToy(.25): three concepts are the signs of normal numbers that correlate by .25, the class is whether two of
    # them are positive. Without the last one a head is right but in half of the cases where the others differ, which
    # are a share of arccos(.25) / pi. Published .786 (a sample).
    rng = np.random.default_rng(0)
    covariance = np.full((3, 3), 0.25) + 0.75 * np.eye(3)
    concepts = (rng.multivariate_normal(np.zeros(3), covariance, 20000) > 0).astype(int)
    classes = (concepts.sum(1) >= 2).astype(int)
    assert concept_set_ceiling(concepts, classes) == 1
    expected = 1 - math.acos(0.25) / (2 * math.pi)
    assert expected == pytest.approx(0.790, abs=1e-3)
    assert concept_set_ceiling(concepts[:, :2], classes) == pytest.approx(expected, abs=0.01)


GOOD = torch.rand(6, 2), torch.arange(6) % 2, torch.arange(12).view(6, 2) % 2
test_refused = refusals(
    (lambda: concept_task_leakage(GOOD[0], GOOD[1][:5], GOOD[2]), "`classes` to have shape"),
    (lambda: concept_task_leakage(GOOD[0], GOOD[1], GOOD[2] + 0.5), "`concepts` to hold only 0 and 1"),
    (lambda: concept_task_leakage(GOOD[0] * math.nan, GOOD[1], GOOD[2]), "`values` to be finite"),
    (lambda: interconcept_leakage(GOOD[0], GOOD[2], n_bins=1), "`n_bins`"),
    (lambda: interconcept_leakage(GOOD[0], GOOD[2][:, :1]), "`concepts` to have shape"),
    (lambda: concept_set_ceiling(GOOD[2][:0], GOOD[1][:0]), "`concepts` to have at least one row"),
)
