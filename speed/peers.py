"""How long ours takes beside what a user would do with Quantus, Captum, scikit-learn and NumPy: one thread.

    python speed/peers.py          # all pairs, a table; about five minutes
    python speed/peers.py maps     # one: maps, masks, bank, score or contrast

The two are called in turn, with random weights, on the same inputs; each pair also says how far their results agree.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import quantus
import ten_thousand as shared
import torch
from captum.attr import LayerGradCam
from sklearn.svm import SVC
from ten_thousand import DEVICE, N_CLASSES, N_CONCEPTS, PARTS, SIZE
from torch import Tensor

from captum_concepts import CoAM, ConceptBank
from quantus_concepts import CEM, CGIM, CLM, MCS, score_concepts

#: What is compared and how far results agree, ours, and what a user would write.
Pair = tuple[str, tuple[str, Callable[[], Any]], tuple[str, Callable[[], Any]]]


def compare_maps() -> Iterator[Pair]:
    """All concept maps of some images."""
    model, n = shared.resnet_cbm(), 2
    images = next(shared.batches(n)).image.to(DEVICE)
    coam, grad_cam = CoAM(model), LayerGradCam(model.concept_predictor, model.features)

    def one_by_one() -> Tensor:
        maps = [grad_cam.attribute(images, target=concept, relu_attributions=False) for concept in range(N_CONCEPTS)]
        return torch.cat(maps, 1)

    ours, others = coam.attribute(images).flatten(2), one_by_one().detach().flatten(2)
    # Grad-CAM's maps are those of CoAM but for one constant for each concept.
    ours, others = (maps / maps.abs().amax((0, 2), keepdim=True) for maps in (ours, others))
    yield (
        f"Maps of {N_CONCEPTS} concepts, {n} images of {SIZE} px, ResNet-18; maps differ by "
        f"{(ours - others).abs().max():.0e} of their largest value",
        ("`CoAM`", partial(coam.attribute, images)),
        ("Captum's `LayerGradCam`, one concept after the other", one_by_one),
    )


def compare_masks() -> Iterator[Pair]:
    """Whether given maps lie inside given masks."""
    n, random = 256, np.random.default_rng(0)
    maps = random.normal(size=(n, 1, SIZE, SIZE)).astype(np.float32)
    masks = np.zeros((n, 1, SIZE, SIZE))
    for mask, (top, left) in zip(masks, random.integers(0, SIZE - 64, (n, 2)), strict=True):
        mask[0, top : top + 64, left : left + 64] = 1
    call: dict[str, Any] = {
        "model": shared.resnet_cbm().concept_predictor,
        "x_batch": random.normal(size=(n, 3, SIZE, SIZE)).astype(np.float32),
        "y_batch": random.integers(0, N_CONCEPTS, n),
        "a_batch": maps,
        "s_batch": masks,
        "channel_first": True,
        "batch_size": 64,
    }
    # The pixel of the largest value is the region of one pixel.
    ours = CLM(alpha=12 / SIZE**2, mask_hit="share")
    pointing = quantus.PointingGame(disable_warnings=True, normalise=False)
    rank = quantus.RelevanceRankAccuracy(disable_warnings=True, normalise=False)
    same = np.mean(np.asarray(ours(**call)) == np.asarray(pointing(**call), dtype=float))
    what, own = f"{n} maps of {SIZE} px and their masks", ('`CLM(mask_hit="share")`', partial(ours, **call))
    yield f"{what}; {same:.0%} of the scores equal", own, ("Quantus's `PointingGame`", partial(pointing, **call))
    yield f"{what}; another score", own, ("Quantus's `RelevanceRankAccuracy`", partial(rank, **call))


def compare_banks() -> Iterator[Pair]:
    """Directions of 112 concepts from given embeddings."""
    n, width, each, random = 2000, 512, 100, shared.generator()
    features = torch.randn(n, width, generator=random)
    labels = (torch.rand(n, N_CONCEPTS, generator=random) < 0.2).float()
    features += labels @ torch.randn(N_CONCEPTS, width, generator=random) / 4

    def loop() -> np.ndarray:
        draw, cavs = np.random.default_rng(0), []
        for concept in labels.bool().numpy().T:
            rows = np.concatenate([draw.permutation(np.flatnonzero(side))[:each] for side in (concept, ~concept)])
            svm = SVC(C=0.1, kernel="linear").fit(features.numpy()[rows], concept[rows])
            cavs.append(svm.coef_[0])
        return np.stack(cavs)

    yield (
        f"Bank of {N_CONCEPTS} concepts, {each} embeddings with and {each} without each, {width} numbers; other draws",
        ("`ConceptBank.fit`", partial(ConceptBank.fit, features, labels, n_pos=each, n_neg=each, C=0.1)),
        ("a loop over scikit-learn's `SVC`", loop),
    )


def compare_variants() -> Iterator[Pair]:
    """Every variant in one pass, against one metric after the other."""
    model, n = shared.resnet_cbm(), 16
    sample, table = next(shared.batches(n)), torch.rand(N_CLASSES, N_CONCEPTS, generator=shared.generator())
    images, sizes = sample.image.numpy(), (1, 3, 5)
    classes = shared.predict(model, images).argmax(1).cpu().numpy()

    def one_by_one() -> list[Any]:
        metrics: list[Any] = []
        for importance in ("weight", "value", "contribution"):
            metrics.append(CGIM(table.numpy(), importance=importance))
            for top in sizes:
                metrics.append(CEM(sample.concepts.numpy(), top_l=top, importance=importance))
                of = {"points": sample.points.numpy(), "part_of_concept": PARTS.numpy()}
                metrics += [CLM(alpha, **of, top_l=top, importance=importance) for alpha in sizes]
        maps = np.ones((n, 1, SIZE, SIZE), np.float32)
        return [metric(model, images, classes, maps, batch_size=32, channel_first=True) for metric in metrics]

    truth = {"class_concepts": table, "truth": {"part_of_concept": PARTS}}
    yield (
        f"CGIM, CEM and CLM by weight, value and contribution, three of `top_l` and of `alpha`, {n} images; a test "
        "holds the scores equal",
        ("`score_concepts`", partial(score_concepts, model, [sample], **truth)),
        ("39 metrics, one after the other", one_by_one),
    )


def compare_contrasts() -> Iterator[Pair]:
    """The model contrast score of the gradient."""
    n = 32
    images, _, masks = shared.painted_images(n, 96)
    models = [shared.resnet18(), shared.resnet18(1)]
    classes = [shared.predict(model, images).argmax(1).cpu().numpy() for model in models]
    settings = {"method": "Saliency", "device": str(DEVICE)}
    metric = MCS(models[1], classes[1], abs=True, normalise_func=quantus.normalise_func.normalise_by_max)
    call = {"s_batch": masks, "explain_func": quantus.explain, "explain_func_kwargs": settings}
    ours = partial(metric, models[0], images, classes[0], **call)

    def by_hand(predicting: bool = False) -> np.ndarray:
        means = []
        for model, labels in zip(models, classes, strict=True):
            maps = quantus.explain(model, images, labels, **settings)
            maps = maps / maps.max((1, 2, 3), keepdims=True)
            right = shared.predict(model, images).argmax(1).cpu().numpy() == labels if predicting else True
            means.append(np.where(right, (maps * masks).sum((1, 2, 3)) / masks.sum((1, 2, 3)), np.nan))
        return means[0] - means[1]

    difference = float(np.nanmax(np.abs(np.asarray(ours()) - by_hand())))
    what = f"MCS of the gradient, {n} images of 96 px, two ResNet-18; scores differ by {difference:.0e}"
    yield what, ("`MCS`", ours), ("two `quantus.explain` and NumPy, without predictions", by_hand)
    yield what, ("`MCS`", ours), ("the same, misclassified images left out", partial(by_hand, True))


PAIRS = {
    "maps": compare_maps,
    "masks": compare_masks,
    "bank": compare_banks,
    "score": compare_variants,
    "contrast": compare_contrasts,
}


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(f"{shared.machine()}\n\n| what | ours | against | ratio |\n| --- | --- | --- | --- |")
    for name in sys.argv[1:] or PAIRS:
        for what, *sides in PAIRS[name]():
            seconds = list(shared.seconds_of(dict(sides)).values())
            ratios = [other / ours for ours, other in zip(*seconds, strict=True)]
            times = [f"{called}: {statistics.median(s):.2g} s" for (called, _), s in zip(sides, seconds, strict=True)]
            ratio = f"{statistics.median(ratios):.3g} ({min(ratios):.3g} to {max(ratios):.3g})"
            print(f"| {what} | {times[0]} | {times[1]} | {ratio} |", flush=True)
