"""What a table of millions of images takes: measured at a few thousand, with what it grows by, and extrapolated.

    python speed/scale.py          # the tables of docs/scale.md; ten minutes on one core, Linux only
    python speed/scale.py --ray    # whether four workers of Ray give the same table

Inputs are random embeddings of 512 numbers in place of images, so that all that is measured stands beside the network.
Each measurement is a process of its own, one thread: seconds of the processor, and the peak of memory above what was
there before. Scores are those of noise.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from memory import memory
from ten_thousand import generator, machine, resnet_cbm
from torch import Tensor, nn

from captum_concepts import ConceptBank, PostHocCBM
from captum_concepts.models.interventions import Levels
from captum_concepts.models.random_banks import RandomBank
from quantus_concepts import ConceptPredictions, metrics, predict_concepts, score_predictions, score_ranges

WIDTH, BATCH = 512, 256
#: Metrics of `metrics="all"` beside the usual ones, which ask for no more than the rows.
OTHERS: dict[str, Callable[[Tensor], Any]] = {
    "ConceptQuality, four scores": lambda _: [*metrics.ConceptQuality.usual({})],
    "ConceptTaskLeakage": lambda _: metrics.ConceptTaskLeakage(),
    "InterconceptLeakage": lambda _: metrics.InterconceptLeakage(),
    "ConceptSetCeiling": lambda _: metrics.ConceptSetCeiling(),
    "OracleHead": lambda table: metrics.OracleHead(table.numpy()),
    "InterventionAccuracy": lambda table: metrics.InterventionAccuracy(levels=levels(table.shape[1])),
    "SparseHeadAccuracy": lambda _: metrics.SparseHeadAccuracy(),
}


def levels(n_concepts: int) -> Levels:
    return Levels(-torch.ones(n_concepts), torch.ones(n_concepts))


@dataclass(frozen=True)
class Size:
    """How many of each, and the metrics that are scored."""

    images: int = 2000
    concepts: int = 700
    classes: int = 1000
    banks: int = 0
    metric: str = ""


@dataclass(frozen=True)
class Cost:
    """Seconds of the pass beside the network and of the table, bytes of the rows, and peaks of both in MiB."""

    predict: float
    score: float
    kept: float
    predict_peak: float
    score_peak: float


class Embeddings:
    """Batches of random embeddings with classes and concept labels, made when they are asked for."""

    def __init__(self, size: Size, start: int = 0, stop: int | None = None) -> None:
        self.size, self.places = size, range(start, size.images if stop is None else stop)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        for start in range(self.places.start, self.places.stop, BATCH):
            n, draw = min(BATCH, self.places.stop - start), torch.Generator().manual_seed(start)
            classes = torch.randint(self.size.classes, (n,), generator=draw)
            yield (
                torch.randn(n, WIDTH, generator=draw),
                classes,
                (torch.rand(n, self.size.concepts, generator=draw) < 0.2).to(torch.uint8),
            )


def head(size: Size) -> nn.Linear:
    return nn.Linear(size.concepts, size.classes)


def model_of(size: Size) -> PostHocCBM:
    """Return a model over embeddings, with as many random banks."""
    torch.manual_seed(0)
    model = PostHocCBM(nn.Identity(), ConceptBank(torch.randn(size.concepts, WIDTH)), head(size)).eval()
    model.absent_values = torch.zeros(size.concepts)
    model.random_banks = tuple(
        RandomBank(
            torch.randn(size.concepts, WIDTH), torch.zeros(size.concepts), head(size), torch.zeros(size.concepts)
        )
        for _ in range(size.banks)
    )
    return model


def rows_of(size: Size, start: int = 0, stop: int | None = None) -> ConceptPredictions:
    return predict_concepts(model_of(size), Embeddings(size, start, stop), random_banks=size.banks > 0)


def table_of(rows: ConceptPredictions, size: Size) -> pd.DataFrame:
    """Return the usual table, or that of one of the other metrics."""
    table = torch.rand(size.classes, size.concepts, generator=generator())
    if size.metric:
        return score_predictions(rows, OTHERS[size.metric](table), value_threshold=0.0)
    return score_predictions(rows, class_concepts=table.numpy())


def measure(size: Size) -> Cost:
    """Measure one size in this process."""
    torch.set_num_threads(1)
    model = model_of(size)
    rows, predict, predict_peak = timed(lambda: predict_concepts(model, Embeddings(size), random_banks=size.banks > 0))
    tensors = [rows.values, rows.classes, rows.predicted, rows.embedding, *rows.truth.values()]
    kept = float(sum(each.nbytes for each in tensors if each is not None))
    _, score, score_peak = timed(lambda: table_of(rows, size))
    return Cost(predict - loading(size), score, kept, predict_peak, score_peak)


def timed(step: Callable[[], Any]) -> tuple[Any, float, float]:
    """Return what a step gives, its seconds of the processor, and its peak in MiB above what was there before."""
    before = memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    start = time.process_time()
    result = step()
    return result, time.process_time() - start, memory("VmHWM") - before


def loading(size: Size) -> float:
    """Return the seconds that making the inputs takes, which is no part of the pass."""
    start = time.process_time()
    for _ in Embeddings(size):
        pass
    return time.process_time() - start


def cost(size: Size) -> Cost:
    """Measure one size in a process of its own, a copy of this one, which has loaded and run everything once."""
    print(size, file=sys.stderr, flush=True)
    read, write = os.pipe()
    if not os.fork():
        os.write(write, json.dumps(asdict(measure(size))).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as answer:
        found = answer.read()
    os.wait()
    return Cost(**json.loads(found))


def exponent(less: float, more: float, factor: float) -> float:
    """Return by which power of the size a cost grows."""
    return math.log(more / less) / math.log(factor) if less > 0 and more > 0 else math.nan


def network() -> float:
    """Return the seconds that one image of 224 px takes in a ResNet-18."""
    torch.set_num_threads(1)
    features, images = resnet_cbm().features, torch.rand(8, 3, 224, 224, generator=generator())
    with torch.no_grad():
        features(images)
        start = time.process_time()
        features(images)
    return (time.process_time() - start) / len(images)


def growth() -> None:
    """Print by which power of images, concepts, classes and banks costs grow."""
    base = Size(2000, 200, 200)
    axes = {
        "images, 2,000 and 8,000": (base, replace(base, images=8000), 4.0),
        "concepts, 200 and 800": (base, replace(base, concepts=800), 4.0),
        "classes, 200 and 800": (base, replace(base, classes=800), 4.0),
        "random banks, 5 and 20": (replace(base, banks=5), replace(base, banks=20), 4.0),
    }
    print("\n| power of | pass beside the network | table | rows kept | peak of the table |")
    print("| --- | --- | --- | --- | --- |")
    for name, (less, more, factor) in axes.items():
        low, high = cost(less), cost(more)
        powers = [
            exponent(getattr(low, field), getattr(high, field), factor)
            for field in ("predict", "score", "kept", "score_peak")
        ]
        print(f"| {name} | {' | '.join(f'{power:.2f}' for power in powers)} |", flush=True)


def others() -> None:
    """Print the same of metrics that are chosen by name."""
    base = Size(2000, 100, 50)
    columns = ["seconds, 2,000 images, 100 concepts", "power of images", "of concepts"]
    columns += ["peak, MiB", "power of images", "of concepts"]
    print(f"\n| metric | {' | '.join(columns)} |\n| --- | --- | --- | --- | --- | --- | --- |")
    for name in OTHERS:
        own = replace(base, metric=name)
        sizes = [cost(each) for each in (own, replace(own, images=8000), replace(own, concepts=400))]
        powers = [
            f"{exponent(getattr(sizes[0], field), getattr(sizes[more], field), 4.0):.2f}"
            for field in ("score", "score_peak")
            for more in (1, 2)
        ]
        print(
            f"| `{name}` | {sizes[0].score:.1f} | {powers[0]} | {powers[1]} | {sizes[0].score_peak:.0f} | "
            f"{powers[2]} | {powers[3]} |",
            flush=True,
        )


def large() -> None:
    """Print what large tables take, by the slopes between two numbers of images."""
    an_image = network()
    print(f"\nA ResNet-18 takes {1000 * an_image:.0f} ms an image.\n")
    print("| images | concepts | classes | banks | network | pass beside it | table | rows | peak of the table |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for size, few in (
        (Size(1_300_000, 700, 1000), 4000),
        (Size(50_000, 40_000, 1000), 250),
        # Memory of banks grows until a chunk is full.
        (Size(1_300_000, 700, 1000, 39), 2000),
    ):
        low, high = (cost(replace(size, images=n)) for n in (few, 2 * few))

        def at(field: str, low: Cost = low, high: Cost = high, size: Size = size, few: int = few) -> float:
            a, b = getattr(low, field), getattr(high, field)
            return b + max(0.0, b - a) * (size.images / few - 2)

        print(
            f"| {size.images:,} | {size.concepts:,} | {size.classes:,} | {size.banks} | "
            f"{hours(an_image * size.images)} | {hours(at('predict'))} | {hours(at('score'))} | "
            f"{at('kept') / 1e9:.1f} GB | {at('score_peak') * 2**20 / 1e9:.1f} GB |",
            flush=True,
        )


def hours(seconds: float) -> str:
    """Write seconds as a reader wants them."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


RANGED = Size(2048, 200, 50, 5)


def make_scorer() -> Callable[[int, int], dict[str, Tensor]]:
    """Return what a worker of Ray calls for each range."""
    torch.set_num_threads(1)
    model = model_of(RANGED)

    def score(start: int, stop: int) -> dict[str, Tensor]:
        return predict_concepts(model, Embeddings(RANGED, start, stop)).tensors()

    return score


def ranges() -> None:
    """Print whether ranges give the table of one pass: here, and by four workers of Ray."""
    import ray

    # By its name: workers import it, and what is defined in a script they cannot.
    from scale import make_scorer

    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    torch.set_num_threads(1)
    expected = table_of(rows_of(RANGED), RANGED)
    for engine in ("local", "ray"):
        states = score_ranges(make_scorer, RANGED.images, size=BATCH, engine=engine)
        rows = ConceptPredictions.join([ConceptPredictions.from_tensors(state) for state in states])
        pd.testing.assert_frame_equal(table_of(rows, RANGED), expected, check_exact=True)
        print(f"{len(states)} ranges, engine {engine!r}: the same {len(expected)} rows to the bit", flush=True)
    ray.shutdown()


def main() -> None:
    if sys.argv[1:] == ["--ray"]:
        ranges()
        return
    print(machine())
    torch.set_num_threads(1)
    for metric in ("", *OTHERS):
        small = Size(64, 8, 4, 2, metric)
        table_of(rows_of(small), small)
    growth()
    others()
    large()


if __name__ == "__main__":
    main()
