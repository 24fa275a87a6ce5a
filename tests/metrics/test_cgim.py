"""CGIM as a Quantus metric: which samples enter, and what is undefined."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from quantus_concepts import CGIM

TRUTH = np.array([[1.0, 0.0, 0.5], [0.0, 1.0, 0.5]])
VALUES = np.array([[2.0, 0.0, 0.0], [4.0, 0.0, 6.0], [0.0, 3.0, 0.0], [0.0, 5.0, 8.0]])
CLASSES = np.array([0, 0, 1, 1])


@pytest.fixture
def head():
    layer = nn.Linear(3, 2, bias=False)
    layer.weight.data = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    return layer


# Means of the classes, by hand: (3, 0, 3) and (0, 4, 4).
# Concepts: (3, 0) and (1, 0) give 1; (0, 4) and (0, 1) give 1; (3, 4) and (.5, .5) give 7 / (5 sqrt 2).
# Classes: (3, 0, 3) and (1, 0, .5) give 4.5 / sqrt(18 * 1.25); (0, 4, 4) and (0, 1, .5) the same.
@pytest.mark.parametrize(
    ("per", "expected"), [("concept", [1, 1, 7 / (5 * 2**0.5)]), ("class", [4.5 / (18 * 1.25) ** 0.5] * 2)]
)
def test_cosine_of_class_means(head, per, expected):
    np.testing.assert_allclose(CGIM(TRUTH, per=per)(head, VALUES, CLASSES, VALUES), expected, rtol=1e-12)


def test_a_wrongly_predicted_sample_does_not_enter(head):
    values = np.concatenate([VALUES, [[9.0, 1.0, -100.0]]])
    scores = CGIM(TRUTH)(head, values, np.array([*CLASSES, 1]), values)
    np.testing.assert_allclose(scores, [1, 1, 7 / (5 * 2**0.5)], rtol=1e-12)


def test_labels_may_differ_from_the_explained_class(head):
    # all explained for what is predicted, but the last two are really of class 0: only class 0 has samples
    metric = CGIM(TRUTH, per="class", labels=[0, 0, 0, 0])
    np.testing.assert_allclose(metric(head, VALUES, CLASSES, VALUES), [4.5 / (18 * 1.25) ** 0.5, np.nan], rtol=1e-12)
    assert metric.undefined == 1


def test_a_sample_explained_for_another_class_than_its_own_does_not_enter(head):
    # Of class 0 and predicted as it, but its explanation is of class 1.
    values, a_batch = np.concatenate([VALUES, VALUES[:1]]), np.concatenate([VALUES, [[-100.0, 7.0, -100.0]]])
    scores = CGIM(TRUTH, labels=[*CLASSES, 0])(head, values, np.array([*CLASSES, 1]), a_batch)
    np.testing.assert_allclose(scores, [1, 1, 7 / (5 * 2**0.5)], rtol=1e-12)


def test_a_sample_that_is_not_finite_does_not_void_its_class(head):
    a_batch = VALUES.copy()
    a_batch[0] = np.inf
    with pytest.warns(UserWarning, match="1 of 4 samples"):
        scores = CGIM(TRUTH)(head, VALUES, CLASSES, a_batch)
    # class 0 is now (4, 0, 6): concept 2 has (6, 4) against (.5, .5)
    np.testing.assert_allclose(scores, [1, 1, 10 / (52**0.5 * 2**0.5)], rtol=1e-12)


class TestAllClasses:
    """Type 1 rests on all of theta; what rests on samples says which classes it leaves out."""

    V = np.array([[1.0, 0, 0], [0, 1, 0], [0, 1, 1], [1, 1, 1]])

    @pytest.fixture
    def head(self):
        head = nn.Linear(3, 4)
        with torch.no_grad():
            head.weight[:] = torch.tensor([[2.0, 0, 0], [0, 3, 1], [1, 0, 2], [-1, -1, 0]])
            head.bias[:] = 0
        return head

    # Predicted as 0, 1 and 1: classes 2 and 3 have no correct sample.
    VALUES = np.array([[1.0, 0, 0], [0, 1, 0], [0, 2, 0]])
    CLASSES = np.array([0, 1, 1])

    def test_weights_of_every_class(self, head):
        theta = head.weight.detach().numpy()
        expected = (theta * self.V).sum(0) / np.linalg.norm(theta, axis=0) / np.linalg.norm(self.V, axis=0)
        metric = CGIM(self.V)
        np.testing.assert_allclose(metric(head, self.VALUES, self.CLASSES, theta[self.CLASSES]), expected, rtol=1e-6)
        assert metric.records[-1].reasons == {}
        # Only the two classes with a sample gave (2, 0, 0), (0, 3, 1): 1, 1 and NaN.
        np.testing.assert_allclose(expected, [1 / 12**0.5, 2 / 30**0.5, 2 / 10**0.5])
        per_class = CGIM(self.V, per="class")(head, self.VALUES, self.CLASSES, theta[self.CLASSES])
        np.testing.assert_allclose(per_class, [1, 3 / 10**0.5, 2 / 10**0.5, -2 / 6**0.5], rtol=1e-6)

    def test_where_an_explanation_is_missing(self, head):
        a_batch = head.weight.detach().numpy()[self.CLASSES]
        at_once = CGIM(self.V)(head, self.VALUES, self.CLASSES, a_batch)
        a_batch[0] = np.nan
        with pytest.warns(UserWarning, match=r"hold NaN or infinity \(1 of 3 samples\)"):
            assert CGIM(self.V)(head, self.VALUES, self.CLASSES, a_batch, batch_size=1) == at_once
        with pytest.warns(UserWarning, match="hold NaN"):
            assert np.isnan(CGIM(self.V)(head, self.VALUES, self.CLASSES, a_batch * np.nan)).all()

    def test_other_explanations_leave_classes_out_and_warn(self, head):
        a_batch = head.weight.detach().numpy()[self.CLASSES] * self.VALUES
        metric = CGIM(self.V)
        with pytest.warns(UserWarning, match=r"fewer classes, or NaN, where a class has no .* \(2 of 4 classes\)"):
            scores = metric(head, self.VALUES, self.CLASSES, a_batch)
        np.testing.assert_array_equal(scores, [1, 1, np.nan])
        assert metric.records[-1].reasons == {
            "a class has no correctly predicted sample with an explanation": 2,
            "importance is zero throughout": 1,
        }
        per_class = CGIM(self.V, per="class")
        with pytest.warns(UserWarning, match=r"CGIM: scores are NaN where a class has no .* \(2 of 4 classes\)\.$"):
            scores = per_class(head, self.VALUES, self.CLASSES, a_batch)
        np.testing.assert_array_equal(scores, [1, 1, np.nan, np.nan])
        assert per_class.undefined == sum(per_class.records[-1].reasons.values())


class TestCentred:
    """Pearson's correlation in place of the cosine."""

    # Means of the classes are (3, 0, 3) and (0, 4, 4), as above. Concepts: the first two are as the truth, of the third
    # the truth is .5 for both. Classes, less their means: (1, -2, 1) and (.5, -.5, 0) give 1.5 / sqrt(6 / 2).
    @pytest.mark.parametrize(("per", "expected"), [("concept", [1, 1, np.nan]), ("class", [0.75**0.5] * 2)])
    def test_by_hand(self, head, per, expected):
        metric = CGIM(TRUTH, per=per, centred=True, disable_warnings=True)
        np.testing.assert_allclose(metric(head, VALUES, CLASSES, VALUES), expected, rtol=1e-12)
        assert metric.records[-1].reasons == ({"truth does not vary": 1} if per == "concept" else {})

    @pytest.mark.parametrize(
        ("per", "cosine"), [("concept", [0.5**0.5, 0.5**0.5, 1]), ("class", [1.5 / 3.75**0.5] * 2)]
    )
    def test_the_same_importance_everywhere(self, head, per, cosine):
        ones = np.ones_like(VALUES)
        np.testing.assert_allclose(CGIM(TRUTH, per=per)(head, VALUES, CLASSES, ones), cosine)
        metric = CGIM(TRUTH, per=per, centred=True)
        with pytest.warns(UserWarning, match=f"importance does not vary .{len(cosine)} of {len(cosine)} "):
            assert np.isnan(metric(head, VALUES, CLASSES, ones)).all()
