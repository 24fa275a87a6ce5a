"""Metrics batch by batch: what comes out is what one call gives, also when several processes share the batches."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from captum_concepts import ConceptBank, PostHocCBM
from quantus_concepts import CEM, CGIM, CLM, SubstitutionScore, summarise
from quantus_concepts.functional import ClassMeans

N, K, L, BATCH = 20, 3, 5, 8
PARTS = np.array([0, 1, 0, -1, 1])


def made(seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        "x": rng.random((N, 3, 8, 8)).astype(np.float32),
        "y": rng.integers(0, K, N),
        "labels": rng.integers(0, K, N),
        "concept_labels": rng.integers(0, 2, (N, L)),
        "points": rng.uniform(0, 8, (N, 2, 2)),
        "added": rng.integers(0, L, N),
        "removed": rng.integers(-1, L, N),
        "class_concepts": rng.random((K, L)),
        "importance": rng.standard_normal((N, L)),
    }


DATA = made(0)
DATA["concept_labels"][3] = 0


def concept_model() -> PostHocCBM:
    torch.manual_seed(0)
    return PostHocCBM(nn.Conv2d(3, 4, 3), ConceptBank(torch.randn(L, 4)), nn.Linear(L, K)).eval()


CASES: dict[str, tuple[Callable[[], Any], tuple[str, ...]]] = {
    "CEM": (lambda: CEM(top_l=2), ("concept_labels",)),
    "CEM, correct": (lambda: CEM(only_correct=True), ("concept_labels", "labels")),
    "CGIM": (lambda: CGIM(DATA["class_concepts"]), ("labels",)),
    "CGIM, classes": (lambda: CGIM(DATA["class_concepts"], per="class", importance="value"), ("labels",)),
    "CGIM, weights": (lambda: CGIM(DATA["class_concepts"], importance="weight"), ("labels",)),
    "CLM": (lambda: CLM(part_of_concept=PARTS), ("points",)),
    "added": (lambda: SubstitutionScore(), ("added",)),
    "removed": (lambda: SubstitutionScore(score="removed"), ("added", "removed")),
}


def updated(metric: Any, truth: tuple[str, ...], starts: range = range(0, N, BATCH), **more: Any) -> Any:
    for start in starts:
        rows = slice(start, start + BATCH)
        batch = {name: DATA[name][rows] for name in truth}
        metric.update(concept_model(), DATA["x"][rows], DATA["y"][rows], **batch, **more)
    return metric


def same_record(found: Any, expected: Any) -> None:
    np.testing.assert_array_equal(found.values, expected.values)
    assert found.reasons == expected.reasons
    assert found.chance == pytest.approx(expected.chance, nan_ok=True)
    assert (found.bounds, found.of_samples) == (expected.bounds, expected.of_samples)
    if expected.clusters is not None:
        np.testing.assert_array_equal(found.clusters, expected.clusters)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("case", CASES)
def test_batches_give_what_one_call_gives(case: str) -> None:
    make, truth = CASES[case]
    whole, metric = make(), updated(make(), truth)
    expected = whole(
        concept_model(), DATA["x"], DATA["y"], batch_size=BATCH, custom_batch={name: DATA[name] for name in truth}
    )
    assert not metric.records
    np.testing.assert_array_equal(metric.compute(), expected)
    same_record(metric.records[-1], whole.records[-1])
    assert metric.undefined == whole.undefined
    # Asked twice it is the same; after a reset the batches are gone.
    np.testing.assert_array_equal(metric.compute(), expected)
    metric.reset()
    with pytest.raises(ValueError, match=r"compute needs at least one batch\. Call `update` first"):
        metric.compute()
    np.testing.assert_array_equal(updated(metric, truth).compute(), expected)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("case", CASES)
def test_states_of_two_processes_join(case: str) -> None:
    make, truth = CASES[case]
    expected = updated(make(), truth).compute()
    first, second = updated(make(), truth, range(0, BATCH, BATCH)), updated(make(), truth, range(BATCH, N, BATCH))
    sent = pickle.loads(pickle.dumps(second))
    first.merge_state(sent)
    close = np.testing.assert_allclose if case.startswith("CGIM") else np.testing.assert_array_equal
    close(first.compute(), expected)
    # What was merged can go on, and the other one is left as it was.
    before = sent.compute()
    updated(first, truth, range(0, BATCH, BATCH))
    np.testing.assert_array_equal(sent.compute(), before)
    np.testing.assert_array_equal(before, second.compute())


def test_by_hand() -> None:
    metric = CEM(top_l=1)
    head = nn.Linear(2, 2)
    for importance, labels in (([[2.0, 1.0]], [[1, 0]]), ([[1.0, 3.0], [4.0, 1.0]], [[1, 0], [1, 1]])):
        values = np.zeros((len(labels), 2), np.float32)
        metric.update(head, values, np.zeros(len(labels), int), np.array(importance), concept_labels=np.array(labels))
    assert metric.compute() == [1, 0, 1]
    assert metric.records[-1].chance == pytest.approx((0.5 + 0.5 + 1) / 3)
    table = summarise({"Saliency": {"CEM": metric.compute()}}, {"CEM": metric})
    assert table.loc[0, "value"] == pytest.approx(2 / 3)


def test_classes_are_those_predicted_where_none_are_given() -> None:
    model = concept_model()
    predicted = model(torch.as_tensor(DATA["x"])).argmax(1).numpy()
    metric, labels = CEM(), DATA["concept_labels"]
    metric.update(model, DATA["x"], concept_labels=labels)
    assert metric.compute() == CEM(labels)(model, DATA["x"], predicted)


def test_gaps_are_warned_of_once_at_the_end() -> None:
    metric = updated(CEM(only_correct=True), ("concept_labels", "labels"))
    with pytest.warns(UserWarning, match=r"misclassified \(\d+ of 20 samples\)") as caught:
        metric.compute()
    assert len(caught) == 1


def test_what_does_not_fit_is_told() -> None:
    metric = CEM()
    with pytest.raises(TypeError, match=r"CEM\.update has no argument `labls`\. Give the truth of a batch as `concept"):
        metric.update(concept_model(), DATA["x"], DATA["y"], labls=DATA["labels"])
    with pytest.raises(ValueError, match="`y_batch` to hold classes, since there is no `model`"):
        SubstitutionScore().update(None, DATA["importance"], added=DATA["added"])
    with pytest.raises(TypeError, match="`other` to be a CEM but got CGIM"):
        metric.merge_state(CGIM(DATA["class_concepts"]))
    with pytest.raises(ValueError, match="settings of this CEM but `top_l` differs"):
        metric.merge_state(CEM(top_l=2))
    with pytest.raises(ValueError, match="settings of this CGIM but `class_concepts` differs"):
        CGIM(DATA["class_concepts"]).merge_state(CGIM(1 - DATA["class_concepts"]))
    with pytest.raises(ValueError, match="concept_labels"):
        metric.update(concept_model(), DATA["x"], DATA["y"], concept_labels=DATA["concept_labels"][:3])
    with pytest.raises(ValueError, match="at least one batch"):
        metric.compute()


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("case", CASES)
def test_a_batch_that_fails_leaves_those_before_it(case: str) -> None:
    make, truth = CASES[case]
    metric = updated(make(), truth)
    expected = metric.compute()

    def fails(*_: Any) -> None:
        raise ArithmeticError("no such number")

    model = concept_model()
    model.register_forward_hook(fails)
    model.features.register_forward_hook(fails)
    with pytest.raises(ArithmeticError):
        metric.update(model, DATA["x"], DATA["y"], **{name: DATA[name] for name in truth})
    np.testing.assert_array_equal(metric.compute(), expected)


def test_a_call_in_between_leaves_the_batches_alone() -> None:
    metric = updated(CEM(), ("concept_labels",))
    expected = metric.compute()
    metric(concept_model(), DATA["x"][:3], DATA["y"][:3], custom_batch={"concept_labels": DATA["concept_labels"][:3]})
    assert metric.compute() == expected
    assert len(expected) == N


def test_means_merge() -> None:
    values, classes = torch.tensor([[1.0], [2.0], [6.0]]), torch.tensor([0, 1, 1])
    first, second = ClassMeans(2, 1), ClassMeans(2, 1)
    first.update(values[:2], classes[:2])
    second.update(values[2:], classes[2:])
    first.merge(second)
    assert first.compute().tolist() == [[1], [4]]
    assert second.counts.tolist() == [0, 1]
    with pytest.raises(ValueError, match=r"`other` to have shape \(K, L\) = \(2, 1\)"):
        first.merge(ClassMeans(3, 1))
