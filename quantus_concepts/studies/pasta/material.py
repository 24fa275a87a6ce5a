"""What the PASTA commands work with: ratings, encoders, painted birds and the small network that is explained."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypedDict, Unpack

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from quantus_concepts.datasets.birds.painted_birds import PaintedBirds
from quantus_concepts.datasets.ratings.explanations import QUESTIONS
from quantus_concepts.datasets.ratings.rated import RatedExplanations
from quantus_concepts.datasets.ratings.raters import N_CLASSES, N_CONCEPTS, simulated_ratings
from quantus_concepts.datasets.ratings.released import PastaRatings
from quantus_concepts.painted.images import KeptImages, painted_birds
from quantus_concepts.painted.networks import SmallResNet
from quantus_concepts.painted.training import load_trained, train
from quantus_concepts.pasta.cache import EmbeddingCache
from quantus_concepts.pasta.embedder import Embedder
from quantus_concepts.pasta.encoders.encoder import Encoder
from quantus_concepts.pasta.encoders.object_encoder import as_encoder
from quantus_concepts.pasta.labels import LABEL_ALIASES, RELEASED_LABELS
from quantus_concepts.pasta.presentation import Presentation
from quantus_concepts.pasta.scorer import Scorer
from quantus_concepts.pasta.training import TrainingSettings
from quantus_concepts.studies._kit.folder import RunFolder
from quantus_concepts.studies._kit.options import refuse_without_effect
from quantus_concepts.studies.pasta.settings import EMBEDDED

#: Methods that explain the network; the last two do not depend on it.
METHODS = ("Grad-CAM", "vanilla gradient", "gradient x input", "guided backpropagation", "Sobel edges", "random")
ALL = "all"
#: Training on the embedded encoder, found by trial on simulated ratings.
EMBEDDED_EPOCHS, EMBEDDED_LEARNING_RATE = 20, 3e-3
#: Training birds of an explained network.
N_CLASSIFIER = 2000
#: Signs with which a formula of a spreadsheet begins, also those of full width.
FORMULA = tuple("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")
#: ROAD is slow, so only few of the most and least relevant pixels are removed.
CORRELATED_THRESHOLDS = (6, 12)


def words(text: str | None) -> list[str]:
    """Split what was given with commas."""
    return [word.strip() for word in (text or "").split(",") if word.strip()]


def question_names(text: str, asked: Sequence[str] = tuple(QUESTIONS)) -> tuple[str, ...]:
    """Read which of the questions asked an option names."""
    if text.strip().lower() == ALL:
        return tuple(asked)
    # A question of one's own may have a comma in its name.
    names = [text.strip()] if text.strip() in asked else words(text)
    if not names or set(names) - set(asked):
        raise ValueError(
            f"Expected `--question` to be {ALL} or some of {', '.join(asked)} with commas between them "
            f"but got {text!r}."
        )
    return tuple(name for name in asked if name in names)


def voted_questions(text: str, ratings: RatedExplanations) -> tuple[str, ...]:
    """Read the questions an option names; all of them are those that have votes."""
    names = question_names(text, ratings.questions)
    voted = [
        name
        for name, missing in zip(ratings.questions, np.isnan(ratings.votes).all((0, 1)), strict=True)
        if not missing
    ]
    if text.strip().lower() != ALL and set(names) - set(voted):
        raise ValueError(
            f"Expected `--question` to be some of {', '.join(voted)}, the questions with votes in {ratings.name}, but "
            f"got {text!r}."
        )
    return tuple(name for name in names if name in voted)


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
    folder: RunFolder,
    birds: RatedBirds,
    *,
    epochs: int,
    device: torch.device,
    progress: bool = False,
) -> Classifier:
    """Train the small network that is explained."""
    model = SmallResNet(N_CLASSES, seed=birds.seed).to(device)

    def make() -> dict[str, Tensor]:
        train(
            model,
            birds.training.images,
            birds.training.labels,
            epochs=epochs,
            seed=birds.seed,
            description="training the classifier",
            display_progressbar=progress,
        )
        return {name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()}

    key = [birds.n_train, birds.image_size, birds.seed, epochs, str(device)]
    load_trained(model, folder.cached("network", key, make))
    images = birds.unseen.images[: birds.n_explained].float() / 255
    with torch.no_grad():
        predicted = torch.cat([model(rows.to(device)) for rows in images.split(64)]).argmax(1)
    labels = birds.unseen.labels[: birds.n_explained].numpy()
    return Classifier(model, images, labels, predicted.cpu().numpy(), list(birds.unseen.class_names))


def load_ratings(
    data: Path | None, n_images: int | None = None, seed: int = 0, *, drawings: bool = True
) -> RatedExplanations:
    """Return the ratings of a folder or file, or simulated ones of painted birds."""
    if data is None:
        return simulated_ratings(n_images or 120, seed=seed)
    refuse_without_effect("with `--data`, whose images are rated", n_images=n_images)
    return PastaRatings(data, drawings=drawings)


class HowToEmbed(TypedDict, total=False):
    """Settings of an embedder that change no embedding."""

    cache: EmbeddingCache | Path | str | None
    batch_size: int
    display_progressbar: bool


def load_embedder(encoder: str, *files: Path | None, device: torch.device, **settings: Unpack[HowToEmbed]) -> Embedder:
    """Return an embedder with an encoder, of which weights and tokenizer may be files."""
    loaded = load_encoder(encoder, *files, device=device)
    own = encoder.partition("/")[0] == EMBEDDED
    return Embedder(loaded, size=64, **settings) if own else Embedder(loaded, **settings)


def embedding_settings(pairs: Sequence[str]) -> dict[str, Any]:
    """Read settings of an embedder, each written KEY=VALUE."""
    defaults, settings = asdict(Presentation()), dict[str, Any]()
    for pair in pairs:
        name, _, text = pair.partition("=")
        if name not in defaults:
            raise ValueError(f"Expected `--embedding` to name one of {', '.join(defaults)} but got {pair!r}.")
        kind = type(defaults[name])
        try:
            settings[name] = {"true": True, "false": False}[text.lower()] if kind is bool else kind(text)
        except (KeyError, ValueError):
            example = {bool: "true or false", int: "a whole number", float: "a number"}[kind]
            raise ValueError(f"Expected `--embedding {name}=` with {example} but got {pair!r}.") from None
    return settings


def training_settings(encoder: str, epochs: int | None, learning_rate: float | None) -> TrainingSettings:
    """Return how scorers are trained on an encoder, whose own epochs and learning rate are the default."""
    own = (EMBEDDED_EPOCHS, EMBEDDED_LEARNING_RATE) if encoder.partition("/")[0] == EMBEDDED else (600, 2e-6)
    return TrainingSettings(
        epochs=own[0] if epochs is None else epochs, learning_rate=own[1] if learning_rate is None else learning_rate
    )


def label_names_of(ratings: RatedExplanations) -> tuple[str, ...] | None:
    """Return the labels of a scorer of these ratings; None where they have none."""
    names = set(ratings.labels.tolist()) - {""}
    if not names:
        return None
    released = {LABEL_ALIASES.get(name, name) for name in names} <= set(RELEASED_LABELS)
    return tuple(RELEASED_LABELS) if released else tuple(sorted(names))


def load_encoder(
    name: str, weights: Path | None = None, tokenizer: Path | None = None, *, device: torch.device
) -> Encoder:
    """Return the encoder by its name."""
    if name.partition(" ")[0].partition("/")[0] == EMBEDDED:
        refuse_without_effect(
            "on the embedded encoder, which has its own", encoder_weights=weights, encoder_tokenizer=tokenizer
        )
    return as_encoder(name, weights=weights, tokenizer=tokenizer, device=device)


def encoder_trained_on(scorer: Scorer, weights: Path | None) -> str | None:
    """Return the name of the encoder that a scorer was trained on, without the file of its weights."""
    # The encoder of a file is called "siglip (weights.safetensors)".
    model, _, file = (scorer.encoder or "").partition(" (")
    if not file.endswith((".safetensors)", ".pt)", ".pth)", ".bin)")):
        return scorer.encoder
    if weights is None:
        raise ValueError(
            f"The scorer was trained on the encoder {scorer.encoder}: give that file with --encoder-weights, or "
            "another encoder of the same weights with --encoder."
        )
    return model


def for_spreadsheets(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a frame in which no text of a user is computed by a spreadsheet: with ' before = + - @."""
    texts = {name: frame[name] for name in frame if frame[name].dtype.kind == "O"}
    return frame.assign(**{name: [_as_cell(value) for value in column] for name, column in texts.items()})


def _as_cell(value: Any) -> Any:
    if not isinstance(value, str) or not value.startswith(FORMULA):
        return value
    with suppress(ValueError):
        float(value)
        return value
    return f"'{value}"
