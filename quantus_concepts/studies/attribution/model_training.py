"""Networks of the attribution study: samples in memory, augmentation, training."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Event
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from captum_concepts._support.checks import check_choice, check_range, check_shape
from captum_concepts._support.progress import progress
from quantus_concepts.studies._kit.kept import Kept
from quantus_concepts.studies._models.training import (
    LEARNING_RATE,
    WEIGHT_DECAY,
    KeptSamples,
    Samples,
    SmallResNet,
    fit,
    run_together,
)


@dataclass(frozen=True)
class Augmentation:
    """Mirror images and shift them by some pixels, each image in its own way."""

    flip: bool = True
    shift: int = 4

    def __post_init__(self) -> None:
        check_range("shift", self.shift, 0, 1_000)

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Return changed images (B, C, H, W); the generator is one of the CPU."""
        n, _, height, width = images.shape
        device = images.device
        row = torch.arange(height, device=device).expand(n, -1)
        column = torch.arange(width, device=device).expand(n, -1)
        if self.flip:
            mirrored = torch.randint(2, (n, 1), generator=generator).to(device).bool()
            column = torch.where(mirrored, width - 1 - column, column)
        if self.shift:
            offsets = torch.randint(2 * self.shift + 1, (2, n, 1), generator=generator).to(device)
            row, column = row + offsets[0], column + offsets[1]
            images = functional.pad(images, (self.shift,) * 4, mode="replicate")
        sample = torch.arange(n, device=device)[:, None, None]
        # Indexed with the channels last: the three indices then stand side by side.
        return images.permute(0, 2, 3, 1)[sample, row[:, :, None], column[:, None]].permute(0, 3, 1, 2)


Target = Literal["object", "scene"]
TARGETS: tuple[Target, ...] = ("object", "scene")
#: Images that are looked at to tell one data set from another.
N_COMPARED = 16
#: Images read at once when a data set is put into memory.
CHUNK = 256


class ComposedImages(Protocol):
    """What is used of `quantus_concepts.datasets.ObjectsOnScenes`."""

    @property
    def object_labels(self) -> Tensor:
        """Return the classes (N,) of the objects, -1 for none."""

    @property
    def scene_labels(self) -> Tensor:
        """Return the classes (N,) of the scenes."""

    def __len__(self) -> int:
        """Return N."""

    def images(self, indices: Any, /) -> Tensor:
        """Return the images (n, 3, H, W) of uint8 at a list of indices."""


class StreamedSamples:
    """Images that are read batch by batch, so that memory does not grow with their number."""

    def __init__(self, data: ComposedImages, targets: Tensor) -> None:
        self.data = data
        self.targets = targets

    def __len__(self) -> int:
        return len(self.targets)

    def batches(self, rows: Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield images (B, 3, H, W) of uint8 and targets (B,) for each tensor of indices (B,)."""
        return ((self.data.images(batch.tolist()), self.targets[batch]) for batch in rows)


def target_labels(data: ComposedImages, target: str, n_classes: int) -> Tensor:
    """Return the labels a model is trained on."""
    check_choice("target", target, TARGETS)
    labels = torch.as_tensor(data.object_labels if target == "object" else data.scene_labels).long()
    check_shape(f"{target}_labels", labels, ("N",), (len(data),))
    wrong = ((labels < 0) | (labels >= n_classes)).nonzero().flatten()
    if len(wrong):
        first = int(wrong[0])
        hint = " Without an object in every image, train on the scenes." if labels[first] < 0 else ""
        raise ValueError(
            f"Expected the {target} labels to lie in [0, {n_classes - 1}] but got {int(labels[first])} at {first}; "
            f"{len(wrong)} of {len(labels)} do not.{hint}"
        )
    return labels


def image_shape(data: ComposedImages) -> tuple[int, ...]:
    """Return the shape (C, H, W) of the first image."""
    if len(data) == 0:
        raise ValueError("Expected a data set with at least one image but it is empty.")
    first = data.images([0])
    check_shape("images", first, ("N", "C", "H", "W"), (1, None, None, None))
    if first.dtype != torch.uint8:
        raise ValueError(f"Expected the images of the data set to be of uint8 but got {first.dtype}.")
    return tuple(first.shape[1:])


def kept_images(data: ComposedImages, *, description: str = "images", display_progressbar: bool = False) -> Tensor:
    """Read all images into memory."""
    images = torch.empty(len(data), *image_shape(data), dtype=torch.uint8)
    with progress(description=description, total=len(data), unit="image", show=display_progressbar) as bar:
        for start in range(0, len(data), CHUNK):
            rows = list(range(start, min(start + CHUNK, len(data))))
            images[start : start + CHUNK] = data.images(rows)
            bar.update(len(rows))
    return images


def data_identity(data: ComposedImages, labels: Tensor) -> dict[str, Any]:
    """Return what tells one data set from another: its size, all labels and some images."""
    rows = torch.linspace(0, len(data) - 1, min(N_COMPARED, len(data)), dtype=torch.float64).round().long().tolist()
    return {"n": len(data), "shape": image_shape(data), "labels": labels, "images": data.images(rows)}


#: Of networks that are not the small one: they are large, and most bring weights that should not be lost.
FINE_TUNING_RATE = 3e-4
MEMORY_LIMIT = 2**30
# Part of every fingerprint: changes with how models are trained.
_VERSION = 1


@dataclass(frozen=True)
class Job:
    """One model to be trained."""

    name: str
    data: ComposedImages
    target: Target
    n_classes: int


@dataclass
class _Training:
    job: Job
    network: nn.Module
    labels: Tensor
    learning_rate: float
    files: Kept | None


def train_models(
    jobs: Sequence[Job],
    build: Callable[[int, int], nn.Module],
    *,
    folder: Path | None = None,
    epochs: int = 6,
    batch_size: int = 64,
    learning_rate: float | None = None,
    device: torch.device | str = "cpu",
    seed: int = 0,
    augment: Augmentation | None = None,
    memory_limit: int = MEMORY_LIMIT,
    checkpoint_seconds: float = 60.0,
    display_progressbar: bool = False,
) -> dict[str, nn.Module]:
    """Train several models, or load those that were trained before."""
    # All start from the same seed, so that f_s^k differ by their data alone. Small networks on a CPU whose images
    # are in memory are trained at the same time, each on one core; others one after another. On the CPU the weights
    # depend on the seed and the number of torch's threads alone, interrupted or not. With a folder, a finished
    # model is kept under a name that holds a fingerprint of what its weights depend on: its name, target and
    # classes, its data (their size, all labels, some images), the initial weights and the modules of the network,
    # and the settings of the training; not the device. The same call then loads it and does not train; a call with
    # other settings trains a model of another file name, and the earlier one stays. A training that was interrupted
    # goes on where its last checkpoint was written. Damaged files are said in a warning, and the model is trained
    # again.
    _check_jobs(jobs)
    check_range("epochs", epochs, 1, 10_000)
    check_range("batch_size", batch_size, 2, 1_000_000)
    if learning_rate is not None:
        check_range("learning_rate", learning_rate, 0, 1_000, open_low=True)
    labels = {job.name: target_labels(job.data, job.target, job.n_classes) for job in jobs}
    in_memory = _n_bytes(jobs) <= memory_limit
    models: dict[str, nn.Module] = {}
    pending: list[_Training] = []
    for job in jobs:
        network = build(job.n_classes, seed)
        small = isinstance(network, SmallResNet)
        rate = learning_rate if learning_rate is not None else (LEARNING_RATE if small else FINE_TUNING_RATE)
        files = None
        if folder is not None:
            settings = _settings(job, labels[job.name], network, epochs, batch_size, rate, seed, augment)
            files = Kept(folder, job.name, settings, checkpoint_seconds)
        models[job.name] = network.to(device).eval()
        if files is None or (weights := files.load()) is None:
            pending.append(_Training(job, network, labels[job.name], rate, files))
            continue
        network.load_state_dict(weights)
        if small:
            network.to(memory_format=torch.channels_last)
    samples = _samples(pending, in_memory, display_progressbar)

    def task(training: _Training, *, together: bool) -> Callable[[Event, int], None]:
        def run(stop: Event, position: int) -> None:
            done = fit(
                training.network,
                samples[training.job.name],
                epochs=epochs,
                batch_size=batch_size,
                learning_rate=training.learning_rate,
                seed=seed,
                augment=augment,
                checkpoint=training.files,
                channels_last=isinstance(training.network, SmallResNet),
                own_generator=not together,
                description=f"training {training.job.name}",
                position=position,
                stop=stop,
                display_progressbar=display_progressbar,
            )
            if done:
                _finish(training)

        return run

    # The small network draws nothing in training; what others draw comes from generators that threads share.
    together = (
        in_memory
        and torch.device(device).type == "cpu"
        and all(isinstance(training.network, SmallResNet) for training in pending)
    )
    tasks = [task(training, together=together) for training in pending]
    if together and tasks:
        # Of three on two cores all take turns, where else a core would wait for the third.
        n_threads = torch.get_num_threads()
        run_together(tasks, 2 * n_threads if n_threads > 1 else 1)
    else:
        for each in tasks:
            each(Event(), 0)
    return models


def _check_jobs(jobs: Sequence[Job]) -> None:
    if not jobs:
        raise ValueError("Expected argument `jobs` to hold at least one job but it is empty.")
    names = [job.name for job in jobs]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"Expected argument `jobs` to have different names but {twice} occur more than once.")
    for job in jobs:
        check_range("n_classes", job.n_classes, 2, 1_000_000)


def _n_bytes(jobs: Sequence[Job]) -> int:
    distinct = {id(job.data): job.data for job in jobs}
    return sum(len(data) * torch.Size(image_shape(data)).numel() for data in distinct.values())


def _samples(pending: Sequence[_Training], in_memory: bool, display_progressbar: bool) -> dict[str, Samples]:
    kept: dict[int, Tensor] = {}
    samples: dict[str, Samples] = {}
    for training in pending:
        job = training.job
        if not in_memory:
            samples[job.name] = StreamedSamples(job.data, training.labels)
            continue
        if id(job.data) not in kept:
            kept[id(job.data)] = kept_images(
                job.data, description=f"images of {job.name}", display_progressbar=display_progressbar
            )
        samples[job.name] = KeptSamples(kept[id(job.data)], training.labels)
    return samples


def _settings(
    job: Job,
    labels: Tensor,
    network: nn.Module,
    epochs: int,
    batch_size: int,
    learning_rate: float,
    seed: int,
    augment: Augmentation | None,
) -> dict[str, Any]:
    initial = network.state_dict()
    return {
        "version": _VERSION,
        "name": job.name,
        "target": job.target,
        "n_classes": job.n_classes,
        "data": data_identity(job.data, labels),
        "modules": [f"{name}: {type(part).__qualname__}" for name, part in network.named_modules()],
        "initial": initial,
        "epochs": epochs,
        "batch_size": batch_size,
        "learning_rate": learning_rate,
        "weight_decay": WEIGHT_DECAY,
        "seed": seed,
        "augment": None if augment is None else asdict(augment),
    }


def _finish(training: _Training) -> None:
    state = training.network.state_dict()
    if not all(bool(tensor.isfinite().all()) for tensor in state.values()):
        raise ValueError(
            f"The training of {training.job.name} diverged: weights are not finite. Lower `learning_rate` "
            f"({training.learning_rate})."
        )
    if training.files is not None:
        training.files.save(state)
