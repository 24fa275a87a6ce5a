"""Metrics in several threads: on one model, and one metric in two of them."""

from __future__ import annotations

import copy
import pickle
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from captum.attr import LayerGradCam
from torch import nn

from pooling_encoder import PoolingEncoder
from quantus_concepts import (
    AVAILABLE_METRICS,
    CEM,
    CGIM,
    CLM,
    IDR,
    IIR,
    MCS,
    Faithfulness,
    PASTAScore,
    Patch,
    SubstitutionScore,
)
from quantus_concepts.pasta.scorer import Scorer
from tiny_models import N_CLASSES, N_CONCEPTS, SharingConceptModel, TinyConceptModel

N, SIZE, ROUNDS = 6, 12, 5
MASKS = np.zeros((N, 1, SIZE, SIZE))
MASKS[:, :, 3:9, 3:9] = 1


@pytest.fixture(autouse=True)
def _threads_take_turns_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


class World:
    """What one thread asks about: its own images and metrics; models are shared."""

    def __init__(self, seed: int, contrast: nn.Module) -> None:
        rng = np.random.default_rng(seed)
        self.images = rng.normal(size=(N, 3, SIZE, SIZE)).astype(np.float32)
        changed = np.where(MASKS == 1, 0.8 * self.images, self.images).astype(np.float32)
        labels, tables = rng.integers(0, 2, (N, N_CONCEPTS)), rng.uniform(size=(N_CLASSES, N_CONCEPTS))
        points = rng.uniform(0, SIZE - 1, (N, 3, 2))
        patch = Patch(self.images[0], pixel_range=(-6, 6), steps=2, tolerance=10)
        scorer = Scorer(PoolingEncoder.dim, labels=None, hidden=(8,))
        quiet = {"disable_warnings": True}
        # Not in a thread: a copy of the model would have the hooks that another thread has on it just then.
        contrast_labels = classes_of(contrast, self.images)
        self.metrics: dict[str, Callable[[], Any]] = {
            "CGIM": lambda: CGIM(tables, **quiet),
            "CEM": lambda: CEM(labels, top_l=2, **quiet),
            "CLM": lambda: CLM(alpha=3, points=points, part_of_concept=[0, 1, -1, 2, 0], top_l=2, **quiet),
            "MCS": lambda: MCS(contrast, contrast_labels, **quiet),
            "IDR": lambda: IDR(changed, **quiet),
            "IIR": lambda: IIR(patch=patch, **quiet),
            "Faithfulness": lambda: Faithfulness("black", thresholds=(10, 30), **quiet),
            "SubstitutionScore": lambda: SubstitutionScore(labels.argmax(1), threshold=0, **quiet),
            "PASTA-score": lambda: PASTAScore(scorer, PoolingEncoder(), denormalise=torch.sigmoid, **quiet),
        }


def classes_of(model: nn.Module, images: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        return copy.deepcopy(model).eval()(torch.as_tensor(images)).argmax(1).numpy()


def grad_cam(model: Any, inputs: Any, targets: Any, **kwargs: Any) -> np.ndarray:
    """Put hooks on the model, which fire in whatever thread runs it."""
    maps = LayerGradCam(model, model.features[0]).attribute(torch.as_tensor(inputs), torch.as_tensor(targets))
    return LayerGradCam.interpolate(maps, (SIZE, SIZE)).detach().numpy()


def scores_of(metric: Any, model: nn.Module, images: np.ndarray, classes: np.ndarray) -> np.ndarray:
    scores = metric(model, images, classes, s_batch=MASKS, explain_func=grad_cam, batch_size=2)
    return np.asarray(scores)


def in_threads(*work: Callable[[], np.ndarray]) -> list[list[np.ndarray]]:
    """Run each piece of work several times in a thread of its own, all at once; return what each gave."""
    found: list[list[np.ndarray]] = [[] for _ in work]
    errors: list[BaseException] = []
    start = threading.Barrier(len(work))

    def run(number: int) -> None:
        try:
            start.wait(60)
            for _ in range(ROUNDS):
                found[number].append(work[number]())
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(work))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    assert not any(thread.is_alive() for thread in threads)
    if errors:
        raise errors[0]
    return found


NAMES = [*AVAILABLE_METRICS["Concepts"]]


@pytest.mark.parametrize("name", NAMES)
def test_two_metrics_on_one_model_in_train_mode(name: str) -> None:
    models = nn.ModuleList([SharingConceptModel(), TinyConceptModel(seed=1)])
    model, contrast = models
    model.train()
    model.features[1].eval()
    contrast.head.train()
    flags, state = [part.training for part in models.modules()], copy.deepcopy(models.state_dict())
    worlds = [World(seed, contrast) for seed in (0, 1)]
    classes = [classes_of(model, world.images) for world in worlds]
    expected = [
        scores_of(world.metrics[name](), model, world.images, own) for world, own in zip(worlds, classes, strict=True)
    ]
    assert all(np.isfinite(scores).any() for scores in expected)
    found = in_threads(
        *(
            lambda world=world, own=own: scores_of(world.metrics[name](), model, world.images, own)  # type: ignore[misc]
            for world, own in zip(worlds, classes, strict=True)
        )
    )
    for mine, alone in zip(found, expected, strict=True):
        for scores in mine:
            np.testing.assert_array_equal(scores, alone)
    assert flags == [part.training for part in models.modules()]
    assert all(torch.equal(value, state[key]) for key, value in models.state_dict().items())
    assert not any(part._forward_hooks for part in contrast.modules())


def test_one_metric_in_two_threads() -> None:
    model = SharingConceptModel().train()
    worlds = [World(seed, TinyConceptModel()) for seed in (0, 1)]
    classes = [classes_of(model, world.images) for world in worlds]
    metric = CEM(top_l=2)
    labels = np.random.default_rng(0).integers(0, 2, (2, N, N_CONCEPTS))

    def scored(number: int) -> np.ndarray:
        images, own = worlds[number].images, classes[number]
        return np.asarray(metric(model, images, own, custom_batch={"concept_labels": labels[number]}, batch_size=2))

    expected = [scored(0), scored(1)]
    assert (expected[0] != expected[1]).any()
    for mine, alone in zip(in_threads(lambda: scored(0), lambda: scored(1)), expected, strict=True):
        for scores in mine:
            np.testing.assert_array_equal(scores, alone)
    assert len(metric.records) == 2 + 2 * ROUNDS


def test_a_metric_with_its_lock_can_be_copied_and_pickled() -> None:
    metric = CEM(np.eye(N_CONCEPTS))
    for again in (copy.deepcopy(metric), copy.copy(metric), pickle.loads(pickle.dumps(metric))):
        assert again(None, np.eye(N_CONCEPTS), np.zeros(N_CONCEPTS, int), np.eye(N_CONCEPTS)) == [1] * N_CONCEPTS
