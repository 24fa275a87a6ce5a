"""A small backbone with fine feature maps, and its training on the images of the embedded data set."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from queue import SimpleQueue
from threading import Event

import torch
from torch import Tensor, nn

from quantus_concepts.benchmark.fitting import LEARNING_RATE, KeptSamples, fit

STRIDE = 8


class Residual(nn.Module):
    """Two convolutions around which the input goes unchanged.

    Parameters
    ----------
    channels : int
        In and out.
    """

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
    """A residual network of stride 8 with average pooling and a linear layer.

    Concept maps of stride 32 are too coarse to point at a part of a small image; here they have a place for
    each 8 pixels. Made for two CPU cores: the first layer folds 4 x 4 pixels into channels.

    Parameters
    ----------
    n_outputs : int
        K, or L where the outputs are concepts.
    channels : int
        d, of the feature maps.
    seed : int
        Of the initial weights; the global random state is left as it was.
    """

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
    """The same without a stride: resolution is lost by overlapping averages, which treat all pixels alike.

    Folded pixels each have weights of their own, and a stride passes over some: both draw a grid of 4 pixels into the
    gradient, which a study of pixel attributions would take for the methods'.
    """

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
    """Train a network in place on images in memory, and leave it in eval mode.

    Parameters
    ----------
    network : nn.Module
        Images (B, 3, H, W) in [0, 1] to logits; it is trained on the device of its parameters.
    images : Tensor
        (N, 3, H, W) of uint8.
    targets : Tensor
        (N,) classes of int64, for the cross entropy; or (N, L) of 0 and 1, for the binary cross entropy.
    epochs : int
        Passes over the images.
    batch_size : int
        Images in one step.
    learning_rate : float
        The highest of the one-cycle schedule.
    seed : int
        Of the order of the images; the global random state is not touched.
    description : str
        Shown beside the progress bar.
    position : int
        Line of the progress bar, where there are several.
    stop : Event, optional
        Ends the training when it is set from another thread.
    display_progressbar : bool
        Whether to show progress.

    Raises
    ------
    ValueError
        If there are fewer than two images, or a number is out of its range.
    """
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
    """Train several small networks on the same images at the same time, each on one core.

    Parameters
    ----------
    jobs : mapping of str to (nn.Module, Tensor)
        What each is called beside its progress bar, the network, and its targets as in `train`.
    images : Tensor
        (N, 3, H, W) of uint8.
    epochs : int
        Passes over the images.
    seed : int
        Of the order of the images; each network has the same.
    display_progressbar : bool
        Whether to show progress.

    Raises
    ------
    BaseException
        What one of the trainings raised; the others end early.
    """

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
    """Run trainings at the same time, each on one core.

    Small networks gain little from a second core, and where other programs want it too, waiting for each other at the
    end of every operation makes two threads slower than one.

    Parameters
    ----------
    tasks : sequence of callable
        Each is given an event that asks it to end early, and the line of its progress bar.
    n_threads : int, optional
        How many run at once; all by default.

    Raises
    ------
    BaseException
        What one of them raised; the others end early.
    """
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
    """Let torch use one thread for each operation, and as many as before afterwards.

    Yields
    ------
    None
        Inside, operations of this thread and of new ones run on one core.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed the CPU's global generator, from which torch initialises layers, and put it back afterwards.

    Parameters
    ----------
    seed : int
        Of what is drawn inside.

    Yields
    ------
    None
        Inside, the generator starts at the seed.
    """
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
