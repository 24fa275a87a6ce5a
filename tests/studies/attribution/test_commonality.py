"""Relative contrast on models whose use of the object is known, against an independent loop."""

from __future__ import annotations

import math
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from block_sources import Blocks, Plains
from quantus_concepts.datasets import ObjectsOnScenes
from quantus_concepts.studies._kit.folder import RunFolder
from quantus_concepts.studies._kit.results import pick
from quantus_concepts.studies.attribution.data import AttributionData
from quantus_concepts.studies.attribution.settings import Attribution
from quantus_concepts.studies.attribution.study import COMMONALITIES, Scoring, model_name, score_commonality
from reference import attribution as reference

SIZE, N_EACH = 16, 4
TARGET = 1


class Bright(Blocks):
    """Cut-outs of different reds."""

    def __getitem__(self, index):
        cutout = super().__getitem__(index)
        cutout.pixels[..., 0] = 100 + 12 * (index % 12)
        return cutout


class Gradients(Plains):
    """Scenes whose blue grows from left to right, each to its own height."""

    def __getitem__(self, index):
        pixels = super().__getitem__(index)
        pixels[..., 2] = np.linspace(0, 90 + 12 * (index % 9), pixels.shape[1]).astype(np.uint8)
        return pixels


class Uses(nn.Module):
    """The target scene is where blue, and red by a share of its own, are enough."""

    def __init__(self, red: float) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.tensor([red, 0.0, 1.0]))

    def forward(self, images: Tensor) -> Tensor:
        evidence = (images.mean((2, 3)) * self.weights).sum(1) - 0.2
        return torch.stack([0 * evidence, evidence], 1)


def contributions(model, inputs, targets, **kwargs):
    return inputs * model.weights.detach().numpy()[:, None, None]


def blue_only(model, inputs, targets, **kwargs):
    return inputs[:, 2:]


@pytest.fixture(scope="module")
def data() -> AttributionData:
    def compose(split: str, n_per_pair: int, commonality: float | None = None) -> ObjectsOnScenes:
        return ObjectsOnScenes(
            Bright(12),
            Gradients(12, names=("attic", "bamboo forest")),
            split=split,
            n_per_pair=n_per_pair,
            image_size=SIZE,
            test_share=0.5,
            commonality=commonality,
        )

    train, test = compose("train", 2), compose("test", 2)
    return AttributionData(train, test, 0, TARGET, lambda commonality, split: compose(split, N_EACH, commonality))


def fails(model, inputs, targets, **kwargs):
    if model.weights[0] < 0.5:
        raise RuntimeError("too little red")
    return inputs


@pytest.fixture(scope="module")
def models() -> dict[str, nn.Module]:
    return {model_name(k): Uses(1.2 * (1 - k)) for k in COMMONALITIES}


@pytest.fixture(scope="module")
def outcome(data, models):
    """Curves, accuracies and gallery of three methods, and the notes of the run."""
    methods = {"contributions": contributions, "blue only": blue_only, "fails": fails}
    with TemporaryDirectory() as root, RunFolder("test", {}, Path(root, "out")) as folder:
        scoring = Scoring(methods, Attribution(n_relative=10, batch_size=4, seed=1, device="cpu", progress=False))
        return *score_commonality(folder, data, models, scoring), folder.notes


def by_loops(data: AttributionData, models: dict[str, nn.Module], n: int = 10):
    """Contrasts, and whether models are right with and without the object, of the first n images of the scene."""
    test = data.with_common_object(1.0, "test")
    rows = [row for row in range(len(test)) if test.scene_labels[row] == TARGET][:n]
    images = [test[row].image.double().numpy() for row in rows]
    bare = [test.with_view("0s")[row].image.double().numpy() for row in rows]
    masks = [test[row].mask.numpy() for row in rows]
    weights = {k: models[model_name(k)].weights.detach().double().numpy() for k in COMMONALITIES}

    def right(k: float, image: np.ndarray) -> bool:
        return sum(weights[k][c] * image[c].mean() for c in range(3)) > 0.2

    def g(k: float, image: np.ndarray, mask: np.ndarray) -> float:
        raw = np.stack([weights[k][c] * image[c] for c in range(3)])
        return reference.concept_attribution(reference.positive_percentile(raw[None]), mask[None])[0]

    last = [g(1.0, image, mask) for image, mask in zip(images, masks, strict=True)]
    last_right = [right(1.0, image) for image in images]
    scores, with_, without = [], [], []
    for k in COMMONALITIES[:-1]:
        with_.append([right(k, image) for image in images])
        without.append([right(k, image) for image in bare])
        scores.append(
            [
                g(k, image, mask) - other if here and there else math.nan
                for image, mask, other, here, there in zip(images, masks, last, with_[-1], last_right, strict=True)
            ]
        )
    return scores, with_, without


def test_numbers_are_those_of_plain_loops(data, models, outcome):
    curves, accuracies, *_ = outcome
    scores, with_, without = by_loops(data, models)
    curve, drop, correlation = reference.relative_contrast(scores, with_, without)
    rows = pick(curves, method="contributions", metric="relative MCS")
    # The last model is the second of every contrast, and has none itself.
    assert rows["k"].tolist() == list(COMMONALITIES[:-1])
    np.testing.assert_allclose(rows["value"], curve, atol=1e-6)
    assert rows["n"].tolist() == [sum(not math.isnan(score) for score in row) for row in scores]
    assert (rows["n"] + rows["undefined"] == 10).all()
    # Some images are wrong, or nothing would be left out.
    assert rows["undefined"].min() > 0
    assert rows.eval("low <= value <= high").all()
    row = pick(curves, method="contributions", metric="correlation").iloc[0]
    assert row["value"] == pytest.approx(correlation, abs=1e-6)
    assert row["low"] <= row["value"] <= row["high"]
    assert row["n"] + row["undefined"] == 10
    # As the object matters less, so does its contrast.
    assert curve[0] > curve[4] > curve[8] > 0
    for metric, right in (("accuracy with", with_), ("accuracy without", without)):
        rows = pick(accuracies, metric=metric)
        assert rows["k"].tolist() == list(COMMONALITIES)
        assert rows["value"].tolist()[:-1] == [np.mean(row) for row in right]
        assert set(rows["n"]) == {10}
    drops = pick(accuracies, metric="accuracy drop")["value"].tolist()
    np.testing.assert_allclose(drops[:-1], drop, atol=1e-12)
    # The last model does not look at red, but what the object covers is gone.
    assert drops[0] > 0.3 > 0 >= drops[-1]


def test_a_method_that_does_not_look_at_the_model_has_no_contrast(outcome):
    assert pick(outcome[0], method="blue only", metric="relative MCS")["value"].tolist() == [0] * 9
    # A constant curve correlates with nothing.
    assert pick(outcome[0], method="blue only", metric="correlation")["value"].isna().all()


def test_a_method_that_fails_for_one_model_is_noted(outcome):
    curves, _, gallery, notes = outcome
    rows = pick(curves, method="fails")
    assert rows["value"].isna().all()
    assert rows[["n", "undefined"]].to_numpy().tolist() == [[0, 10]] * 10
    assert any("fails has no relative MCS" in note and "too little red" in note for note in notes)
    assert [row.label for row in gallery] == ["contributions", "blue only"]


def test_the_gallery_shows_one_image_under_all_models(outcome):
    first, second = outcome[2]
    assert list(first.maps) == [f"k = {k:g}" for k in COMMONALITIES]
    np.testing.assert_array_equal(first.image, second.image)
    for maps, value in first.maps.values():
        assert value == pytest.approx(maps[first.mask].mean(), abs=1e-6)
    # The object's values fall with k.
    assert first.maps["k = 0.1"][1] > first.maps["k = 1"][1]
