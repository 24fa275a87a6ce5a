"""Models of the attribution study, trained on composed images; each trained network is cached as its tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any, NamedTuple

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from captum_concepts.fingerprints import fingerprint_of
from captum_concepts.support.files import read_bytes
from quantus_concepts.datasets import ComposedDataset
from quantus_concepts.painted.networks import SmallResNet
from quantus_concepts.painted.training import (
    LEARNING_RATE,
    Augmentation,
    KeptSamples,
    Samples,
    fit,
    load_trained,
    one_thread,
)
from quantus_concepts.studies._kit.folder import RunFolder

#: Images that are compared to tell one data set from another.
N_COMPARED = 16
#: Bytes that data sets may take in memory; larger ones are read batch by batch.
MEMORY_LIMIT = 2**30
#: Learning rate of other networks than the small one: large ones, most of which bring weights that should not be lost.
FINE_TUNING_RATE = 3e-4


class Job(NamedTuple):
    """One model to be trained: its name, its images, and their classes (N,)."""

    name: str
    data: ComposedDataset
    labels: Tensor
    n_classes: int


class StreamedSamples:
    """Images that are read batch by batch, so that memory does not grow with their number."""

    def __init__(self, data: ComposedDataset, targets: Tensor) -> None:
        self.data, self.targets = data, targets

    def __len__(self) -> int:
        return len(self.targets)

    def batches(self, rows: Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield images (B, 3, H, W) of uint8 and targets (B,) for each tensor of indices (B,)."""
        return ((self.data.images(batch.tolist()), self.targets[batch]) for batch in rows)


def data_identity(data: ComposedDataset, labels: Tensor) -> dict[str, object]:
    """Return what tells one data set from another: its size, all labels and some images."""
    rows = torch.linspace(0, len(data) - 1, min(N_COMPARED, len(data)), dtype=torch.float64).round().long().tolist()
    return {"n": len(data), "labels": labels, "images": data.images(rows)}


def train_models(
    folder: RunFolder,
    jobs: Sequence[Job],
    build: Callable[[int, int], nn.Module],
    *,
    models: Path | None = None,
    epochs: int = 6,
    batch_size: int = 64,
    learning_rate: float | None = None,
    device: torch.device | str = "cpu",
    seed: int = 0,
    augment: Augmentation | None = None,
    memory_limit: int = MEMORY_LIMIT,
    display_progressbar: bool = False,
) -> dict[str, nn.Module]:
    """Train models, each cached in the folder once it is finished; `models` is the cache of an earlier run to read."""
    # All start from the same seed, so that f_s^k differ by their data alone. On the CPU the weights depend on the
    # seed and the number of torch's threads alone.
    networks = {job.name: build(job.n_classes, seed).to(device).eval() for job in jobs}
    small = all(isinstance(network, SmallResNet) for network in networks.values())
    rate = (LEARNING_RATE if small else FINE_TUNING_RATE) if learning_rate is None else learning_rate
    settings: dict[str, Any] = {"epochs": epochs, "batch_size": batch_size, "learning_rate": rate, "seed": seed}
    changes = None if augment is None else asdict(augment)
    # Fingerprints of now: another thread may train a network while the first one is cached.
    identities = {job.name: data_identity(job.data, job.labels) for job in jobs}
    keys = {name: fingerprint_of(identities[name], network, settings, changes) for name, network in networks.items()}
    in_memory = sum(len(data) * data.images([0]).numel() for data in {job.data for job in jobs}) <= memory_limit
    # Small networks on a CPU are trained at the same time, each on one core: they draw nothing in training, and gain
    # little from a second core. What others draw comes from generators that threads share.
    together = small and in_memory and torch.device(device).type == "cpu"
    stop, trainings = Event(), dict[str, Future[dict[str, Tensor]]]()
    images: dict[ComposedDataset, Tensor] = {}

    def samples_of(job: Job) -> Samples:
        if not in_memory:
            return StreamedSamples(job.data, job.labels)
        if job.data not in images:
            images[job.data] = job.data.images()
        return KeptSamples(images[job.data], job.labels)

    def train(job: Job, samples: Samples) -> dict[str, Tensor]:
        fit(
            networks[job.name],
            samples,
            **settings,
            augment=augment,
            channels_last=small,
            own_generator=not together,
            description=f"training {job.name}",
            stop=stop,
            display_progressbar=display_progressbar,
        )
        weights = {name: tensor.clone() for name, tensor in networks[job.name].state_dict().items()}
        if not all(bool(tensor.isfinite().all()) for tensor in weights.values()):
            raise ValueError(
                f"The training of {job.name} diverged: weights are not finite. Lower `--learning-rate` ({rate})."
            )
        return weights

    def trained(place: int) -> dict[str, Tensor]:
        if not together:
            return train(jobs[place], samples_of(jobs[place]))
        if jobs[place].name not in trainings:
            # Models are cached in order, so that none of the others is.
            for job in jobs[place:]:
                trainings[job.name] = pool.submit(train, job, samples_of(job))
        return trainings[jobs[place].name].result()

    # With more trainings than cores all take turns: no core waits for the last one.
    n_workers = 2 * torch.get_num_threads() if torch.get_num_threads() > 1 else 1
    with one_thread() if together else nullcontext(), ThreadPoolExecutor(n_workers) as pool:
        try:
            for place, job in enumerate(jobs):
                limit = _file_limit(networks[job.name])
                weights = _cached(
                    folder, models, limit, job.name.replace("^", "_"), keys[job.name], partial(trained, place)
                )
                if small:
                    load_trained(networks[job.name], weights)
                else:
                    networks[job.name].load_state_dict(weights)
        finally:  # Ctrl-C too: the pool waits for its threads
            stop.set()
    return networks


def _cached(
    folder: RunFolder, models: Path | None, limit: int, name: str, key: object, make: Callable[[], dict[str, Tensor]]
) -> dict[str, Tensor]:
    """Return the weights of a model of an earlier run if it is the same, or of the run's own cache."""
    if models is not None:
        with suppress(OSError, SafetensorError):
            path = models / f"{name}-{fingerprint_of(key)[:16]}.safetensors"
            return safetensors.torch.load(read_bytes(path, "Model of `--models`", limit))
    return folder.cached(name, key, make)


def _file_limit(network: nn.Module) -> int:
    """Return the most bytes that a file of a network's weights may have: its tensors, and 1 MiB for their names."""
    return sum(tensor.nbytes for tensor in network.state_dict().values()) + 2**20
