"""Relative contrast on models whose use of the object is known, against an independent loop."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from block_sources import Blocks, Plains
from quantus_concepts.datasets import ObjectsOnScenes
from quantus_concepts.studies.attribution.contrast_over_k import (
    COMMONALITIES,
    contrast_over_k,
    family_jobs,
    model_name,
)
from quantus_concepts.studies.attribution.data import AttributionData
from quantus_concepts.studies.attribution.options import Options
from quantus_concepts.studies.records import select
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


def fails(model, inputs, targets, **kwargs):
    if model.weights[0] < 0.5:
        raise RuntimeError("too little red")
    return inputs


METHODS = {"contributions": contributions, "blue only": blue_only, "fails": fails}


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

    return AttributionData(
        compose("train", 2), compose("test", 2), lambda commonality, split: compose(split, N_EACH, commonality)
    )


@pytest.fixture(scope="module")
def models() -> dict[str, nn.Module]:
    return {model_name(k): Uses(1.2 * (1 - k)) for k in COMMONALITIES}


OPTIONS = Options(n_relative=10, batch_size=4, progress=False, device="cpu", seed=1)


@pytest.fixture(scope="module")
def outcome(data, models):
    return contrast_over_k(models, METHODS, data, OPTIONS)


def by_loops(data: AttributionData, models: dict[str, nn.Module], method: str, n: int = 10):
    """Curve, drop, correlation and counts of the first n images of the target scene, one at a time."""
    test = data.at_commonality(1.0, "test")
    rows = [row for row in range(len(test)) if test.scene_labels[row] == TARGET][:n]
    shown = [test[row].image.double().numpy() for row in rows]
    bare = [test.with_view("0s")[row].image.double().numpy() for row in rows]
    masks = [test[row].mask.numpy() for row in rows]

    def right(k: float, image: np.ndarray) -> bool:
        weights = models[model_name(k)].weights.detach().double().numpy()
        return sum(weights[c] * image[c].mean() for c in range(3)) > 0.2

    def g(k: float, image: np.ndarray, mask: np.ndarray) -> float:
        weights = models[model_name(k)].weights.detach().double().numpy()
        raw = image[2:] if method == "blue only" else np.stack([weights[c] * image[c] for c in range(3)])
        return reference.concept_attribution(reference.positive_percentile(raw[None]), mask[None])[0]

    last = [g(1.0, image, mask) for image, mask in zip(shown, masks, strict=True)]
    last_right = [right(1.0, image) for image in shown]
    scores, with_, without = [], [], []
    for k in COMMONALITIES[:-1]:
        with_.append([right(k, image) for image in shown])
        without.append([right(k, image) for image in bare])
        scores.append(
            [
                g(k, image, mask) - other if here and there else math.nan
                for image, mask, other, here, there in zip(shown, masks, last, with_[-1], last_right, strict=True)
            ]
        )
    return scores, with_, without


def test_scores_and_correlation_are_those_of_plain_loops(data, models, outcome):
    scores, with_, without = by_loops(data, models, "contributions")
    curve, drop, correlation = reference.relative_contrast(scores, with_, without)
    found = select(outcome.records, method="contributions", metric="relative MCS")
    # The last model is the second of every contrast, and has none itself.
    assert [record.k for record in found] == list(COMMONALITIES[:-1])
    np.testing.assert_allclose([record.value for record in found], curve, atol=1e-6)
    assert [record.n for record in found] == [sum(not math.isnan(score) for score in row) for row in scores]
    assert all(record.n + record.undefined == 10 for record in found)
    # Some images are wrong, or nothing would be left out.
    assert min(record.undefined for record in found) > 0
    assert all(record.low <= record.value <= record.high for record in found)
    (record,) = select(outcome.records, method="contributions", metric="correlation")
    assert record.value == pytest.approx(correlation, abs=1e-6)
    assert record.value > 0.5
    assert record.low <= record.value <= record.high
    assert record.n + record.undefined == 10
    assert {each.seed for each in outcome.records} == {1}
    # As the object matters less, so does its contrast.
    assert curve[0] > curve[4] > curve[8] > 0
    np.testing.assert_allclose([row.drop for row in outcome.commonality][:-1], drop, atol=1e-12)


def test_the_accuracy_is_that_of_the_target_scene_with_and_without_the_object(outcome, data, models):
    _, with_, without = by_loops(data, models, "contributions")
    assert [row.k for row in outcome.commonality] == list(COMMONALITIES)
    for row, seen, missed in zip(outcome.commonality, with_, without, strict=False):
        assert (row.accuracy_with, row.accuracy_without, row.n) == (np.mean(seen), np.mean(missed), 10)
    assert outcome.commonality[0].drop > 0.3
    # The last model does not look at red, but what the object covers is gone.
    assert outcome.commonality[-1].drop <= 0


def test_a_method_that_does_not_look_at_the_model_has_no_contrast(outcome, data, models):
    found = select(outcome.records, method="blue only", metric="relative MCS")
    assert [record.value for record in found] == [0] * 9
    (record,) = select(outcome.records, method="blue only", metric="correlation")
    # A constant curve correlates with nothing.
    assert math.isnan(record.value)


def test_a_method_that_fails_for_one_model_is_noted(outcome):
    found = select(outcome.records, method="fails")
    assert len(found) == 10
    assert all(math.isnan(record.value) and record.n == 0 and record.undefined == 10 for record in found)
    assert outcome.notes == ["fails failed and has no scores: RuntimeError: too little red"]
    assert [row.label for row in outcome.sheet.rows] == ["contributions", "blue only"]


def test_the_sheet_shows_one_image_under_all_models(outcome, data):
    assert outcome.sheet.columns == [f"k = {k:g}" for k in COMMONALITIES]
    first, second = outcome.sheet.rows
    np.testing.assert_array_equal(first.image, second.image)
    assert first.mask.any()
    assert len(first.maps) == len(first.values) == 10
    for maps, value in zip(first.maps, first.values, strict=True):
        assert maps.shape == (SIZE, SIZE)
        assert value == pytest.approx(maps[first.mask].mean(), abs=1e-6)
    # The object's values fall with k.
    assert first.values[0] > first.values[-1]


def test_the_contrast_is_to_the_last_model(data, models, outcome):
    others = models | {model_name(1.0): Uses(0.3)}
    changed = contrast_over_k(others, {"contributions": contributions}, data, OPTIONS)
    before = select(outcome.records, method="contributions", metric="relative MCS")
    after = select(changed.records, method="contributions", metric="relative MCS")
    assert all(new.value < old.value for old, new in zip(before, after, strict=True))


def test_the_batch_size_plays_no_role(data, models, outcome):
    again = contrast_over_k(models, METHODS, data, dataclasses.replace(OPTIONS, batch_size=64))
    for one, other in zip(again.records, outcome.records, strict=True):
        assert (one.method, one.k, one.n) == (other.method, other.k, other.n)
        assert one.value == pytest.approx(other.value, abs=1e-9, nan_ok=True)


def test_one_model_for_each_k_on_nested_sets(data):
    jobs = family_jobs(data)
    assert [job.name for job in jobs] == [f"f_s^{k / 10:.1f}" for k in range(1, 11)]
    assert {(job.target, job.n_classes) for job in jobs} == {("scene", 2)}
    shares = [(job.data.object_labels >= 0).float().mean().item() for job in jobs]
    assert shares == sorted(shares)
    assert shares[-1] == 1
    in_target = torch.as_tensor(jobs[0].data.scene_labels == TARGET)
    assert (jobs[0].data.object_labels[in_target] >= 0).all()


def test_data_without_a_common_object_are_refused(data, models):
    without = AttributionData(data.train, data.test)
    with pytest.raises(ValueError, match="common feature"):
        family_jobs(without)
    with pytest.raises(ValueError, match="common feature"):
        contrast_over_k(models, METHODS, without, OPTIONS)
