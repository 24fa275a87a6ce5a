"""Models of the attribution study: trained on composed images and kept, or loaded where they were trained before."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any, Literal

import torch
from torch import Tensor, nn

from captum_concepts._support.progress import progress
from quantus_concepts.datasets import ComposedDataset
from quantus_concepts.studies._kit.run import Kept
from quantus_concepts.studies._models.training import (
    LEARNING_RATE,
    WEIGHT_DECAY,
    Augmentation,
    KeptSamples,
    Samples,
    SmallResNet,
    fit,
    load_trained,
    run_together,
)

#: Images that are compared to tell one data set from another.
N_COMPARED = 16
#: Images read at a time when a data set is put into memory, and bytes it may take there.
CHUNK, MEMORY_LIMIT = 256, 2**30
#: Learning rate of other networks than the small one: large ones, most of which bring weights that should not be lost.
FINE_TUNING_RATE = 3e-4
# Part of every fingerprint: changes with how models are trained.
_VERSION = 1


@dataclass(frozen=True)
class Job:
    """One model to be trained."""

    name: str
    data: ComposedDataset
    target: Literal["object", "scene"]
    n_classes: int

    @property
    def labels(self) -> Tensor:
        """The classes (N,) it learns."""
        return torch.as_tensor(self.data.object_labels if self.target == "object" else self.data.scene_labels).long()


class StreamedSamples:
    """Images that are read batch by batch, so that memory does not grow with their number."""

    def __init__(self, data: ComposedDataset, targets: Tensor) -> None:
        self.data, self.targets = data, targets

    def __len__(self) -> int:
        return len(self.targets)

    def batches(self, rows: Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield images (B, 3, H, W) of uint8 and targets (B,) for each tensor of indices (B,)."""
        return ((self.data.images(batch.tolist()), self.targets[batch]) for batch in rows)


def kept_images(data: ComposedDataset, *, description: str = "images", display_progressbar: bool = False) -> Tensor:
    """Read all images into memory."""
    images = torch.empty(len(data), *data.images([0]).shape[1:], dtype=torch.uint8)
    with progress(description=description, total=len(data), unit="image", show=display_progressbar) as bar:
        for start in range(0, len(data), CHUNK):
            rows = list(range(start, min(start + CHUNK, len(data))))
            images[start : start + CHUNK] = data.images(rows)
            bar.update(len(rows))
    return images


def data_identity(data: ComposedDataset, labels: Tensor) -> dict[str, Any]:
    """Return what tells one data set from another: its size, all labels and some images."""
    rows = torch.linspace(0, len(data) - 1, min(N_COMPARED, len(data)), dtype=torch.float64).round().long().tolist()
    return {"n": len(data), "labels": labels, "images": data.images(rows)}


@dataclass
class _Training:
    job: Job
    network: nn.Module
    learning_rate: float
    files: Kept | None

    def load(self) -> bool:
        """Load the weights of an earlier training; return whether there are any."""
        if self.files is None or (weights := self.files.load()) is None:
            return False
        if isinstance(self.network, SmallResNet):
            load_trained(self.network, weights)
        else:
            self.network.load_state_dict(weights)
        return True

    def run(self, samples: Samples, settings: Mapping[str, Any], stop: Event, position: int) -> None:
        """Train the network and keep its weights, unless the training is stopped."""
        done = fit(
            self.network,
            samples,
            learning_rate=self.learning_rate,
            checkpoint=self.files,
            channels_last=isinstance(self.network, SmallResNet),
            description=f"training {self.job.name}",
            position=position,
            stop=stop,
            **settings,
        )
        state = self.network.state_dict()
        if done and not all(bool(tensor.isfinite().all()) for tensor in state.values()):
            raise ValueError(
                f"The training of {self.job.name} diverged: weights are not finite. Lower `learning_rate` "
                f"({self.learning_rate})."
            )
        if done and self.files is not None:
            self.files.save(state)


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
    # model is kept under a fingerprint of what its weights depend on: its name, target and classes, its data (their
    # size, all labels, some images), the initial network, and the settings of the training; not the device.
    trainings = []
    for job in jobs:
        network = build(job.n_classes, seed)
        files: Kept | None = None
        usual_rate = LEARNING_RATE if isinstance(network, SmallResNet) else FINE_TUNING_RATE
        rate = usual_rate if learning_rate is None else learning_rate
        if folder is not None:
            depends = {
                "version": _VERSION,
                "job": [job.name, job.target, job.n_classes],
                "data": data_identity(job.data, job.labels),
                "network": network,
                "training": [epochs, batch_size, rate, WEIGHT_DECAY, seed],
                "augment": None if augment is None else asdict(augment),
            }
            files = Kept(folder, job.name, depends, checkpoint_seconds)
        trainings.append(_Training(job, network.to(device).eval(), rate, files))
    pending = [training for training in trainings if not training.load()]
    distinct = {id(job.data): job.data for job in jobs}
    in_memory = sum(len(data) * data.images([0]).numel() for data in distinct.values()) <= memory_limit
    samples = _samples(pending, in_memory, display_progressbar)
    # The small network draws nothing in training; what others draw comes from generators that threads share.
    all_small = all(isinstance(training.network, SmallResNet) for training in pending)
    together = in_memory and torch.device(device).type == "cpu" and all_small
    settings: dict[str, Any] = {"epochs": epochs, "batch_size": batch_size, "seed": seed, "augment": augment}
    settings |= {"own_generator": not together, "display_progressbar": display_progressbar}
    tasks = [partial(training.run, samples[training.job.name], settings) for training in pending]
    if together and tasks:
        # With more tasks than cores all take turns: no core waits for the last one.
        n_threads = torch.get_num_threads()
        run_together(tasks, 2 * n_threads if n_threads > 1 else 1)
    else:
        for train in tasks:
            train(Event(), 0)
    return {training.job.name: training.network for training in trainings}


def _samples(pending: Sequence[_Training], in_memory: bool, display_progressbar: bool) -> dict[str, Samples]:
    """Return images and labels by model; data that models share are read once."""
    images: dict[int, Tensor] = {}
    samples: dict[str, Samples] = {}
    for job in (training.job for training in pending):
        if not in_memory:
            samples[job.name] = StreamedSamples(job.data, job.labels)
            continue
        if id(job.data) not in images:
            description = f"images of {job.name}"
            images[id(job.data)] = kept_images(
                job.data, description=description, display_progressbar=display_progressbar
            )
        samples[job.name] = KeptSamples(images[id(job.data)], job.labels)
    return samples
