"""Whether scoring keeps more of many images than their scores, and what one large batch takes beside the model's pass.

    python speed/memory.py    # both tables; some minutes, Linux only

Each call runs in a process of its own, one thread; of the peak of a stream what was there before the
call is subtracted.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import torch
from ten_thousand import generator, machine
from torch import Tensor, nn

from captum_concepts import ConceptBank, PostHocCBM
from captum_concepts.models.random_banks import RandomBank
from quantus_concepts import (
    CEM,
    CGIM,
    CLM,
    ConceptAUC,
    Subject,
    score_concepts,
    score_contrasts,
    score_explanations,
    score_substitutions,
)
from quantus_concepts.painted.networks import SmallResNet
from quantus_concepts.pasta import EmbeddedEncoder, Embedder, Scorer

FEW, MANY, SIDE, BATCH = 640, 5_120, 64, 64
N_CLASSES, N_CONCEPTS, N_PARTS = 8, 16, 4
#: Of what is kept for each image, in bytes, also with random banks, and of many concepts twice, while batches are
#: joined; and blocks that are not given back, in MiB.
ROW, ROW_OF_BANKS, BLOCKS = 1024, 4096, 4
N_BANKS, MANY_CLASSES, MANY_CONCEPTS = 39, 1000, 5000
ROW_OF_MANY = ROW + 2 * 5 * MANY_CONCEPTS


class Images:
    """Batches of random images that are gone through again and again, made when they are asked for."""

    def __init__(self, n: int, *more: Callable[[Tensor], Tensor]) -> None:
        self.n, self.more = n, more

    def __len__(self) -> int:
        return self.n // BATCH

    def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
        for start in range(0, self.n, BATCH):
            rows = torch.arange(start, start + BATCH)
            images = torch.rand(BATCH, 3, SIDE, SIDE, generator=generator())
            yield images, *(make(rows) for make in self.more)


def labels(rows: Tensor) -> Tensor:
    return rows % N_CLASSES


def small_model(n_classes: int = N_CLASSES, n_concepts: int = N_CONCEPTS, n_banks: int = 0) -> PostHocCBM:
    random = generator()

    def directions() -> Tensor:
        return nn.functional.normalize(torch.randn(n_concepts, 32, generator=random))

    network, bank = SmallResNet(n_classes, channels=32), ConceptBank(directions())
    model = PostHocCBM(network.features, bank, nn.Linear(n_concepts, n_classes)).eval()
    model.absent_values = zeros = torch.zeros(n_concepts)
    banks = [RandomBank(directions(), zeros, nn.Linear(n_concepts, n_classes), zeros) for _ in range(n_banks)]
    model.random_banks = tuple(banks)
    return model


def gradient(model: nn.Module, inputs: np.ndarray, targets: np.ndarray) -> np.ndarray:
    images = torch.as_tensor(inputs).requires_grad_()
    model(images).gather(1, torch.as_tensor(targets)[:, None]).sum().backward()
    return images.grad.numpy()


def stream_concepts(n: int) -> Callable[[], object]:
    points = torch.rand(BATCH, N_PARTS, 2, generator=generator()) * (SIDE - 1)
    loader = Images(n, labels, lambda rows: rows[:, None] // 2 ** torch.arange(N_CONCEPTS) % 2, lambda _: points)
    truth = {"part_of_concept": torch.arange(N_CONCEPTS) % N_PARTS}
    return partial(score_concepts, small_model(), loader, truth=truth)


def present(rows: Tensor, n_concepts: int = N_CONCEPTS) -> Tensor:
    return (rows[:, None] + torch.arange(n_concepts)) % 5 < 1


def stream_banks(n: int) -> Callable[[], object]:
    table = torch.rand(N_CLASSES, N_CONCEPTS, generator=generator())
    return partial(score_concepts, small_model(n_banks=N_BANKS), Images(n, labels, present), class_concepts=table)


def stream_many_concepts(n: int) -> Callable[[], object]:
    model = small_model(MANY_CLASSES, MANY_CONCEPTS)
    loader = Images(n, lambda rows: rows % MANY_CLASSES, partial(present, n_concepts=MANY_CONCEPTS))
    table = torch.rand(MANY_CLASSES, MANY_CONCEPTS, generator=generator())
    return partial(score_concepts, model, loader, [CEM(top_l=3), CEM(gain=True), CGIM(table), ConceptAUC()])


def stream_explanations(n: int) -> Callable[[], object]:
    embedder = Embedder(EmbeddedEncoder(), size=SIDE, batch_size=BATCH)
    scorer = Scorer(embedder.dim, ("Q1", "Q2"), [f"class {number}" for number in range(N_CLASSES)], seed=0)
    maps = torch.rand(BATCH, SIDE, SIDE, generator=generator())
    return partial(score_explanations, scorer, embedder, Images(n, lambda _: maps, labels))


def stream_substitutions(n: int) -> Callable[[], object]:
    added = np.arange(n) % N_CONCEPTS
    return partial(score_substitutions, small_model(), Images(n, labels), added=added, removed=(added + 1) % N_CONCEPTS)


def stream_contrasts(n: int) -> Callable[[], object]:
    classes = labels(torch.arange(n))
    pair = tuple(Subject(SmallResNet(N_CLASSES, 32, seed=seed), Images(n), classes) for seed in range(2))

    def masks(rows: list[int]) -> Tensor:
        region = torch.zeros(len(rows), 1, SIDE, SIDE, dtype=torch.bool)
        region[..., 16:40, 20:44] = True
        return region

    return partial(score_contrasts, {"gradient": gradient}, masks, mcs=pair, per_image=True)


def large_batch(what: str, n: int) -> Callable[[], object]:
    """Return a call over one batch of n images of 384 px and 1,000 concepts."""
    size, n_concepts, n_classes, n_parts = 384, 1000, 200, 12
    random = generator()
    # Its maps are those of a ResNet-18, which would itself take most of the memory.
    backbone, bank = nn.Conv2d(3, 512, 32, stride=32), ConceptBank(torch.randn(n_concepts, 512, generator=random))
    model = PostHocCBM(backbone, bank, nn.Linear(n_concepts, n_classes), values="raw").eval()
    model.absent_values = torch.zeros(n_concepts)
    images, classes = torch.rand(n, 3, size, size, generator=random), torch.randint(n_classes, (n,), generator=random)
    points = torch.rand(n, n_parts, 2, generator=random) * (size - 1)
    concepts = (torch.rand(n, n_concepts, generator=random) < 0.2).float()
    parts, table = torch.arange(n_concepts) % n_parts, torch.rand(n_classes, n_concepts, generator=random)
    if what == "pass":
        return partial(torch.no_grad()(model), images)
    if what == "CLM":
        metric = CLM(alpha=3, points=points.numpy(), part_of_concept=parts.numpy(), top_l=5)
        maps = np.ones((n, 1, 1, 1), np.float32)
        return partial(metric, model, images.numpy(), classes.numpy(), a_batch=maps, batch_size=n)
    truth = {"class_concepts": table, "truth": {"part_of_concept": parts}}
    return partial(score_concepts, model, [(images, classes, concepts, points)], **truth)


#: What is called with so many images, and the bytes that are kept of each.
STREAMS: dict[str, tuple[Callable[[int], Callable[[], object]], int]] = {
    "`score_concepts`": (stream_concepts, ROW),
    "`score_concepts`, 39 random banks": (stream_banks, ROW_OF_BANKS),
    "`score_concepts`, 5,000 concepts, 1,000 classes": (stream_many_concepts, ROW_OF_MANY),
    "`score_explanations`": (stream_explanations, ROW),
    "`score_substitutions`": (stream_substitutions, ROW),
    "`score_contrasts`": (stream_contrasts, ROW),
}
CALLS = {what: stream for what, (stream, _) in STREAMS.items()} | {
    what: partial(large_batch, what) for what in ("pass", "CLM", "`score_concepts`, one batch")
}


def memory(field: str) -> float:
    """Return what the system says of this process, in MiB."""
    found = re.search(rf"{field}:\s*(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


def peak(what: str, n: int) -> tuple[float, float]:
    """Return the peak of a call in MiB, and what was there before it, in a process of its own."""
    # Blocks of the size of a batch go back to the system when they are freed. Left to itself, glibc keeps them on its
    # heap in pieces that by chance differ by tens of MiB between two runs of the same.
    settings = os.environ | {"MALLOC_MMAP_THRESHOLD_": str(2**18)}
    command = [sys.executable, __file__, what, str(n)]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=settings).stdout
    most, before = map(float, output.split()[-2:])
    return most, before


def measure(what: str, n: int) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    call = CALLS[what](n)
    before = memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    call()
    print(memory("VmHWM"), before)


def main() -> None:
    images = (MANY - FEW) * 3 * SIDE**2 * 4 / 2**20
    what = f"{MANY:,} images of {SIDE} px against {FEW}, {images:.0f} MiB of images more"
    print(f"{machine()}\n\n| {what} | MiB more | at most | met |")
    print("| --- | --- | --- | --- |")
    for what, (_, row) in STREAMS.items():
        allowed = (MANY - FEW) * row / 2**20 + BLOCKS
        (many, before_many), (few, before_few) = peak(what, MANY), peak(what, FEW)
        more = many - before_many - (few - before_few)
        print(f"| {what} | {more:.1f} | {allowed:.1f} | {'yes' if more <= allowed else 'no'} |", flush=True)
    alone, _ = peak("pass", 256)
    what = f"one batch of 256 images of 384 px, 1,000 concepts, against the model's pass, {alone:.0f} MiB"
    print(f"\n| {what} | MiB | ratio | at most | met |")
    print("| --- | --- | --- | --- | --- |")
    for what in list(CALLS)[len(STREAMS) + 1 :]:
        most, _ = peak(what, 256)
        met = "yes" if most <= 1.3 * alone else "no"
        print(f"| {what} | {most:.0f} | {most / alone:.2f} | 1.3 | {met} |", flush=True)


if __name__ == "__main__":
    measure(sys.argv[1], int(sys.argv[2])) if len(sys.argv) > 1 else main()
