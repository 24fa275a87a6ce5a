"""A small backbone with fine feature maps, and its training on the images of the embedded data set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from tqdm import tqdm

from quantus_concepts.checks import check_range, check_shape

STRIDE = 8
#: AdamW with a one-cycle schedule gets there in nine epochs; found by trial on painted birds.
LEARNING_RATE = 2e-2
WEIGHT_DECAY = 5e-2


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

    def forward(self, maps: Tensor) -> Tensor:
        """Return maps (N, C, H, W) of the size of the input."""
        return functional.relu(maps + self.second(self.first(maps)))


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
        with _seeded(seed):
            self.features = nn.Sequential(
                nn.PixelUnshuffle(4),
                _convolution(48, channels // 2),
                _convolution(channels // 2, channels, stride=2),
                Residual(channels),
            )
            self.classifier = nn.Linear(channels, n_outputs)
        self.channels = channels

    def forward(self, images: Tensor) -> Tensor:
        """Return logits (N, n_outputs) of images (N, 3, H, W); H and W are multiples of 8."""
        return self.classifier(self.features(images).mean((2, 3)))


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
    """Train a network in place, on the device of its parameters, and leave it in eval mode.

    Parameters
    ----------
    network : nn.Module
        Images (B, 3, H, W) in [0, 1] to logits.
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
    check_shape("images", images, ("N", "C", "H", "W"), (None, None, None, None))
    check_range("epochs", epochs, 1, 10_000)
    # Batch norm cannot learn from a single image.
    check_range("batch_size", batch_size, 2, 1_000_000)
    if len(images) < 2:
        raise ValueError(f"Expected argument `images` to hold at least 2 images but got {len(images)}.")
    if len(targets) != len(images):
        raise ValueError(
            f"Expected argument `targets` to have length N = {len(images)}, as `images`, but got {len(targets)}."
        )
    batches = _batches(len(images), batch_size, epochs, np.random.default_rng(seed))
    optimiser = torch.optim.AdamW(network.parameters(), lr=learning_rate, weight_decay=WEIGHT_DECAY)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, learning_rate, total_steps=len(batches), pct_start=0.25)
    device = next(network.parameters()).device
    network.train().to(memory_format=torch.channels_last)
    try:
        for rows in tqdm(
            batches,
            desc=description,
            unit="step",
            position=position,
            disable=not display_progressbar,
            leave=False,
        ):
            if stop is not None and stop.is_set():
                break
            batch = images[rows].to(device).to(memory_format=torch.channels_last) / 255
            loss = _loss(network(batch), targets[rows].to(device))
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
    finally:
        network.eval()
        network.zero_grad()


def train_together(
    jobs: Mapping[str, tuple[nn.Module, Tensor]],
    images: Tensor,
    *,
    epochs: int = 9,
    seed: int = 0,
    display_progressbar: bool = False,
) -> None:
    """Train several small networks on the same images at the same time, each on one core.

    Small networks gain little from a second core, and where other programs want it too, waiting for each other at the
    end of every operation makes two threads slower than one.

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
    stop = Event()
    with one_thread(), ThreadPoolExecutor(len(jobs)) as pool:
        futures = [
            pool.submit(
                train,
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
            for position, (description, (network, targets)) in enumerate(jobs.items())
        ]
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


def _convolution(channels_in: int, channels_out: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels_in, channels_out, 3, stride, padding=1, bias=False),
        nn.BatchNorm2d(channels_out),
        nn.ReLU(),
    )


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    # torch initialises layers from its global generator only. torch.manual_seed would seed those of other devices
    # too, which are not forked here.
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield
