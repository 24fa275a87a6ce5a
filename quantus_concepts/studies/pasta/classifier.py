"""Small networks that classify painted birds and are explained, as they are or of several sizes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from quantus_concepts.datasets.birds.painted_birds import PaintedBirds
from quantus_concepts.datasets.ratings.raters import N_CLASSES, N_CONCEPTS
from quantus_concepts.studies.loading import KeptImages, painted_birds
from quantus_concepts.studies.pasta.keeping import Keep, not_kept
from quantus_concepts.studies.pasta.options import N_CLASSIFIER
from quantus_concepts.studies.training import SmallResNet, train

#: Explanations of the networks; the last two know nothing of them: their ratings must not change with size.
METHODS = ("Grad-CAM", "vanilla gradient", "gradient x input", "guided backpropagation", "Sobel edges", "random")
CONTROLS = ("Sobel edges", "random")


@dataclass(frozen=True)
class RatedBirds:
    """Painted birds of the classes that were rated: those a network learns from, and those it has not seen."""

    n_explained: int
    n_train: int = N_CLASSIFIER
    image_size: int = 64
    seed: int = 0

    @property
    def known(self) -> KeptImages:
        """Birds to learn from."""
        return self._painted[0]

    @property
    def unseen(self) -> KeptImages:
        """Birds to explain."""
        return self._painted[1]

    @property
    def masks(self) -> np.ndarray:
        """Which pixels show the bird, (N, H, W) of bool, of the birds that are explained."""
        painted = PaintedBirds(max(self.n_explained, N_CLASSES), "test", **self._settings)
        return np.stack([painted.part_masks(place).any(0).numpy() for place in range(self.n_explained)])

    @cached_property
    def _painted(self) -> list[KeptImages]:
        counts = {"train": self.n_train, "test": max(self.n_explained, N_CLASSES)}
        return painted_birds(*((self._settings | {"split": split}, 0, count) for split, count in counts.items()))

    @property
    def _settings(self) -> dict[str, Any]:
        # The seed, the numbers of classes and of concepts settle which classes there are.
        return {"image_size": self.image_size, "n_classes": N_CLASSES, "n_concepts": N_CONCEPTS, "seed": self.seed}


@dataclass(frozen=True)
class Classifier:
    """A small network and the birds it is asked about."""

    model: SmallResNet
    images: Tensor
    labels: np.ndarray
    predicted: np.ndarray
    class_names: list[str]

    @property
    def accuracy(self) -> float:
        """Share of the images it classifies correctly."""
        return float((self.predicted == self.labels).mean())


def train_classifier(
    birds: RatedBirds,
    *,
    epochs: int,
    device: torch.device,
    channels: int = 64,
    network: int = 0,
    progress: bool = False,
    keep: Keep = not_kept,
) -> Classifier:
    """Train a small network, all drawn anew for each `network`."""
    seed = birds.seed + network
    model = SmallResNet(N_CLASSES, channels=channels, seed=seed).to(device)

    def make(_: Any) -> dict[str, Tensor]:
        train(
            model,
            birds.known.images,
            birds.known.labels,
            epochs=epochs,
            seed=seed,
            description="training the classifier",
            display_progressbar=progress,
        )
        return {name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()}

    settings: dict[str, Any] = {
        "birds": birds.n_train,
        "size": birds.image_size,
        "seed": birds.seed,
        "network": network,
    }
    settings |= {"channels": channels, "epochs": epochs, "device": str(device)}
    model.load_state_dict(keep(f"network of {channels} channels {network}", settings, make))
    # As training leaves it, where it was not trained: convolutions of another memory format round otherwise.
    model.eval().to(memory_format=torch.channels_last)
    images = birds.unseen.images[: birds.n_explained].float() / 255
    with torch.no_grad():
        predicted = torch.cat([model(rows.to(device)) for rows in images.split(64)]).argmax(1)
    labels = birds.unseen.labels[: birds.n_explained].numpy()
    return Classifier(model, images, labels, predicted.cpu().numpy(), list(birds.unseen.class_names))
