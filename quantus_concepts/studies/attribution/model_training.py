"""Training of several models of one kind with one call: f_o, f_s, f_0 and the f_s^k, none of them twice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Event
from typing import Any

import torch
from torch import Tensor, nn

from captum_concepts._support.checks import check_range
from quantus_concepts.studies.attribution.augmentation import Augmentation
from quantus_concepts.studies.attribution.training_samples import (
    ComposedImages,
    StreamedSamples,
    Target,
    data_digest,
    image_shape,
    kept_images,
    target_labels,
    tensor_hash,
)
from quantus_concepts.studies.kept import Kept
from quantus_concepts.studies.training import (
    LEARNING_RATE,
    WEIGHT_DECAY,
    KeptSamples,
    Samples,
    SmallResNet,
    fit,
    run_together,
)

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
        "data": data_digest(job.data, labels),
        "modules": [f"{name}: {type(part).__qualname__}" for name, part in network.named_modules()],
        "initial": [*initial, tensor_hash(*initial.values())],
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
