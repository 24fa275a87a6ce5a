"""Calls and updates beyond the contract: arguments that are handed on, or not given, and what does not fit."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from metric_inputs import metric_arguments, predicted
from quantus_concepts import CEM, CGIM, Faithfulness, SubstitutionScore
from quantus_concepts.metrics.host.metric import is_same
from tiny_models import N_CLASSES, N_CONCEPTS, TinyConceptModel

N = 20
RNG = np.random.default_rng(0)
IMAGES = RNG.random((N, 3, 12, 12)).astype(np.float32)
CLASSES, LABELS = RNG.integers(0, N_CLASSES, (2, N))
DATA = metric_arguments(IMAGES, RNG)
MODEL = TinyConceptModel()


def test_arguments_of_the_model_and_of_the_method_reach_them() -> None:
    factors, signs = set(), list[int]()

    class Scaled(nn.Module):
        def forward(self, images: Tensor, factor: int = 1) -> Tensor:
            factors.add(factor)
            return factor * images.flatten(1)[:, :N_CLASSES]

    def explain(model: nn.Module, inputs: np.ndarray, targets: np.ndarray, sign: int = 1, **_: object) -> np.ndarray:
        signs.append(sign)
        return sign * inputs

    metric, batch = Faithfulness(thresholds=[50]), (Scaled(), IMAGES[:3], CLASSES[:3])
    metric(*batch, explain_func=explain, explain_func_kwargs={"sign": 2}, model_predict_kwargs={"factor": 3})
    assert factors == {3}
    metric.update(*batch, explain_func=explain, explain_func_kwargs={"sign": 4})
    assert signs == [2, 4]


def test_a_single_batch_has_channels_first() -> None:
    shapes = set()

    class Seen(nn.Module):
        def forward(self, images: Tensor) -> Tensor:
            shapes.add(images.shape[1:])
            return images.flatten(1)[:, :N_CLASSES]

    # Of a width that would pass as a number of channels.
    narrow = IMAGES[:3, ..., :2]
    Faithfulness(thresholds=[50]).evaluate_batch(Seen(), narrow, CLASSES[:3], narrow[:, 0])
    assert shapes == {(3, 12, 2)}


def test_predicted_classes_are_the_default():
    metric, labels = CEM(), DATA["concept_labels"]
    metric.update(MODEL, IMAGES, concept_labels=labels)
    assert metric.compute() == CEM(labels)(MODEL, IMAGES, predicted(MODEL, IMAGES))


def test_wrong_batches_and_metrics_are_refused():
    metric = CEM(only_correct=True)
    metric.update(MODEL, IMAGES, CLASSES, concept_labels=DATA["concept_labels"], labels=LABELS)
    with pytest.warns(UserWarning, match=r"misclassified \(\d+ of 20 samples\)") as warnings:
        expected = metric.compute()
    assert len(warnings) == 1
    with pytest.raises(TypeError, match=r"CEM\.update has no argument `labls`"):
        metric.update(MODEL, IMAGES, CLASSES, labls=LABELS)
    with pytest.raises(ValueError, match="concept_labels"):
        metric.update(MODEL, IMAGES, CLASSES, concept_labels=DATA["concept_labels"][:3])
    with pytest.raises(TypeError, match="`other` to be a CEM but got CGIM"):
        metric.merge_state(CGIM(DATA["class_concepts"]))
    with pytest.raises(ValueError, match="settings of this CEM but `top_l` differs"):
        metric.merge_state(CEM(top_l=2, only_correct=True))
    with pytest.raises(ValueError, match="`y_batch` to hold classes, since there is no `model`"):
        SubstitutionScore().update(None, np.ones((N, N_CONCEPTS)), added=DATA["added"])
    # What was refused, and a call in between, leave the batches alone.
    call = {"concept_labels": DATA["concept_labels"][:3], "labels": LABELS[:3]}
    metric(MODEL, IMAGES[:3], CLASSES[:3], custom_batch=call)
    np.testing.assert_array_equal(metric.compute(), expected)


class Setting:
    """An object of a user, which does not say what it equals."""

    def __init__(self, size: int) -> None:
        self.size = size


class OtherSetting(Setting):
    """Another one with the same content."""


@pytest.mark.parametrize(
    ("first", "second", "other"),
    [
        (Setting(1), Setting(1), [Setting(2), OtherSetting(1)]),
        (partial(max, 1), partial(max, 1), [partial(max, 2), partial(min, 1), max]),
        ([1, np.ones(2)], [1, np.ones(2)], [[1, np.zeros(2)], [1]]),
        ({"a": np.ones(2)}, {"a": np.ones(2)}, [{"a": np.zeros(2)}, {"a": np.ones(2), "b": 1}]),
        (torch.ones(2), torch.ones(2), [torch.zeros(2), np.ones(2, np.float32)]),
    ],
    ids=["object", "partial", "list", "mapping", "tensor"],
)
def test_settings_are_the_same_by_their_content(first: Any, second: Any, other: list[Any]) -> None:
    assert is_same(first, second)
    assert not any(is_same(first, differing) for differing in other)
