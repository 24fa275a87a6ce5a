from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
import torch

from quantus_concepts.pasta.losses import (
    LOSS_WEIGHTS,
    cosine_loss,
    neighbour_loss,
    pasta_loss,
    ranking_loss,
    single_cosine_loss,
    squared_loss,
)
from reference import ratings as reference

LOSSES = (cosine_loss, squared_loss, ranking_loss, neighbour_loss, single_cosine_loss)
P = torch.tensor([0.6, 0.2, 0.4], dtype=torch.float64)
T = torch.tensor([0.0, 0.5, 1.0], dtype=torch.float64)
ALL = torch.tensor([True, True, True])


def test_by_hand():
    # P . T = 0.5, |P|^2 = 0.56, |T|^2 = 1.25
    assert cosine_loss(P, T, ALL).item() == pytest.approx(1 - 0.5 / math.sqrt(0.7))
    assert squared_loss(P, T, ALL).item() == pytest.approx((0.36 + 0.09 + 0.36) / 3)
    # pairs: (1, 2): 0.4 * 0.5 wrong, (1, 3): 0.2 * 1 wrong, (2, 3) right
    assert ranking_loss(P, T, ALL).item() == pytest.approx((0.2 + 0.2) / 3)
    # Of pairs of equal target none counts: one of three is left, wrong by 0.4 * 0.5.
    equal = torch.tensor([[0.9, 0.1, 0.5], [0.25, 0.25, 0.75]], dtype=torch.float64)
    assert ranking_loss(equal[0], equal[1], ALL).item() == pytest.approx(0.2 / 2)
    # neighbours: 0.4 wrong, the other right
    assert neighbour_loss(P, T, ALL).item() == pytest.approx(0.2)
    # cosine of 0.6 and 0 is 0, of the others 1
    assert single_cosine_loss(P, T, ALL).item() == pytest.approx(1 / 3)
    paper = 1 - 0.5 / math.sqrt(0.7) + 0.001 * 0.27 + 0.01 * 0.4 / 3
    assert pasta_loss(P, T, ALL, weights=LOSS_WEIGHTS["paper"]).item() == pytest.approx(paper)
    release = pasta_loss(P, T, ALL, weights=LOSS_WEIGHTS["release"], form="release")
    assert release.item() == pytest.approx(0.01 / 3 + 10 * 0.27 + 0.01 * 0.2)
    assert pasta_loss(P, T, ALL, weights=(0, 2, 3)).item() == pytest.approx(0.54 + 0.4)
    assert pasta_loss(P, T, ALL, weights=(0, 0, 0)).item() == 0


@pytest.mark.parametrize("name", ["cosine_loss", "squared_loss", "ranking_loss", "neighbour_loss"])
def test_agree_with_the_reference(name):
    generator = torch.Generator().manual_seed(1)
    predicted = torch.rand(3, 40, generator=generator, dtype=torch.float64)
    target = torch.randint(0, 5, (3, 40), generator=generator).double() / 4
    ours = next(loss for loss in LOSSES if loss.__name__ == name)
    expected = [getattr(reference, name)(p, t) for p, t in zip(predicted.numpy(), target.numpy(), strict=True)]
    np.testing.assert_allclose(ours(predicted, target, torch.ones(3, 40, dtype=torch.bool)), expected, rtol=1e-12)
    assert min(expected) > 0


@pytest.mark.parametrize("form", ["paper", "release"])
def test_masked_is_as_left_out(form):
    generator = torch.Generator().manual_seed(2)
    predicted = torch.rand(2, 30, generator=generator, dtype=torch.float64, requires_grad=True)
    target = torch.randint(0, 5, (2, 30), generator=generator).double() / 4
    mask = torch.zeros(2, 30, dtype=torch.bool)
    # Neighbours are pairs of the batch, so what is kept must be in one piece.
    voted = (slice(5, 20), slice(None))
    mask[0, voted[0]], mask[1] = True, True
    loss = partial(pasta_loss, weights=LOSS_WEIGHTS[form], form=form)
    together = loss(predicted, target.masked_fill(~mask, torch.nan), mask)
    alone = torch.stack([loss(predicted[q, rows], target[q, rows], mask[q, rows]) for q, rows in enumerate(voted)])
    torch.testing.assert_close(together, alone)
    first, second = (torch.autograd.grad(loss.sum(), predicted)[0] for loss in (together, alone))
    torch.testing.assert_close(first, second)
    assert first[0, :5].abs().max() == 0


@pytest.mark.parametrize("loss", LOSSES)
def test_without_a_vote_loss_and_gradient_are_zero(loss):
    predicted = torch.zeros(4, requires_grad=True)
    value = loss(predicted, torch.zeros(4), torch.zeros(4, dtype=torch.bool))
    assert value.item() == 0
    assert torch.autograd.grad(value, predicted)[0].abs().max() == 0
