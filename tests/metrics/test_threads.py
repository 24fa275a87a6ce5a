"""Metrics in several threads: on one model, and one metric in two of them."""

from __future__ import annotations

import copy
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from captum.attr import InputXGradient, LayerGradCam
from torch import nn

from captum_concepts import explain_func
from metric_inputs import MASKS, SIZE, N, explained_inputs, metric_arguments, metric_makers, variant_makers
from quantus_concepts import AVAILABLE_METRICS, CEM
from tiny_models import N_CONCEPTS, SharingConceptModel, TinyConceptModel

ROUNDS = 5


@pytest.fixture(autouse=True)
def _threads_take_turns_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


class World:
    """The images and metrics of one thread; models are shared."""

    def __init__(self, seed: int, contrast: nn.Module) -> None:
        rng = np.random.default_rng(seed)
        self.images = rng.normal(size=(N, 3, SIZE, SIZE)).astype(np.float32)
        # Not in a thread: a copy of the model would have the hooks that another thread has on it just then.
        contrasted = {"contrast_model": contrast, "contrast_labels": classes_of(contrast, self.images)}
        arguments = metric_arguments(self.images, rng) | contrasted
        # It makes its patch by gradients.
        self.metrics = metric_makers(arguments) | {"IIR": variant_makers(self.images)["IIR with patches"]}


def classes_of(model: nn.Module, images: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        return copy.deepcopy(model).eval()(torch.as_tensor(images)).argmax(1).numpy()


def grad_cam(model: Any, inputs: Any, targets: Any, **kwargs: Any) -> np.ndarray:
    """Put hooks on the model, which fire in every thread that runs it; a head has no maps."""
    if np.ndim(inputs) == 2:
        return explain_func(InputXGradient)(model, inputs, targets)
    maps = LayerGradCam(model, model.features[0]).attribute(torch.as_tensor(inputs), torch.as_tensor(targets))
    return LayerGradCam.interpolate(maps, (SIZE, SIZE)).detach().numpy()


def scores_of(metric: Any, model: nn.Module, images: np.ndarray, classes: np.ndarray) -> np.ndarray:
    scores = metric(model, images, classes, s_batch=MASKS, explain_func=grad_cam, batch_size=2)
    return np.asarray(scores)


def in_threads(*work: Callable[[], np.ndarray]) -> list[list[np.ndarray]]:
    """Run each piece of work several times in its own thread, all concurrently; return their results."""
    results: list[list[np.ndarray]] = [[] for _ in work]
    errors: list[BaseException] = []
    start = threading.Barrier(len(work))

    def run(number: int) -> None:
        try:
            start.wait(60)
            for _ in range(ROUNDS):
                results[number].append(work[number]())
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
    return results


@pytest.mark.parametrize("metric", AVAILABLE_METRICS["Concepts"].values())
def test_two_metrics_on_one_model_in_train_mode(metric: type) -> None:
    models = nn.ModuleList([SharingConceptModel(), TinyConceptModel(seed=1)])
    model, contrast = models
    model.train()
    model.features[1].eval()
    contrast.head.train()
    flags, state = [part.training for part in models.modules()], copy.deepcopy(models.state_dict())
    worlds = [World(seed, contrast) for seed in (0, 1)]
    classes = [classes_of(model, world.images) for world in worlds]
    calls = [explained_inputs(metric, model, world.images) for world in worlds]

    def scored(number: int) -> np.ndarray:
        own_metric = worlds[number].metrics[metric.__name__](disable_warnings=True)
        return scores_of(own_metric, *calls[number], classes[number])

    expected = [scored(0), scored(1)]
    assert all(np.isfinite(scores).any() for scores in expected)
    for mine, alone in zip(in_threads(lambda: scored(0), lambda: scored(1)), expected, strict=True):
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
        images, truth = worlds[number].images, {"concept_labels": labels[number]}
        return np.asarray(metric(model, images, classes[number], custom_batch=truth, batch_size=2))

    expected = [scored(0), scored(1)]
    assert (expected[0] != expected[1]).any()
    for mine, alone in zip(in_threads(lambda: scored(0), lambda: scored(1)), expected, strict=True):
        for scores in mine:
            np.testing.assert_array_equal(scores, alone)
    assert len(metric.records) == 2 + 2 * ROUNDS
