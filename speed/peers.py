"""How long ours takes beside what a user would do with Quantus, Captum, scikit-learn and NumPy, in one run.

    python speed/peers.py          # all pairs, a table; about ten minutes
    python speed/peers.py maps     # one pair: maps, masks, bank, tcav, score or contrast

The two are called in turn, with random weights, on the same inputs; each pair also says how far their results agree.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import measuring
import numpy as np
import quantus
import torch
import torchvision
from attribution import painted_images, resnet18
from captum.attr import LayerGradCam
from captum.concept import TCAV, Concept
from captum.concept._utils.data_iterator import CustomIterableDataset, dataset_to_dataloader
from concepts import N_CLASSES, N_CONCEPTS, SIZE, batches, generator, parts_of_concepts, resnet_cbm
from measuring import DEVICE, Row, alternate, ratios, row
from PIL import Image
from sklearn.svm import SVC
from torch import Tensor

from captum_concepts import CoAM, ConceptBank, tcav_folders
from quantus_concepts import CEM, CGIM, CLM, MCS, score_concepts

REPEATS = 3


def pair(what: str, ours: tuple[str, Callable[[], object]], other: tuple[str, Callable[[], object]], same: str) -> Row:
    """Time two calls in turn; the ratio is how many times as long the other takes."""
    times = alternate({"ours": ours[1], "other": other[1]}, REPEATS)
    return row(
        f"{what} ({same})",
        f"{ours[0]}: {statistics.median(times['ours']):.3g} s",
        f"{other[0]}: {statistics.median(times['other']):.3g} s",
        f"{ratios(times['other'], times['ours']):.3g} x",
        "",
        None,
    )


def measure_maps() -> list[Row]:
    """All concept maps of some images."""
    model, n = resnet_cbm(), 2
    images = next(batches(n, SIZE, n)).image.to(DEVICE)
    coam, grad_cam = CoAM(model), LayerGradCam(model.concept_predictor, model.features)

    def one_by_one() -> Tensor:
        maps = [grad_cam.attribute(images, target=concept, relu_attributions=False) for concept in range(N_CONCEPTS)]
        return torch.cat(maps, 1)

    ours, others = coam.attribute(images).flatten(2), one_by_one().detach().flatten(2)
    # Grad-CAM's maps are those of CoAM but for one constant for each concept.
    ours, others = (maps / maps.abs().amax((0, 2), keepdim=True) for maps in (ours, others))
    difference = float((ours - others).abs().max())
    return [
        pair(
            f"Maps of {N_CONCEPTS} concepts, {n} images of {SIZE} px, ResNet-18",
            ("`CoAM`", lambda: coam.attribute(images)),
            ("Captum's `LayerGradCam`, one concept after the other", one_by_one),
            f"maps differ by {difference:.0e} of their largest value",
        )
    ]


def measure_masks() -> list[Row]:
    """Whether given maps lie inside given masks."""
    n, random = 256, np.random.default_rng(0)
    maps = random.normal(size=(n, 1, SIZE, SIZE)).astype(np.float32)
    masks = np.zeros((n, 1, SIZE, SIZE))
    for mask, (top, left) in zip(masks, random.integers(0, SIZE - 64, (n, 2)), strict=True):
        mask[0, top : top + 64, left : left + 64] = 1
    model = resnet_cbm().concept_predictor
    arguments: dict[str, Any] = {
        "model": model,
        "x_batch": random.normal(size=(n, 3, SIZE, SIZE)).astype(np.float32),
        "y_batch": random.integers(0, N_CONCEPTS, n),
        "a_batch": maps,
        "s_batch": masks,
        "channel_first": True,
        "batch_size": 64,
    }
    # The pixel of the largest value is the region of one pixel.
    pixel = 12 / SIZE**2
    ours = CLM(alpha=pixel, mask_hit="share")
    pointing = quantus.PointingGame(disable_warnings=True, normalise=False)
    rank = quantus.RelevanceRankAccuracy(disable_warnings=True, normalise=False)
    same = np.mean(np.asarray(ours(**arguments)) == np.asarray(pointing(**arguments), dtype=float))
    what = f"{n} maps of {SIZE} px and their masks"
    return [
        pair(
            what,
            ("`CLM(mask_hit='share')`", lambda: ours(**arguments)),
            ("Quantus's `PointingGame`", lambda: pointing(**arguments)),
            f"{same:.0%} of the scores equal",
        ),
        pair(
            what,
            ("`CLM(mask_hit='share')`", lambda: ours(**arguments)),
            ("Quantus's `RelevanceRankAccuracy`", lambda: rank(**arguments)),
            "another score",
        ),
    ]


def measure_bank() -> list[Row]:
    """Directions of 112 concepts from given embeddings."""
    n, width, each = 2000, 512, 100
    random = generator()
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

    def fit() -> ConceptBank:
        return ConceptBank.fit(features, labels, n_pos=each, n_neg=each, C=0.1)

    cosine = torch.cosine_similarity(fit().cavs.double(), torch.as_tensor(loop()), dim=1)
    return [
        pair(
            f"Bank of {N_CONCEPTS} concepts, {each} embeddings with and {each} without each, {width} numbers",
            ("`ConceptBank.fit`", fit),
            ("a loop over scikit-learn's `SVC`", loop),
            f"cosine of directions {cosine.mean():.2f}: other draws",
        )
    ]


def measure_tcav() -> list[Row]:
    """TCAV scores of concepts kept in folders, against random sets."""
    n_sets, n_images, layer = 6, 20, "layer4"
    random = np.random.default_rng(0)
    model = torchvision.models.resnet18(weights=None).eval().to(DEVICE)
    inputs = torch.rand(16, 3, 96, 96, generator=generator()).to(DEVICE)
    with tempfile.TemporaryDirectory() as folder:
        names = ["dark", "bright", *(f"random{number}" for number in range(n_sets))]
        for name in names:
            (Path(folder) / name).mkdir()
            low, high = {"dark": (0, 128), "bright": (128, 256)}.get(name, (0, 256))
            for number in range(n_images):
                pixels = random.integers(low, high, (96, 96, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(Path(folder) / name / f"{number}.png")

        def load(path: str) -> Tensor:
            image = Image.open(path).convert("RGB")
            return torchvision.transforms.functional.to_tensor(image).to(DEVICE)

        def captum() -> dict[str, Any]:
            concepts = [
                Concept(number, name, dataset_to_dataloader(CustomIterableDataset(load, f"{folder}/{name}/")))
                for number, name in enumerate(names)
            ]
            controls = concepts[2:]
            sets = [[concept, control] for concept in concepts[:2] for control in controls]
            # Random sets against each other, as the original does.
            sets += [[a, b] for i, a in enumerate(controls) for b in controls[i + 1 :]]
            with tempfile.TemporaryDirectory() as cache:
                return dict(TCAV(model, [layer], save_path=cache).interpret(inputs, sets, target=0))

        def ours() -> object:
            return tcav_folders(model, [layer], folder, inputs, 0, transform=torchvision.transforms.ToTensor())

        return [
            pair(
                f"TCAV of two concepts and {n_sets} random sets, {n_images} images of 96 px each, ResNet-18",
                ("`tcav_folders`: permutation test, 99 random directions", ours),
                ("Captum's `TCAV`: random sets against each other, without a test", captum),
                "other classifiers: SVM, and SGD on two thirds of the images",
            )
        ]


def measure_score() -> list[Row]:
    """Every variant in one pass, against one metric after the other."""
    model, n = resnet_cbm(), 16
    sample = next(batches(n, SIZE, n))
    truth = torch.rand(N_CLASSES, N_CONCEPTS, generator=generator())
    parts = parts_of_concepts()
    with torch.no_grad():
        classes = torch.cat([model(part.to(DEVICE)) for part in sample.image.split(32)]).argmax(1).cpu().numpy()
    images = sample.image.numpy()
    tops, alphas = [1, 3, 5], [1, 3, 5]

    def in_one() -> object:
        return score_concepts(model, list(batches(n, SIZE)), class_concepts=truth, truth={"part_of_concept": parts})

    def one_by_one() -> object:
        scores = []
        for importance in ("weight", "value", "contribution"):
            scores.append(CGIM(truth.numpy(), importance=importance))
            for top in tops:
                scores.append(CEM(sample.concepts.numpy(), top_l=top, importance=importance))
                for alpha in alphas:
                    points, of = sample.points.numpy(), parts.numpy()
                    scores.append(CLM(alpha, points=points, part_of_concept=of, top_l=top, importance=importance))
        maps = np.ones((n, 1, SIZE, SIZE), np.float32)
        return [metric(model, images, classes, maps, batch_size=32, channel_first=True) for metric in scores]

    return [
        pair(
            f"CGIM, CEM and CLM by weight, value and contribution, three of `top_l` and of `alpha`, {n} images",
            ("`score_concepts`", in_one),
            ("39 metrics, one after the other", one_by_one),
            "a test holds their scores equal",
        )
    ]


def measure_contrast() -> list[Row]:
    """The model contrast score of the gradient."""
    n = 32
    images, _, masks = (arrays[:n] for arrays in painted_images(n, 96))
    models = [resnet18(), resnet18(1)]
    classes = [model(torch.as_tensor(images)).argmax(1).numpy() for model in models]
    settings = {"method": "Saliency", "device": "cpu"}
    metric = MCS(models[1], classes[1], abs=True, normalise_func=quantus.normalise_func.normalise_by_max)

    def ours() -> np.ndarray:
        call = {"s_batch": masks, "explain_func": quantus.explain, "explain_func_kwargs": settings}
        return np.asarray(metric(models[0], images, classes[0], **call))

    def by_hand() -> np.ndarray:
        means = []
        for model, labels in zip(models, classes, strict=True):
            maps = quantus.explain(model, images, labels, **settings)
            maps = maps / maps.max((1, 2, 3), keepdims=True)
            means.append((maps * masks).sum((1, 2, 3)) / masks.sum((1, 2, 3)))
        return means[0] - means[1]

    difference = float(np.nanmax(np.abs(ours() - by_hand())))
    return [
        pair(
            f"MCS of the gradient, {n} images of 96 px, two ResNet-18",
            ("`MCS`", ours),
            ("two `quantus.explain` and NumPy", by_hand),
            f"scores differ by {difference:.0e}; ours also predicts, to leave misclassified images out",
        )
    ]


SECTIONS: dict[str, Callable[[], list[Row]]] = {
    "maps": measure_maps,
    "masks": measure_masks,
    "bank": measure_bank,
    "tcav": measure_tcav,
    "score": measure_score,
    "contrast": measure_contrast,
}


if __name__ == "__main__":
    raise SystemExit(measuring.main(__file__, SECTIONS, sys.argv[1:]))
