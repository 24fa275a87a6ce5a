"""What the metrics of one evaluation share: how often the model runs, and that no score is another."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import quantus
import torch
from torch import nn

from quantus_concepts import CEM, CGIM, CLM
from quantus_concepts.metrics.sharing import SHARED, SharedResults, Turn, size_of
from tiny_models import N_CLASSES, N_CONCEPTS, SharingConceptModel, TinyConceptModel

N, SIZE, BATCH = 12, 12, 4


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    SHARED.__init__()  # type: ignore[misc]
    yield
    SHARED.__init__()  # type: ignore[misc]


@pytest.fixture
def images() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(N, 3, SIZE, SIZE)).astype(np.float32)


@pytest.fixture
def model() -> SharingConceptModel:
    return SharingConceptModel()


def metrics(**kwargs: Any) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    parts = np.array([0, 1, -1, 2, 0])
    return {
        "CGIM": CGIM(rng.uniform(size=(N_CLASSES, N_CONCEPTS)), **kwargs),
        "CEM": CEM(rng.integers(0, 2, (N, N_CONCEPTS)), top_l=2, **kwargs),
        "CLM": CLM(points=rng.uniform(0, SIZE, (N, 3, 2)), part_of_concept=parts, top_l=2, **kwargs),
    }


def classes_of(model: nn.Module, images: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        return model(torch.as_tensor(images)).argmax(1).numpy()


def evaluated(model: nn.Module, images: np.ndarray, measured: dict[str, Any], n_methods: int) -> Any:
    methods = {f"method {number}": np.ones((N, 1, SIZE, SIZE), np.float32) for number in range(n_methods)}
    return quantus.evaluate(
        metrics=measured,
        xai_methods=methods,
        model=model,
        x_batch=images,
        y_batch=classes_of(model, images),
        agg_func=list,
        explain_func_kwargs={},
        call_kwargs={"call": {"batch_size": BATCH}},
    )


@pytest.mark.parametrize("n_methods", [1, 3])
@pytest.mark.parametrize("names", [("CEM",), ("CLM", "CGIM"), ("CGIM", "CEM", "CLM")])
def test_the_backbone_sees_each_image_once(
    names: tuple[str, ...], n_methods: int, model: SharingConceptModel, images: np.ndarray
) -> None:
    alone = evaluated(model, images, {name: metrics(shared_memory=0)[name] for name in names}, n_methods)
    before = model.runs
    shared = evaluated(model, images, {name: metrics()[name] for name in names}, n_methods)
    assert model.runs - before == N // BATCH + 1  # the classes are one more
    np.testing.assert_equal(shared, alone)


def test_without_memory_to_share_each_call_runs_the_backbone(model: SharingConceptModel, images: np.ndarray) -> None:
    evaluated(model, images, metrics(shared_memory=0), 2)
    assert model.runs == 3 * 2 * (N // BATCH) + 1
    assert SHARED.size == 0


CHANGES: dict[str, Callable[[SharingConceptModel, np.ndarray], object]] = {
    "a weight in place": lambda m, x: m.features[0].weight.data[0].mul_(-3),
    "a buffer by .data": lambda m, x: m.features[1].running_mean.data.add_(1),
    "the directions": lambda m, x: m.concept_predictor.cavs.mul_(-1),
    "the head": lambda m, x: m.head[0].weight.data.neg_(),
    "the images": lambda m, x: x.__setitem__((slice(None), 0), 0.0),
    "another layer": lambda m, x: m.features.__setitem__(2, nn.Tanh()),
    "the precision of weights": lambda m, x: m.double(),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_what_was_changed_in_place_is_seen(
    change: Callable[[SharingConceptModel, np.ndarray], object], model: SharingConceptModel, images: np.ndarray
) -> None:
    y = classes_of(model, images)
    shared, alone = metrics(), metrics(shared_memory=0)
    before = {name: metric(model, images, y) for name, metric in shared.items()}
    change(model, images)
    after = {name: metric(model, images, y) for name, metric in shared.items()}
    np.testing.assert_equal(after, {name: metric(model, images, y) for name, metric in alone.items()})
    assert (
        any(before[name] != after[name] for name in ("CGIM", "CEM", "CLM"))
        or change is CHANGES["the precision of weights"]
    )


def test_one_metric_with_other_settings_is_scored_anew(model: SharingConceptModel, images: np.ndarray) -> None:
    y = classes_of(model, images)
    points, parts = np.random.default_rng(2).uniform(0, SIZE, (N, 3, 2)), np.array([0, 1, -1, 2, 0])

    def scored(**settings: Any) -> list[float]:
        given = {"points": points, "part_of_concept": parts, "alpha": 3.0, "top_l": 2} | settings
        return CLM(**given)(model, images, y)

    first = scored()
    moved = points.copy()
    moved[:] = SIZE / 2
    others = [
        scored(alpha=6.0),
        scored(top_l=3),
        scored(points=moved),
        scored(importance="value"),
        scored(threshold=0.0),
    ]
    assert all(other != first for other in others)
    assert scored() == first
    before = model.runs
    assert CLM(3.0, points=points, part_of_concept=parts, top_l=2)(model, images, (y + 1) % N_CLASSES) != first
    assert model.runs == before


def test_what_is_kept_is_bounded_and_goes_with_the_model(images: np.ndarray) -> None:
    model = SharingConceptModel()
    y = classes_of(model, images)
    features = 4 * 6 * (SIZE // 3) ** 2 * BATCH  # bytes of the features of one batch
    kept = metrics(shared_memory=2.9 * features / 2**20)
    metric = kept["CEM"]
    metric(model, images, y, batch_size=BATCH)
    assert features <= SHARED.size <= 2.9 * features
    first = model.runs
    # Features of the first two batches were kept, not dropped for those of the third; values of all.
    kept["CGIM"](model, images, y, batch_size=BATCH)
    assert model.runs == first
    kept["CLM"](model, images, y, batch_size=BATCH)
    assert model.runs == first + 1
    # Another model's results take the place of those that no call uses.
    other = SharingConceptModel(seed=3)
    metric(other, images, y, batch_size=BATCH)
    assert features <= SHARED.size <= 2.9 * features
    gone = weakref.ref(other)
    del other
    gc.collect()
    assert gone() is None
    del model
    gc.collect()
    assert SHARED.size == 0


def test_threads_may_share_a_model(model: SharingConceptModel, images: np.ndarray) -> None:
    y = classes_of(model, images)
    expected = {name: metric(model, images, y) for name, metric in metrics(shared_memory=0).items()}
    found: list[dict[str, list[float]]] = []

    def score() -> None:
        found.append({name: metric(model, images, y) for name, metric in metrics().items()})

    threads = [threading.Thread(target=score) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    for each in found:
        np.testing.assert_equal(each, expected)


def test_a_model_that_counts_its_passes_is_the_same_model(images: np.ndarray) -> None:
    class Counting(TinyConceptModel):
        seen = 0

        def concept_maps(self, images: torch.Tensor, concepts: torch.Tensor | None = None) -> torch.Tensor:
            self.seen += 1
            return super().concept_maps(images, concepts)

    model = Counting()
    y = classes_of(model, images)
    metric = metrics()["CLM"]
    first = metric(model, images, y)
    assert model.seen == 1
    assert metric(model, images, y) == first
    assert model.seen == 1


def test_autocast_and_threads_make_other_results(model: SharingConceptModel, images: np.ndarray) -> None:
    y = classes_of(model, images)
    metric = metrics()["CEM"]
    metric(model, images, y)
    before = model.runs
    with torch.autocast("cpu", torch.bfloat16):
        metric(model, images, y)
    assert model.runs == before + 1


def test_a_broken_image_is_told_in_every_call(model: SharingConceptModel, images: np.ndarray) -> None:
    y = classes_of(model, images)
    metric = metrics()["CEM"]
    metric(model, images, y)
    images[3, 0, 0, 0] = np.nan
    for _ in range(2):
        with pytest.raises(ValueError, match=r"x_batch.*finite"):
            metric(model, images, y)


@pytest.mark.parametrize(
    ("result", "size"),
    [
        (torch.zeros(3, 4), 48),
        (torch.zeros(10, 4)[:2], 160),
        (np.zeros(5, np.float32)[:1], 20),
        ((torch.zeros(2), {"a": np.zeros(1)}, None, 1.0), 16),
        (object(), None),
        ([torch.zeros(2), "text", object()], None),
    ],
)
def test_the_size_of_a_result_is_what_it_keeps_in_memory(result: Any, size: int | None) -> None:
    assert size_of(result) == size


def test_what_nobody_knows_the_size_of_is_made_again() -> None:
    shared, model, made = SharedResults(), nn.Linear(1, 1), []

    def make() -> object:
        made.append(object())
        return made[-1]

    assert shared.recall("what", model, [], make, Turn(), 100) is made[0]
    assert shared.recall("what", model, [], make, Turn(), 100) is made[1]


@pytest.mark.parametrize("value", [-1, float("nan"), float("inf"), "much", None])
def test_the_bound_is_a_finite_number_of_megabytes(value: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="shared_memory"):
        CEM(np.ones((2, 3)), shared_memory=value)
