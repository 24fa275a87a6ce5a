"""Leakage: closed forms, a slow reference, data of the papers, and the size of its test."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch.utils._python_dispatch import TorchDispatchMode

from quantus_concepts.functional import (
    ceiling_noise_equivalent,
    concept_set_ceiling,
    concept_task_leakage,
    interconcept_leakage,
    noise_equivalent,
)
from quantus_concepts.functional.bottleneck import leakage as module
from quantus_concepts.functional.bottleneck.leakage import discretise
from quantus_concepts.functional.bottleneck.wrong_labels import unique_share
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


def test_pairs_in_blocks_of_any_size_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    bins = torch.randint(0, 5, (23, 70), generator=generator)
    expected = [[bottleneck.entropy(list(zip(u, v, strict=True))) for v in bins.tolist()] for u in bins.tolist()]
    for cells, images in ((1024, 8192), (15, 8192), (1, 9), (40, 70)):
        monkeypatch.setattr(module, "_CELLS", cells)
        monkeypatch.setattr(module, "_IMAGES", images)
        np.testing.assert_allclose(module._pair_entropies(bins, 5), expected, rtol=0, atol=1e-12)


class Largest(TorchDispatchMode):
    """Note how many bytes the largest tensor has that an operator makes."""

    n_bytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for part in result if isinstance(result, tuple | list) else [result]:
            if isinstance(part, torch.Tensor):
                self.n_bytes = max(self.n_bytes, part.nbytes)
        return result


def test_no_tensor_is_larger_than_pairs_or_values() -> None:
    # All tables of 600 concepts would have 92 MB as float32, those of 40 draws 115 MB.
    generator = torch.Generator().manual_seed(0)
    values, concepts = torch.rand(300, 600, generator=generator), torch.rand(300, 600, generator=generator) > 0.5
    with Largest() as largest:
        interconcept_leakage(values, concepts.long(), n_permutations=2)
    assert largest.n_bytes <= 8 * 1024**2


def test_the_null_is_the_mean_of_all_orders_within_the_strata() -> None:
    # Three and four images of two strata, and two concepts, whose draws are counted out.
    values = np.array([[0.0, 2.0], [1.0, 0.0], [2.0, 1.0], [0.0, 5.0], [1.0, 3.0], [2.0, 4.0], [3.0, 6.0]])
    concepts = np.array([[0, 0], [0, 0], [0, 1], [1, 1], [1, 1], [1, 1], [1, 1]])
    classes = np.array([0, 1, 1, 0, 0, 1, 2])
    leakage = concept_task_leakage(values, classes, concepts, n_permutations=3000)
    for j in range(2):
        strata = [np.flatnonzero(concepts[:, j] == state) for state in (0, 1)]
        exact = []
        for orders in itertools.product(*(itertools.permutations(stratum) for stratum in strata)):
            moved = values[:, [j]].copy()
            moved[np.concatenate(strata), 0] = values[[i for order in orders for i in order], j]
            exact.append(bottleneck.concept_task_leakage(moved, classes, concepts[:, [j]], 8)[0][0])
        own = bottleneck.concept_task_leakage(values[:, [j]], classes, concepts[:, [j]], 8)[0][0]
        assert leakage.scores[j].item() == pytest.approx(own - np.mean(exact), abs=0.01)
        assert leakage.p[j].item() == pytest.approx(np.mean(np.array(exact) >= own - 1e-9), abs=0.03)


def test_the_null_by_hand() -> None:
    # One of four values and one of four classes: in a quarter of the orders the same image, which says all.
    # In the others it says 2 H(1/4) - H(1/4, 1/4, 1/2).
    quarter = stats.entropy([1 / 4, 3 / 4])
    other = (2 * quarter - stats.entropy([1 / 4, 1 / 4, 1 / 2])) / quarter
    one = [[1], [0], [0], [0]]
    leakage = concept_task_leakage(one, [1, 0, 0, 0], [[0]] * 4, n_permutations=3000)
    assert leakage.scores.item() == pytest.approx(1 - (1 + 3 * other) / 4, abs=0.03)
    assert leakage.p.item() == leakage.mean_p == pytest.approx(1 / 4, abs=0.03)


def honest_data(q: float, seed: int, leak: float = 0.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return values that say nothing beyond the true concepts but `leak`, classes, and labels of which q are wrong."""
    rng = np.random.default_rng(seed)
    table, classes = rng.beta(0.3, 0.3, (8, 12)), rng.integers(0, 8, 400)
    truth = (rng.random((400, 12)) < table[classes]).astype(int)
    values = truth + 0.15 * (rng.normal(size=truth.shape) + leak * rng.normal(size=(8, 12))[classes])
    return values, classes, np.where(rng.random(truth.shape) < q, 1 - truth, truth)


def equivalent_of(values: np.ndarray, classes: np.ndarray, labels: np.ndarray) -> float:
    leakage = concept_task_leakage(values, classes, labels, n_permutations=19)
    return noise_equivalent(values, classes, labels, leakage.scores.mean().item())


def test_wrong_labels_by_hand() -> None:
    # The concept is one of two fair classes and the value the concept: where a share q of the labels is wrong the value
    # says h(q) bits beyond them. The class shares are hardly shrunk with 20,000 images.
    classes = np.arange(20000) % 2
    for q in (0.05, 0.1, 0.2):
        labels = np.where(np.arange(20000) % 200 < 200 * q, 1 - classes, classes)[:, None]
        bits = stats.entropy([q, 1 - q]) / math.log(2)
        assert noise_equivalent(classes[:, None], classes, labels, bits) == pytest.approx(q, abs=1e-3)
    # Between the shares of the curve, and where the score is not positive or the labels explain nothing of it.
    assert noise_equivalent(classes[:, None], classes, labels, 0.0) == 0
    assert noise_equivalent(classes[:, None], classes, labels, 0.95) == math.inf


@pytest.mark.parametrize("seed", range(3))
def test_wrong_labels_against_the_reference(seed: int) -> None:
    values, classes, labels = honest_data(0.05, seed)
    values[:, 3], labels[:, 4] = 1.0, 0  # a constant value, and a concept that never occurs
    labels[:1, 5], labels[1:, 5] = 1, 0  # one that is rarer than any share of wrong labels
    curve = bottleneck.leakage_of_wrong_labels(values, classes, labels, (0.05, 0.1), 8)
    for q, score in zip((0.05, 0.1), curve, strict=True):
        assert noise_equivalent(values, classes, labels, score) == pytest.approx(q, abs=1e-9)


def test_wrong_labels_of_honest_models_are_found_and_planted_codes_have_a_size() -> None:
    found = {q: np.mean([equivalent_of(*honest_data(q, seed)) for seed in range(4)]) for q in (0.0, 0.02, 0.05, 0.14)}
    assert found == pytest.approx({0.0: 0, 0.02: 0.02, 0.05: 0.053, 0.14: 0.149}, abs=0.01)
    codes = {a: np.mean([equivalent_of(*honest_data(0, seed, a)) for seed in range(4)]) for a in (0.2, 0.5, 1.5)}
    assert codes == pytest.approx({0.2: 0.006, 0.5: 0.037, 1.5: 0.226}, abs=0.05)
    assert codes[0.2] < 0.015 < codes[0.5] < 0.06


def test_wrong_labels_are_undefined_without_classes_or_concepts() -> None:
    values, classes, labels = honest_data(0, 0)
    assert math.isnan(noise_equivalent(values, np.zeros(400, int), labels, 0.1))
    assert math.isnan(noise_equivalent(values, classes, np.ones_like(labels), 0.1))
    assert math.isnan(noise_equivalent(values, classes, labels, math.nan))


def test_wrong_labels_behind_a_ceiling() -> None:
    rng = np.random.default_rng(0)
    table = np.array([[int(bit) for bit in f"{k:03b}"] * 2 for k in range(8)])
    found = {}
    for q in (0.0, 0.05, 0.1, 0.14):
        draws = []
        for seed in range(4):
            classes = rng.integers(0, 8, 400)
            labels = np.where(rng.random((400, 6)) < q, 1 - table[classes], table[classes])
            draws.append(ceiling_noise_equivalent(labels, classes, 1.0, seed=seed))
        found[q] = np.mean(draws)
    assert found == pytest.approx({0.0: 0, 0.05: 0.040, 0.1: 0.091, 0.14: 0.130}, abs=0.02)
    # No more than the ceiling needs nothing, and nothing explains that concepts without a relation give the class.
    own = concept_set_ceiling(labels, classes)
    assert ceiling_noise_equivalent(labels, classes, own) == 0
    assert ceiling_noise_equivalent(labels, classes, own + 0.01) < ceiling_noise_equivalent(labels, classes, 0.99)
    assert ceiling_noise_equivalent(rng.integers(0, 2, (400, 3)), classes, 1.0) == math.inf
    again = (ceiling_noise_equivalent(labels, classes, 0.9, seed=3) for _ in range(2))
    assert next(again) == next(again)


def test_a_ceiling_of_unique_concepts_says_nothing() -> None:
    rows = torch.tensor([[0, 0], [0, 0], [0, 1], [1, 0]]).repeat_interleave(1, 0)
    assert unique_share(rows) == 0.5
    assert unique_share(rows.repeat(2, 1)) == 0
    assert math.isnan(ceiling_noise_equivalent(rows, [0, 1, 0, 0], 1.0))
    # A quarter is allowed.
    rows = torch.tensor([[0, 0], [0, 0], [0, 0], [1, 0]])
    assert unique_share(rows) == 0.25
    assert ceiling_noise_equivalent(rows, [0, 0, 0, 0], 1.0) == 0


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


GOOD = torch.rand(6, 2), torch.arange(6) % 2, torch.arange(12).view(6, 2) % 2
test_refused = refusals(
    (lambda: concept_task_leakage(GOOD[0], GOOD[1][:5], GOOD[2]), "`classes` to have shape"),
    (lambda: concept_task_leakage(GOOD[0], GOOD[1], GOOD[2] + 0.5), "`concepts` to hold only 0 and 1"),
    (lambda: concept_task_leakage(GOOD[0] * math.nan, GOOD[1], GOOD[2]), "`values` to be finite"),
    (lambda: interconcept_leakage(GOOD[0], GOOD[2], n_bins=1), "`n_bins`"),
    (lambda: interconcept_leakage(GOOD[0], GOOD[2][:, :1]), "`concepts` to have shape"),
    (lambda: noise_equivalent(GOOD[0], GOOD[1], GOOD[2] + 0.5, 0.1), "`concepts` to hold only 0 and 1"),
    (lambda: noise_equivalent(GOOD[0], GOOD[1][:5], GOOD[2], 0.1), "`classes` to have shape"),
    (lambda: ceiling_noise_equivalent(GOOD[2], GOOD[1], 1.5), "`accuracy`"),
    (lambda: ceiling_noise_equivalent(GOOD[2], GOOD[1], 1.0, n_draws=0), "`n_draws`"),
    (lambda: ceiling_noise_equivalent(GOOD[2][:0], GOOD[1][:0], 1.0), "`concepts` to have at least one row"),
    (lambda: concept_set_ceiling(GOOD[2][:0], GOOD[1][:0]), "`concepts` to have at least one row"),
)
