"""CEM as a Quantus metric: what it adds to `functional.cem`."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from quantus_concepts import CEM
from tiny_models import SharingConceptModel

LABELS = np.array([[1, 0, 0, 1], [0, 1, 1, 0], [0, 0, 0, 0]])
IMPORTANCE = np.array([[0.9, 0.1, 0.5, -2.0], [0.9, 0.8, 0.1, 0.0], [1.0, 2.0, 3.0, 4.0]])


@pytest.fixture
def head():
    layer = nn.Linear(4, 2, bias=False)
    # class 1 where the first value exceeds the second
    layer.weight.data = torch.tensor([[0.0, 1.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]])
    return layer


# by hand: first concept present / absent / absent; first two 1 of 2 (concepts 0, 2), 1 of 2 (0, 1), none
@pytest.mark.parametrize(("top_l", "expected"), [(1, [1, 0, 0]), (2, [0.5, 0.5, 0]), (4, [0.5, 0.5, 0])])
def test_share_of_the_first_concepts_that_are_present(head, top_l, expected):
    for model in (head, None):
        assert CEM(LABELS, top_l=top_l)(model, IMPORTANCE, np.array([1, 1, 0]), IMPORTANCE) == expected


def test_ranking_is_signed_by_default(head):
    a_batch = np.array([[0.1, 0.2, 0.3, -5.0]])
    assert CEM(LABELS[:1])(head, IMPORTANCE[:1], np.array([1]), a_batch) == [0.0]
    assert CEM(LABELS[:1], abs=True)(head, IMPORTANCE[:1], np.array([1]), a_batch) == [1.0]


def test_only_correct_leaves_misclassified_images_undefined(head):
    # the head says 1, 1, 0
    metric = CEM(LABELS, only_correct=True, labels=[1, 0, 0])
    np.testing.assert_array_equal(metric(head, IMPORTANCE, np.array([1, 1, 0]), IMPORTANCE), [1, np.nan, 0])
    assert metric.undefined == 1


def test_chance_clusters_and_reasons_are_remembered(head):
    a_batch, classes = IMPORTANCE.copy(), np.array([1, 0, 0])
    a_batch[2, 1] = np.nan
    metric = CEM(LABELS, only_correct=True)
    with pytest.warns(UserWarning, match=r"misclassified \(1 of 3 samples\); and where the explanation method failed"):
        metric(head, IMPORTANCE, classes, a_batch)
    record = metric.records[-1]
    assert record.reasons == {
        "they are misclassified": 1,
        "the explanation method failed: attributions hold NaN or infinity": 1,
    }
    # Of the one sample that is scored two concepts of four are present.
    assert record.chance == 0.5
    assert record.clusters is not None
    np.testing.assert_array_equal(record.clusters, classes)
    metric = CEM(LABELS)
    metric(head, IMPORTANCE, classes, IMPORTANCE)
    assert metric.records[-1].chance == pytest.approx(4 / 12)


def test_autocast_rounds_the_backbone_only():
    rng = np.random.default_rng(0)
    model, images = SharingConceptModel(), rng.normal(size=(40, 3, 12, 12)).astype(np.float32)
    labels, classes = rng.integers(0, 2, (40, 5)), rng.integers(0, 4, 40)
    with torch.no_grad():
        with torch.autocast("cpu", dtype=torch.bfloat16):
            features = model.features(torch.as_tensor(images)).float()
        values = model.values_from_features(features)
        theta = model.head[0].weight[torch.as_tensor(classes)]
        ranked = (theta * values).argmax(1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        scores = CEM(labels, importance="contribution")(model, images, classes)
    np.testing.assert_array_equal(scores, labels[np.arange(40), ranked])


def test_a_model_in_half_precision_is_ranked_in_float32():
    rng = np.random.default_rng(0)
    model, images = SharingConceptModel().to(torch.bfloat16), rng.normal(size=(300, 3, 12, 12)).astype(np.float32)
    labels, classes = rng.integers(0, 2, (300, 5)), rng.integers(0, 4, 300)
    with torch.no_grad():
        values = model.concept_predictor(torch.as_tensor(images).bfloat16())
        theta = model.head[0].weight[torch.as_tensor(classes)]
    order, rounded = (
        product.argsort(dim=1, descending=True, stable=True)[:, :3]
        for product in (theta.float() * values.float(), theta * values)
    )
    # Rounded to bfloat16 products tie, and the first of equal ones comes first.
    assert (order != rounded).any()
    scores = CEM(labels, top_l=3, importance="contribution")(model, images, classes)
    np.testing.assert_allclose(scores, labels[np.arange(300)[:, None], order].mean(1), rtol=1e-6)
    # What is left: values of the model's own, which may tie; the lower index then comes first.
    model.concept_predictor.cavs[1:] = model.concept_predictor.cavs[0]
    assert CEM(labels, importance="value")(model, images, classes) == labels[:, 0].tolist()


def test_a_head_without_a_gradient_has_importance_by_value_and_by_effect():
    class Decides(nn.Module):
        def forward(self, values):
            return (10 * values.detach()[:, :4]).round()

    model = SharingConceptModel()
    model.head = Decides()
    images, labels, classes = np.ones((2, 3, 12, 12), np.float32), np.ones((2, 5), int), np.zeros(2, int)
    with pytest.raises(ValueError, match=r"gradient of the model's head.*Pass importance='effect'"):
        CEM(labels, importance="contribution")(model, images, classes)
    for importance in ("value", "effect"):
        assert CEM(labels, importance=importance)(model, images, classes) == [1, 1]


class TestGain:
    """CEM less prevalence in the other images."""

    # Each concept is on one image of three. By hand, of the first concepts 0, 0, 3: 1 - 0/2, 0 - 1/2, 0 - 1/2; of the
    # first two, (0, 2), (0, 1), (3, 2): the means with 0 - 1/2, 1 - 0/2, 0 - 1/2.
    @pytest.mark.parametrize(("top_l", "expected"), [(1, [1, -0.5, -0.5]), (2, [0.25, 0.25, -0.5])])
    def test_by_hand(self, head, top_l, expected):
        metric = CEM(LABELS, top_l=top_l, gain=True)
        assert metric(head, IMPORTANCE, np.array([1, 1, 0]), IMPORTANCE) == expected
        assert (metric.records[-1].chance, metric.records[-1].bounds) == (0, (-1, 1))

    def test_only_scored_samples_are_others(self, head):
        a_batch = IMPORTANCE.copy()
        a_batch[2] = 0
        metric = CEM(LABELS, gain=True)
        with pytest.warns(UserWarning, match=r"importance is zero throughout \(1 of 3 samples\)"):
            scores = metric(head, IMPORTANCE, np.array([1, 1, 0]), a_batch)
        np.testing.assert_array_equal(scores, [1, -1, np.nan])
        alone = CEM(LABELS[:1], gain=True)
        with pytest.warns(UserWarning, match=r"no other sample has a score \(1 of 1 samples\)"):
            assert np.isnan(alone(head, IMPORTANCE[:1], np.array([1]), IMPORTANCE[:1])).all()
        metric = CEM(LABELS, only_correct=True, labels=[1, 0, 0], gain=True, disable_warnings=True)
        np.testing.assert_array_equal(metric(head, IMPORTANCE, np.array([1, 1, 0]), IMPORTANCE), [1, np.nan, -1])
