"""How long 10,000 images take, worked out from the processor's seconds of a few: one thread, ResNet-18 of 224 px.

    python speed/ten_thousand.py
    SPEED_DEVICE=cuda python speed/ten_thousand.py    # models on a GPU; seconds are those of the clock

Processor seconds of one thread are those of an idle machine, whatever else runs. Every number is the least of three
calls, taken in turn with what is needed at least, to which the ratio is. Networks have random weights.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import quantus
import torch
import torchvision
from captum.attr import Saliency
from open_clip.transformer import VisionTransformer
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook

import quantus_concepts
from captum_concepts import ConceptBank, PostHocCBM, explain_func, from_torchvision
from quantus_concepts import CEM, CGIM, CLM, IDR, IIR, MCS, PASTAScore, score_concepts, shared_passes
from quantus_concepts.datasets import ConceptSample, ObjectsOnScenes, PaintedObjects, PaintedScenes
from quantus_concepts.datasets.ratings.explanations import QUESTIONS
from quantus_concepts.pasta import Embedder, Scorer
from quantus_concepts.pasta.encoders.open_clip_encoder import OpenClipEncoder
from quantus_concepts.pasta.labels import RELEASED_LABELS

DEVICE = torch.device(os.environ.get("SPEED_DEVICE", "cpu"))
# The paper's benchmark: 112 concepts, 89 of them about one of 12 parts, 200 classes.
N_CONCEPTS, N_LOCALISABLE, N_PARTS, N_CLASSES = 112, 89, 12, 200
SIZE, PASTA_SIZE, N_OBJECTS = 224, 256, 10
PARTS = torch.cat([torch.arange(N_LOCALISABLE) % N_PARTS, torch.full((N_CONCEPTS - N_LOCALISABLE,), -1)])
N_IMAGES, N_TIMES, N_MAPS, N_EXPLAINED, REPEATS = 32, 4, 16, 8, 3
TOTAL = 10_000


def seconds_of(calls: Mapping[str, Callable[[], object]], repeats: int = REPEATS) -> dict[str, list[float]]:
    """Return the seconds of each call, one for each repeat; every second repeat takes them in reverse order."""
    on_gpu = DEVICE.type != "cpu"
    clock = time.perf_counter if on_gpu else time.process_time
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for repeat in range(repeats + 1):
        for name in list(calls)[:: -1 if repeat % 2 else 1]:
            start = clock()
            calls[name]()
            if on_gpu:
                torch.accelerator.synchronize(DEVICE)
            # The first calls build what later ones have.
            seconds[name] += [clock() - start] if repeat else []
    return seconds


def machine() -> str:
    """Name the processor, the GPU and the versions."""
    info = Path("/proc/cpuinfo")
    names = re.findall(r"model name\s*: (.*)", info.read_text()) if info.exists() else ["unknown processor"]
    gpu = f"; one {torch.cuda.get_device_name(DEVICE)}" if DEVICE.type == "cuda" else ""
    return f"{len(names)} cores, {names[0]}{gpu}; torch {torch.__version__}; one thread"


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def resnet_cbm() -> PostHocCBM:
    """Build the paper's shape of model: ResNet-18, 112 concepts, 200 classes."""
    backbone = from_torchvision(torchvision.models.resnet18(weights=None).eval())
    bank = ConceptBank(torch.randn(N_CONCEPTS, 512, generator=generator()))
    model = PostHocCBM(backbone, bank, nn.Linear(N_CONCEPTS, N_CLASSES)).eval()
    model.absent_values = torch.zeros(N_CONCEPTS)
    return model.to(DEVICE)


def resnet18(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return torchvision.models.resnet18(weights=None, num_classes=N_OBJECTS).eval().to(DEVICE)


def batches(n: int, size: int = SIZE, batch_size: int = 32) -> Iterator[ConceptSample]:
    """Yield random images, made batch by batch, with annotations; three in ten parts are not visible."""
    random = generator()
    for start in range(0, n, batch_size):
        count = min(batch_size, n - start)
        labels = torch.randint(N_CLASSES, (count,), generator=random)
        concepts = (torch.rand(count, N_CONCEPTS, generator=random) < 0.2).float()
        points = torch.rand(count, N_PARTS, 2, 2, generator=random) * size
        points[torch.rand(count, N_PARTS, 2, generator=random) < 0.3] = torch.nan
        yield ConceptSample(torch.rand(count, 3, size, size, generator=random), labels, concepts, points)


def painted_images(n: int, size: int) -> tuple[np.ndarray, ...]:
    """Return painted objects on painted scenes, the same scenes without them, and masks."""
    per_pair = -(-n // N_OBJECTS**2)
    data = ObjectsOnScenes(PaintedObjects(20), PaintedScenes(20), n_per_pair=per_pair, image_size=size, seed=0)
    views = [view.images(range(n)).numpy() / np.float32(255) for view in (data, data.with_view("0s"))]
    return *views, data.masks(range(n)).numpy()


@torch.no_grad()
def predict(model: nn.Module, images: np.ndarray) -> Tensor:
    """Return logits on the device of the model."""
    return model(torch.as_tensor(images).to(DEVICE))


def show(what: str, n: int, seconds: float, needed: str, floor: float, most: float) -> None:
    per_image, ratio = seconds / n, seconds / floor
    met = "yes" if ratio <= most else "no"
    took = f"{per_image * 1e3:.1f} ms | {per_image * TOTAL / 60:.0f} min"
    print(f"| {what} | {took} | {needed} | {ratio:.3f} | {most} | {met} |", flush=True)


def measure_concepts() -> None:
    """CGIM, CEM and CLM, and every variant of them."""
    model, sample = resnet_cbm(), next(batches(N_IMAGES, batch_size=N_IMAGES))
    images, table = sample.image.numpy(), torch.rand(N_CLASSES, N_CONCEPTS, generator=generator())
    metrics = {
        "CGIM": CGIM(table.numpy()),
        "CEM": CEM(sample.concepts.numpy()),
        "CLM": CLM(points=sample.points.numpy(), part_of_concept=PARTS.numpy()),
    }
    settings: dict[str, Any] = {
        "model": model,
        "x_batch": images,
        "y_batch": predict(model, images).argmax(1).cpu().numpy(),
        "call_kwargs": {"call": {"channel_first": True, "batch_size": 32}},
    }
    maps = {f"method {number}": np.ones((N_IMAGES, 1, SIZE, SIZE), np.float32) for number in range(8)}
    one = dict(list(maps.items())[:1])
    stock = partial(quantus.evaluate, explain_func_kwargs={}, **settings)

    def stock_in_block() -> None:
        with shared_passes():
            stock(metrics=metrics, xai_methods=maps)

    @torch.no_grad()
    def needed() -> None:
        model.features(sample.image.to(DEVICE))

    evaluate = partial(quantus_concepts.evaluate, metrics=metrics, verbose=False, **settings)
    calls: dict[str, Callable[[], object]] = {"needed": needed}
    calls["`evaluate`: CGIM, CEM and CLM, 1 method"] = partial(evaluate, xai_methods=one)
    calls["`evaluate`: CGIM, CEM and CLM, 8 methods"] = partial(evaluate, xai_methods=maps)
    calls["`quantus.evaluate` in `shared_passes`: the same, 8 methods"] = stock_in_block
    calls |= {f"{name} alone": partial(stock, metrics={name: each}, xai_methods=one) for name, each in metrics.items()}
    # Of more images, since the table at the end takes as long for any number of them.
    every = list(batches(N_IMAGES)) * N_TIMES
    truth = {"class_concepts": table, "truth": {"part_of_concept": PARTS}}
    calls["`score_concepts`: every variant, with baselines"] = partial(score_concepts, model, every, **truth)
    seconds = {name: min(times) for name, times in seconds_of(calls).items()}
    floor = seconds.pop("needed")
    for name, least in seconds.items():
        times = N_TIMES if name.startswith("`score_concepts`") else 1
        most = 1.1 if "evaluate" in name or times > 1 else 1.05
        show(name, times * N_IMAGES, least, "one pass of the backbone", times * floor, most)


def measure_contrasts() -> None:
    """The metrics that explain again, by the gradient."""
    with_object, bare, masks = painted_images(N_EXPLAINED, SIZE)
    model, other, explain = resnet18(), resnet18(1), explain_func(Saliency)
    classes = [predict(network, with_object).argmax(1).cpu().numpy() for network in (model, other)]

    def needed() -> None:
        for values in (with_object, bare):
            explain(model, values, classes[0])
            predict(model, values)

    metrics = {"MCS": MCS(other, classes[1]), "IDR": IDR(bare), "IIR": IIR(patched=bare)}
    call = {"s_batch": masks, "explain_func": explain}
    calls = {name: partial(metric, model, with_object, classes[0], **call) for name, metric in metrics.items()}
    seconds = {name: min(times) for name, times in seconds_of({"needed": needed} | calls).items()}
    floor = seconds.pop("needed")
    for name, least in seconds.items():
        show(f"{name}, vanilla gradient", N_EXPLAINED, least, "two explanations, two predictions", floor, 1.15)


def measure_pasta() -> None:
    """The PASTA-score of maps."""
    random = generator()
    images, maps = (
        torch.rand(N_MAPS, channels, PASTA_SIZE, PASTA_SIZE, generator=random).numpy() for channels in (3, 1)
    )
    encoder, labels = OpenClipEncoder("ViT-B-32", None, seed=0, device=DEVICE), np.arange(N_MAPS) % len(RELEASED_LABELS)
    scorer = Scorer(encoder.dim, tuple(QUESTIONS), RELEASED_LABELS, seed=0).to(DEVICE)
    metric = PASTAScore(scorer, Embedder(encoder), labels=labels)

    def score() -> None:
        metric(None, images, np.zeros(N_MAPS, dtype=int), a_batch=maps)

    passes: list[tuple[nn.Module, Tensor]] = []

    def note(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        if isinstance(module, VisionTransformer):
            passes.append((module, inputs[0].clone()))

    hook = register_module_forward_pre_hook(note)
    score()
    hook.remove()

    @torch.no_grad()
    def needed() -> None:
        for module, inputs in passes:
            module(inputs)

    seconds = {name: min(times) for name, times in seconds_of({"needed": needed, "score": score}).items()}
    show("PASTA-score, ViT-B-32", N_MAPS, seconds["score"], "one pass of the encoder", seconds["needed"], 1.05)


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(f"{machine()}\n")
    print("| what | an image | 10,000 images | needed | times what is needed | at most | met |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for measure in (measure_concepts, measure_contrasts, measure_pasta):
        measure()
