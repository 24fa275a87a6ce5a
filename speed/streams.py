"""Whether scoring a stream takes no more memory for more images, and whether workers read while the model computes.

    python speed/streams.py            # both sections, a table; about half an hour, of which workers take three minutes
    python speed/streams.py memory     # one section: memory or workers
    python speed/streams.py --tiny     # sizes that show only whether it runs

Images are JPEG files in folders that the script writes; each section runs in processes of its own. One thread, so that
of two cores one is left for a worker. Times are taken in turn; of the ratios the median is judged.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import measuring
import numpy as np
import torch
import torchvision
from measuring import SEED, Row, alternate, peak_mib, ratios, row, spread
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from captum_concepts import ConceptBank, PostHocCBM, from_torchvision
from captum_concepts.support.images import load_image
from quantus_concepts import Subject, score_concepts, score_contrasts, score_explanations, score_substitutions
from quantus_concepts.datasets import ConceptFolder, default_transform
from quantus_concepts.metrics import concept_state
from quantus_concepts.painted.networks import SmallResNet
from quantus_concepts.pasta import EmbeddedEncoder, Embedder, Scorer
from quantus_concepts.pasta.encoders.open_clip_encoder import OpenClipEncoder

N_CLASSES, N_CONCEPTS, N_PARTS = 8, 16, 4
#: Files that are written; the others are links to them.
N_FILES = 64
SMALL = 64


class Sizes(NamedTuple):
    """Images of the memory section, few and many, and of the workers section; repeats, and sides of models' images."""

    few: int = 4_800
    many: int = 38_400
    concepts: int = 576
    explanations: int = 1_536
    embedded_by: str | None = "ViT-B-32"
    embeddings: int = 160
    repeats: int = 3
    side: int = 112
    image_size: int = 224


TINY = Sizes(few=300, many=2_400, concepts=128, explanations=128, embedded_by=None, repeats=1)


def sizes() -> Sizes:
    return TINY if "--tiny" in sys.argv else Sizes()


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(SEED)


def write_folder(root: Path, n: int, side: int) -> Path:
    """Write n images, mostly links, in a folder for each class, with tables of concepts and parts."""
    rng = np.random.default_rng(SEED)
    base: list[Path] = []
    lines = []
    for number in range(n):
        name = f"{number % N_CLASSES}/{number:05d}.jpg"
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if number < N_FILES:
            # Coarse colours and fine noise: files as large as those of photographs.
            coarse = Image.fromarray(rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)).resize((side, side))
            noise = rng.normal(0, 8, (side, side, 3))
            Image.fromarray(np.clip(np.asarray(coarse) + noise, 0, 255).astype(np.uint8)).save(path, quality=90)
            base.append(path)
        else:
            os.link(base[number % N_FILES], path)
        lines += [f"{name},p{part},{x:.1f},{y:.1f}" for part, (x, y) in enumerate(rng.uniform(0, side - 1, (4, 2)))]
    concepts = [f"p{number % N_PARTS}::{number}" for number in range(N_CONCEPTS)]
    table = rng.integers(0, 2, (N_CLASSES, N_CONCEPTS))
    rows = [f"{label},{','.join(map(str, values))}" for label, values in enumerate(table.tolist())]
    (root / "concepts.csv").write_text("\n".join([f"class,{','.join(concepts)}", *rows]))
    (root / "parts.csv").write_text("\n".join(["image,part,x,y", *lines]))
    return root


def concept_folder(root: Path, **settings: Any) -> ConceptFolder:
    return ConceptFolder(root, root / "concepts.csv", root / "parts.csv", **settings)


class Explained(Dataset[tuple[Tensor, Tensor, int]]):
    """Images of a folder, each with a map as an explainer would give it, and a label."""

    def __init__(self, root: Path, n: int, side: int | None = None, eight_bit: bool = False) -> None:
        self.paths = sorted(root.glob("*/*.jpg"))[:n]
        self.transform = default_transform(side) if side else None
        self.eight_bit = eight_bit

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor, int]:
        image = load_image(self.paths[index])
        image = image if self.transform is None else self.transform(image)
        pixels = (image * 255).round_().to(torch.uint8) if self.eight_bit else image
        return pixels, image.mean(0)[::8, ::8], index % N_CLASSES


def small_model() -> PostHocCBM:
    network = SmallResNet(N_CLASSES, channels=32)
    bank = ConceptBank(torch.randn(N_CONCEPTS, 32, generator=generator()))
    return PostHocCBM(network.features, bank, nn.Linear(N_CONCEPTS, N_CLASSES)).eval()


def resnet_model() -> PostHocCBM:
    backbone = from_torchvision(torchvision.models.resnet18(weights=None).eval())
    bank = ConceptBank(torch.randn(N_CONCEPTS, 512, generator=generator()))
    return PostHocCBM(backbone, bank, nn.Linear(N_CONCEPTS, N_CLASSES)).eval()


def pasta(size: int, encoder: str | None = None) -> tuple[Scorer, Embedder]:
    """Return a scorer of all questions and the embedder of an encoder, the embedded one if none is named."""
    of = EmbeddedEncoder() if encoder is None else OpenClipEncoder(encoder, None, seed=SEED)
    embedder = Embedder(of, size=size, batch_size=64)
    labels = [f"class {number}" for number in range(N_CLASSES)]
    return Scorer(embedder.dim, ("Q1", "Q2", "Q3", "Q4", "Q5", "Q6"), labels, seed=SEED), embedder


def gradient(model: nn.Module, inputs: np.ndarray, targets: np.ndarray) -> np.ndarray:
    images = torch.as_tensor(inputs).requires_grad_()
    model(images).gather(1, torch.as_tensor(targets)[:, None]).sum().backward()
    return images.grad.numpy()


def some_masks(rows: list[int]) -> Tensor:
    masks = torch.zeros(len(rows), 1, SMALL, SMALL, dtype=torch.bool)
    masks[..., 16:40, 20:44] = True
    return masks


def stream_of(kind: str, root: Path) -> tuple[Callable[[], Any], int]:
    """Return a call that scores all images of a folder, and the bytes of a row that it keeps."""
    load = partial(DataLoader, batch_size=64, num_workers=1)
    if kind == "concepts":
        model, data = small_model(), concept_folder(root)
        (state,) = concept_state(model, DataLoader(data, 64, sampler=range(64))).columns
        # Numbers and places of parts of float32, labels of a byte; buffers double; the table is of float64.
        kept = state.rows.shape[1] * (2 * 4 + 8) + N_PARTS * 2 * 4 * 2 + N_CONCEPTS * 2
        return lambda: score_concepts(model, load(data)), kept
    if kind == "explanations":
        scorer, embedder = pasta(SMALL)
        data = Explained(root, 10**9)
        # Three codes and six scores, then a table of two to three texts, by pointer, and six scores.
        return lambda: score_explanations(scorer, embedder, load(data)), 9 * (2 * 4 + 8) + 3 * (8 + 8) + 8
    data = concept_folder(root)
    if kind == "substitutions":
        added = np.random.default_rng(SEED).permuted(np.tile([[0, 1]], (len(data), 1)), axis=1).T
        call = partial(score_substitutions, small_model(), load(data), added=added[0], removed=added[1])
        # Label, prediction, both concepts and both scores, as float32 in the buffer and of float64; the concepts given.
        return call, 6 * (2 * 4 + 8) + 2 * 2 * 8
    pair = [Subject(SmallResNet(N_CLASSES, 32, seed=seed), load(data), data.labels) for seed in range(2)]
    call = partial(score_contrasts, {"gradient": gradient}, some_masks, mcs=tuple(pair), per_image=True)
    # For two models logits, attributions inside and elsewhere, then a table of two metrics with five columns.
    return call, 2 * (2 * 4 * N_CLASSES + 2 * 2 * 8) + 2 * 2 * 5 * 8


def show_growth(kind: str, root: str) -> None:
    """Print by how many MiB the peak of a run is above what was there before it, and the bytes of a row."""
    call, bytes_of_row = stream_of(kind, Path(root))
    status = Path("/proc/self/status").read_text()
    before = int(status.partition("VmRSS:")[2].split()[0]) / 1024
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    call()
    print(peak_mib() - before, bytes_of_row)


def growth(kind: str, root: Path) -> tuple[float, int]:
    code = "import sys, torch; torch.set_num_threads(1); sys.path.insert(0, sys.argv[1]); import streams;"
    code += "streams.show_growth(*sys.argv[2:])"
    command = [sys.executable, "-c", code, str(Path(__file__).parent), kind, str(root)]
    start = time.perf_counter()
    # Blocks of the size of a batch go back to the system when they are freed. Left to itself, glibc keeps them on its
    # heap in pieces that by chance differ by tens of MiB between two runs of the same.
    settings = os.environ | {"MALLOC_MMAP_THRESHOLD_": str(2**18)}
    figures = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=settings).stdout.split()[-2:]
    seconds = time.perf_counter() - start
    print(f"{kind}, {root.name} images: {float(figures[0]):.1f} MiB more, {seconds:.0f} s", file=sys.stderr, flush=True)
    return float(figures[0]), int(figures[1])


def measure_memory() -> list[Row]:
    """Peak memory of scoring many images of 64 px and of few, above what model and data set take before."""
    few, many = sizes().few, sizes().many
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        roots = {n: write_folder(Path(folder) / str(n), n, SMALL) for n in (few, many)}
        for kind, call in (
            ("concepts", "`score_concepts`, small network, 16 concepts"),
            ("explanations", "`score_explanations`, embedded encoder, six questions"),
            ("substitutions", "`score_substitutions`, small network, 16 concepts"),
            ("contrasts", "`score_contrasts`, MCS of the gradient of two small networks"),
        ):
            (low, _), (high, bytes_of_row) = growth(kind, roots[few]), growth(kind, roots[many])
            allowed = (many - few) * bytes_of_row / 2**20
            images = (many - few) * 3 * SMALL**2 * 4 / 2**20
            rows.append(
                row(
                    f"Memory of {call}: {many:,} images of {SMALL} px from a DataLoader with a worker against {few:,}; "
                    f"{images:.0f} MiB of images more",
                    f"{high:.1f} MiB",
                    f"{low:.1f} MiB",
                    f"{high - low:+.1f} MiB",
                    f"no more than the rows, {allowed:.1f} MiB, and 4 MiB of blocks not given back",
                    high - low <= allowed + 4,
                )
            )
    return rows


def balanced(root: Path, seconds: float, item: Callable[[Path], Dataset[Any]]) -> tuple[int, float]:
    """Return the side of JPEG files whose reading takes as long as the model, and what it takes, in seconds."""
    seconds_of_side = {}
    for side in (int(96 * 1.2**step) for step in range(18)):
        data = item(write_folder(root / str(side), N_CLASSES, side))
        for _ in range(2):
            start = time.perf_counter()
            for index in range(N_CLASSES):
                data[index]
            seconds_per_file = (time.perf_counter() - start) / N_CLASSES
        seconds_of_side[side] = seconds_per_file
        if seconds_per_file > 1.3 * seconds:
            break
    best = min(seconds_of_side, key=lambda side: abs(seconds_of_side[side] - seconds))
    return best, seconds_of_side[best]


def seconds_of(call: Callable[[], object], n: int) -> float:
    call()
    start = time.perf_counter()
    call()
    return (time.perf_counter() - start) / n


def measure_workers() -> list[Row]:
    """Reading in the same process against reading in one worker."""
    torch.set_num_threads(1)
    chosen = sizes()
    rows = []
    model, (scorer, embedder) = resnet_model(), pasta(chosen.image_size)
    cases: list[tuple[str, int, Callable[[Any], Any], Callable[[Path], Dataset[Any]]]] = [
        (
            f"`score_concepts`, ResNet-18 at {chosen.side} px, ConceptFolder",
            chosen.concepts,
            partial(score_concepts, model),
            partial(concept_folder, image_size=chosen.side),
        ),
        (
            f"`score_explanations`, embedded encoder, pictures of {chosen.image_size} px",
            chosen.explanations,
            partial(score_explanations, scorer, embedder),
            partial(Explained, n=chosen.explanations, side=chosen.image_size),
        ),
        (
            f"The same, pictures handed over as uint8 ({3 * chosen.image_size**2 // 1000} KB in place of "
            "four times as many)",
            chosen.explanations,
            partial(score_explanations, scorer, embedder),
            partial(Explained, n=chosen.explanations, side=chosen.image_size, eight_bit=True),
        ),
    ]
    if chosen.embedded_by is not None:
        cases.append(
            (
                f"`score_explanations`, {chosen.embedded_by}, pictures of {chosen.image_size} px",
                chosen.embeddings,
                partial(score_explanations, *pasta(chosen.image_size, chosen.embedded_by)),
                partial(Explained, n=chosen.embeddings, side=chosen.image_size),
            )
        )
    with tempfile.TemporaryDirectory() as folder:
        for place, (what, n, score, data_of) in enumerate(cases):
            root = Path(folder) / str(place)
            ready = list(DataLoader(data_of(write_folder(root / "ready", 64, 96)), 16))
            model_seconds = seconds_of(partial(score, ready), 64)
            side, read_seconds = balanced(root, model_seconds, data_of)
            data = data_of(write_folder(root / "all", n, side))
            calls = {
                workers: partial(score, DataLoader(data, 8, num_workers=workers, generator=generator()))
                for workers in (0, 1)
            }
            times = alternate({str(workers): call for workers, call in calls.items()}, chosen.repeats)
            ratio = ratios(times["0"], times["1"])
            most = (model_seconds + read_seconds) / max(model_seconds, read_seconds)
            rows.append(
                row(
                    f"{what}: {n} JPEG files of {side} px, one DataLoader worker against none, one thread (reading "
                    f"{read_seconds * 1e3:.1f} ms an image, model {model_seconds * 1e3:.1f}: at most {most:.2f} x)",
                    f"{spread(times['1']).median:.2f} s",
                    f"{spread(times['0']).median:.2f} s",
                    f"{ratio:.2f} x faster",
                    "at least 1.7 x",
                    ratio.median >= 1.7,
                )
            )
    return rows


SECTIONS: dict[str, Callable[[], list[Row]]] = {"memory": measure_memory, "workers": measure_workers}


if __name__ == "__main__":
    chosen = [argument for argument in sys.argv[1:] if argument != "--tiny"]
    raise SystemExit(measuring.main(__file__, SECTIONS, chosen, ["--tiny"] if "--tiny" in sys.argv else []))
