"""The substitution score as a Quantus metric: what it adds to `functional.substitution`."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from quantus_concepts import SubstitutionScore
from telling_models import Shown, TellingModel, images_showing

VALUES = np.array([[0.9, 0.1, 0.6, 0.0], [0.4, 0.6, 0.2, 0.0], [0.9, 0.5, 0.5, 0.0], [0.9, 0.9, 0.1, 0.0]])
CLASSES = np.array([0, 1, 1, 0])
ADDED, REMOVED = np.array([0, 0, 1, -1]), np.array([1, 1, 2, 0])
MODEL = TellingModel(Shown(4), 4, 2)
IMAGES = images_showing(torch.tensor(VALUES)).numpy()


@pytest.mark.parametrize("view", ["images", "values"])
@pytest.mark.parametrize(("score", "expected"), [("added", [1, 0, 1, np.nan]), ("removed", [1, 0, 0, np.nan])])
def test_by_hand_on_images_and_on_values(view, score, expected):
    model, inputs = (MODEL, IMAGES) if view == "images" else (MODEL.head, VALUES)
    metric = SubstitutionScore(ADDED, REMOVED, score, disable_warnings=True)
    np.testing.assert_array_equal(metric(model, inputs, CLASSES), expected)
    assert metric.undefined == 1


def test_threshold_and_a_call_that_brings_its_concepts():
    metric = SubstitutionScore(threshold=0.95)
    assert metric(MODEL, IMAGES[:3], CLASSES[:3], custom_batch={"added": [0, 0, 1]}) == [0, 0, 0]
    assert SubstitutionScore([0, 0, 1], threshold=0)(MODEL, IMAGES[:3], CLASSES[:3]) == [1, 1, 1]


def test_chance_pairs_and_reasons_are_remembered():
    metric = SubstitutionScore([0, 0, 1, -1], [1, -1, 1, 0], "removed")
    message = r"taken out \(2 of 4 samples\); the concept put in is none of the model's \(1 of 4 samples\)"
    with pytest.warns(UserWarning, match=message):
        metric(MODEL, IMAGES, CLASSES)
    record = metric.records[-1]
    assert record.chance == 0.5
    assert record.clusters is not None
    # (0, 0), (1, 0), (1, 1), (0, -1): all different; bound ones go before.
    assert len(set(record.clusters.tolist())) == 4
    metric = SubstitutionScore([0, 0, 1, 1], pairs=[3, 3, 5, 5])
    metric(MODEL, IMAGES, CLASSES)
    np.testing.assert_array_equal(metric.records[-1].clusters, [3, 3, 5, 5])
    metric = SubstitutionScore([0, 0, 1, 0])
    metric(MODEL, IMAGES, CLASSES)
    np.testing.assert_array_equal(np.unique(metric.records[-1].clusters, return_inverse=True)[1], [0, 1, 2, 0])


class Values(torch.nn.Module):
    """The concept values of the model as a plain module on images; NaN below a threshold."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.threshold(MODEL.concept_predictor(images), 0.45, torch.nan)


def test_a_plain_module_and_undefined_values():
    metric = SubstitutionScore([0, 0, 1])
    with pytest.warns(UserWarning, match=r"values are NaN \(3 of 3 samples\)"):
        assert np.isnan(metric(Values(), IMAGES[:3], CLASSES[:3])).all()
    threshold = SubstitutionScore([0, 0, 1], threshold=1.5)
    assert threshold(Values(), IMAGES[:3] + 1, CLASSES[:3]) == [1, 0, 1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"added": ADDED, "score": "removed"}, r"needs argument `removed`"),
        ({"added": ADDED[:3]}, r"`added` to have one row for each sample of `x_batch`, 4, but got 3"),
        ({"added": [0, 0, 4, 0]}, r"`added` to lie in \[-1, 3\]"),
        ({"added": np.array([0, 1, 255, 0], np.uint8)}, r"`added` to have a signed dtype"),
    ],
)
def test_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        SubstitutionScore(**arguments)(MODEL, IMAGES, CLASSES)


def test_values_are_needed():
    with pytest.raises(ValueError, match=r"needs images \(N, C, H, W\) with argument `model`"):
        SubstitutionScore(ADDED)(None, IMAGES, CLASSES)
    with pytest.raises(ValueError, match=r"`model` to map images to concept values \(N, L\) = \(4, \*\)"):
        SubstitutionScore(ADDED)(torch.nn.Identity(), IMAGES, CLASSES)
