"""The closed-form derivatives of the training's loss are those of autograd."""

import pytest
import torch

from quantus_concepts.functional.rating_losses import LOSS_WEIGHTS, pasta_loss, pasta_slopes


def batch(seed, n=40, questions=3):
    random = torch.Generator().manual_seed(seed)
    predicted = torch.rand(questions, n, generator=random, dtype=torch.float64)
    # Votes, so that many pairs are equal; some of the lowest.
    target = torch.randint(0, 5, (questions, n), generator=random).double() / 4
    mask = torch.rand(questions, n, generator=random) < 0.7
    mask[0] = False
    return predicted, target, mask


@pytest.mark.parametrize("form", LOSS_WEIGHTS)
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("left_out", [None, 0, 1, 2])
def test_losses_and_slopes_are_those_of_autograd(form, masked, left_out):
    predicted, target, mask = batch(3)
    weights = [0.0 if place == left_out else 0.5 + place for place in range(3)]
    target = target.masked_fill(~mask, 0) if masked else target
    mask = mask if masked else None
    loss, slope = pasta_slopes(predicted, target, mask, weights, form)
    leaf = predicted.clone().requires_grad_()
    expected = pasta_loss(leaf, target, mask, weights=weights, form=form)
    expected.sum().backward()
    torch.testing.assert_close(loss, expected.detach(), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(slope, leaf.grad, rtol=1e-10, atol=1e-12)
    assert slope.any()


def test_outputs_that_are_all_zero_have_finite_slopes():
    _, target, _ = batch(4)
    for form, weights in LOSS_WEIGHTS.items():
        loss, slope = pasta_slopes(torch.zeros_like(target), target, None, weights, form)
        assert loss.isfinite().all()
        assert slope.isfinite().all()


def test_one_item_has_no_pairs():
    single = torch.tensor([[0.3]], dtype=torch.float64)
    for form in LOSS_WEIGHTS:
        loss, slope = pasta_slopes(single, single, None, (0, 0, 1), form)
        assert (loss == 0).all()
        assert (slope == 0).all()
