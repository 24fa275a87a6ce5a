"""Ratings, encoders and classifiers of the PASTA commands."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from quantus_concepts.datasets.birds.painted_birds import PaintedBirds
from quantus_concepts.datasets.ratings.rated import RatedExplanations
from quantus_concepts.datasets.ratings.raters import N_CLASSES, N_CONCEPTS, simulated_ratings
from quantus_concepts.datasets.ratings.released import PastaRatings
from quantus_concepts.pasta.embedder import Embedder
from quantus_concepts.pasta.encoders.embedded_encoder import EmbeddedEncoder
from quantus_concepts.pasta.encoders.encoder import Encoder
from quantus_concepts.pasta.encoders.object_encoder import as_encoder
from quantus_concepts.pasta.labels import LABEL_ALIASES, RELEASED_LABELS
from quantus_concepts.pasta.scorer import Scorer
from quantus_concepts.pasta.training import TrainingSettings
from quantus_concepts.studies._models.loading import KeptImages, painted_birds
from quantus_concepts.studies._models.training import SmallResNet, load_trained, train
from quantus_concepts.studies.pasta.evaluation import Keep, Plan, not_kept
from quantus_concepts.studies.pasta.options import (
    EMBEDDED,
    EMBEDDED_EPOCHS,
    EMBEDDED_LEARNING_RATE,
    N_CLASSIFIER,
    RatingsOptions,
    ScorersOptions,
    TrainingOptions,
)

#: Explanations of the networks; the last two do not depend on the network: their ratings must not change with size.
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
    def training(self) -> KeptImages:
        """Birds to learn from."""
        return self._images[0]

    @property
    def unseen(self) -> KeptImages:
        """Birds to explain."""
        return self._images[1]

    @property
    def masks(self) -> np.ndarray:
        """Which pixels show the bird, (N, H, W) of bool, of the birds that are explained."""
        painted = PaintedBirds(max(self.n_explained, N_CLASSES), "test", **self._settings)
        return np.stack([painted.part_masks(place).any(0).numpy() for place in range(self.n_explained)])

    @cached_property
    def _images(self) -> list[KeptImages]:
        counts = {"train": self.n_train, "test": max(self.n_explained, N_CLASSES)}
        return painted_birds(*((self._settings | {"split": split}, 0, count) for split, count in counts.items()))

    @property
    def _settings(self) -> dict[str, Any]:
        # The seed, the numbers of classes and of concepts settle which classes there are.
        return {"image_size": self.image_size, "n_classes": N_CLASSES, "n_concepts": N_CONCEPTS, "seed": self.seed}


@dataclass(frozen=True)
class Classifier:
    """A small network and the birds it classifies."""

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
    """Train a small network; another `network` has other initial weights and batches."""
    seed = birds.seed + network
    model = SmallResNet(N_CLASSES, channels=channels, seed=seed).to(device)

    def make(_: Any) -> dict[str, Tensor]:
        train(
            model,
            birds.training.images,
            birds.training.labels,
            epochs=epochs,
            seed=seed,
            description="training the classifier",
            display_progressbar=progress,
        )
        return {name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()}

    settings: dict[str, Any] = {"birds": birds.n_train, "size": birds.image_size, "seed": birds.seed}
    settings |= {"network": network, "channels": channels, "epochs": epochs, "device": str(device)}
    load_trained(model, keep(f"network of {channels} channels {network}", settings, make))
    images = birds.unseen.images[: birds.n_explained].float() / 255
    with torch.no_grad():
        predicted = torch.cat([model(rows.to(device)) for rows in images.split(64)]).argmax(1)
    labels = birds.unseen.labels[: birds.n_explained].numpy()
    return Classifier(model, images, labels, predicted.cpu().numpy(), list(birds.unseen.class_names))


#: The paper's but for learning rate and epochs.
EMBEDDED_SETTINGS = TrainingSettings(epochs=EMBEDDED_EPOCHS, learning_rate=EMBEDDED_LEARNING_RATE)


def study_ratings(options: RatingsOptions) -> RatedExplanations:
    """Return the folder's ratings, or simulated ones."""
    if options.data is not None:
        return PastaRatings(options.data)
    return simulated_ratings(options.n_images, seed=options.seed)


def study_embedder(options: RatingsOptions | TrainingOptions, encoder: str = EMBEDDED, *files: Path | None) -> Embedder:
    """Return an embedder with an encoder, of which weights and tokenizer may be files."""
    shared: dict[str, Any] = {
        "cache": getattr(options, "cache", None),
        "batch_size": options.batch_size,
        "display_progressbar": options.progress,
    }
    device = options.torch_device()
    if encoder == EMBEDDED:
        return Embedder(EmbeddedEncoder(device=device), size=64, **shared)
    return Embedder(load_encoder(encoder, *files, device=device), **shared)


def study_plan(
    options: RatingsOptions | ScorersOptions | TrainingOptions,
    ratings: RatedExplanations,
    encoder: str = EMBEDDED,
    **changed: Any,
) -> Plan:
    """Return how scorers are trained on the embeddings of an encoder, as options say and but for what is changed."""
    settings = EMBEDDED_SETTINGS if encoder.startswith(EMBEDDED) else TrainingSettings()
    training = {name: getattr(options, name, None) for name in ("epochs", "learning_rate", "loss")}
    settings = replace(settings, **{name: value for name, value in training.items() if value is not None})
    fields = {"questions": "questions", "seeds": "n_splits", "train_share": "train_share", "regressors": "regressors"}
    plan: dict[str, Any] = {field: getattr(options, name) for name, field in fields.items() if hasattr(options, name)}
    plan |= {"label_names": label_names_of(ratings), "settings": settings, "device": options.torch_device()}
    return Plan(**plan | {"seed": options.seed, "progress": options.progress} | changed)


def label_names_of(ratings: RatedExplanations) -> tuple[str, ...]:
    """Return the labels of a scorer of these ratings."""
    names = set(ratings.labels.tolist()) - {""}
    released = {LABEL_ALIASES.get(name, name) for name in names} <= set(RELEASED_LABELS)
    return tuple(RELEASED_LABELS) if released else tuple(sorted(names))


def load_encoder(
    name: str | None,
    weights: Path | None = None,
    tokenizer: Path | None = None,
    *,
    device: torch.device,
    scorer: Scorer | None = None,
) -> Encoder | None:
    """Return the encoder by its name, or the one a scorer was trained on."""
    if name is None and scorer is not None and scorer.encoder is not None:
        name = scorer.encoder
        # The encoder of a file is called "siglip (weights.safetensors)".
        model, _, file = name.partition(" (")
        if file.endswith((".safetensors)", ".pt)", ".pth)", ".bin)")):
            if weights is None:
                raise ValueError(
                    f"The scorer was trained on the encoder {name}: give that file with --encoder-weights, or another "
                    "encoder of the same weights with --encoder."
                )
            name = model
    return None if name is None else as_encoder(name, weights=weights, tokenizer=tokenizer, device=device)
