"""Training of networks on batches of images."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from threading import Event
from typing import Any, Protocol

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import AdamW
from torch.optim.lr_scheduler import OneCycleLR

from captum_concepts.support.checks import check_range, check_shape
from captum_concepts.support.running import device_of, keep_generators, progress, seed_generators
from quantus_concepts.painted.networks import fold_images

#: AdamW with a one-cycle schedule gets there in nine epochs; found by trial on painted birds.
LEARNING_RATE = 2e-2
WEIGHT_DECAY = 5e-2
# The two streams of random numbers in a step.
_AUGMENTATION, _NETWORK = 1, 2


def processor_has_bfloat16() -> bool:
    """Whether this processor multiplies in bfloat16; where it does not, bfloat16 is slower than float32."""
    # Not every version of torch tells.
    capabilities: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    return any(capabilities.get(unit) for unit in ("amx_bf16", "avx512_bf16"))


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
        # With its axes in the order of memory an image is copied as a whole, ten times as fast as its numbers.
        last = self.images.is_contiguous(memory_format=torch.channels_last)
        order, back = ((0, 2, 3, 1), (0, 3, 1, 2)) if last else ((0, 1, 2, 3), (0, 1, 2, 3))
        images = self.images.permute(order)
        return ((images.index_select(0, batch).permute(back), self.targets[batch]) for batch in rows)


def fit(
    network: nn.Module,
    samples: Samples,
    *,
    epochs: int = 9,
    batch_size: int = 64,
    learning_rate: float = LEARNING_RATE,
    loss: Callable[[Tensor, Tensor], Tensor] | None = None,
    seed: int = 0,
    augment: Callable[[Tensor, torch.Generator], Tensor] | None = None,
    channels_last: bool = True,
    bfloat16: bool = False,
    own_generator: bool = False,
    description: str = "training",
    stop: Event | None = None,
    display_progressbar: bool = False,
) -> None:
    """Train a network in place, on the device of its parameters, and leave it in eval mode.

    `stop`, set by another thread, ends the training with a `CancelledError`.
    """
    # The order of the images and every random draw follow from the seed and the number of the step.
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
    optimiser, schedule = _optimiser(network, learning_rate, len(batches))
    bar = progress(description=description, total=len(batches), unit="step", show=display_progressbar)
    try:
        with bar, keep_generators(device) if own_generator else nullcontext():
            for step, (images, targets) in enumerate(samples.batches(batches)):
                if stop is not None and stop.is_set():
                    raise CancelledError
                # Made floats first: dividing other numbers takes twice as long.
                batch = images.to(device).contiguous(memory_format=memory_format).float() / 255
                if augment is not None:
                    batch = augment(batch, torch.Generator().manual_seed(_step_seed(seed, step, _AUGMENTATION)))
                if own_generator:
                    seed_generators(device, _step_seed(seed, step, _NETWORK))
                # Not every kind of device knows autocast, not even to leave it off.
                with torch.autocast(device.type, torch.bfloat16) if bfloat16 else nullcontext():
                    outputs = network(batch.contiguous(memory_format=memory_format))
                optimiser.zero_grad()
                (loss or _loss)(outputs.float(), targets.to(device)).backward()
                optimiser.step()
                schedule.step()
                bar.update()
    finally:
        network.eval()
        network.zero_grad()


def _optimiser(network: nn.Module, learning_rate: float, n_steps: int) -> tuple[AdamW, OneCycleLR]:
    optimiser = AdamW(network.parameters(), lr=learning_rate, weight_decay=WEIGHT_DECAY)
    # A quarter of four steps is a warm-up of no length, by which the schedule divides.
    warm_up = 0.25 if n_steps != 4 else 0.3
    return optimiser, OneCycleLR(optimiser, learning_rate, total_steps=n_steps, pct_start=warm_up)


def load_trained(network: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Load weights into a small network, and leave it as training does."""
    network.load_state_dict(state)
    # Convolutions of another memory format round otherwise.
    network.eval().to(memory_format=torch.channels_last)


def train(network: nn.Module, images: Tensor, targets: Tensor, **settings: Any) -> None:
    """Train a network in place on images in memory, with the settings of `fit`, and leave it in eval mode."""
    fit(network, KeptSamples(images, targets), **settings)


def train_together(
    jobs: Mapping[str, tuple[nn.Module, Tensor]],
    images: Tensor,
    *,
    epochs: int = 9,
    bfloat16: bool = False,
    seed: int = 0,
    display_progressbar: bool = False,
) -> None:
    """Train several small networks on the same images at the same time, each on one core."""
    images = fold_images(images)

    def task(description: str, network: nn.Module, targets: Tensor) -> Callable[[Event], None]:
        return lambda stop: train(
            network,
            images,
            targets,
            epochs=epochs,
            seed=seed,
            bfloat16=bfloat16,
            description=description,
            stop=stop,
            display_progressbar=display_progressbar,
        )

    run_together([task(description, *job) for description, job in jobs.items()])


def run_together(tasks: Sequence[Callable[[Event], object]], n_threads: int | None = None) -> None:
    """Run trainings at the same time, each on one core."""
    # Small networks gain little from a second core, and where other programs want it too, waiting for each other at
    # the end of every operation makes two threads slower than one.
    stop = Event()

    def run(task: Callable[[Event], object]) -> None:
        try:
            task(stop)
        except BaseException:
            stop.set()
            raise

    with one_thread(), ThreadPoolExecutor(n_threads or len(tasks)) as pool:
        futures = [pool.submit(run, task) for task in tasks]
        try:
            for future in futures:
                # The others end by being cancelled, of which the caller hears the cause.
                with suppress(CancelledError):
                    future.result()
        except BaseException:  # Ctrl-C as well: the pool waits for its threads
            stop.set()
            raise


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch use one thread for each operation, and as many as before afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def quiet_fits() -> Iterator[None]:
    """Fit heads on one thread of BLAS, whose products are too small for more, and without warnings of each fit."""
    with warnings.catch_warnings(), threadpool_limits(1, "blas"):
        warnings.simplefilter("ignore", ConvergenceWarning)
        # Each bank of the sweep has some; those of the bank that is scored are a note.
        warnings.filterwarnings("ignore", r"\d+ of \d+ concepts have a balanced accuracy")
        yield


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
