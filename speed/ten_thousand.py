"""How long 10,000 images take, worked out from the processor's seconds of a few: one thread, ResNet-18 of 224 px.

    python speed/ten_thousand.py

Of one thread these are the seconds of an idle machine, whatever else runs. Every number is the least of three calls,
taken in turn with the model's own pass, to which the ratio is. Networks have random weights.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import measuring
import numpy as np
import torch
from attribution import painted_images, resnet18
from captum.attr import Saliency
from concepts import N_CLASSES, N_CONCEPTS, SIZE, Timed, batches, generator, parts_of_concepts, resnet_cbm
from torch import Tensor

import quantus_concepts
from captum_concepts import explain_func
from pasta import IMAGE_SIZE, encoder_of, explained, record_inputs, replay, scorer_for
from quantus_concepts import IDR, IIR, MCS, PASTAScore, score_concepts
from quantus_concepts.pasta import Embedder

N_IMAGES, N_TIMES, N_MAPS, N_EXPLAINED, REPEATS = 32, 4, 16, 8, 3
TOTAL = 10_000


def least(calls: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Return the least processor's seconds of each call."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for repeat in range(REPEATS + 1):
        for name, call in calls.items():
            start = time.process_time()
            call()
            # The first calls build what later ones have.
            seconds[name] += [time.process_time() - start] if repeat else []
    return {name: min(times) for name, times in seconds.items()}


def show(what: str, n: int, seconds: float, needed: str, floor: float) -> None:
    per_image = seconds / n
    print(
        f"| {what} | {per_image * 1e3:.1f} ms | {per_image * TOTAL / 60:.0f} min | {needed} | {seconds / floor:.3f} |",
        flush=True,
    )


def concepts() -> None:
    """CGIM, CEM and CLM, and every variant of them."""
    timed, loader = Timed(N_IMAGES), list(batches(N_IMAGES, SIZE))
    truth = torch.rand(N_CLASSES, N_CONCEPTS, generator=generator())
    maps = {f"method {number}": np.ones((N_IMAGES, 1, SIZE, SIZE), np.float32) for number in range(8)}
    evaluate = partial(
        quantus_concepts.evaluate,
        metrics=timed.metrics(3),
        model=timed.model,
        x_batch=timed.images,
        y_batch=timed.classes,
        call_kwargs={"call": {"channel_first": True, "batch_size": 32}},
        verbose=False,
    )
    calls: dict[str, Callable[[], object]] = {"pass": timed.forward}
    for n_methods in (1, 8):
        methods = dict(list(maps.items())[:n_methods])
        calls[f"`evaluate`: CGIM, CEM and CLM, {n_methods} methods"] = partial(evaluate, xai_methods=methods)
    calls |= {f"{name} alone": partial(timed.evaluate, {name: metric}, 1) for name, metric in timed.metrics(3).items()}
    every = partial(score_concepts, resnet_cbm(), part_of_concept=parts_of_concepts(), class_concepts=truth)
    # Of more images, since the table at the end takes as long for any number of them.
    calls["`score_concepts`: every variant, with baselines"] = partial(every, loader * N_TIMES)
    seconds = least(calls)
    floor = seconds.pop("pass")
    for name, call_seconds in seconds.items():
        times = N_TIMES if name.startswith("`score_concepts`") else 1
        show(name, times * N_IMAGES, call_seconds, "one pass of the backbone", times * floor)


def contrast() -> None:
    """The metrics that explain again, by the gradient."""
    images, model, other, explain = painted_images(N_EXPLAINED, SIZE), resnet18(), resnet18(1), explain_func(Saliency)
    with_object, bare, masks = (arrays[:N_EXPLAINED] for arrays in images)
    classes = [network(torch.as_tensor(with_object)).argmax(1).numpy() for network in (model, other)]

    def score(metric: object) -> None:
        metric(model, with_object, classes[0], s_batch=masks, explain_func=explain)

    @torch.no_grad()
    def predict(network: torch.nn.Module, values: np.ndarray) -> Tensor:
        return network(torch.as_tensor(values))

    def needed() -> None:
        for values in (with_object, bare):
            explain(model, values, classes[0])
            predict(model, values)

    metrics = {"MCS": MCS(other, classes[1]), "IDR": IDR(bare), "IIR": IIR(patched=bare)}
    seconds = least({"needed": needed} | {name: partial(score, metric) for name, metric in metrics.items()})
    floor = seconds.pop("needed")
    for name, metric_seconds in seconds.items():
        show(f"{name}, vanilla gradient", N_EXPLAINED, metric_seconds, "two explanations, two predictions", floor)


def pasta() -> None:
    """The PASTA-score of maps."""
    encoder = encoder_of("ViT-B-32")
    values = explained(N_MAPS, IMAGE_SIZE)
    metric = PASTAScore(scorer_for(encoder), Embedder(encoder), labels=values.labels)

    def score() -> None:
        metric(None, values.images, np.zeros_like(values.labels), a_batch=values.maps)

    encoder.encode_images(torch.zeros(1, 3, IMAGE_SIZE, IMAGE_SIZE))
    model = encoder._model(torch.device("cpu")).model
    seconds = least({"pass": partial(replay, model.encode_image, record_inputs(model.visual, score)), "score": score})
    show("PASTA-score, ViT-B-32", N_MAPS, seconds["score"], "one pass of the encoder", seconds["pass"])


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(f"{measuring.processor()}; torch {torch.__version__}, one thread\n")
    print("| what | an image | 10,000 images | needed | times what is needed |\n| --- | --- | --- | --- | --- |")
    for measure in (concepts, contrast, pasta):
        measure()
