"""How fast scoring by ranges is: two workers of Ray against one, and how long large runs take.

    python speed/shards.py                # all sections, a table; about three minutes
    python speed/shards.py workers        # one section: workers, runs, or gpu where there is one
    python speed/shards.py --tiny         # sizes that show only whether it runs

One thread, in each worker, in "runs" and in "gpu". Networks have random weights, which are as fast as any.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import measuring
import numpy as np
import torch
import torchvision
from measuring import SEED, Row, ratios, row, spread
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from captum_concepts import ConceptBank, PostHocCBM, from_torchvision
from captum_concepts.support.images import load_image
from quantus_concepts import score_concepts, score_ranges
from quantus_concepts.datasets import default_transform
from quantus_concepts.datasets.ratings.explanations import MapExplanation
from quantus_concepts.pasta.embedder import Embedder
from quantus_concepts.pasta.encoders.open_clip_encoder import OpenClipEncoder

N_CONCEPTS, N_CLASSES = 112, 200
#: Of the embeddings of backbones.
WIDTHS = {"resnet18": 512, "resnet50": 2048, "vit_b_16": 768}
#: Images of a run of the size of SUB, and explanations of one of the size of PASTA.
SUB, PASTA = 38_400, 25 * 1000
WORKERS = (1, 8, 64)


@dataclass(frozen=True)
class Sizes:
    """How large everything is."""

    image_size: int = 224
    n_ranges: int = 12
    batches_per_range: int = 2
    batch_size: int = 8
    repeats: int = 3
    backbones: tuple[tuple[str, int], ...] = (("resnet18", 64), ("vit_b_16", 16))
    encoders: tuple[tuple[str, int], ...] = (("ViT-B-32", 32), ("ViT-L-16-SigLIP-384", 4))
    #: Of a GPU; of the backbone images in memory and JPEG files that processes read.
    gpu_backbone: tuple[str, int, int] = ("resnet50", 2048, 6144)
    gpu_encoders: tuple[tuple[str, int], ...] = (("ViT-B-32", 1024), ("ViT-L-16-SigLIP-384", 256))
    gpu_batch: int = 64


TINY = Sizes(32, 4, 1, 2, 1, (("resnet18", 8),), (("RN50", 2),), ("resnet18", 8, 8), (("RN50", 4),), 4)
#: Sides of the JPEG files.
FILE_SIDE = 512
N_PARTS = 15


def concept_model(name: str) -> PostHocCBM:
    """A post-hoc CBM of random directions, of the size of CUB's."""
    torch.manual_seed(SEED)
    backbone = from_torchvision(getattr(torchvision.models, name)(weights=None).eval())
    bank = ConceptBank(torch.randn(N_CONCEPTS, WIDTHS[name]))
    return PostHocCBM(backbone, bank, torch.nn.Linear(N_CONCEPTS, N_CLASSES)).eval()


@dataclass(frozen=True)
class Timed:
    """A factory of scorers whose states tell when a range began and ended."""

    sizes: Sizes

    def __call__(self) -> Callable[[int, int], dict[str, Tensor]]:
        model = concept_model("resnet18")
        shape = (self.sizes.batch_size, 3, self.sizes.image_size, self.sizes.image_size)
        images = torch.rand(shape, generator=torch.Generator().manual_seed(SEED))

        def score(start: int, stop: int) -> dict[str, Tensor]:
            began = time.time()
            with torch.no_grad():
                for _ in range(start, stop, self.sizes.batch_size):
                    model(images)
            return {"times": torch.tensor([began, time.time()], dtype=torch.float64)}

        score(0, 2 * self.sizes.batch_size)
        return score


def run_once(sizes: Sizes) -> tuple[float, float]:
    """Return the seconds of the ranges but the first, which is scored alone, and those before them."""
    size = sizes.batches_per_range * sizes.batch_size
    start = time.time()
    states = score_ranges(Timed(sizes), (1 + sizes.n_ranges) * size, size=size, engine="ray")
    times = torch.stack([state["times"] for state in states[1:]])
    began, ended = float(times[:, 0].min()), float(times[:, 1].max())
    return ended - began, began - start


def measure_workers(sizes: Sizes) -> list[Row]:
    """Two workers against one, one thread each, on clusters of two processors and of one."""
    import ray

    times: dict[int, list[float]] = {1: [], 2: []}
    starts: dict[int, list[float]] = {1: [], 2: []}
    for repeat in range(sizes.repeats):
        for n_workers in (1, 2)[:: -1 if repeat % 2 else 1]:
            ray.init("local", num_cpus=n_workers, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
            seconds, before = run_once(sizes)
            ray.shutdown()
            times[n_workers].append(seconds)
            starts[n_workers].append(before)
    ratio = ratios(times[1], times[2])
    n_images = sizes.n_ranges * sizes.batches_per_range * sizes.batch_size
    return [
        row(
            f"Two workers of Ray against one, one thread each, {n_images} images of {sizes.image_size} px in "
            f"{sizes.n_ranges} ranges, ResNet-18 with {N_CONCEPTS} concepts. Not counted: {spread(starts[1]):.1f} s "
            f"until one worker begins, {spread(starts[2]):.1f} s until two do, with the first range",
            f"{spread(times[2]):.1f} s",
            f"{spread(times[1]):.1f} s",
            f"{ratio:.2f} x faster",
            "at least 1.7 x",
            ratio.median >= 1.7,
        )
    ]


class Drawn(Dataset[tuple[Tensor, ...]]):
    """Images with all that `score_concepts` can know of them: in memory, or read from JPEG files."""

    def __init__(self, n_images: int, size: int, files: Path | None = None) -> None:
        random = torch.Generator().manual_seed(SEED)
        self.transform = default_transform(size)
        self.paths = [] if files is None else write_files(files)
        self.images = torch.rand(n_images if files is None else 0, 3, size, size, generator=random)
        self.labels = torch.randint(N_CLASSES, (n_images,), generator=random)
        self.concepts = torch.randint(2, (n_images, N_CONCEPTS), generator=random).float()
        self.points = torch.rand(n_images, N_PARTS, 2, generator=random) * size
        self.class_concepts = torch.rand(N_CLASSES, N_CONCEPTS, generator=random)
        self.part_of_concept = torch.randint(N_PARTS, (N_CONCEPTS,), generator=random)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, ...]:
        paths = self.paths
        image = self.transform(load_image(paths[index % len(paths)])) if paths else self.images[index]
        return image, self.labels[index], self.concepts[index], self.points[index]

    def batches(self, size: int) -> list[tuple[Tensor, ...]]:
        """Return the images in memory, as no loader has to put them together."""
        every = (self.images, self.labels, self.concepts, self.points)
        return list(zip(*(tensor.split(size) for tensor in every), strict=True))


def write_files(folder: Path) -> list[Path]:
    """Write some pictures as large as photographs are."""
    rng = np.random.default_rng(SEED)
    paths = [folder / f"{number}.jpg" for number in range(32)]
    for path in paths:
        coarse = Image.fromarray(rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)).resize((FILE_SIDE, FILE_SIDE))
        noisy = np.asarray(coarse) + rng.normal(0, 8, (FILE_SIDE, FILE_SIDE, 3))
        Image.fromarray(np.clip(noisy, 0, 255).astype(np.uint8)).save(path, quality=90)
    return paths


def concept_rate(model: PostHocCBM, data: Drawn, loader: Any) -> float:
    """Return the images a second of `score_concepts`, everything it knows asked for."""
    truth = {"class_concepts": data.class_concepts, "truth": {"part_of_concept": data.part_of_concept}}
    return len(data) / timed(lambda: score_concepts(model, loader, **truth))


def embedding_rate(name: str, n_images: int, device: str = "cpu", batch_size: int = 16) -> float:
    """Return the maps a second of an embedder, which is all that scoring them costs."""
    embedder = Embedder(OpenClipEncoder(name, None, seed=SEED, device=device), batch_size=batch_size)
    random = torch.Generator().manual_seed(SEED)
    maps = [
        MapExplanation(torch.rand(3, 256, 256, generator=random), torch.rand(256, 256, generator=random))
        for _ in range(n_images)
    ]
    return n_images / timed(lambda: embedder.embed(maps))


def timed(call: Callable[[], object]) -> float:
    """Return the processor's seconds of the better of two calls; the first may build what the second has."""
    # Of one thread they are those of an idle machine, whatever else runs; for a GPU it waits.
    on_gpu = torch.cuda.is_available()
    clock = time.perf_counter if on_gpu else time.process_time
    seconds = []
    for _ in range(2):
        start = clock()
        call()
        if on_gpu:
            torch.cuda.synchronize()
        seconds.append(clock() - start)
    return min(seconds)


def measure_runs(sizes: Sizes) -> list[Row]:
    """Images a second of one thread, and how long a run takes at that rate."""
    torch.set_num_threads(1)
    size = sizes.image_size
    data_of_backbone = [(name, Drawn(n_images, size)) for name, n_images in sizes.backbones]
    rates = [
        (what_of(name, size), SUB, "images", concept_rate(concept_model(name), data, data.batches(8)))
        for name, data in data_of_backbone
    ] + [(f"PASTA-score, {name}", PASTA, "maps", embedding_rate(name, n_images)) for name, n_images in sizes.encoders]
    return [rate_row(f"{what}, one thread", *rate) for what, *rate in rates]


def what_of(name: str, size: int) -> str:
    return f"`score_concepts`, {name}, {size} px, {N_CONCEPTS} concepts"


def rate_row(what: str, total: int, unit: str, rate: float) -> Row:
    """Return a row of how long a run takes; it is shown at once, for a model may be long in the making."""
    print(f"{what}: {rate:.2f} {unit} a second", file=sys.stderr, flush=True)
    return row(
        f"{what}: {total:,} {unit} by {', '.join(map(str, WORKERS))} workers, worked out",
        f"{rate:.2f} {unit} a second",
        "",
        ", ".join(f"{total / rate / number / 3600:.2f} h" for number in WORKERS),
        "",
        None,
    )


def measure_gpu(sizes: Sizes) -> list[Row]:
    """The same of one GPU and one thread, with images in memory and with processes that read files; none without."""
    return rates_of_device(sizes, "cuda") if torch.cuda.is_available() else []


def rates_of_device(sizes: Sizes, device: str) -> list[Row]:
    torch.set_num_threads(1)
    on = f"one {torch.cuda.get_device_name() if device == 'cuda' else device}, one thread"
    (name, n_images, n_read), size, batch = sizes.gpu_backbone, sizes.image_size, sizes.gpu_batch
    what, model, data = what_of(name, size), concept_model(name).to(device), Drawn(n_images, size)
    rows = [rate_row(f"{what}, {on}, images in memory", SUB, "images", concept_rate(model, data, data.batches(batch)))]
    for name, n_maps in sizes.gpu_encoders:
        rate = embedding_rate(name, n_maps, device, batch)
        rows.append(rate_row(f"PASTA-score, {name}, {on}, maps in memory", PASTA, "maps", rate))
    with tempfile.TemporaryDirectory() as folder:
        data, readers = Drawn(n_read, size, Path(folder)), max(1, (os.cpu_count() or 1) - 2)
        # Readers stay for the second call: that they start once is part of the start-up.
        loader = DataLoader(data, batch, num_workers=readers, persistent_workers=True)
        reading = f"JPEG files of {FILE_SIDE} px read by {readers} processes"
        rows.append(rate_row(f"{what}, {on}, {reading}", SUB, "images", concept_rate(model, data, loader)))
        del loader
    return rows


MEASURES: dict[str, Callable[[Sizes], list[Row]]] = {
    "workers": measure_workers,
    "runs": measure_runs,
    "gpu": measure_gpu,
}


def main(arguments: list[str]) -> int:
    return measuring.main_of_sizes(__file__, MEASURES, (Sizes(), TINY), arguments)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
