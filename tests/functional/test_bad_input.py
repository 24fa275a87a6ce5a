"""Wrong input to the functions: one clear error that says what was expected and what came."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from quantus_concepts.functional import (
    ClassMeans,
    cem,
    cgim,
    clm,
    concept_attribution,
    faithfulness,
    idr,
    iir,
    mask_centres,
    mask_shares,
    mask_threshold_shares,
    mcs,
    patch_objective,
    perturbation,
    point_hits,
    positive_percentile,
    random_banks,
    random_masks,
    rank_concepts,
    relative_contrast,
    relevance_ranks,
    threshold_hits,
    upsample,
)
from quantus_concepts.functional.agreement import ceiling, figures, human_figures
from quantus_concepts.functional.faithfulness import percentages
from quantus_concepts.functional.overlay import overlay, unit_maps
from quantus_concepts.functional.rating_losses import cosine_loss, pasta_loss, ranking_loss
from quantus_concepts.functional.votes import check_votes, join_votes

NAN = float("nan")


def zeros(*shape: int) -> Tensor:
    return torch.zeros(shape)


def yes(*shape: int) -> Tensor:
    return torch.ones(shape, dtype=torch.bool)


def hits(**changed: Any) -> Tensor:
    good = {"maps": zeros(2, 7, 7), "points": zeros(2, 1, 2), "size": (9, 9), "alphas": (1,)}
    return point_hits(**{**good, **changed})


def means(values: Tensor, classes: list[Any], mask: Tensor | None = None) -> None:
    made = ClassMeans(4, 3)
    try:
        made.update(values, torch.tensor(classes), mask)
    finally:
        # Refused, they are as they were.
        assert made.counts.tolist() == [0, 0, 0, 0]
        assert made.compute().isnan().all()


def banks(**changed: Any) -> list[Any]:
    good = {"features": torch.rand(20, 4), "labels": torch.arange(20) % 3, "n_concepts": 3}
    return list(random_banks(**{**good, **changed}))


def shown(**changed: Any) -> Tensor:
    return overlay(**{"images": zeros(2, 3, 4, 4), "maps": zeros(2, 4, 4), **changed})


def contrast(scores: Any = None, n: int = 4, **changed: Any) -> Any:
    scores = zeros(3, 4) if scores is None else scores
    return relative_contrast(scores, **{"correct_with": yes(3, n), "correct_without": yes(3, 4), **changed})


VALUES: list[tuple[Callable[[], Any], str]] = [
    # cem, rank_concepts
    (lambda: cem(zeros(2, 3), torch.full((2, 3), 0.5)), r"`concept_labels` to hold only 0 and 1 but got 0.5"),
    (lambda: cem(zeros(2, 3), torch.full((2, 3), NAN)), "only 0 and 1 but got nan"),
    (lambda: cem(zeros(2, 3), torch.full((2, 3), -1)), "only 0 and 1 but got -1"),
    (lambda: cem(zeros(2, 3), zeros(2, 4)), r"\(N, L\) = \(2, 3\) but got \(2, 4\)"),
    (lambda: cem(zeros(2, 3), zeros(2, 3), 4), r"to lie in \[1, 3\], the number of concepts, but got 4"),
    (lambda: cem(zeros(2, 3, 1), zeros(2, 3)), r"`importance` to have shape \(N, L\) but got \(2, 3, 1\)"),
    (lambda: rank_concepts(zeros(3), 1), r"`importance` to have shape \(N, L\) but got \(3,\)"),
    (lambda: rank_concepts(zeros(2, 3), 4), r"`top` to lie in \[1, 3\], the number of concepts, but got 4"),
    (lambda: rank_concepts(zeros(2, 3), 0), r"`top` to lie in \[1, 3\], the number of concepts, but got 0"),
    (lambda: rank_concepts(zeros(2, 3), 1, yes(2)), r"`eligible` to have shape \(L,\) = \(3,\) but got \(2,\)"),
    (
        lambda: rank_concepts(zeros(2, 3), 2, torch.eye(3)[0] > 0),
        r"\[1, 1\], the number of eligible concepts, but got 2",
    ),
    (lambda: rank_concepts(zeros(2, 3), 1, ~yes(3)), "number of eligible concepts, but got 1"),
    # cgim, ClassMeans
    (lambda: cgim(zeros(2, 3), zeros(2, 3), "concepts"), "Did you mean 'concept'"),
    (lambda: cgim(zeros(2, 3), zeros(3, 2)), r"\(K, L\) = \(2, 3\) but got \(3, 2\)"),
    (lambda: cgim(zeros(3), zeros(3)), r"`importance` to have shape \(K, L\)"),
    (lambda: cgim(zeros(2, 3), torch.full((2, 3), 55.0)), "Divide percentages by 100"),
    (lambda: cgim(zeros(2, 3), torch.full((2, 3), NAN)), "`class_concepts` to be finite"),
    (lambda: means(zeros(2, 3), [0, 4]), "class indices 0 to 3 but got values from 0 to 4"),
    (lambda: means(zeros(2, 3), [-1, 0]), "from -1 to 0"),
    (lambda: means(zeros(2, 3), [0]), r"`classes` to have shape \(N,\) = \(2,\)"),
    (lambda: means(zeros(2, 2), [0, 1]), r"`values` to have shape \(N, L\) = \(\*, 3\)"),
    (lambda: means(zeros(2, 3), [0, 1], yes(3)), r"`mask` to have shape \(N,\) = \(2,\)"),
    (lambda: ClassMeans(0, 3), "`n_classes` to be at least 1 but got 0"),
    (lambda: ClassMeans(3, 0), "`n_concepts` to be at least 1 but got 0"),
    # clm and its regions
    (lambda: clm(zeros(2, 4), 5), r"`top_l` to lie in \[1, 4\], the number of ranked concepts, but got 5"),
    (lambda: clm(zeros(2, 4), 0), "`top_l` to lie in"),
    (lambda: clm(zeros(4), 1), r"`hits` to have shape \(N, l_max\) but got \(4,\)"),
    (lambda: clm(torch.tensor([[2.0, NAN, 0.0]]), 1), r"`hits` to lie in \[0, 1\].*from 0.0 to 2.0"),
    (lambda: clm(torch.tensor([[-1.0, NAN, 0.0]]), 1), r"from -1\.0 to 0\.0"),
    (lambda: hits(alphas=(0,)), r"`alphas` to lie in \(0, 12\] but got 0"),
    (lambda: hits(alphas=(1, 12.1)), r"`alphas` to lie in \(0, 12\] but got 12.1"),
    (lambda: hits(alphas=(NAN,)), "`alphas` to lie in"),
    (lambda: hits(alphas=()), "`alphas` to hold at least one"),
    (lambda: hits(maps=zeros(2, 1, 7, 7)), r"`maps` to have shape \(B, h, w\) but got \(2, 1, 7, 7\)"),
    (lambda: hits(maps=zeros(2, 0, 7)), "at least one cell"),
    (lambda: hits(points=zeros(3, 1, 2)), r"\(B, Q, 2\) = \(2, \*, 2\) but got \(3, 1, 2\)"),
    (lambda: hits(points=zeros(2, 2)), "`points` to have shape"),
    (lambda: hits(points=zeros(2, 1, 3)), "`points` to have shape"),
    (lambda: hits(points=zeros(2, 0, 2)), "Give NaN where nothing is visible"),
    (lambda: hits(points=torch.full((2, 1, 2), 9.1)), r"2 of them are outside, .* map 0, place 0 with"),
    (lambda: hits(points=torch.full((2, 1, 2), -1.1)), r"`points` to lie in the images, .* = \(9, 9\)"),
    (lambda: hits(points=torch.full((2, 1, 2), torch.inf)), r"\(x, y\) = \(inf, inf\).*NaN where nothing"),
    (lambda: hits(size=(9,)), r"`size` to be \(M1, M2\)"),
    (lambda: hits(size=(9, 0)), r"`size` to be \(M1, M2\)"),
    (lambda: threshold_hits(zeros(2, 7, 7), zeros(1, 1, 2), (9, 9), 0.5), "`points` to have shape"),
    (
        lambda: threshold_hits(zeros(2, 7, 7), torch.tensor([[[3.0, 8.0]], [[NAN, 99.0]]]), (4, 12), 0.5),
        r"1 of them .* with \(x, y\) = \(3, 8\)\. It would be inside",
    ),
    (lambda: mask_centres(torch.tensor([[[0, 0.5]]])), r"`masks` to hold only 0 and 1 but got 0.5.* at \(0, 0, 1\)"),
    (lambda: mask_centres(torch.tensor([[[255, 0]]])), "only 0 and 1 but got 255"),
    (lambda: mask_centres(torch.tensor([[[NAN, 0]]])), "only 0 and 1 but got nan"),
    (lambda: mask_shares(zeros(2, 4, 4), yes(3, 4, 4)), r"= \(2, \*, \*\) but got \(3, 4, 4\)"),
    (lambda: mask_threshold_shares(zeros(2, 4, 4), yes(3, 4, 4), 0.5), r"= \(2, \*, \*\) but got \(3, 4, 4\)"),
    (lambda: mask_shares(zeros(4, 4), yes(4, 4, 4)), "`maps` to have shape"),
    (lambda: mask_shares(zeros(2, 4, 4), yes(2, 4, 4), (13,)), r"\(0, 12\] but got 13"),
    (lambda: upsample(zeros(7, 7), (9, 9)), r"`maps` to have shape \(B, h, w\) but got \(7, 7\)"),
    (lambda: upsample(zeros(2, 0, 7), (9, 9)), "at least one cell a map"),
    (lambda: upsample(zeros(2, 7, 7), (9,)), r"`size` to be \(M1, M2\).*but got \(9,\)"),
    (lambda: upsample(zeros(2, 7, 7), (9, 9.0)), "`size` to be"),
    (lambda: upsample(zeros(2, 7, 7), 9), "`size` to be"),
    # known ground truth
    (lambda: concept_attribution(zeros(2, 2, 2), yes(3, 1, 2, 2)), r"`maps` to have shape \(N, C, H, W\) but got"),
    (
        lambda: concept_attribution(zeros(3, 2, 2, 2), yes(2, 1, 2, 2)),
        r"`masks` .*\(3, 1, 2, 2\) but got \(2, 1, 2, 2\)",
    ),
    (lambda: concept_attribution(zeros(3, 2, 2, 2), yes(3, 1, 2, 1)), r"= \(3, 1, 2, 2\) but got \(3, 1, 2, 1\)"),
    (
        lambda: concept_attribution(zeros(1, 1, 2, 2), zeros(1, 1, 2, 2) + 255),
        r"`masks` to hold only 0 and 1 but got 255.* pass `masks > 0`",
    ),
    (lambda: concept_attribution(zeros(1, 1, 2, 2), zeros(1, 1, 2, 2) + NAN), "only 0 and 1 but got nan"),
    (lambda: random_masks(zeros(2, 3, 3), torch.Generator()), r"`masks` to have shape \(N, 1, H, W\)"),
    (lambda: iir(zeros(6), zeros(6), 0), r"`threshold` to lie in \(0, inf\]"),
    (lambda: iir(zeros(6), zeros(6), NAN), r"`threshold` to lie in \(0, inf\]"),
    (lambda: contrast(n=3), r"`correct_with` to have shape \(R, N\) = \(3, 4\) but got \(3, 3\)"),
    (lambda: contrast(n_resamples=10), "`n_resamples`"),
    (lambda: positive_percentile(np.ones((1, 1, 2, 2)), 0), r"`percentile` to lie in \(0, 100\]"),
    (lambda: positive_percentile(np.ones((1, 1, 2, 2)), 101), r"`percentile` to lie in \(0, 100\] but got 101"),
    (lambda: positive_percentile(np.ones((1, 1, 2, 2)), NAN), r"`percentile` to lie in \(0, 100\]"),
    (lambda: positive_percentile(np.ones(4)), r"`a` to have shape \(N, C, H, W\) or \(N, ...\) but got \(4,\)"),
    # faithfulness
    (lambda: percentages(()), "`thresholds` to hold at least one"),
    (lambda: percentages((1,)), r"`thresholds` to lie in \[2, 100\] but got 1"),
    (lambda: percentages((101,)), r"in \[2, 100\] but got 101"),
    (lambda: faithfulness(zeros(2, 4), zeros(2, 5), (10,)), r"`irrelevant` .*\(N, L\) = \(\*, 5\) but got \(2, 4\)"),
    (lambda: faithfulness(zeros(2, 5), zeros(3, 5), (10,)), r"`relevant` .*\(N, L\) = \(2, 5\) but got \(3, 5\)"),
    (lambda: relevance_ranks(zeros(1, 1, 2, 2)), r"`maps`.*\(N, H, W\)"),
    (lambda: relevance_ranks(zeros(1, 2, 2), torch.arange(3)[None]), r"`order` .*\(N, P\) = \(1, 4\) but got \(1, 3\)"),
    # random banks
    (lambda: banks(features=zeros(4)), r"`features` to have shape \(N, d\)"),
    (lambda: banks(labels=torch.zeros(3, dtype=torch.int64)), r"`labels` to have shape \(N,\) = \(20,\)"),
    (lambda: banks(n_concepts=0), "`n_concepts` to be at least 1 but got 0"),
    (lambda: banks(n_banks=0), "`n_banks` to be at least 1 but got 0"),
    (lambda: banks(values="margins"), "Did you mean 'margin'"),
    # pictures
    (lambda: shown(images=zeros(2, 1, 4, 4)), r"`images` to have shape \(N, 3, H, W\)"),
    (lambda: shown(maps=zeros(3, 4, 4)), r"`maps` to have shape \(N, h, w\) = \(2, \*, \*\) but got \(3, 4, 4\)"),
    (lambda: shown(maps=torch.full((2, 4, 4), NAN)), "`maps` to be finite"),
    (lambda: shown(weight=1.5), r"`weight` to lie in \[0, 1\]"),
    (lambda: shown(colours="bwrr"), "`colours` to be a colour map of matplotlib.* 'bwrr'. Nearest: .*bwr"),
    (lambda: unit_maps(zeros(2, 3, 3), "minmax"), r"'minmax'.*Did you mean 'min-max'"),
    (lambda: unit_maps(zeros(1, 2, 2) + 1.5, "none"), r"`maps` to lie in \[0, 1\].*normalise='min-max'"),
    (lambda: unit_maps(zeros(1, 2, 2) - 1.5, "lime"), r"`maps` to lie in \[-1, 1\]"),
    # ratings
    (lambda: figures([1, 2, 3], [1, 2]), r"`targets` to have shape \(N,\) = \(3,\) but got \(2,\)"),
    (lambda: figures([0.5, 2], [1, 2]), r"`scores` to lie in \[1, 5\] but 1 of 2 do not, the first is 0.5"),
    (lambda: human_figures(np.array([[1.0, 7.0]])), "`votes` to hold whole votes"),
    (lambda: ceiling(np.array([[1.0, 2.0]]), n_splits=0), "`n_splits` to be at least 1"),
    (lambda: join_votes(np.ones((1, 2)), "medain"), "`how` to be one of .* Did you mean 'median'"),
    (lambda: check_votes("votes", 3), r"shape \(..., A\)"),
    *(
        (
            lambda bad=bad: join_votes(np.array([[1, bad, 3]])),
            rf"whole votes of 1 to 5.* got {bad:g} at \(0, 1\); 1 of 3",
        )
        for bad in (0, 6, 2.5, np.inf)
    ),
    (lambda: ranking_loss(zeros(3), zeros(2)), r"`target` .* shape of `predicted` \(..., N\) = \(3,\) but got \(2,\)"),
    (lambda: pasta_loss(zeros(3), zeros(3), form="papers"), "`form` to be one of .* Did you mean 'paper'"),
    (lambda: pasta_loss(zeros(3), zeros(3), weights=(1, -1, 0)), "`weights` to hold three numbers"),
]
FLOATING = "of a floating-point dtype but got torch.int64"
TYPES: list[tuple[Callable[[], Any], str]] = [
    (lambda: cem(zeros(2, 3), np.zeros((2, 3))), "`concept_labels` to be a torch.Tensor but got ndarray"),
    (lambda: cem(zeros(2, 3).long(), zeros(2, 3)), FLOATING),
    (lambda: rank_concepts(np.zeros((2, 3)), 1), "`importance` to be a torch.Tensor but got ndarray"),
    (lambda: rank_concepts(zeros(2, 3).long(), 1), f"`importance` to be {FLOATING}"),
    (lambda: rank_concepts(zeros(2, 3), 1.0), "`top` to be an int but got float"),
    (lambda: rank_concepts(zeros(2, 3), True), "`top` to be an int but got bool"),
    (lambda: rank_concepts(zeros(2, 3), 1, zeros(3)), "`eligible` to be a tensor of torch.bool but got torch.float32"),
    (lambda: cgim(zeros(2, 3), zeros(2, 3).long()), f"`class_concepts` to be {FLOATING}"),
    (lambda: cgim([[1.0]], zeros(1, 1)), "`importance` to be a torch.Tensor but got list"),
    (lambda: means(zeros(2, 3), [0.0, 1.0]), "integer dtype but got torch.float32"),
    (lambda: means(zeros(2, 3).long(), [0, 1]), f"`values` to be {FLOATING}"),
    (lambda: means(zeros(2, 3), [0, 1], zeros(2)), "`mask` to be a tensor of torch.bool"),
    (lambda: ClassMeans(2, 2, dtype=torch.int64), f"`dtype` to be {FLOATING}"),
    (lambda: clm(zeros(2, 4), 1.0), "`top_l` to be an int but got float"),
    (lambda: clm(yes(2, 4), 1), "floating-point dtype but got torch.bool"),
    (lambda: hits(maps=zeros(2, 7, 7).long()), f"`maps` to be {FLOATING}"),
    (lambda: hits(maps=np.zeros((2, 7, 7))), "`maps` to be a torch.Tensor but got ndarray"),
    (lambda: hits(points=np.zeros((2, 1, 2))), "`points` to be a torch.Tensor but got ndarray"),
    (lambda: threshold_hits(zeros(1, 7, 7).long(), zeros(1, 1, 2), (9, 9), 0.5), f"`maps` to be {FLOATING}"),
    (lambda: mask_shares(zeros(2, 4, 4), zeros(2, 4, 4)), "`masks` to be a tensor of torch.bool"),
    (lambda: mask_threshold_shares(zeros(2, 4, 4), zeros(2, 4, 4), 0.5), "`masks` to be a tensor of torch.bool"),
    (lambda: mask_shares(zeros(2, 4, 4).long(), yes(2, 4, 4)), FLOATING),
    (lambda: upsample(zeros(2, 7, 7).long(), (9, 9)), FLOATING),
    (lambda: concept_attribution(zeros(1, 1, 2, 2).long(), yes(1, 1, 2, 2)), f"`maps` to be {FLOATING}"),
    (lambda: contrast(correct_without=yes(3, 4).long()), "`correct_without` .* torch.bool but got torch.int64"),
    (lambda: contrast(zeros(3, 4).tolist()), "`scores` to be a torch.Tensor but got list"),
    (lambda: percentages((0.5,)), "`thresholds` to be a whole number"),
    (lambda: faithfulness(np.ones((2, 5)), zeros(2, 5), (10,)), "`irrelevant` to be a torch.Tensor"),
    (lambda: relevance_ranks(zeros(1, 2, 2).long()), f"`maps` to be {FLOATING}"),
    (lambda: unit_maps(zeros(2, 3, 3).long()), f"`maps` to be {FLOATING}"),
    (lambda: cosine_loss(zeros(3), zeros(3), torch.ones(3)), "`mask` to be a tensor of torch.bool"),
]


@pytest.mark.parametrize(("call", "message"), VALUES)
def test_wrong_values(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(("call", "message"), TYPES)
def test_wrong_types(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        call()


@pytest.mark.parametrize("function", [mcs, idr, perturbation, iir])
def test_pairs_of_attributions(function: Any) -> None:
    with pytest.raises(ValueError, match=r"`g_\w+` to have shape \(N,?\) = \(6,?\) but got \(5,\)"):
        function(zeros(6), zeros(5))
    with pytest.raises(ValueError, match=r"`g_\w+` to have shape \(N,?\) but got \(6, 1\)"):
        function(zeros(6, 1), zeros(6, 1))
    with pytest.raises(TypeError, match=r"`g_\w+` to be a torch.Tensor but got ndarray"):
        function(np.zeros(6), zeros(6))


@pytest.mark.parametrize(
    ("name", "spoil"),
    [
        ("logits_patched", lambda value: value[:1]),
        ("logits", lambda value: value[0]),
        ("images", lambda value: value[:1]),
        ("delta", lambda value: value[..., :1]),
    ],
)
def test_shapes_of_the_patch_objective(name: str, spoil: Callable[[Tensor], Tensor]) -> None:
    good = {
        "logits_patched": zeros(2, 2),
        "logits": zeros(2, 2),
        "images": zeros(2, 1, 1, 2),
        "delta": zeros(2, 1, 1, 2),
    }
    with pytest.raises(ValueError, match=f"`{name}` to have shape "):
        patch_objective(**{**good, name: spoil(good[name])}, pixel_range=(0, 255))
