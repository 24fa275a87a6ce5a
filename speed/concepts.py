"""How fast and how large the concept metrics are, as ratios within one run.

    python speed/concepts.py            # all sections, a table; several minutes
    python speed/concepts.py sharing    # one section: sharing, memory, large or command

Calls are taken in turn, and the median of the ratios is judged; two threads. Each section runs in a process of its own.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import measuring
import numpy as np
import quantus
import torch
import torchvision
from measuring import DEVICE, SEED, Row, alternate, ratios, row
from torch import Tensor, nn

from captum_concepts import ConceptBank, PostHocCBM, from_torchvision
from quantus_concepts import CEM, CGIM, CLM, shared_passes
from quantus_concepts.datasets import ConceptSample
from quantus_concepts.metrics import score_concepts

# The paper's benchmark: 112 concepts, 89 of them about one of 12 parts, 200 classes.
N_CONCEPTS, N_LOCALISABLE, N_PARTS, N_CLASSES = 112, 89, 12, 200
SIZE = 224


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(SEED)


def parts_of_concepts() -> Tensor:
    return torch.cat([torch.arange(N_LOCALISABLE) % N_PARTS, torch.full((N_CONCEPTS - N_LOCALISABLE,), -1)])


def annotations(n: int) -> tuple[Tensor, Tensor, Tensor]:
    """Labels (n,), concepts (n, L) and points (n, P, 2, 2) of which three in ten are not visible."""
    random = generator()
    labels = torch.randint(N_CLASSES, (n,), generator=random)
    concepts = (torch.rand(n, N_CONCEPTS, generator=random) < 0.2).float()
    points = torch.rand(n, N_PARTS, 2, 2, generator=random) * SIZE
    points[torch.rand(n, N_PARTS, 2, generator=random) < 0.3] = torch.nan
    return labels, concepts, points


def resnet_cbm() -> PostHocCBM:
    """Build the paper's shape of model: ResNet-18, 112 concepts, 200 classes."""
    backbone = from_torchvision(torchvision.models.resnet18(weights=None).eval())
    bank = ConceptBank(torch.randn(N_CONCEPTS, 512, generator=generator()))
    return PostHocCBM(backbone, bank, nn.Linear(N_CONCEPTS, N_CLASSES)).eval().to(DEVICE)


def batches(n: int, size: int, batch_size: int = 32) -> Iterator[ConceptSample]:
    """Yield random images with annotations, made batch by batch."""
    random = generator()
    labels, concepts, points = annotations(n)
    for start in range(0, n, batch_size):
        rows = slice(start, min(start + batch_size, n))
        images = torch.rand(rows.stop - start, 3, size, size, generator=random)
        yield ConceptSample(images, labels[rows], concepts[rows], points[rows] * (size / SIZE))


class Timed:
    """The metrics of `quantus.evaluate` on images, against what the backbone alone takes for them."""

    def __init__(self, n: int) -> None:
        self.model = resnet_cbm()
        self.sample = next(batches(n, SIZE, n))
        self.images = self.sample.image.numpy()
        with torch.no_grad():
            logits = torch.cat([self.model(part.to(DEVICE)) for part in self.sample.image.split(32)])
        self.classes = logits.argmax(1).cpu().numpy()
        self.truth = torch.rand(N_CLASSES, N_CONCEPTS, generator=generator()).numpy()

    def metrics(self, n_metrics: int) -> dict[str, Any]:
        every = {
            "CGIM": CGIM(self.truth),
            "CEM": CEM(self.sample.concepts.numpy()),
            "CLM": CLM(points=self.sample.points.numpy(), part_of_concept=parts_of_concepts().numpy()),
        }
        return dict(list(every.items())[:n_metrics])

    @torch.no_grad()
    def forward(self) -> None:
        for images in self.sample.image.split(32):
            self.model.features(images.to(DEVICE))

    def evaluate(self, metrics: dict[str, Any], n_methods: int) -> None:
        """Call stock `quantus.evaluate`; explanations are given."""
        maps = np.ones((len(self.images), 1, SIZE, SIZE), np.float32)
        quantus.evaluate(
            metrics=metrics,
            xai_methods={f"method {number}": maps for number in range(n_methods)},
            model=self.model,
            x_batch=self.images,
            y_batch=self.classes,
            explain_func_kwargs={},
            call_kwargs={"call": {"channel_first": True, "batch_size": 32}},
        )

    def in_a_block(self, metrics: dict[str, Any], n_methods: int) -> None:
        with shared_passes():
            self.evaluate(metrics, n_methods)


#: Images, numbers of methods, threads, and whether each metric is called alone too.
SHARED = ((48, (1, 4, 8), 2, True), (48, (1, 8), 1, True), (192, (8,), 2, False))


def measure_sharing() -> list[Row]:
    """The time of a stock `quantus.evaluate` and of each metric alone, against the backbone's forward pass."""
    rows = []
    for n, numbers, threads, alone_too in SHARED:
        timed = Timed(n)
        calls: dict[str, Callable[[], object]] = {"the backbone alone": timed.forward}
        for n_methods in numbers:
            calls[f"CGIM, CEM and CLM, {n_methods} methods"] = partial(timed.in_a_block, timed.metrics(3), n_methods)
        for name, metric in timed.metrics(3).items() if alone_too else ():
            calls[f"{name} alone"] = partial(timed.evaluate, {name: metric}, 1)
        torch.set_num_threads(threads)
        times = alternate(calls, 7)
        alone = times.pop("the backbone alone")
        for name, seconds in times.items():
            ratio = ratios(seconds, alone)
            most = 1.05 if name.endswith("alone") else 1.1
            rows.append(
                row(
                    f"`quantus.evaluate`, {name}; {n} images of 224 px, ResNet-18, 112 concepts, {threads} "
                    "threads, against the backbone's forward pass",
                    f"{statistics.median(seconds):.2f} s",
                    f"{statistics.median(alone):.2f} s",
                    f"{ratio:.3f} x",
                    f"at most {most} x",
                    ratio.median <= most,
                )
            )
    return rows


def peak_of(n: int) -> float:
    """Return the peak memory in MiB of evaluating n images, in a process of its own."""
    code = (
        "import resource, sys, torch; torch.set_num_threads(2); sys.path.insert(0, sys.argv[1]); import concepts as c;"
        "model = c.resnet_cbm(); n = int(sys.argv[2]);"
        "c.score_concepts(model, c.batches(n, 96), truth={'part_of_concept': c.parts_of_concepts()}, "
        "class_concepts=torch.rand(c.N_CLASSES, c.N_CONCEPTS));"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)"
    )
    command = [sys.executable, "-c", code, str(Path(__file__).parent), str(n)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])


def run_large(what: str) -> None:
    """Run a model of 1,000 concepts over one batch of 256 images of 384 px, or score it."""
    n, size, n_concepts = 256, 384, 1000
    random = generator()
    # Its maps are those of a ResNet-18, which would itself take most of the memory.
    backbone, bank = nn.Conv2d(3, 512, 32, stride=32), ConceptBank(torch.randn(n_concepts, 512, generator=random))
    model = PostHocCBM(backbone, bank, nn.Linear(n_concepts, N_CLASSES), values="raw").eval()
    images, labels = torch.rand(n, 3, size, size, generator=random), torch.randint(N_CLASSES, (n,), generator=random)
    points = torch.rand(n, N_PARTS, 2, generator=random) * (size - 1)
    concepts = (torch.rand(n, n_concepts, generator=random) < 0.2).float()
    parts, truth = torch.arange(n_concepts) % N_PARTS, torch.rand(N_CLASSES, n_concepts, generator=random)
    if what == "the pass alone":
        with torch.no_grad():
            model(images)
    elif what == "CLM":
        metric = CLM(alpha=3, points=points.numpy(), part_of_concept=parts.numpy(), top_l=5)
        metric(model, images.numpy(), labels.numpy(), a_batch=np.ones((n, 1, 1, 1), np.float32), batch_size=n)
    else:
        batches_of_one = [(images, labels, concepts, points)]
        score_concepts(model, batches_of_one, class_concepts=truth, truth={"part_of_concept": parts})


def peak_of_large(what: str) -> float:
    """Return the peak memory in MiB of `run_large`, in a process of its own."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import concepts, measuring, torch; torch.set_num_threads(2);"
        "concepts.run_large(sys.argv[2]); print(measuring.peak_mib())"
    )
    command = [sys.executable, "-c", code, str(Path(__file__).parent), what]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])


def measure_large() -> list[Row]:
    """Peak memory of scoring a large batch with many concepts."""
    alone = peak_of_large("the pass alone")
    peaks = {what: peak_of_large(what) for what in ("CLM", "`score_concepts`")}
    return [
        row(
            f"Peak memory of {what}, 1,000 concepts, one batch of 256 images of 384 px, against the model's pass alone",
            f"{peak:.0f} MiB",
            f"{alone:.0f} MiB",
            f"{peak / alone:.3f} x",
            "at most 1.3 x",
            peak <= 1.3 * alone,
        )
        for what, peak in peaks.items()
    ]


def measure_memory() -> list[Row]:
    """Peak memory with eight times the images."""
    few, many = peak_of(512), peak_of(4096)
    # Scores: 3 + 9 + 27 + 18 columns, as float32 and then float64; points: 12 x 2 x 2 float32.
    row_mib = (4096 - 512) * (57 * 12 + 12 * 4 * 4) / 2**20
    return [
        row(
            "Peak memory for 4,096 images against 512 (ResNet-18, 96 px, batches of 32); what is kept of 3,584 images "
            f"more, scores and points: {row_mib:.1f} MiB",
            f"{many:.0f} MiB",
            f"{few:.0f} MiB",
            f"{many - few:+.0f} MiB",
            "no growth beyond features (N x d) and scores (N)",
            many - few <= 4096 * 512 * 4 / 2**20 + 32,
        )
    ]


def measure_command() -> list[Row]:
    """The default command."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        subprocess.run(
            ["quantus-concepts", "benchmark", "concepts", "--out", f"{folder}/out"], check=True, capture_output=True
        )
        seconds = time.perf_counter() - start
    gibibytes = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
    return [
        row(
            "`quantus-concepts benchmark concepts`, all defaults",
            f"{seconds:.0f} s, {gibibytes:.2f} GiB",
            "",
            "",
            "under 240 s and 2 GB",
            seconds < 240 and gibibytes * 1.0737 < 2,
        )
    ]


SECTIONS: dict[str, Callable[[], list[Row]]] = {
    "sharing": measure_sharing,
    "memory": measure_memory,
    "large": measure_large,
    "command": measure_command,
}


if __name__ == "__main__":
    raise SystemExit(measuring.main(__file__, SECTIONS, sys.argv[1:]))
