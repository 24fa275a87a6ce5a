"""How fast scoring by ranges is: two workers of Ray against one, and how long large runs take.

    python speed/shards.py                # all sections, a table; about three minutes
    python speed/shards.py workers        # one section: workers or runs
    python speed/shards.py --write        # and keep each section's table in speed/RESULTS.md
    python speed/shards.py --tiny         # sizes that show only whether it runs

One thread, in each worker and in "runs". Networks have random weights, which are as fast as any.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass

import measuring
import pandas as pd
import torch
import torchvision
from measuring import SEED, Row, ratios, row, spread

from captum_concepts import ConceptBank, PostHocCBM, from_torchvision
from quantus_concepts import score_concepts, score_shards
from quantus_concepts.datasets.ratings.explanations import MapExplanation
from quantus_concepts.pasta.embedder import Embedder
from quantus_concepts.pasta.open_clip_encoder import OpenClipEncoder

TITLE = "Speed of scoring by ranges"
N_CONCEPTS, N_CLASSES = 112, 200
#: Of the embeddings of backbones.
WIDTHS = {"resnet18": 512, "vit_b_16": 768}
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


TINY = Sizes(32, 4, 1, 2, 1, (("resnet18", 8),), (("RN50", 2),))


def concept_model(name: str) -> PostHocCBM:
    """A post-hoc CBM of random directions, of the size of CUB's."""
    torch.manual_seed(SEED)
    backbone = from_torchvision(getattr(torchvision.models, name)(weights=None).eval())
    bank = ConceptBank(torch.randn(N_CONCEPTS, WIDTHS[name]))
    return PostHocCBM(backbone, bank, torch.nn.Linear(N_CONCEPTS, N_CLASSES)).eval()


@dataclass(frozen=True)
class Timed:
    """A factory of scorers whose rows tell when a range began and ended."""

    sizes: Sizes

    def __call__(self) -> Callable[[int, int], pd.DataFrame]:
        model = concept_model("resnet18")
        shape = (self.sizes.batch_size, 3, self.sizes.image_size, self.sizes.image_size)
        images = torch.rand(shape, generator=torch.Generator().manual_seed(SEED))

        def score(start: int, stop: int) -> pd.DataFrame:
            began = time.time()
            with torch.no_grad():
                for _ in range(start, stop, self.sizes.batch_size):
                    model(images)
            return pd.DataFrame({"began": [began], "ended": [time.time()]})

        score(0, 2 * self.sizes.batch_size)
        return score


def run_once(sizes: Sizes, n_workers: int) -> tuple[float, float]:
    """Return the seconds of the ranges, first to last, and those before the first."""
    size = sizes.batches_per_range * sizes.batch_size
    with tempfile.TemporaryDirectory() as folder:
        start = time.time()
        found = score_shards(
            Timed(sizes),
            sizes.n_ranges * size,
            folder,
            fingerprint={"workers": n_workers},
            shard_size=size,
            batch_size=sizes.batch_size,
            engine="ray",
            n_workers=n_workers,
        )
    return found["ended"].max() - found["began"].min(), found["began"].min() - start


def measure_workers(sizes: Sizes) -> list[Row]:
    """Two workers against one, one thread each, on a cluster of two processors."""
    import ray

    start = time.perf_counter()
    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    cluster = time.perf_counter() - start
    times: dict[int, list[float]] = {1: [], 2: []}
    starts: dict[int, list[float]] = {1: [], 2: []}
    for repeat in range(sizes.repeats):
        for n_workers in (1, 2)[:: -1 if repeat % 2 else 1]:
            seconds, before = run_once(sizes, n_workers)
            times[n_workers].append(seconds)
            starts[n_workers].append(before)
    ray.shutdown()
    ratio = ratios(times[1], times[2])
    n_images = sizes.n_ranges * sizes.batches_per_range * sizes.batch_size
    return [
        row(
            f"Two workers of Ray against one, one thread each, {n_images} images of {sizes.image_size} px in "
            f"{sizes.n_ranges} ranges, ResNet-18 with {N_CONCEPTS} concepts. Not counted: {cluster:.1f} s to start the "
            f"cluster, {spread(starts[1]):.1f} s until one worker begins, {spread(starts[2]):.1f} s until two do",
            f"{spread(times[2]):.1f} s",
            f"{spread(times[1]):.1f} s",
            f"{ratio:.2f} x faster",
            "at least 1.7 x",
            ratio.median >= 1.7,
        )
    ]


def concept_rate(name: str, n_images: int, size: int) -> float:
    """Return the images a second of `score_concepts`, everything it knows asked for."""
    model, random = concept_model(name), torch.Generator().manual_seed(SEED)
    images = torch.rand(n_images, 3, size, size, generator=random)
    labels = torch.randint(N_CLASSES, (n_images,), generator=random)
    concepts = torch.randint(2, (n_images, N_CONCEPTS), generator=random).float()
    points = torch.rand(n_images, 15, 2, generator=random) * size
    batches = list(zip(*(each.split(8) for each in (images, labels, concepts, points)), strict=True))
    settings = {
        "class_concepts": torch.rand(N_CLASSES, N_CONCEPTS, generator=random),
        "part_of_concept": torch.randint(15, (N_CONCEPTS,), generator=random),
    }
    return n_images / timed(lambda: score_concepts(model, batches, **settings))


def embedding_rate(name: str, n_images: int) -> float:
    """Return the maps a second of an embedder, which is all that scoring them costs."""
    embedder = Embedder(OpenClipEncoder(name, None, seed=SEED))
    random = torch.Generator().manual_seed(SEED)
    maps = [
        MapExplanation(torch.rand(3, 256, 256, generator=random), torch.rand(256, 256, generator=random))
        for _ in range(n_images)
    ]
    return n_images / timed(lambda: embedder.embed(maps))


def timed(call: Callable[[], object]) -> float:
    """Return the processor's seconds of the better of two calls; the first may build what the second has."""
    # Of one thread they are those of an idle machine, whatever else runs.
    seconds = []
    for _ in range(2):
        start = time.process_time()
        call()
        seconds.append(time.process_time() - start)
    return min(seconds)


def measure_runs(sizes: Sizes) -> list[Row]:
    """Images a second of one thread, and how long a run takes at that rate."""
    torch.set_num_threads(1)
    rates = [
        (f"`score_concepts`, {name}, {sizes.image_size} px, {N_CONCEPTS} concepts", SUB, "images", rate)
        for name, n_images in sizes.backbones
        for rate in [concept_rate(name, n_images, sizes.image_size)]
    ] + [(f"PASTA-score, {name}", PASTA, "maps", embedding_rate(name, n_images)) for name, n_images in sizes.encoders]
    return [
        row(
            f"{what}, one thread: {total:,} {unit} by {', '.join(map(str, WORKERS))} workers, worked out",
            f"{rate:.2f} {unit} a second",
            "",
            ", ".join(f"{total / rate / number / 3600:.2f} h" for number in WORKERS),
            "",
            None,
        )
        for what, total, unit, rate in rates
    ]


MEASURES: dict[str, Callable[[Sizes], list[Row]]] = {"workers": measure_workers, "runs": measure_runs}


def main(arguments: list[str]) -> int:
    about = "`python speed/shards.py --write`. Networks have random weights."
    machine = f"torch {torch.__version__}"
    return measuring.main_of_sizes(__file__, TITLE, about, MEASURES, (Sizes(), TINY), arguments, machine=machine)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
