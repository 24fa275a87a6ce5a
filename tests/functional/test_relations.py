"""Bad input that no constraint of one argument can describe: arguments that do not fit each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from quantus_concepts.functional import (
    ClassMeans,
    faithfulness,
    interval,
    intervention_ranks,
    point_hits,
    random_banks,
    rank_concepts,
    relevance_ranks,
    threshold_hits,
)
from quantus_concepts.functional.agreement import ceiling, figures, human_figures
from quantus_concepts.functional.overlay import overlay, unit_maps
from quantus_concepts.functional.rating_losses import pasta_loss
from quantus_concepts.functional.votes import check_votes, join_votes

NAN = float("nan")


def zeros(*shape: int) -> Tensor:
    return torch.zeros(shape)


def hits(**changed: Any) -> Tensor:
    return point_hits(**{"maps": zeros(2, 7, 7), "points": zeros(2, 1, 2), "size": (9, 9), **changed})


def means(classes: list[int], mask: Tensor | None = None) -> None:
    class_means = ClassMeans(4, 3)
    try:
        class_means.update(zeros(2, 3), torch.tensor(classes), mask)
    finally:
        # Refused, they are as they were.
        assert class_means.counts.tolist() == [0, 0, 0, 0]
        assert class_means.compute().isnan().all()


def ranks(order: str, **changed: Any) -> Tensor:
    return intervention_ranks(order, **{"values": zeros(2, 3), "targets": zeros(2, 3), **changed})


def banks(labels: Tensor, n_classes: int | None = None) -> list[Any]:
    return list(random_banks(torch.rand(20, 4), labels, 3, n_classes))


CASES: list[tuple[Callable[[], Any], str]] = [
    (
        lambda: rank_concepts(zeros(2, 3), 2, torch.eye(3)[0] > 0),
        r"`top` .* \[1, 1\], the number of eligible concepts, but got 2",
    ),
    (lambda: rank_concepts(zeros(2, 3), 1, zeros(3) > 0), "`top` .* number of eligible concepts, but got 1"),
    (lambda: means([0, 4]), "`classes` to hold class indices 0 to 3 but got values from 0 to 4"),
    (lambda: means([-1, 0]), "`classes` .* from -1 to 0"),
    (lambda: ClassMeans(2, 3).merge(ClassMeans(2, 2)), r"`other` to have shape \(K, L\) = \(2, 3\) but got \(2, 2\)"),
    (lambda: ClassMeans(2, 2, dtype=torch.int64), "`dtype` to be of a floating-point dtype but got torch.int64"),
    (lambda: interval([0.5, 1.0], clusters=[0]), r"`clusters` to have shape \(N,\) = \(2,\)"),
    # Places on maps.
    (lambda: hits(points=torch.full((2, 1, 2), 9.1)), r"`points` .* 2 of them are outside, .* map 0, place 0 with"),
    (lambda: hits(points=torch.full((2, 1, 2), -1.1)), r"`points` to lie in the images, .* = \(9, 9\)"),
    (lambda: hits(points=torch.full((2, 1, 2), torch.inf)), r"`points` .*\(x, y\) = \(inf, inf\).*NaN where nothing"),
    (
        lambda: threshold_hits(zeros(2, 7, 7), torch.tensor([[[3.0, 8.0]], [[NAN, 99.0]]]), (4, 12), 0.5),
        r"`points` .* 1 of them .* with \(x, y\) = \(3, 8\)\. It would be inside",
    ),
    # Orders.
    (lambda: faithfulness(zeros(2, 4), zeros(2, 4), (10,)), r"`irrelevant` .*\(N, L\) = \(\*, 5\) but got \(2, 4\)"),
    (lambda: relevance_ranks(zeros(1, 2, 2), torch.arange(3)[None]), r"`order` .*\(N, P\) = \(1, 4\) but got \(1, 3\)"),
    *(
        (lambda order=order: relevance_ranks(zeros(1, 2, 2), order), "`order` to hold each of 0 to 3 once")
        for order in (torch.zeros(1, 4).long(), torch.arange(4)[None] + 1, torch.arange(4)[None] - 1)
    ),
    *(
        (lambda groups=groups: ranks("random", groups=groups), "`groups` to hold the numbers 0, 1, 2, ... of groups")
        for groups in ([0, 2, 2], [-1, 0, 1], [0.0, 1.0, 2.0])
    ),
    (
        lambda: ranks("uncertainty", boundary=[0.5, 0.5]),
        r"`boundary` to be one number or to have shape \(L,\) = \(3,\)",
    ),
    (lambda: ranks("contribution"), "`weights`"),
    # Random banks.
    (lambda: banks(torch.zeros(20).long()), "`labels`"),
    (lambda: banks(torch.arange(20) % 3, 2), "`n_classes`"),
    # Pictures.
    (
        lambda: overlay(zeros(2, 3, 4, 4), zeros(2, 4, 4), colours="bwrr"),
        "`colours` to be a colour map of matplotlib.* 'bwrr'. Nearest: .*bwr",
    ),
    (lambda: unit_maps(zeros(1, 2, 2) + 1.5, "none"), r"`maps` to lie in \[0, 1\].*normalise='min-max'"),
    (lambda: unit_maps(zeros(1, 2, 2) - 1.5, "lime"), r"`maps` to lie in \[-1, 1\]"),
    # Ratings.
    (lambda: figures([1, 2, 3], [1, 2]), r"`targets` to have shape \(N,\) = \(3,\) but got \(2,\)"),
    (lambda: figures([0.5, 2], [1, 2]), r"`scores` to lie in \[1, 5\] but 1 of 2 do not, the first is 0.5"),
    (lambda: human_figures(np.array([[1.0, 7.0]])), "`votes` to hold whole votes"),
    (lambda: ceiling(np.array([[1.0, 2.0]]), n_splits=0), "`n_splits` to be at least 1"),
    (lambda: join_votes(np.ones((1, 2)), "medain"), "`how` to be one of .* Did you mean 'median'"),
    (lambda: check_votes("votes", 3), r"`votes` .*shape \(..., A\)"),
    *(
        (
            lambda bad=bad: join_votes(np.array([[1, bad, 3]])),
            rf"`votes` to hold whole votes of 1 to 5.* got {bad:g} at \(0, 1\); 1 of 3",
        )
        for bad in (0, 6, 2.5, np.inf)
    ),
    (lambda: pasta_loss(zeros(3), zeros(3), weights=(1, -1, 0)), "`weights` to hold three numbers"),
]


@pytest.mark.parametrize(("call", "message"), CASES)
def test_arguments_that_do_not_fit(call: Callable[[], Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=f"^Expected argument {message}"):
        call()
