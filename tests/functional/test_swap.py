"""Swapped heads: a code of one's own is read by nobody else, a scale of one's own by everybody."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from quantus_concepts.functional import Swap, concept_swap
from reference import bottleneck
from refusals import refusals

N, L, K = 400, 12, 4


def training(code: torch.Tensor, scale: float, seed: int) -> tuple[torch.Tensor, ...]:
    """Return values that say the classes by a code (K, L), in a scale of their own, with the head that reads them."""
    generator = torch.Generator().manual_seed(seed)
    classes = torch.arange(N) % K
    values = scale * (code[classes] + 0.1 * torch.randn(N, L, generator=generator)) + 3 * scale
    mean, deviation = values.mean(0), values.std(0)
    # The nearest class, for standardised values.
    means = torch.stack([((values - mean) / deviation)[classes == k].mean(0) for k in range(K)])
    weights, bias = means / deviation, -(means**2).sum(1) / 2 - (means * mean / deviation).sum(1)
    return values, classes, weights, bias, mean, deviation


def swap_of(*trainings: tuple[torch.Tensor, ...]) -> Swap:
    return concept_swap(*zip(*trainings, strict=True))


@pytest.fixture
def code() -> torch.Tensor:
    return (torch.rand(K, L, generator=torch.Generator().manual_seed(5)) > 0.5).double()


def test_scales_do_not_matter_and_codes_do(code: torch.Tensor) -> None:
    same = swap_of(training(code, 1.0, 0), training(code, 50.0, 1), training(code, 0.1, 2))
    assert same.accuracy.min() == 1
    assert same.mean_drop == 0
    # The second training says another class with the code of each: nobody else can read it.
    private = swap_of(training(code, 1.0, 0), training(code.roll(1, 0), 1.0, 1))
    assert private.accuracy.tolist() == [[1, 0], [0, 1]]
    assert private.mean_drop == 1


def test_a_random_code_is_read_by_chance(code: torch.Tensor) -> None:
    generator = torch.Generator().manual_seed(1)
    orders = [torch.randperm(L, generator=generator) for _ in range(40)]
    drops = [swap_of(training(code, 1.0, 0), training(code[:, order], 1.0, 1)).accuracy[0, 1] for order in orders]
    assert float(torch.stack(drops).mean()) == pytest.approx(1 / K, abs=0.12)


def test_reference(code: torch.Tensor) -> None:
    first, second = (
        training(code, 1.0, 0),
        training(code + 0.6 * torch.randn(K, L, generator=torch.Generator().manual_seed(3)), 2.0, 1),
    )
    swap = swap_of(first, second)
    expected = bottleneck.swapped_accuracy(second[0], second[1], first[2:4], first[4:], second[4:])
    assert swap.accuracy[0, 1] == pytest.approx(expected)
    np.testing.assert_allclose(swap.drop[0, 1], swap.accuracy[1, 1] - expected, atol=1e-6)


def test_drops_are_from_the_own_head_of_the_values() -> None:
    # The first head is right about its own values, and the second about half of its own.
    values = [[[1.0], [-1.0]], [[1.0], [1.0]]]
    swap = concept_swap(values, [[0, 1]] * 2, [[[1.0], [-1.0]]] * 2, [[0.0, 0.0]] * 2, [[0.0]] * 2, [[1.0]] * 2)
    assert swap.accuracy.tolist() == [[1, 0.5], [1, 0.5]]
    assert swap.drop.tolist() == [[0, 0], [0, 0]]
    # The second head says the opposite.
    heads = [[[1.0], [-1.0]], [[-1.0], [1.0]]]
    swap = concept_swap(values, [[0, 1]] * 2, heads, [[0.0, 0.0]] * 2, [[0.0]] * 2, [[1.0]] * 2)
    assert swap.accuracy.tolist() == [[1, 0.5], [0, 0.5]]
    assert swap.drop.tolist() == [[0, 0], [1, 0]]
    assert swap.mean_drop == 0.5


def test_a_concept_that_does_not_vary_is_read_as_the_mean_of_the_other_scale() -> None:
    # The first concept was 7 in all training images of the second training: 7 is the first training's mean .5 then, and
    # 8 one deviation of .5 more.
    values = [[[1.0, 0.0], [0.0, 1.0]], [[8.0, 1.0], [7.0, 1.0]]]
    heads, biases = [[[1.0, 0.0], [0.0, 0.9]]] * 2, [[0.0, 0.0]] * 2
    means, deviations = [[0.5, 0.5], [7.0, 0.5]], [[0.5, 0.5], [0.0, 0.5]]
    swap = concept_swap(values, [[0, 1]] * 2, heads, biases, means, deviations)
    assert swap.accuracy[0].tolist() == [1, 1]  # 1 and .5 against .9
    expected = bottleneck.swapped_accuracy(
        torch.tensor(values[1]),
        torch.tensor([0, 1]),
        (torch.tensor(heads[0]), torch.tensor(biases[0])),
        (means[0], deviations[0]),
        (means[1], [1.0, 0.5]),
    )
    assert swap.accuracy[0, 1] == expected


SWAPPED = {
    "values": [[[0.0], [1.0]]] * 2,
    "classes": [[0, 1]] * 2,
    "weights": [[[1.0], [-1.0]]] * 2,
    "biases": [[0.0, 0.0]] * 2,
    "train_mean": [[0.0]] * 2,
    "train_deviation": [[1.0]] * 2,
}
test_numbers = refusals(
    (lambda: concept_swap(**SWAPPED | {"weights": [[[np.nan], [1.0]]] * 2}), "`weights` to be finite"),
    (lambda: concept_swap(**SWAPPED | {"biases": [[np.inf, 1.0]] * 2}), "`biases` to be finite"),
    (lambda: concept_swap(**SWAPPED | {"train_mean": [[np.inf]] * 2}), "`train_mean` to be finite"),
    (lambda: concept_swap(**SWAPPED | {"train_deviation": [[np.nan]] * 2}), "`train_deviation` to be finite"),
    (lambda: concept_swap(**SWAPPED | {"train_deviation": [[-1.0]] * 2}), r"`train_deviation` to lie in \[0, inf\]"),
    (lambda: concept_swap(**SWAPPED | {"classes": [[0, 1], [1, 2]]}), r"`classes` to lie in \[0, 1\] .*Count classes"),
    (lambda: concept_swap(**SWAPPED | {"classes": [[0, 1], [-1, 0]]}), r"`classes` to lie in \[0, 1\]"),
)
test_refusals = refusals(
    (
        lambda: concept_swap([[[0.0]]], [[0]], [[[1.0]]], [[0.0]], [[0.0]], [[1.0]]),
        "`values` to be of at least two trainings",
    ),
    (
        lambda: concept_swap([[[np.nan]]] * 2, [[0]] * 2, [[[1.0]]] * 2, [[0.0]] * 2, [[0.0]] * 2, [[1.0]] * 2),
        "`values` to be finite",
    ),
)
