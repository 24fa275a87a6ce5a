"""How fast and how large attribution with known ground truth is, as ratios within one run.

    python speed/attribution.py            # all sections, a table; about half an hour
    python speed/attribution.py patch      # one section: metrics, patch, gpu, compose or command
    python speed/attribution.py --tiny     # sizes that show only whether it runs

Calls are taken in turn, forwards and backwards; ratios are formed repeat by repeat, and of them the median is judged.
Two threads. Each section runs in a process of its own.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import measuring
import numpy as np
import torch
import torchvision
from measuring import DEVICE, SEED, Row, Spread, alternate, peak_mib, ratios, row, spread
from PIL import Image
from torch import Tensor, nn

from captum_concepts import build_method
from quantus_concepts import IDR, IIR, MCS, optimise_patch
from quantus_concepts.datasets import CutoutFolder, ObjectsOnScenes, PaintedObjects, PaintedScenes, SceneFolder
from quantus_concepts.painted.networks import SmallResNet

N_CLASSES = 10
# The cheapest method, beside which any other cost shows most, and the one whose maps have one channel.
METHODS = ("vanilla gradient", "Grad-CAM")
PATCH_STEPS = 10
LEVELS = 255

ExplainFunc = Callable[..., np.ndarray]


@dataclass(frozen=True)
class Case:
    """On how many images metrics are timed, and how often."""

    n_images: int
    image_size: int
    batch_size: int
    repeats: int


@dataclass(frozen=True)
class Scan:
    """With how many images, and in which chunks, patches are optimised."""

    image_size: int
    n_images: int
    chunk_sizes: tuple[int, ...]
    repeats: int


@dataclass(frozen=True)
class Sizes:
    """How large everything is."""

    small: Case = Case(256, 64, 64, 7)
    large: Case = Case(32, 224, 16, 2)
    scans: tuple[Scan, ...] = (
        Scan(64, 64, (4, 8, 16, 32, 64), 7),
        Scan(128, 64, (2, 4, 8, 16), 3),
        Scan(224, 16, (2, 4, 8), 3),
    )
    gpu: Scan = Scan(224, 64, (16, 32), 3)
    n_per_pair: int = 10
    n_files: int = 20
    compose_repeats: int = 5
    command: tuple[str, ...] = ()


TINY = Sizes(
    small=Case(16, 64, 8, 2),
    large=Case(8, 96, 4, 1),
    scans=(Scan(64, 8, (4, 8), 2), Scan(128, 4, (2,), 1)),
    gpu=Scan(64, 4, (2,), 1),
    n_per_pair=1,
    n_files=2,
    compose_repeats=2,
    command=(
        *("--n-train", "1", "--n-test", "1", "--epochs", "1", "--n-images", "8", "--n-patches", "4"),
        *("--patch-steps", "2", "--n-samples", "2", "--n-steps", "2", "--no-tcav"),
    ),
)


class Images(NamedTuple):
    """Images (n, 3, H, W) of float32 with and without their object, and its masks (n, 1, H, W)."""

    with_object: np.ndarray
    bare: np.ndarray
    masks: np.ndarray


def painted_images(n: int, size: int) -> Images:
    """Compose n images of painted objects on painted scenes."""
    per_pair = -(-n // N_CLASSES**2)
    dataset = ObjectsOnScenes(PaintedObjects(20), PaintedScenes(20), n_per_pair=per_pair, image_size=size, seed=SEED)
    with_object, without = (
        view.images(range(n)).numpy() / np.float32(LEVELS) for view in (dataset, dataset.with_view("0s"))
    )
    return Images(with_object, without, dataset.masks(range(n)).numpy())


def small_network(seed: int = SEED) -> nn.Module:
    """Build the network of the embedded data, with its initial weights."""
    return SmallResNet(N_CLASSES, seed=seed).eval().to(DEVICE)


def resnet18(seed: int = SEED) -> nn.Module:
    torch.manual_seed(seed)
    network: nn.Module = torchvision.models.resnet18(weights=None, num_classes=N_CLASSES)
    return network.eval().to(DEVICE)


@torch.no_grad()
def predict(model: nn.Module, images: Tensor) -> Tensor:
    logits: Tensor = model(images.to(DEVICE))
    return logits


class Recorded(NamedTuple):
    """A call that a metric made: "explained" or "predicted", for how many images, and the same call again."""

    kind: str
    n_images: int
    again: Callable[[], object]


def record(score: Callable[[ExplainFunc], object], explain: ExplainFunc, models: Sequence[nn.Module]) -> list[Recorded]:
    """Run a metric once and return the explanations and predictions it asked for, in their order."""
    calls: list[Recorded] = []
    explaining = False

    def explain_and_note(model: nn.Module, inputs: Any, targets: Any, **kwargs: Any) -> np.ndarray:
        nonlocal explaining
        calls.append(Recorded("explained", len(inputs), partial(explain, model=model, inputs=inputs, targets=targets)))
        explaining = True
        try:
            return explain(model=model, inputs=inputs, targets=targets, **kwargs)
        finally:
            explaining = False

    def note(model: nn.Module, arguments: tuple[Tensor, ...]) -> None:
        # What an explanation asks the model is part of the explanation.
        if not explaining:
            calls.append(Recorded("predicted", len(arguments[0]), partial(predict, model, arguments[0])))

    hooks = [model.register_forward_pre_hook(note) for model in models]
    try:
        score(explain_and_note)
    finally:
        for hook in hooks:
            hook.remove()
    return calls


class Compared(NamedTuple):
    """A metric against the calls it makes: seconds, ratios, and what was counted."""

    ours: float
    calls: float
    ratio: Spread
    ratio_without_checks: float
    counted: str


def compare(
    score: Callable[[ExplainFunc], object], explain: ExplainFunc, models: Sequence[nn.Module], case: Case
) -> Compared:
    """Time a metric and, in turn with it, a bare loop over the very calls that it makes."""
    calls = record(score, explain, models)
    needed: list[float] = []

    def bare() -> None:
        # Two samples explained again and one classified are the checks; whole batches are what is asked for.
        seconds = 0.0
        for call in calls:
            start = time.perf_counter()
            call.again()
            if call.n_images == case.batch_size:
                seconds += time.perf_counter() - start
        needed.append(seconds)

    times = alternate({"ours": partial(score, explain), "calls": bare}, case.repeats)

    def count(kind: str) -> str:
        numbers = [call.n_images for call in calls if call.kind == kind]
        n_needed = sum(number for number in numbers if number == case.batch_size)
        return f"{n_needed} + {sum(numbers) - n_needed} {kind}"

    return Compared(
        spread(times["ours"]).median,
        spread(times["calls"]).median,
        ratios(times["ours"], times["calls"]),
        # The first is of the round that is not timed.
        ratios(times["ours"], needed[1:]).median,
        f"{count('explained')}, {count('predicted')}",
    )


def metrics_of(network: Callable[[int], nn.Module], name: str, method: str, with_attributions: bool, case: Case) -> Row:
    """Compare MCS, IDR and IIR with the calls they make, for one network and one method."""
    images = painted_images(case.n_images, case.image_size)
    model, other = network(SEED), network(SEED + 1)
    labels, other_labels = (
        predict(scored, torch.as_tensor(images.with_object)).argmax(1).cpu().numpy() for scored in (model, other)
    )
    # So faint that the logits stay as they are: patches count as converged.
    patched = np.where(images.masks, images.with_object * np.float32(0.999), images.with_object)
    explain = build_method(method)
    attributions = explain(model=model, inputs=images.with_object, targets=labels) if with_attributions else None
    compared: dict[str, Compared] = {}
    for metric in (
        MCS(other, other_labels, disable_warnings=True),
        IDR(counterpart=images.bare, disable_warnings=True),
        IIR(patched=patched, disable_warnings=True),
    ):

        def score(explain_func: ExplainFunc, metric: Any = metric) -> None:
            metric(
                model,
                images.with_object,
                labels,
                a_batch=attributions,
                s_batch=images.masks,
                explain_func=explain_func,
                batch_size=case.batch_size,
            )
            if metric.undefined == case.n_images:
                raise RuntimeError(f"No image has a score of {metric.name}: this is not what is to be timed.")

        compared[metric.name] = compare(score, explain, (model, other), case)
    counted = "; ".join(f"{metric} {result.counted}" for metric, result in compared.items())
    return row(
        f"{case.n_images} images of {case.image_size} px, {name}, {method}, attributions "
        f"{'given' if with_attributions else 'computed by the metric'}, against the same explanations and predictions "
        f"in the same batches of {case.batch_size}. Images (those needed + those of the checks): {counted}",
        "; ".join(f"{metric} {result.ours * 1e3:.0f} ms" for metric, result in compared.items()),
        "; ".join(f"{metric} {result.calls * 1e3:.0f} ms" for metric, result in compared.items()),
        "; ".join(
            f"{metric} {result.ratio:.3f} x, {result.ratio_without_checks:.3f} x of those needed"
            for metric, result in compared.items()
        ),
        "at most 1.05 x each",
        all(result.ratio.median <= 1.05 for result in compared.values()),
    )


def measure_metrics(sizes: Sizes) -> list[Row]:
    """MCS, IDR and IIR against the explanations and predictions they ask for."""
    # The cheapest method is the hardest case; one on the larger network is enough to see how the ratio falls.
    cases = [
        (small_network, "SmallResNet", method, with_attributions, sizes.small)
        for method in METHODS
        for with_attributions in (False, True)
    ]
    cases.append((resnet18, "ResNet-18", METHODS[0], False, sizes.large))
    return [metrics_of(*case) for case in cases]


def patch_arguments(n: int, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return scenes, where objects go, and images that show them."""
    images = painted_images(n, size)
    return images.bare, images.masks, images.with_object


def optimise(model: nn.Module, arguments: tuple[np.ndarray, ...], chunk_size: int | None) -> Any:
    images, masks, init = arguments
    result = optimise_patch(model, images, masks, init, steps=PATCH_STEPS, chunk_size=chunk_size)
    measuring.wait()
    return result


def default_chunk(model: nn.Module, arguments: tuple[np.ndarray, ...]) -> int:
    """Return how many images are optimised together where the user does not say."""
    batch_sizes: list[int] = []
    hook = model.register_forward_pre_hook(lambda _, inputs: batch_sizes.append(len(inputs[0])))
    try:
        optimise(model, arguments, None)
    finally:
        hook.remove()
    return max(batch_sizes)


def difference_in_float64(scan: Scan) -> float:
    """Return by how much patches made together and one by one differ, in levels of 0 to 255."""
    model = small_network().double()
    images, masks, init = patch_arguments(scan.n_images, scan.image_size)
    arguments = (images.astype(np.float64), masks, init.astype(np.float64))
    together, alone = (optimise(model, arguments, chunk_size).images for chunk_size in (None, 1))
    return float((together - alone).abs().max()) * LEVELS


def scan_chunks(model: nn.Module, name: str, scan: Scan, target: float | None) -> list[Row]:
    """Compare the default chunks with one image after another, and with other chunks."""
    device = next(model.parameters()).device
    arguments = patch_arguments(scan.n_images, scan.image_size)
    default = default_chunk(model, arguments)
    calls: dict[int, Callable[[], object]] = {
        size: partial(optimise, model, arguments, size) for size in sorted({1, *scan.chunk_sizes})
    }
    # Under its own number, so that what the user gets is what is timed.
    calls[default] = partial(optimise, model, arguments, None)
    by_name = alternate({str(size): call for size, call in calls.items()}, scan.repeats)
    times = {int(size): seconds_of_size for size, seconds_of_size in by_name.items()}
    seconds = {size: spread(seconds_of_size).median for size, seconds_of_size in times.items()}
    best = min(seconds, key=seconds.__getitem__)
    ratio = ratios(times[1], times[default])
    what = f"{scan.n_images} patches of {PATCH_STEPS} steps, {name}, {scan.image_size} px, {device.type}"
    listed = ", ".join(f"{size}: {seconds[size]:.2f} s" for size in sorted(seconds))
    return [
        row(
            f"{what}: together (default, {default} in a chunk) against one after another",
            f"{seconds[default]:.2f} s",
            f"{seconds[1]:.2f} s",
            f"{ratio:.1f} x faster",
            "" if target is None else f"at least {target:g} x",
            None if target is None else ratio.median >= target,
        ),
        row(
            f"{what}: the default against other sizes of a chunk",
            f"{default} in a chunk: {seconds[default]:.2f} s",
            listed,
            f"{seconds[default] / seconds[best]:.2f} x of the best, {best} in a chunk",
            "",
            None,
        ),
    ]


def measure_patch(sizes: Sizes) -> list[Row]:
    """Patches optimised together against one after another, on the CPU."""
    first = sizes.scans[0]
    difference = difference_in_float64(first)
    rows = [
        row(
            f"{first.n_images} patches of {PATCH_STEPS} steps, SmallResNet, {first.image_size} px, float64, together "
            "against one after another: largest difference of a pixel, of 0 to 255",
            "",
            "",
            f"{difference:.1g}",
            "at most 1e-4",
            difference <= 1e-4,
        )
    ]
    for number, scan in enumerate(sizes.scans):
        rows += scan_chunks(small_network(), "SmallResNet", scan, None if number else 3)
    return rows


def measure_gpu(sizes: Sizes) -> list[Row]:
    """Patches optimised together against one after another, on a GPU."""
    if DEVICE.type == "cpu":
        print("gpu: there is none at hand, or it was not asked for (--device=cuda).", file=sys.stderr)
        return []
    torch.manual_seed(SEED)
    model = torchvision.models.resnet50(weights=None).eval().to(DEVICE)
    return scan_chunks(model, f"ResNet-50 on {torch.cuda.get_device_name()}", sizes.gpu, 20)


def painted_sources(n_per_class: int = 60) -> tuple[PaintedObjects, PaintedScenes]:
    return PaintedObjects(n_per_class), PaintedScenes(n_per_class)


def write_folders(root: Path, n_per_class: int) -> tuple[Path, Path]:
    """Write cut-outs of 200 px as PNG and scenes of 256 px as JPEG, in a folder for each class."""
    objects, scenes = PaintedObjects(n_per_class, size=200), PaintedScenes(n_per_class, size=256)
    for index, label in enumerate(objects.labels):
        cutout = objects[index]
        folder = root / "objects" / objects.class_names[label]
        folder.mkdir(parents=True, exist_ok=True)
        alpha = cutout.mask.astype(np.uint8) * 255
        Image.fromarray(np.dstack([cutout.pixels, alpha])).save(folder / f"{index}.png")
    for index, label in enumerate(scenes.labels):
        folder = root / "scenes" / scenes.class_names[label]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(scenes[index]).save(folder / f"{index}.jpg", quality=90)
    return root / "objects", root / "scenes"


def composing(what: str, sources: Callable[[], tuple[Any, Any]], sizes: Sizes) -> Row:
    """Compose every image of a data set made anew, sources included, and then once more."""
    first, second = [], []
    for _ in range(sizes.compose_repeats + 1):
        start = time.process_time()
        dataset = ObjectsOnScenes(*sources(), n_per_pair=sizes.n_per_pair, image_size=128)
        n_images = len(dataset.images())
        middle = time.process_time()
        dataset.images()
        first.append(n_images / (middle - start))
        second.append(n_images / (time.process_time() - middle))
    # The first round is not counted, as everywhere here.
    rate, again = spread(first[1:]), spread(second[1:])
    sources = f"{len(np.unique(dataset.cutout_indices))} cut-outs and {len(np.unique(dataset.scene_indices))} scenes"
    return row(
        f"Composing {n_images:,} images of 128 px, one thread, CPU time: {what}, {sources}; a second pass over the "
        f"same data set {again.median:,.0f} images/s",
        f"{rate:,.0f} images/s",
        "",
        "",
        "at least 500 images/s",
        rate.median >= 500,
    )


def compose_in_batches(n_per_pair: int, n_per_class: int, batch_size: int = 64) -> float:
    """Compose all images, keeping none, and return the peak memory of this process in MiB."""
    dataset = ObjectsOnScenes(*painted_sources(n_per_class), n_per_pair=n_per_pair, image_size=128)
    for start in range(0, len(dataset), batch_size):
        dataset.images(range(start, min(start + batch_size, len(dataset))))
    return peak_mib()


def peak_of_composing(n_per_pair: int, n_per_class: int) -> float:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import attribution;"
        "print(attribution.compose_in_batches(int(sys.argv[2]), int(sys.argv[3])))"
    )
    command = [sys.executable, "-c", code, str(Path(__file__).parent), str(n_per_pair), str(n_per_class)]
    return float(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split()[-1])


def composing_memory(sizes: Sizes) -> list[Row]:
    """Peak memory with eight times the images, of the same sources and of sources that grow along."""
    few, many = sizes.n_per_pair, 8 * sizes.n_per_pair
    n_few, n_many = few * N_CLASSES**2, many * N_CLASSES**2
    start = peak_of_composing(few, 60)
    same, grown = peak_of_composing(many, 60), peak_of_composing(many, 480)
    what = f"Peak memory of composing {n_many:,} images of 128 px in batches of 64 against {n_few:,}"
    return [
        row(
            f"{what}, the same 600 cut-outs and 600 scenes",
            f"{same:.0f} MiB",
            f"{start:.0f} MiB",
            f"{same - start:+.0f} MiB",
            "independent of the number of images (within 16 MiB)",
            same - start <= 16,
        ),
        row(
            f"{what}, with 4,800 cut-outs and scenes against 600; up to 64 MiB of each are kept",
            f"{grown:.0f} MiB",
            f"{start:.0f} MiB",
            f"{grown - start:+.0f} MiB",
            "no more than what is kept, 128 MiB",
            grown - start <= 128,
        ),
    ]


def measure_compose(sizes: Sizes) -> list[Row]:
    """Images composed in a second of one core, and the memory it takes."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        objects, scenes = write_folders(Path(folder), sizes.n_files)
        rows = [
            composing("painted objects and scenes, painting included", painted_sources, sizes),
            composing(
                "folders of RGBA PNG (200 px) and JPEG (256 px), reading included",
                lambda: (CutoutFolder(objects), SceneFolder(scenes)),
                sizes,
            ),
        ]
    return rows + composing_memory(sizes)


def measure_command(sizes: Sizes) -> list[Row]:
    """The default command, on two cores."""

    def use_two_cores() -> None:
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: measuring.THREADS])

    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        subprocess.run(
            ["quantus-concepts", "benchmark", "attribution", "--no-progress", *sizes.command],
            check=True,
            stdout=subprocess.DEVNULL,
            cwd=folder,
            env={**os.environ, "OMP_WAIT_POLICY": "PASSIVE"},
            preexec_fn=use_two_cores,
        )
        seconds = time.perf_counter() - start
    gigabytes = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 / 1e9
    return [
        row(
            f"`quantus-concepts benchmark attribution`, {' '.join(sizes.command) or 'all defaults'}, on two cores",
            f"{seconds:.0f} s, {gigabytes:.2f} GB",
            "",
            "",
            "under 360 s and 3 GB",
            seconds < 360 and gigabytes < 3,
        )
    ]


MEASURES: dict[str, Callable[[Sizes], list[Row]]] = {
    "metrics": measure_metrics,
    "patch": measure_patch,
    "gpu": measure_gpu,
    "compose": measure_compose,
    "command": measure_command,
}


def main(arguments: list[str]) -> int:
    return measuring.main_of_sizes(__file__, MEASURES, (Sizes(), TINY), arguments)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
