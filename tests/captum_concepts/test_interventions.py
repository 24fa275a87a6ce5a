"""Interventions, weights that are pruned, and the residual beside a bottleneck."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from captum_concepts import (
    BottleneckCBM,
    ConceptBank,
    Embeddings,
    PostHocCBM,
    ResidualCBM,
    embed,
    fit_residual,
    prune,
)
from captum_concepts.models.heads import fit_logistic
from untouched import untouched

NAMES = ["red", "blue", "long"]


def linear(weight: Any, bias: Any = None) -> nn.Linear:
    layer = nn.Linear(len(weight[0]), len(weight))
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(weight))
        layer.bias.copy_(torch.zeros(len(weight)) if bias is None else torch.tensor(bias))
    return layer


# Values are the three numbers of an input, the logits 1 u0 + 2 u1 + 3 u2 and -u0.
HEAD = [[1.0, 2.0, 3.0], [-1.0, 0.0, 0.0]]
INPUTS = torch.tensor([[10.0, 20.0, 30.0], [1.0, 1.0, 1.0]])


def post_hoc() -> PostHocCBM:
    return PostHocCBM(nn.Identity(), ConceptBank(torch.eye(3), names=NAMES), linear(HEAD))


def bottleneck(**changed: Any) -> BottleneckCBM:
    return BottleneckCBM(nn.Identity(), linear(torch.eye(3).tolist()), linear(HEAD), **changed)


@pytest.mark.parametrize(
    ("concepts", "values", "expected"),
    [
        (1, 0.0, [[100.0, -10.0], [4.0, -1.0]]),
        (["long", "red"], [1.0, 2.0], [[45.0, -2.0], [7.0, -2.0]]),
        ([0, 2], [[0.0, 0.0], [5.0, 6.0]], [[40.0, 0.0], [25.0, -5.0]]),
        (torch.tensor([[0], [2]]), [[0.0], [0.0]], [[130.0, 0.0], [3.0, -1.0]]),
    ],
)
def test_numbers_replace_values(concepts: Any, values: Any, expected: list[list[float]]) -> None:
    torch.testing.assert_close(post_hoc().intervene(INPUTS, concepts, values), torch.tensor(expected))


def test_labels_stand_for_levels_where_values_are_not_bounded() -> None:
    cbm = post_hoc()
    levels = torch.tensor([-1.0, -2.0, -3.0]), torch.tensor([1.0, 2.0, 3.0])
    logits = cbm.intervene(INPUTS, ["red", "long"], [[0, 1], [1, 0]], levels)
    torch.testing.assert_close(logits, torch.tensor([[-1.0 + 40 + 9, 1.0], [1.0 + 2 - 9, -1.0]]))
    for model in (cbm, bottleneck(activation=None)):
        with pytest.raises(ValueError, match="`levels` with labels"):
            model.intervene(INPUTS, [0, 2], [1, 0])


def test_labels_are_the_values_of_a_sigmoid() -> None:
    logits = bottleneck(activation=nn.Sigmoid()).intervene(INPUTS, [0, 1, 2], [[1, 0, 1], [0, 1, 0]])
    torch.testing.assert_close(logits, torch.tensor([[4.0, -1.0], [2.0, 0.0]]))


def test_levels_are_percentiles_of_the_values() -> None:
    images = torch.arange(101.0)[:, None] * torch.tensor([1.0, -2.0, 0.0])
    cbm = post_hoc()
    low, high = cbm.value_levels([(images[:60],), (images[60:],)])
    torch.testing.assert_close(low, torch.tensor([5.0, -190.0, 0.0]))
    torch.testing.assert_close(high, torch.tensor([95.0, -10.0, 0.0]))
    low, high = cbm.value_levels(Embeddings(images, None, None), percentiles=(0, 50))
    torch.testing.assert_close(torch.stack([low, high]), torch.tensor([[0.0, -200, 0], [50, -100, 0]]))


# Pruning


def test_pruning_by_hand() -> None:
    cbm = post_hoc()
    with untouched(cbm):
        once = prune(cbm, "blue")
        both = prune(cbm, ["red", "blue"], 0, normalise=True)
        normalised = prune(cbm, 2, [0, 1], normalise=True)
    assert once.head.weight.tolist() == [[1.0, 0.0, 3.0], [-1.0, 0.0, 0.0]]
    # 1 + 2 + 3 = 6 is left to the one weight there is; class 1 is not asked for.
    assert both.head.weight.tolist() == [[0.0, 0.0, 6.0], [-1.0, 0.0, 0.0]]
    assert normalised.head.weight.tolist() == [[2.0, 4.0, 0.0], [-1.0, 0.0, 0.0]]
    with pytest.raises(ValueError, match=r"classes \[1\] have none"):
        prune(cbm, "red", normalise=True)
    with pytest.raises(ValueError, match="linear head"):
        prune(cbm.with_head(nn.Sequential(nn.Linear(3, 2), nn.ReLU())), 0)


# PCBM-h


def random_samples(n: int = 90, d: int = 4, n_classes: int = 3) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(n, d, generator=generator) * torch.tensor([1.0, 30.0, 0.1, 2.0])
    noise = torch.randn(n, n_classes, generator=generator)
    scores = images / images.std(0) @ torch.randn(d, n_classes, generator=generator) + noise
    return images, scores.argmax(1)


def half_blind_model(images: Tensor, labels: Tensor, **changed: Any) -> PostHocCBM:
    """A bottleneck that sees the first two of four numbers."""
    bank = ConceptBank(torch.eye(4)[:2])
    head = fit_logistic(images[:, :2], labels)
    return PostHocCBM(nn.Identity(), bank, head, **changed)


def test_residual_is_where_the_gradient_of_the_paper_vanishes() -> None:
    images, labels = random_samples()
    cbm = half_blind_model(images, labels)
    model = fit_residual(cbm, [(images, labels)], C=0.5, standardise=False)
    x, truth = images.double().numpy(), np.eye(3)[labels]
    logits = model(images).detach().double().numpy()
    shares = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    gradient = (shares - truth).T @ x + model.residual.weight.detach().double().numpy() / 0.5
    np.testing.assert_allclose(gradient, 0, atol=0.02)
    np.testing.assert_allclose((shares - truth).sum(0), 0, atol=1e-3)


def test_residual_sees_what_the_concepts_do_not_say() -> None:
    images, labels = random_samples()
    cbm = half_blind_model(images, labels)
    inputs = images.clone().requires_grad_()
    with untouched(cbm.train(), inputs):
        assert not cbm.intervene(inputs, [0], [1.0]).requires_grad
        cbm.value_levels([(images,)])
        model = fit_residual(cbm, [(images[:50], labels[:50]), (images[50:], labels[50:])])
        parts = model.contributions(images)
    again = fit_residual(cbm, embed(nn.Identity(), [(images, labels)]))
    torch.testing.assert_close(again.residual.weight, model.residual.weight, rtol=0, atol=0)
    torch.testing.assert_close(parts.bottleneck, cbm(images).detach())
    torch.testing.assert_close(parts.bottleneck + parts.residual, model(images).detach())
    accuracy = [(logits.argmax(1) == labels).float().mean() for logits in (cbm(images), model(images))]
    assert accuracy[1] > accuracy[0] + 0.08
    # Strong regularisation leaves all to the concepts.
    least = fit_residual(cbm, [(images, labels)], C=1e-9).contributions(images).residual
    torch.testing.assert_close(least - least.mean(0), torch.zeros_like(least), atol=1e-3, rtol=0)


def test_a_model_with_a_residual_is_a_concept_model() -> None:
    images, labels = random_samples()
    cbm = half_blind_model(images, labels)
    model = ResidualCBM(cbm, linear([[1.0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 1.0]]))
    torch.testing.assert_close(model.concept_predictor(images), cbm.concept_predictor(images))
    torch.testing.assert_close(model.head(images[:, :2]), cbm.head(images[:, :2]))
    maps = images[:, :, None, None]
    assert model.linear_pool
    torch.testing.assert_close(model.maps_from_features(maps), cbm.maps_from_features(maps))
    # An intervention leaves the residual as it is, and so does pruning.
    added = model.intervene(images, [0], [1.0]) - cbm.intervene(images, [0], [1.0])
    torch.testing.assert_close(added, model.contributions(images).residual)
    pruned = prune(model, [0, 1])
    expected = model.contributions(images).residual + cbm.head.bias.detach()
    torch.testing.assert_close(pruned(images).detach(), expected)
    with pytest.raises(ValueError, match="no residual yet"):
        fit_residual(model, [(images, labels)])
    with pytest.warns(UserWarning, match=r"fit_residual has not converged in `max_iter` = 2 steps.* or lower `C`"):
        fit_residual(cbm, [(images, labels)], max_iter=2)


X, Y = torch.randn(8, 3, generator=torch.Generator().manual_seed(3)), torch.arange(8) % 2
DESCENDING: Any = (np.ones(3), np.zeros(3))
REFUSED: dict[str, tuple[Any, str]] = {
    "values of another number": (lambda: post_hoc().intervene(INPUTS, [0, 1], [1.0, 2.0, 3.0]), "`values` to be one"),
    "levels that descend": (lambda: post_hoc().intervene(INPUTS, [0], [1], DESCENDING), "no low one is above"),
    "a class that is not there": (lambda: prune(post_hoc(), 0, 2), r"`classes` to lie in \[0, 1\]"),
    "a concept twice": (lambda: post_hoc().intervene(INPUTS, [1, 1], 1.0), "some occur twice"),
    "one number an input": (lambda: post_hoc().intervene(INPUTS[:, 0], [0], 1.0), "`inputs` to have shape"),
    "a residual without labels": (lambda: fit_residual(post_hoc(), Embeddings(X, None, None)), "class labels"),
    "a residual of another width": (
        lambda: ResidualCBM(post_hoc(), nn.Linear(4, 2)),
        r"\(3, 2\) numbers but got \(4, 2",
    ),
    "a residual of other classes": (lambda: fit_residual(post_hoc(), [(X, Y + 1)]), "labels below K = 2"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_refused(case: str) -> None:
    call, message = REFUSED[case]
    with pytest.raises(ValueError, match=message):
        call()
