"""Stability, explained variance and deletion of concepts: by hand, by the reference, and undefined."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from quantus_concepts.functional import (
    bank_stability,
    delete_concepts,
    explained_variance,
    monosemanticity,
    surrogate_fidelity,
)
from quantus_concepts.functional.discovered.monosemanticity import mean_likeness
from reference import discovered
from refusals import refusals

L, D, N = 4, 7, 30
DRAWN = torch.Generator().manual_seed(0)
BANKS = torch.randn(3, L, D, generator=DRAWN, dtype=torch.float64)
ROWS = torch.randn(N, D, generator=DRAWN, dtype=torch.float64) * torch.arange(1, D + 1) + 2
ORDER = torch.rand(N, L, generator=DRAWN).argsort(1)


def test_stability_by_hand() -> None:
    bank = torch.eye(3)[:2]
    # The first is nearer to (0.8, 0.6, 0), but then nothing would be left for the second.
    other = torch.tensor([[0.8, 0.6, 0.0], [1.2, 0.0, 1.6]])
    torch.testing.assert_close(bank_stability(bank, bank, other), torch.tensor([0.6, 0.6]))
    # In another order, of other lengths, and between two discoveries: (0, 2, 0) is the second of either.
    first = torch.tensor([[0.0, 2.0, 0.0], [3.0, 0.0, 0.0]])
    second = torch.tensor([[0.0, 0.0, -1.0], [0.0, 0.6, 0.8]])
    torch.testing.assert_close(bank_stability(bank, first, second), torch.tensor([0.0, 0.6]))
    torch.testing.assert_close(bank_stability(bank, first, -first), torch.tensor([0.0, 0.0]))


def test_explained_variance_by_hand() -> None:
    rows = [[5.0, 1.0], [1.0, 1.0], [3.0, 2.0], [3.0, 0.0]]
    assert explained_variance(rows, [[7.0, 0.0]]).item() == pytest.approx(0.8)
    assert explained_variance(rows, [[1.0, 1.0]]).item() == pytest.approx(0.5)
    # A direction twice explains no more than once; two explain all.
    assert explained_variance(rows, [[7.0, 0.0], [1.0, 0.0]]).item() == pytest.approx(0.8)
    assert explained_variance(rows, [[7.0, 0.0], [1.0, 1.0]]).item() == pytest.approx(1)


def test_deletion_by_hand() -> None:
    embeddings = [[3.0, 4.0, 5.0], [1.0, 2.0, 3.0]]
    directions = [[2.0, 0.0, 0.0], [1.0, 1.0, 0.0], [4.0, 0.0, 0.0]]
    order, absent = [[0, 1, 2], [1, 2, 0]], [2.0, 2.0, 4.0]
    expected = [
        [[3, 4, 5], [1, 2, 3]],
        [[1, 4, 5], [0.5, 1.5, 3]],
        # Both span the first two axes, and the third direction is the first again.
        [[1, 1, 5], [1, 1, 3]],
        [[1, 1, 5], [1, 1, 3]],
    ]
    deleted = delete_concepts(embeddings, directions, order, [0, 1, 2, 3], absent)
    torch.testing.assert_close(deleted, torch.tensor(expected, dtype=torch.float64))
    # By default what 5 % of the images are below: of 21 values the second.
    rows = torch.arange(21.0)[:, None] * torch.tensor([1.0, 3.0])
    (deleted,) = delete_concepts(rows, [[5.0, 0.0]], [[0]] * 21, [1])
    torch.testing.assert_close(deleted, torch.stack([torch.ones(21), rows[:, 1]], 1))


def test_against_the_reference() -> None:
    banks, rows = BANKS.numpy(), ROWS.numpy()
    np.testing.assert_allclose(bank_stability(*BANKS), discovered.bank_stability(*banks), rtol=1e-10)
    np.testing.assert_allclose(explained_variance(ROWS, BANKS[0]), discovered.explained_variance(rows, banks[0]))
    for count, result in enumerate(delete_concepts(ROWS, BANKS[0], ORDER, range(L + 1))):
        np.testing.assert_allclose(result, discovered.delete_concepts(rows, banks[0], ORDER.numpy(), count))


def test_deletion_along_directions_that_depend_on_others() -> None:
    # Twice the same one, more than there are dimensions: what is removed first decides.
    directions = torch.cat([BANKS[0], 3 * BANKS[0, :1], *BANKS[1:]])
    order = torch.rand(N, len(directions), generator=DRAWN).argsort(1)
    counts = (1, 2, 5, D, len(directions))
    for count, result in zip(counts, delete_concepts(ROWS, directions, order, counts), strict=True):
        expected = discovered.delete_concepts(ROWS.numpy(), directions.numpy(), order.numpy(), count)
        np.testing.assert_allclose(result, expected, rtol=1e-8, atol=1e-8)
    values = ROWS @ directions.T
    (alone,) = delete_concepts(ROWS, directions, order, [1])
    first = order[:, 0]
    torch.testing.assert_close((alone * directions[first]).sum(1), values.quantile(0.05, dim=0)[first])


def test_random_directions_explain_l_of_d() -> None:
    shares = [explained_variance(ROWS, torch.randn(L, D, generator=DRAWN)).item() for _ in range(400)]
    assert np.mean(shares) == pytest.approx(L / D, abs=0.02)
    components = torch.linalg.svd(ROWS - ROWS.mean(0)).Vh[:L]
    assert max(shares) <= explained_variance(ROWS, components).item()


def test_surrogate_fidelity_by_hand() -> None:
    logits, values, bias = [[3.0, 1.0], [0.0, 2.0]], [[1.0, 2.0], [0.0, 0.0]], [1.0, 0.0]
    errors = surrogate_fidelity(logits, values, [[0.0, 1.0], [1.0, 1.0]], bias)
    # y = (2, 1) and (-1, 2), y_hat = (2, 3) and (0, 0).
    torch.testing.assert_close(errors.mae, torch.tensor([1.0, 1.5], dtype=torch.float64))
    probability = 1 / (1 + np.exp(-np.array([1.0, -1.0, -3.0])))
    expected = [probability[0] - probability[1], 0.5 - probability[2]]
    torch.testing.assert_close(errors.emd, torch.tensor(expected, dtype=torch.float64))
    of_images = [[[0.0, 1.0], [1.0, 1.0]]] * 2
    assert torch.equal(errors.mae, surrogate_fidelity(logits, values, of_images, bias).mae)


def test_surrogate_fidelity_of_own_rows_and_random_ones() -> None:
    weights, bias = torch.randn(5, D, generator=DRAWN, dtype=torch.float64), torch.arange(5.0, dtype=torch.float64)
    logits = ROWS @ weights.T + bias

    def errors(directions: torch.Tensor, importances: torch.Tensor | None = None) -> tuple[float, float]:
        values = ROWS @ torch.linalg.pinv(directions)
        found = surrogate_fidelity(logits, values, weights @ directions.T if importances is None else importances, bias)
        reference = discovered.surrogate_fidelity(
            logits.numpy(),
            values.numpy(),
            (weights @ directions.T if importances is None else importances).numpy(),
            bias.numpy(),
        )
        np.testing.assert_allclose(torch.stack(list(found)), np.array(reference), atol=1e-12)
        return found.mae.mean().item(), found.emd.mean().item()

    # The rows of the model are the concepts that say everything.
    own = errors(weights)
    assert max(own) < 1e-6
    scale = (weights @ weights.T).std()
    random = [torch.randn(5, 5, generator=DRAWN, dtype=torch.float64) * scale for _ in range(39)]
    banks = [torch.randn(5, D, generator=DRAWN, dtype=torch.float64) for _ in range(39)]
    random_importances = np.array([errors(weights, draw) for draw in random])
    random_concepts = np.array([errors(bank) for bank in banks])
    all_random = np.array([errors(bank, draw) for bank, draw in zip(banks, random, strict=True)])
    assert random_importances[:, 0].min() > 0.01
    assert random_concepts[:, 0].min() > 0.01
    assert all_random[:, 0].mean() > max(random_importances[:, 0].mean(), random_concepts[:, 0].mean())


def test_monosemanticity_by_hand() -> None:
    # Cosines: 1 of images 0 and 1, 0.6 of 0 and 2, 0.6 of 1 and 2; nothing is alike to the last.
    embeddings = [[1.0, 0.0, 0.0], [5.0, 0.0, 0.0], [0.6, 0.8, 0.0], [0.0, 0.0, 1.0]]
    activations = torch.tensor([[2.0, 2.0, 0.0, 0.0], [4.0, 2.0, 4.0, 0.0], [1.0, 0.5, 1.0, 0.0]]).T
    first, second, third = monosemanticity(activations, embeddings).tolist()
    assert first == pytest.approx(1)
    assert second == pytest.approx((0.5 * 1 + 1 * 0.6 + 0.5 * 0.6) / 2)
    assert third == pytest.approx((2 * 1 + 4 * 0.6 + 2 * 0.6) / 8)
    # The scale and the zero of the activations do not count, nor does the length of embeddings.
    again = monosemanticity(3 * activations - 7, 2 * torch.tensor(embeddings))
    assert again.tolist() == pytest.approx([first, second, third])
    assert mean_likeness(embeddings) == pytest.approx((1 + 0.6 + 0.6) / 6)


def test_monosemanticity_against_the_reference_and_of_directions_of_noise() -> None:
    embeddings = torch.randn(N, D, generator=DRAWN, dtype=torch.float64) + 0.5
    activations = torch.rand(N, 200, generator=DRAWN, dtype=torch.float64) ** 4
    found = monosemanticity(activations, embeddings)
    expected = discovered.monosemanticity(activations.numpy(), embeddings.numpy())
    np.testing.assert_allclose(found, expected, atol=1e-12)
    # Activations of noise have the mean cosine of all pairs, which is far from 0.
    assert mean_likeness(embeddings) > 0.1
    assert found.mean().item() == pytest.approx(mean_likeness(embeddings), abs=0.02)
    # A concept that fires on one of ten clusters has 1.
    clusters = torch.eye(10, dtype=torch.float64)[torch.arange(N) % 10]
    torch.testing.assert_close(monosemanticity(clusters, clusters), torch.ones(10, dtype=torch.float64))


def test_undefined() -> None:
    # The same everywhere, in one image only, not finite.
    activations = [[1.0, 0.0, torch.nan, 0.0], [1.0, 2.0, 1.0, 1.0], [1.0, 0.0, 2.0, 2.0]]
    assert monosemanticity(activations, torch.eye(3)).isnan().tolist() == [True, True, True, False]
    # Rounding of the length of its embedding gives the pairs of a single image no sign.
    single = torch.eye(20)
    assert monosemanticity(single, torch.randn(20, 7, generator=DRAWN, dtype=torch.float64)).isnan().all()
    assert monosemanticity(torch.ones(1, 2), torch.ones(1, 2)).isnan().all()
    assert monosemanticity(torch.ones(0, 2), torch.ones(0, 2)).isnan().all()
    assert explained_variance(torch.ones(5, 3), torch.eye(3)).isnan()
    without = torch.eye(3)
    without[1] = 0
    assert bank_stability(torch.eye(3), torch.eye(3), without).isnan().tolist() == [False, True, False]
    # A direction of length 0 removes nothing.
    assert torch.equal(delete_concepts(ROWS, torch.zeros(1, D), [[0]] * N, [1])[0], ROWS)


test_refused = refusals(
    (lambda: bank_stability(torch.eye(3), torch.eye(3), torch.eye(4)), "`second`"),
    (lambda: bank_stability(BANKS[0], BANKS[0] * torch.nan, BANKS[0]), "`first`"),
    (lambda: explained_variance(ROWS, torch.eye(3)), "`directions`"),
    (lambda: explained_variance(ROWS, BANKS[0] * torch.nan), "`directions`"),
    (lambda: delete_concepts(ROWS, BANKS[0], ORDER + 1, [1]), "`order`"),
    (lambda: delete_concepts(ROWS, BANKS[0], ORDER, [L + 1]), "`counts`"),
    (lambda: monosemanticity(ROWS, ROWS[1:]), "`embeddings`"),
    (lambda: monosemanticity(ROWS, ROWS * 0), "`embeddings` to hold embeddings other than 0"),
    (lambda: monosemanticity(ROWS, ROWS * torch.nan), "`embeddings`"),
    (lambda: surrogate_fidelity(ROWS, ROWS[:, :L], BANKS[0]), "`importances`"),
    (lambda: surrogate_fidelity(ROWS, ROWS[:, :L], BANKS[0].T, [1.0]), "`bias`"),
    (lambda: surrogate_fidelity(ROWS * torch.nan, ROWS[:, :L], BANKS[0].T), "`logits`"),
)
