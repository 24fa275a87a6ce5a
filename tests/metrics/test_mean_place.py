"""The mean place of each part in other images as a map: a baseline of CLM and part specificity."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from metric_inputs import CLASSES, IMAGES, LABELS, MODEL
from quantus_concepts import score_concepts
from quantus_concepts.metrics import UsualMetrics
from quantus_concepts.metrics.concepts.locations import mean_place_hits
from reference import mean_place, part_specificity

SIZE, PARTS = IMAGES.shape[2:], np.array([0, 1, -1, 2, 0])
RNG = np.random.default_rng(3)
POINTS = RNG.uniform(0, 11, (len(IMAGES), 3, 1, 2))
POINTS[0, 1] = math.nan


def test_by_hand() -> None:
    # Part 0 lies in the first row of all images, part 1 in the last.
    points = np.array([[[[5.0, 0.0]], [[5.0, 11.0]]]] * 3)
    hits = mean_place_hits(points, (12, 12), (1.0,))
    assert hits[:, 0, 0].tolist() == hits[:, 1, 1].tolist() == [[1.0]] * 3
    assert hits[:, 0, 1].tolist() == hits[:, 1, 0].tolist() == [[0.0]] * 3
    # The own image does not count: the mean of the others is at the other end.
    points = np.array([[[[5.0, 0.0]]], [[[5.0, 11.0]]], [[[5.0, 11.0]]]])
    assert mean_place_hits(points, (12, 12), (1.0,))[0].item() == 0
    # Of two images the mean of the others is the other one, where another part lies in this image.
    points = np.array([[[[5.0, 0.0]], [[5.0, 11.0]]], [[[5.0, 11.0]], [[5.0, 0.0]]]])
    assert mean_place_hits(points, (12, 12), (1.0,))[..., 0].tolist() == [[[0, 1], [1, 0]]] * 2
    # A part that no other image shows has no mean place.
    points[1:] = math.nan
    assert np.isnan(mean_place_hits(points, (12, 12), (1.0,))).all()


def test_against_the_mean_of_the_other_images() -> None:
    points = np.random.default_rng(0).normal(12, 3, (30, 3, 2, 2))
    points[:4, 1] = points[5, 2, 1] = math.nan
    # Apart from pixels at the edge of a region: the mean moves by less than one.
    found, expected = (
        mean_place_hits(points, (24, 30), (1.0, 3.0)),
        mean_place.mean_place_hits(points, (24, 30), (1, 3)),
    )
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    different = np.abs(found - expected)[~np.isnan(expected)]
    assert (different > 0.01).mean() < 0.05
    assert np.nanmean(found) == pytest.approx(np.nanmean(expected), abs=0.01)


@pytest.mark.parametrize("batches", [1, 2])
def test_rows_of_a_table(batches: int) -> None:
    images, labels, concepts = (torch.as_tensor(part) for part in (IMAGES, CLASSES, LABELS))
    points = torch.as_tensor(POINTS)
    rows = torch.arange(len(images)).chunk(batches)
    loader = [(images[own], labels[own], concepts[own], points[own]) for own in rows]
    usual = UsualMetrics(explanations=["contribution"], top_l=[2], alphas=[3])
    for per_image in (False, True):
        table = score_concepts(MODEL, loader, usual, truth={"part_of_concept": PARTS}, per_image=per_image)
        place = table[table["baseline"] == "mean place of the part"].set_index("metric")["value"]
        with torch.no_grad():
            values = MODEL.concept_predictor(images)
            theta = MODEL.head[0].weight[MODEL(images).argmax(1)]
        importance = (values * theta)[:, PARTS >= 0]
        first = np.flatnonzero(PARTS >= 0)[importance.argsort(1, descending=True)[:, :2].numpy()]
        hits = mean_place_hits(POINTS.astype("float32").astype(float), SIZE, (3.0,))[..., 0]
        own, specific = [], []
        for image, concepts_of in enumerate(first):
            part = PARTS[concepts_of]
            own.append(np.nanmean(hits[image, part, part]))
            specific.append(np.nanmean(part_specificity.part_specificity(hits[image, part], part, [2, 1, 1])[1]))
        expected = {"CLM": own, "part specificity": specific}
        for metric, scores in expected.items():
            found = place[metric] if per_image else [place[metric]]
            np.testing.assert_allclose(found, scores if per_image else [np.nanmean(scores)], atol=1e-6)
