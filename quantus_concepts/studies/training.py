"""A small backbone with fine feature maps, and its training on the images of the embedded data set."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from queue import SimpleQueue
from threading import Event

import torch
from torch import Tensor, nn

from quantus_concepts.studies.fitting import LEARNING_RATE, KeptSamples, fit

STRIDE = 8


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


class SmallResNet(nn.Module):
    """A residual network of stride 8 with average pooling and a linear layer."""

    # Concept maps of stride 32 are too coarse to point at a part of a small image; here they have a place for each
    # 8 pixels. Made for two CPU cores: the first layer folds 4 x 4 pixels into channels.

    def __init__(self, n_outputs: int, channels: int = 64, seed: int = 0) -> None:
        super().__init__()
        with seeded(seed):
            self.features = self._features(channels)
            self.classifier = nn.Linear(channels, n_outputs)
        self.channels = channels

    def _features(self, channels: int) -> nn.Sequential:
        return nn.Sequential(
            nn.PixelUnshuffle(4),
            _convolution(48, channels // 2),
            _convolution(channels // 2, channels, stride=2),
            Residual(channels),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Return logits (N, n_outputs) of images (N, 3, H, W); H and W are multiples of 8."""
        return self.classifier(self.features(images).mean((2, 3)))


class FineResNet(SmallResNet):
    """The same without a stride: resolution is lost by overlapping averages, which treat all pixels alike."""

    # Folded pixels each have weights of their own, and a stride passes over some: both draw a grid of 4 pixels into
    # the gradient, which a study of pixel attributions would take for the methods'.

    def _features(self, channels: int) -> nn.Sequential:
        # Few channels, normalised where maps are small: what is done at full size takes most of the time.
        return nn.Sequential(
            nn.Conv2d(3, 4, 3, padding=1),
            nn.ReLU(),
            nn.AvgPool2d(4, 2, 1),
            nn.Conv2d(4, 8, 3, padding=1),
            nn.ReLU(),
            nn.AvgPool2d(4, 2, 1),
            _convolution(8, channels // 2),
            nn.AvgPool2d(4, 2, 1),
            _convolution(channels // 2, channels),
            Residual(channels),
        )


def train(
    network: nn.Module,
    images: Tensor,
    targets: Tensor,
    *,
    epochs: int = 9,
    batch_size: int = 64,
    learning_rate: float = LEARNING_RATE,
    seed: int = 0,
    description: str = "training",
    position: int = 0,
    stop: Event | None = None,
    display_progressbar: bool = False,
) -> None:
    """Train a network in place on images in memory, and leave it in eval mode."""
    fit(
        network,
        KeptSamples(images, targets),
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=learning_rate,
        seed=seed,
        description=description,
        position=position,
        stop=stop,
        display_progressbar=display_progressbar,
    )


def train_together(
    jobs: Mapping[str, tuple[nn.Module, Tensor]],
    images: Tensor,
    *,
    epochs: int = 9,
    seed: int = 0,
    display_progressbar: bool = False,
) -> None:
    """Train several small networks on the same images at the same time, each on one core."""

    def task(description: str, network: nn.Module, targets: Tensor) -> Callable[[Event, int], None]:
        return lambda stop, position: train(
            network,
            images,
            targets,
            epochs=epochs,
            seed=seed,
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
def seeded(seed: int) -> Iterator[None]:
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
