"""Models of the attribution study: trained on composed images and kept, or loaded where they were trained before."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Event
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from captum_concepts._support.checks import check_range
from captum_concepts._support.progress import progress
from quantus_concepts.datasets import ComposedDataset
from quantus_concepts.studies._kit.run import Kept
from quantus_concepts.studies._models.networks import NO_WEIGHTS, Network, load_network
from quantus_concepts.studies._models.options import SMALL, STRIDE
from quantus_concepts.studies._models.training import (
    LEARNING_RATE,
    WEIGHT_DECAY,
    FineResNet,
    KeptSamples,
    Samples,
    SmallResNet,
    fit,
    run_together,
    seeded,
)


class Normalised(nn.Module):
    """A network with its normalisation in front, so that it takes images in [0, 1]."""

    mean: Tensor
    std: Tensor

    def __init__(
        self, network: nn.Module, mean: Sequence[float] | None = None, std: Sequence[float] | None = None
    ) -> None:
        super().__init__()
        if (mean is None) != (std is None):
            raise ValueError("Expected arguments `mean` and `std` both or neither but got only one of them.")
        if std is not None and min(std) <= 0:
            raise ValueError(f"Expected argument `std` to be positive but got {tuple(std)}.")
        self.network = network
        self.register_buffer("mean", torch.tensor(mean or (0.0,), dtype=torch.float32)[:, None, None])
        self.register_buffer("std", torch.tensor(std or (1.0,), dtype=torch.float32)[:, None, None])

    def forward(self, images: Tensor) -> Tensor:
        """Return logits (N, K) of images (N, 3, H, W) in [0, 1]."""
        return self.network((images - self.mean) / self.std)


def network_builder(
    spec: str = SMALL,
    weights: str | None = None,
    *,
    image_size: int = 128,
    channels: int = 32,
    normalisation: Mapping[str, Any] | None = None,
) -> Callable[[int, int], nn.Module]:
    """Return a function that builds networks of one kind, for `train_models`."""
    # The backbone is loaded once. Each network is a copy with a fresh linear last layer: timm's own
    # ``reset_classifier``, otherwise the last linear layer among the modules, or the last convolution, of 1 x 1,
    # where there is no linear one (SqueezeNet). Activations are made not to work in place, which Captum's guided
    # methods and hooks cannot stand. What a model calls as a function (DenseNet, GoogLeNet and Inception of
    # torchvision: ``functional.relu``) is not changed, and guided backpropagation does not see it.
    check_range("image_size", image_size, 1, 100_000)
    if spec == SMALL:
        if weights is not None and weights != NO_WEIGHTS:
            raise ValueError("Expected no argument `weights` for the small network: it is trained from the start.")
        if image_size % STRIDE:
            raise ValueError(
                f"Expected argument `image_size` to be a multiple of {STRIDE} for the small network but got "
                f"{image_size}."
            )
        return lambda n_classes, seed: FineResNet(n_classes, channels, seed).eval()
    said = normalisation or {}
    with seeded(0):
        loaded = load_network(spec, weights, **said)

    def build(n_classes: int, seed: int) -> nn.Module:
        with seeded(seed):
            network = load_network(spec, weights, **said) if weights == NO_WEIGHTS else copy.deepcopy(loaded)
            return _with_classes(network, spec, n_classes)

    _try(build(2, 0), spec, 2, image_size)
    return build


def _with_classes(network: Network, spec: str, n_classes: int) -> nn.Module:
    module = network.module
    # Side outputs of GoogLeNet and Inception are for their own training, and turn the output into a tuple.
    for name in ("aux1", "aux2", "AuxLogits"):
        if isinstance(getattr(module, name, None), nn.Module):
            setattr(module, name, None)
            setattr(module, "aux_logits", False)  # noqa: B010
    if callable(reset := getattr(module, "reset_classifier", None)):
        reset(n_classes)
    else:
        module = _replace_last(module, spec, n_classes)
    for part in module.modules():
        if getattr(part, "inplace", None) is True:
            setattr(part, "inplace", False)  # noqa: B010
    return Normalised(module, network.mean, network.std).eval()


def _replace_last(module: nn.Module, spec: str, n_classes: int) -> nn.Module:
    named = list(module.named_modules())
    for kind in (nn.Linear, nn.Conv2d):
        last = next(((name, part) for name, part in reversed(named) if isinstance(part, kind)), None)
        if last is None or (kind is nn.Conv2d and last[1].kernel_size != (1, 1)):
            continue
        name, part = last
        bias = part.bias is not None
        new: nn.Module = (
            nn.Linear(part.in_features, n_classes, bias)
            if isinstance(part, nn.Linear)
            else nn.Conv2d(part.in_channels, n_classes, 1, bias=bias)
        )
        new.to(part.weight)
        if not name:
            return new
        parent, _, attribute = name.rpartition(".")
        setattr(module.get_submodule(parent), attribute, new)
        return module
    raise ValueError(f"The network {spec} has no linear layer that could be replaced. Name another with --backbone.")


def _try(network: nn.Module, spec: str, n_classes: int, image_size: int) -> None:
    try:
        with torch.no_grad():
            logits = network(torch.zeros(1, 3, image_size, image_size))
    except (RuntimeError, TypeError, IndexError, AttributeError, AssertionError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(
            f"The network {spec} does not take images of shape (3, {image_size}, {image_size}): {reason.rstrip('.')}. "
            "Change the size with --image-size, or name a network for such images."
        ) from error
    if not isinstance(logits, Tensor) or logits.shape != (1, n_classes):
        got = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise ValueError(
            f"Expected the network {spec} to give logits (1, {n_classes}) after its last linear layer was replaced but "
            f"got {got}. Register the classifier as the last of its modules."
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


#: Images that are compared to tell one data set from another.
N_COMPARED = 16
#: Images read at a time when a data set is put into memory, and bytes it may take there.
CHUNK, MEMORY_LIMIT = 256, 2**30
#: Of networks that are not the small one: they are large, and most bring weights that should not be lost.
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

    def finish(self) -> None:
        """Keep the weights; raise where they are not finite."""
        state = self.network.state_dict()
        if not all(bool(tensor.isfinite().all()) for tensor in state.values()):
            raise ValueError(
                f"The training of {self.job.name} diverged: weights are not finite. Lower `learning_rate` "
                f"({self.learning_rate})."
            )
        if self.files is not None:
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
    models: dict[str, nn.Module] = {}
    pending: list[_Training] = []
    for job in jobs:
        network = build(job.n_classes, seed)
        small = isinstance(network, SmallResNet)
        rate = learning_rate if learning_rate is not None else (LEARNING_RATE if small else FINE_TUNING_RATE)
        files = None
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
        models[job.name] = network.to(device).eval()
        if files is None or (weights := files.load()) is None:
            pending.append(_Training(job, network, rate, files))
            continue
        network.load_state_dict(weights)
        if small:
            network.to(memory_format=torch.channels_last)
    distinct = {id(job.data): job.data for job in jobs}
    in_memory = sum(len(data) * data.images([0]).numel() for data in distinct.values()) <= memory_limit
    samples = _samples(pending, in_memory, display_progressbar)
    # The small network draws nothing in training; what others draw comes from generators that threads share.
    together = (
        in_memory
        and torch.device(device).type == "cpu"
        and all(isinstance(training.network, SmallResNet) for training in pending)
    )

    def task(training: _Training) -> Callable[[Event, int], None]:
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
                training.finish()

        return run

    tasks = [task(training) for training in pending]
    if together and tasks:
        # Of three on two cores all take turns, where else a core would wait for the third.
        n_threads = torch.get_num_threads()
        run_together(tasks, 2 * n_threads if n_threads > 1 else 1)
    else:
        for each in tasks:
            each(Event(), 0)
    return models


def _samples(pending: Sequence[_Training], in_memory: bool, display_progressbar: bool) -> dict[str, Samples]:
    """Return images and labels by model; data that models share are read once."""
    kept: dict[int, Tensor] = {}
    samples: dict[str, Samples] = {}
    for job in (training.job for training in pending):
        if not in_memory:
            samples[job.name] = StreamedSamples(job.data, job.labels)
            continue
        if id(job.data) not in kept:
            description = f"images of {job.name}"
            kept[id(job.data)] = kept_images(job.data, description=description, display_progressbar=display_progressbar)
        samples[job.name] = KeptSamples(kept[id(job.data)], job.labels)
    return samples
