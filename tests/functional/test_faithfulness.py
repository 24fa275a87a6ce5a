"""From changes of a probability to scores, and the order of the pixels."""

from __future__ import annotations

from math import exp

import numpy as np
import pytest
import torch

from quantus_concepts.functional import faithfulness, relevance_ranks
from quantus_concepts.functional.attribution.faithfulness import percentages, pixel_counts
from reference import faithfulness as reference
from refusals import refusals


def row(*values: float) -> torch.Tensor:
    return torch.tensor([values], dtype=torch.float64)


def test_by_hand() -> None:
    # i = 1, 3: below 2 % the mean is that at 1 %, below 4 % that of both
    scores = faithfulness(row(0.2, 0.4), row(0.2, 0.6), (2, 4))
    np.testing.assert_allclose(scores.sufficiency, [exp(-0.2)])
    np.testing.assert_allclose(scores.necessity, [1 - exp(-0.4)])
    # twice 0.8187308 times 0.3296800, divided by their sum
    np.testing.assert_allclose(scores.faithfulness, [0.470074], atol=1e-6)
    # the best for each of the two, whichever threshold it is of
    swapped = faithfulness(row(0.4, 0.2), row(0.6, 0.2), (4, 2))
    np.testing.assert_allclose(swapped.sufficiency, [exp(-0.3)])
    np.testing.assert_allclose(swapped.necessity, [1 - exp(-0.6)])


def test_the_ends_of_the_scale() -> None:
    never, fully = torch.zeros(1, 5), torch.ones(1, 5)
    best = 2 * (np.e - 1) / (2 * np.e - 1)
    assert faithfulness(never, fully, (10,)).faithfulness == pytest.approx(best)
    assert faithfulness(never, never, (10,)) == (0, 1, 0)
    assert faithfulness(fully, never, (10,)) == (0, pytest.approx(exp(-1)), 0)


def test_undefined_stays_undefined_and_by_itself() -> None:
    changes = torch.tensor([[0.1, 0.2], [0.1, torch.nan]])
    scores = faithfulness(changes, torch.full((2, 2), 0.5), (2, 4))
    np.testing.assert_array_equal(torch.stack(scores).isnan(), [[False, True], [False, True], [False, False]])


@pytest.mark.parametrize("thresholds", [(10, 20, 90), (2,)])
def test_agrees_with_the_reference(thresholds: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    weights, relevance = rng.dirichlet(np.ones(120)).reshape(10, 12), rng.normal(size=(10, 12))
    counts = pixel_counts(120, thresholds)
    ranks = relevance_ranks(torch.as_tensor(relevance)[None])[0].numpy()
    low = [weights[ranks < k].sum() for k in counts.tolist()]
    high = [weights[ranks >= 120 - k].sum() for k in counts.tolist()]

    def perturb(image: np.ndarray, pixels: list[tuple[int, int]]) -> np.ndarray:
        changed = image.copy()
        for pixel in pixels:
            changed[pixel] = 0
        return changed

    expected = reference.scores(lambda x: (weights * x).sum(), np.ones((10, 12)), relevance, perturb, thresholds)
    np.testing.assert_allclose(torch.cat(faithfulness(row(*low), row(*high), thresholds)), expected, atol=1e-12)


def test_percentages_are_odd_and_below_the_largest_threshold() -> None:
    assert list(percentages((10, 3))) == [1, 3, 5, 7, 9]
    # 1, 3, ..., 9 % of 30 pixels
    assert pixel_counts(30, (10,)).tolist() == [0, 0, 1, 2, 2]
    assert pixel_counts(200, (8,)).tolist() == [2, 6, 10, 14]


def test_ranks_by_hand() -> None:
    maps = torch.tensor([[[3.0, -1.0], [0.5, 7.0]], [[1.0, 1.0], [0.0, 1.0]]])
    assert relevance_ranks(maps).tolist() == [[[2, 0], [1, 3]], [[1, 2], [0, 3]]]
    # of equal pixels the one first in the order has the lower rank; unequal ones do not care
    order = torch.tensor([[3, 2, 1, 0]] * 2)
    assert relevance_ranks(maps, order).tolist() == [[[2, 0], [1, 3]], [[3, 2], [0, 1]]]


test_refused = refusals(
    (lambda: faithfulness(torch.ones(2, 4), torch.ones(2, 4), (10,)), r"`irrelevant` .*\(\*, 5\) but got \(2, 4\)"),
    (lambda: faithfulness(torch.ones(2, 5), torch.ones(3, 5), (10,)), r"`relevant` .*\(2, 5\) but got \(3, 5\)"),
    (lambda: faithfulness(torch.ones(2, 1), torch.ones(2, 1), (1,)), r"`thresholds` to lie in \[2, 100\]"),
    (lambda: relevance_ranks(torch.ones(1, 2, 2), torch.zeros(1, 4).long()), "`order` to hold each of 0 to 3 once"),
)
