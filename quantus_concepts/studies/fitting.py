"""Training of a network on batches of images, which goes on after an interruption as if there had been none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from threading import Event
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from captum_concepts.checks import check_range, check_shape
from captum_concepts.progress import progress
from captum_concepts.running import device_of, kept_generators, seed_generators

#: AdamW with a one-cycle schedule gets there in nine epochs; found by trial on painted birds.
LEARNING_RATE = 2e-2
WEIGHT_DECAY = 5e-2
# Of the two streams of random numbers in a step.
_AUGMENTATION, _NETWORK = 1, 2


class Samples(Protocol):
    """Images and their targets, read a batch at a time."""

    def __len__(self) -> int:
        """Return N."""

    def batches(self, rows: Sequence[Tensor]) -> Iterable[tuple[Tensor, Tensor]]:
        """Yield images (B, 3, H, W) of uint8 and targets (B,) or (B, L) for each tensor of indices (B,)."""


class KeptSamples:
    """Images and targets in memory."""

    def __init__(self, images: Tensor, targets: Tensor) -> None:
        check_shape("images", images, ("N", "C", "H", "W"), (None, None, None, None))
        _check_count(len(images))
        if len(targets) != len(images):
            raise ValueError(
                f"Expected argument `targets` to have length N = {len(images)}, as `images`, but got {len(targets)}."
            )
        self.images = images
        self.targets = targets

    def __len__(self) -> int:
        return len(self.images)

    def batches(self, rows: Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield images and targets for each tensor of indices."""
        return ((self.images[batch], self.targets[batch]) for batch in rows)


class Checkpoint(Protocol):
    """Where the state of a training is kept, so that it goes on after an interruption."""

    def read(self) -> Mapping[str, Any] | None:
        """Return the state that was written last, or None."""

    def write(self, state: Mapping[str, Any]) -> None:
        """Keep a state: "step", and state dicts under "network", "optimiser" and "schedule"."""

    def due(self, *, end_of_epoch: bool) -> bool:
        """Tell whether it is time to write, after a step."""


def fit(
    network: nn.Module,
    samples: Samples,
    *,
    epochs: int = 9,
    batch_size: int = 64,
    learning_rate: float = LEARNING_RATE,
    seed: int = 0,
    augment: Callable[[Tensor, torch.Generator], Tensor] | None = None,
    checkpoint: Checkpoint | None = None,
    channels_last: bool = True,
    own_generator: bool = False,
    description: str = "training",
    position: int = 0,
    stop: Event | None = None,
    display_progressbar: bool = False,
) -> bool:
    """Train a network in place, on the device of its parameters, and leave it in eval mode."""
    # A training that goes on from a checkpoint gives on the CPU, with the same number of threads, the same weights
    # to the bit as one that was never interrupted: the order of the images and every random draw follow from the
    # seed and the number of the step.
    check_range("epochs", epochs, 1, 10_000)
    # Batch norm cannot learn from a single image.
    check_range("batch_size", batch_size, 2, 1_000_000)
    check_range("learning_rate", learning_rate, 0, 1_000, open_low=True)
    _check_count(len(samples))
    batches = _batches(len(samples), batch_size, epochs, np.random.default_rng(seed))
    device = device_of(network)
    memory_format = torch.channels_last if channels_last else torch.contiguous_format
    network.train()
    if channels_last:
        network.to(memory_format=memory_format)
    optimiser = torch.optim.AdamW(network.parameters(), lr=learning_rate, weight_decay=WEIGHT_DECAY)
    # A quarter of four steps is a warm-up of no length, by which the schedule divides.
    warm_up = 0.25 if len(batches) != 4 else 0.3
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, learning_rate, total_steps=len(batches), pct_start=warm_up
    )
    parts: dict[str, Any] = {"network": network, "optimiser": optimiser, "schedule": schedule}
    step = 0
    if checkpoint is not None and (state := checkpoint.read()) is not None:
        step = state["step"]
        for name, part in parts.items():
            part.load_state_dict(state[name])
    bar = progress(
        description=description,
        total=len(batches),
        initial=step,
        unit="step",
        position=position,
        show=display_progressbar,
    )

    def keep() -> None:
        if checkpoint is not None:
            checkpoint.write({"step": step} | {name: part.state_dict() for name, part in parts.items()})

    try:
        with bar, kept_generators(device) if own_generator else nullcontext():
            for images, targets in samples.batches(batches[step:]):
                if stop is not None and stop.is_set():
                    keep()
                    return False
                batch = images.to(device).contiguous(memory_format=memory_format) / 255
                if augment is not None:
                    batch = augment(batch, torch.Generator().manual_seed(_step_seed(seed, step, _AUGMENTATION)))
                if own_generator:
                    seed_generators(device, _step_seed(seed, step, _NETWORK))
                loss = _loss(network(batch.contiguous(memory_format=memory_format)), targets.to(device))
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                schedule.step()
                step += 1
                bar.update()
                ended = step % (len(batches) // epochs) == 0
                if checkpoint is not None and step < len(batches) and checkpoint.due(end_of_epoch=ended):
                    keep()
    finally:
        network.eval()
        network.zero_grad()
    return True


def _check_count(n_images: int) -> None:
    if n_images < 2:
        raise ValueError(f"Expected argument `images` to hold at least 2 images but got {n_images}.")


def _loss(logits: Tensor, targets: Tensor) -> Tensor:
    if targets.ndim == 1:
        return functional.cross_entropy(logits, targets)
    return functional.binary_cross_entropy_with_logits(logits, targets.to(logits.dtype))


def _batches(n_images: int, batch_size: int, epochs: int, generator: np.random.Generator) -> list[Tensor]:
    batches: list[Tensor] = []
    for _ in range(epochs):
        order = torch.as_tensor(generator.permutation(n_images))
        batches += [rows for rows in order.split(batch_size) if len(rows) > 1]
    return batches


def _step_seed(*numbers: int) -> int:
    return int(np.random.SeedSequence(numbers).generate_state(1)[0])
