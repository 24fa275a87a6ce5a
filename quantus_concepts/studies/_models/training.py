"""Small networks, and training on batches of images that goes on after an interruption as if there had been none."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from queue import SimpleQueue
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

from captum_concepts._support.checks import check_range, check_shape
from captum_concepts._support.progress import progress
from captum_concepts._support.running import device_of, keep_generators, seed_generators

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


class Residual(nn.Module):
    """Two convolutions around which the input goes unchanged."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = _convolution(channels, channels)
        self.second = nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels))
        # A module, not a function: guided backpropagation finds only modules.
        self.relu = nn.ReLU()

    def forward(self, maps: Tensor) -> Tensor:
        """Return maps (N, C, H, W) of the size of the input."""
        return self.relu(maps + self.second(self.first(maps)))


class Folded(nn.PixelUnshuffle):
    """``PixelUnshuffle`` of images of three channels; what is folded already stays as it is."""

    def forward(self, input: Tensor) -> Tensor:
        """Return images (N, 48, H / 4, W / 4)."""
        return super().forward(input) if input.shape[1] == 3 else input


def fold_images(images: Tensor) -> Tensor:
    """Return images (N, 3, H, W) of uint8 as the first layer folds them, (N, 48, H / 4, W / 4), channels last."""
    # Folded once for all batches: bytes are a quarter of the work of floats, and four neighbours move as one number.
    n, channels, height, width = images.shape
    fours = images.contiguous().view(torch.int32).view(n, channels, height // 4, 4, width // 4)
    return fours.permute(0, 2, 4, 1, 3).contiguous().view(torch.uint8).flatten(3).permute(0, 3, 1, 2)


class SmallResNet(nn.Module):
    """A residual network of stride 8 with average pooling and a linear layer."""

    # Concept maps of stride 32 are too coarse to point at a part of a small image; here they have a place for each
    # 8 pixels. Made for two CPU cores: the first layer folds 4 x 4 pixels into channels.

    def __init__(self, n_outputs: int, channels: int = 64, seed: int = 0) -> None:
        super().__init__()
        with with_seed(seed):
            self.features = self._features(channels)
            self.classifier = nn.Linear(channels, n_outputs)
        self.channels = channels

    def _features(self, channels: int) -> nn.Sequential:
        return nn.Sequential(
            Folded(4),
            _convolution(48, channels // 2),
            _convolution(channels // 2, channels, stride=2),
            Residual(channels),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Return logits (N, n_outputs) of images (N, 3, H, W); H and W are multiples of 8."""
        maps = self.features(images)
        if maps.requires_grad and maps.is_contiguous(memory_format=torch.channels_last):
            # The gradient of the mean comes in the other format, which the ReLU before takes ten times as long for.
            maps.register_hook(lambda gradient: gradient.contiguous(memory_format=torch.channels_last))
        return self.classifier(maps.mean((2, 3)))


class OverlappingMeans(nn.Module):
    """``AvgPool2d(4, 2, 1)`` of maps of few channels."""

    # As a convolution it takes less time, there and back: of four channels torch vectorises nothing.

    weight: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.register_buffer("weight", torch.full((channels, 1, 4, 4), 1 / 16), persistent=False)

    def forward(self, maps: Tensor) -> Tensor:
        """Return maps (N, C, H / 2, W / 2)."""
        return functional.conv2d(maps, self.weight, stride=2, padding=1, groups=len(self.weight))


class FineResNet(SmallResNet):
    """The same without a stride: resolution is lost by overlapping averages, which treat all pixels alike."""

    # Folded pixels each have weights of their own, and a stride passes over some: both draw a grid of 4 pixels into
    # the gradient, which a study of pixel attributions would take for the methods'.

    def _features(self, channels: int) -> nn.Sequential:
        # Few channels, normalised where maps are small: what is done at full size takes most of the time.
        return nn.Sequential(
            nn.Conv2d(3, 4, 3, padding=1),
            nn.ReLU(),
            OverlappingMeans(4),
            nn.Conv2d(4, 8, 3, padding=1),
            nn.ReLU(),
            nn.AvgPool2d(4, 2, 1),
            _convolution(8, channels // 2),
            nn.AvgPool2d(4, 2, 1),
            _convolution(channels // 2, channels),
            Residual(channels),
        )


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


class Checkpoint(Protocol):
    """Storage of the state of a training, so that it resumes after an interruption."""

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
    loss: Callable[[Tensor, Tensor], Tensor] | None = None,
    seed: int = 0,
    augment: Callable[[Tensor, torch.Generator], Tensor] | None = None,
    checkpoint: Checkpoint | None = None,
    channels_last: bool = True,
    bfloat16: bool = False,
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
    optimiser, schedule = _optimiser(network, learning_rate, len(batches))
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
        with bar, keep_generators(device) if own_generator else nullcontext():
            for images, targets in samples.batches(batches[step:]):
                if stop is not None and stop.is_set():
                    keep()
                    return False
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
                step += 1
                bar.update()
                ended = step % (len(batches) // epochs) == 0
                if checkpoint is not None and step < len(batches) and checkpoint.due(end_of_epoch=ended):
                    keep()
    finally:
        network.eval()
        network.zero_grad()
    return True


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

    def task(description: str, network: nn.Module, targets: Tensor) -> Callable[[Event, int], None]:
        return lambda stop, position: train(
            network,
            images,
            targets,
            epochs=epochs,
            seed=seed,
            bfloat16=bfloat16,
            description=description,
            position=position,
            stop=stop,
            display_progressbar=display_progressbar,
        )

    run_together([task(description, *job) for description, job in jobs.items()])


def run_together(tasks: Sequence[Callable[[Event, int], object]], n_threads: int | None = None) -> None:
    """Run trainings at the same time, each on one core."""
    # Small networks gain little from a second core, and where other programs want it too, waiting for each other at
    # the end of every operation makes two threads slower than one.
    stop = Event()
    n_threads = min(n_threads or len(tasks), len(tasks))
    lines: SimpleQueue[int] = SimpleQueue()
    for line in range(n_threads):
        lines.put(line)

    def run(task: Callable[[Event, int], object]) -> None:
        line = lines.get()
        try:
            task(stop, line)
        except BaseException:
            stop.set()
            raise
        finally:
            lines.put(line)

    with one_thread(), ThreadPoolExecutor(n_threads) as pool:
        futures = [pool.submit(run, task) for task in tasks]
        try:
            for future in futures:
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


@contextmanager
def with_seed(seed: int) -> Iterator[None]:
    """Seed the CPU's global generator, from which torch initialises layers, and put it back afterwards."""
    # torch.manual_seed would seed the generators of other devices too, which are not kept here.
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


def _convolution(channels_in: int, channels_out: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels_in, channels_out, 3, stride, padding=1, bias=False),
        nn.BatchNorm2d(channels_out),
        nn.ReLU(),
    )


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
