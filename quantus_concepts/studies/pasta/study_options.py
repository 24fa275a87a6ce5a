"""The options that the smaller studies share, checked before any work, and what they ask for."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from captum_concepts.checks import check_range
from quantus_concepts.datasets.ratings.rated import RatedExplanations
from quantus_concepts.datasets.ratings.raters import simulated_ratings
from quantus_concepts.datasets.ratings.released import PastaRatings
from quantus_concepts.pasta.embedded_encoder import EMBEDDED
from quantus_concepts.pasta.embedder import Embedder
from quantus_concepts.pasta.training import TrainingSettings
from quantus_concepts.studies.option_values import AUTO, option_name, torch_device
from quantus_concepts.studies.pasta.embedded import EMBEDDED_SETTINGS, embedded_embedder
from quantus_concepts.studies.pasta.encoder_option import load_encoder
from quantus_concepts.studies.pasta.seeds import Plan
from quantus_concepts.studies.rating.train_options import MANY, question_names
from quantus_concepts.studies.rating.train_run import known_labels

DATA_HELP = "Ratings"
TRAINING_HELP = "Training"

DataOption = Annotated[
    Path | None,
    typer.Option(
        help="Folder with human_annotations.json; by default simulated raters of painted birds.",
        rich_help_panel=DATA_HELP,
    ),
]
NImagesOption = Annotated[int, typer.Option(help="Painted birds, where no folder is given.", rich_help_panel=DATA_HELP)]
QuestionOption = Annotated[str, typer.Option(help="Q1 to Q6, some with commas, or all.", rich_help_panel=TRAINING_HELP)]
SplitsOption = Annotated[int, typer.Option(help="Splits to train and test on.", rich_help_panel=TRAINING_HELP)]
EpochsOption = Annotated[
    int | None,
    typer.Option(
        help="Passes over the training explanations; by default 20 with the embedded encoder, else the paper's 600.",
        rich_help_panel=TRAINING_HELP,
    ),
]
LearningRateOption = Annotated[
    float | None,
    typer.Option(
        help="Of Adam; by default 0.003 with the embedded encoder, else the paper's.", rich_help_panel=TRAINING_HELP
    ),
]
CacheOption = Annotated[
    Path | None, typer.Option(help="Folder that keeps embeddings for the next run.", rich_help_panel=TRAINING_HELP)
]


@dataclass(frozen=True)
class StudyOptions:
    """What one run is asked for; the fields are the options of the commands, None where not given."""

    data: Path | None = None
    n_images: int = 120
    question: str = "Q1"
    encoder: str = EMBEDDED
    encoder_weights: Path | None = None
    encoder_tokenizer: Path | None = None
    seeds: int = 5
    epochs: int | None = None
    learning_rate: float | None = None
    cache: Path | None = None
    device: str = AUTO
    batch_size: int = 64
    seed: int = 0
    out: Path | None = None
    overwrite: bool = False
    progress: bool = True

    def __post_init__(self) -> None:
        if self.data is not None and not self.data.is_dir():
            raise ValueError(f"Expected argument `--data` to name a folder but there is none at {self.data}.")
        for name in ("n_images", "seeds", "epochs", "batch_size"):
            if (value := getattr(self, name)) is not None:
                check_range(option_name(name), value, 1, MANY)
        if self.learning_rate is not None:
            check_range("--learning-rate", self.learning_rate, 0, math.inf, open_low=True)
        check_range("--seed", self.seed, 0, 2**31)
        _ = self.questions
        self.torch_device()

    @property
    def questions(self) -> tuple[str, ...]:
        """The questions to train for."""
        return question_names(self.question)

    def torch_device(self) -> torch.device:
        """Return the device to run on."""
        return torch_device(self.device)

    def ratings(self) -> RatedExplanations:
        """Return the folder's ratings, or simulated ones."""
        return simulated_ratings(self.n_images, seed=self.seed) if self.data is None else PastaRatings(self.data)

    def embedder(self, encoder: str | None = None) -> Embedder:
        """Return an embedder with the encoder asked for, or another of open_clip or embedded."""
        shared: dict[str, Any] = {
            "cache": self.cache,
            "batch_size": self.batch_size,
            "display_progressbar": self.progress,
        }
        name = encoder or self.encoder
        if name == EMBEDDED:
            return embedded_embedder(device=self.torch_device(), **shared)
        files = (self.encoder_weights, self.encoder_tokenizer) if encoder is None else ()
        return Embedder(load_encoder(name, *files, device=self.torch_device()), **shared)

    def plan(self, ratings: RatedExplanations, encoder: str | None = None) -> Plan:
        """Return how scorers are trained on some ratings."""
        settings = EMBEDDED_SETTINGS if (encoder or self.encoder).startswith(EMBEDDED) else TrainingSettings()
        given = {name: value for name in ("epochs", "learning_rate") if (value := getattr(self, name)) is not None}
        return Plan(
            questions=self.questions,
            label_names=known_labels(ratings),
            settings=replace(settings, **given),
            seed=self.seed,
            n_seeds=self.seeds,
            device=self.torch_device(),
            progress=self.progress,
        )

    def say(self, text: str) -> None:
        """Tell how far the run is."""
        if self.progress:
            typer.echo(text, err=True)

    def shown(self, **more: object) -> dict[str, str]:
        """Return the settings as a report shows them."""
        names = ("data", "n_images", "question", "encoder", "seeds", "epochs", "learning_rate", "seed")
        given = {name.replace("_", " "): str(value) for name in names if (value := getattr(self, name)) is not None}
        if self.data is not None:
            del given["n images"]
        return given | {name: str(value) for name, value in more.items()} | {"device": str(self.torch_device())}
