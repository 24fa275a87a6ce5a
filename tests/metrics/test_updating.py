"""Metrics batch by batch give what one call gives, also when several processes share the batches."""

from __future__ import annotations

import pickle
from functools import partial
from typing import Any

import numpy as np
import pytest
from captum.attr import Saliency
from quantus.helpers.enums import DataType

from captum_concepts import explain_func
from contributing_metric import ConceptMass
from metric_inputs import EXPORTED, explained_inputs, metric_arguments, predicted, region, updated_metrics
from quantus_concepts import CEM, CGIM, IDR, IIR, MCS, Faithfulness, PASTAScore, SubstitutionScore
from quantus_concepts.pasta.scorer import Scorer
from tiny_encoders import PoolingEncoder
from tiny_models import N_CLASSES, N_CONCEPTS, TinyConceptModel

N, BATCH = 20, 8
RNG = np.random.default_rng(0)
IMAGES = RNG.random((N, 3, 12, 12)).astype(np.float32)
CLASSES = RNG.integers(0, N_CLASSES, N)
DATA = metric_arguments(IMAGES, RNG) | {
    "labels": RNG.integers(0, N_CLASSES, N),
    "removed": RNG.integers(-1, N_CONCEPTS, N),
}
DATA["concept_labels"][3] = 0
DATA["scorer"] = Scorer(PoolingEncoder.dim, labels=("cat", "dog", "car", "bird"), hidden=(8,))
MODEL = TinyConceptModel()
MASKS, EXPLAIN = region(N, 12), explain_func(Saliency)
#: Metrics that evaluate explanations of the images, and not the concept model.
EXPLAINED = (MCS, IDR, IIR, Faithfulness, PASTAScore)
UPDATED = updated_metrics(DATA, [*EXPORTED, ConceptMass])
SETTINGS: dict[str, dict[str, Any]] = {
    "CEM": {"only_correct": True},
    "CGIM of classes by value": {"per": "class", "importance": "value"},
    "CGIM by weight": {"importance": "weight"},
    "SubstitutionScore of the concept taken out": {"score": "removed"},
}
CASES = UPDATED | {
    f"{name}, {settings}": (partial(UPDATED[name.split()[0]][0], **settings), UPDATED[name.split()[0]][1])
    for name, settings in SETTINGS.items()
}


def updated(metric: Any, truth: tuple[str, ...], starts: range = range(0, N, BATCH)) -> Any:
    """Return the metric after updates with the batches that begin at some rows."""
    for start in starts:
        rows = slice(start, start + BATCH)
        batch = {name: DATA[name][rows] for name in truth}
        model, inputs = explained_inputs(metric, MODEL, IMAGES[rows])
        metric.update(model, inputs, CLASSES[rows], **batch, **explanation(metric, rows))
    return metric


def explanation(metric: Any, rows: slice = slice(None)) -> dict[str, Any]:
    if DataType.IMAGE not in metric.data_applicability:
        return {"explain_func": EXPLAIN}
    return {"explain_func": EXPLAIN, "s_batch": MASKS[rows]} if isinstance(metric, EXPLAINED) else {}


def assert_same_record(record: Any, expected: Any) -> None:
    np.testing.assert_array_equal(record.values, expected.values)
    assert record.reasons == expected.reasons
    assert record.chance == pytest.approx(expected.chance, nan_ok=True)
    assert (record.bounds, record.of_samples) == (expected.bounds, expected.of_samples)
    if expected.clusters is not None:
        np.testing.assert_array_equal(record.clusters, expected.clusters)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("case", CASES)
def test_batches_give_what_one_call_gives(case):
    make, truth = CASES[case]
    at_once, metric = make(), updated(make(), truth)
    passed = {name: DATA[name] for name in truth}
    model, inputs = explained_inputs(at_once, MODEL, IMAGES)
    expected = at_once(model, inputs, CLASSES, batch_size=BATCH, custom_batch=passed, **explanation(at_once))
    assert not metric.records
    np.testing.assert_array_equal(metric.compute(), expected)
    assert_same_record(metric.records[-1], at_once.records[-1])
    assert metric.undefined == at_once.undefined
    # A second `compute` gives the same; after a reset the batches are gone.
    np.testing.assert_array_equal(metric.compute(), expected)
    metric.reset()
    with pytest.raises(ValueError, match=r"compute needs at least one batch\. Call `update` first"):
        metric.compute()
    np.testing.assert_array_equal(updated(metric, truth).compute(), expected)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("case", CASES)
def test_states_of_two_processes_join(case):
    make, truth = CASES[case]
    expected = updated(make(), truth).compute()
    first, second = updated(make(), truth, range(0, BATCH, BATCH)), updated(make(), truth, range(BATCH, N, BATCH))
    sent = pickle.loads(pickle.dumps(second))
    first.merge_state(sent)
    close = np.testing.assert_allclose if case.startswith("CGIM") else np.testing.assert_array_equal
    close(first.compute(), expected)
    # The merged metric takes further batches, and the other one does not change.
    before = sent.compute()
    updated(first, truth, range(0, BATCH, BATCH))
    np.testing.assert_array_equal(sent.compute(), before)
    np.testing.assert_array_equal(before, second.compute())


def test_predicted_classes_are_the_default():
    metric, labels = CEM(), DATA["concept_labels"]
    metric.update(MODEL, IMAGES, concept_labels=labels)
    assert metric.compute() == CEM(labels)(MODEL, IMAGES, predicted(MODEL, IMAGES))


def test_wrong_batches_and_metrics_are_refused():
    metric = updated(CEM(only_correct=True), ("concept_labels", "labels"))
    with pytest.warns(UserWarning, match=r"misclassified \(\d+ of 20 samples\)") as warnings:
        expected = metric.compute()
    assert len(warnings) == 1
    with pytest.raises(TypeError, match=r"CEM\.update has no argument `labls`"):
        metric.update(MODEL, IMAGES, CLASSES, labls=DATA["labels"])
    with pytest.raises(ValueError, match="concept_labels"):
        metric.update(MODEL, IMAGES, CLASSES, concept_labels=DATA["concept_labels"][:3])
    with pytest.raises(TypeError, match="`other` to be a CEM but got CGIM"):
        metric.merge_state(CGIM(DATA["class_concepts"]))
    with pytest.raises(ValueError, match="settings of this CEM but `top_l` differs"):
        metric.merge_state(CEM(top_l=2, only_correct=True))
    with pytest.raises(ValueError, match="settings of this CGIM but `class_concepts` differs"):
        CGIM(DATA["class_concepts"]).merge_state(CGIM(1 - DATA["class_concepts"]))
    with pytest.raises(ValueError, match="`y_batch` to hold classes, since there is no `model`"):
        SubstitutionScore().update(None, np.ones((N, N_CONCEPTS)), added=DATA["added"])
    # What was refused, and a call in between, leave the batches alone.
    call = {"concept_labels": DATA["concept_labels"][:3], "labels": DATA["labels"][:3]}
    metric(MODEL, IMAGES[:3], CLASSES[:3], custom_batch=call)
    np.testing.assert_array_equal(metric.compute(), expected)
