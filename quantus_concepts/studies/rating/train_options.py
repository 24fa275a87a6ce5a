"""The options of `quantus-concepts pasta train`, checked before any work."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import torch

from captum_concepts.checks import check_choice, check_range
from quantus_concepts.datasets.ratings.annotations import LABELS, PREDICTED
from quantus_concepts.datasets.ratings.explanations import MODALITIES
from quantus_concepts.datasets.ratings.questions import QUESTIONS, question_named
from quantus_concepts.functional.rating_losses import LOSS_WEIGHTS
from quantus_concepts.functional.votes import JOINS
from quantus_concepts.pasta.sentences import SENTENCES
from quantus_concepts.pasta.training import TrainingSettings
from quantus_concepts.studies.option_values import AUTO, torch_device

ALL = "all"
MANY = 10_000_000


def question_names(text: str, argument: str = "--question") -> tuple[str, ...]:
    """Read the questions an option names."""
    if text.strip().lower() == ALL:
        return tuple(QUESTIONS)
    names = {name.strip() for name in text.split(",")}
    unknown = sorted(names - set(QUESTIONS))
    if unknown:
        raise ValueError(
            f"Expected argument `{argument}` to be {ALL} or some of {', '.join(QUESTIONS)} with commas between them "
            f"but got {text!r}."
        )
    return tuple(name for name in QUESTIONS if question_named(name).name in names)


@dataclass(frozen=True)
class TrainOptions:
    """What one training is asked for; the fields are the options of the command, None where not given."""

    data: Path
    datasets: str | None = None
    modality: str | None = None
    drawings: bool = True
    labels: str = PREDICTED
    votes: str = "mode"
    question: str = ALL
    encoder: str = "siglip"
    encoder_weights: Path | None = None
    encoder_tokenizer: Path | None = None
    saliency: str = "overlay"
    n_top: int = 15
    template: str = ""
    concepts: str = "sentence"
    sentence: str = "ours"
    seeds: int = 5
    loss: str = "paper"
    epochs: int = TrainingSettings.epochs
    learning_rate: float = TrainingSettings.learning_rate
    train_share: float = 0.7
    labelled: bool = True
    regressors: bool = False
    sparseness: bool = False
    cache: Path | None = None
    device: str = AUTO
    batch_size: int = 16
    seed: int = 0
    out: Path | None = None
    overwrite: bool = False
    progress: bool = True

    def __post_init__(self) -> None:
        if not self.data.is_dir():
            raise ValueError(f"Expected argument `--data` to name a folder but there is none at {self.data}.")
        check_choice("--votes", self.votes, JOINS)
        check_choice("--loss", self.loss, tuple(LOSS_WEIGHTS))
        if self.modality is not None:
            check_choice("--modality", self.modality, MODALITIES)
        check_choice("--saliency", self.saliency, ("overlay", "masked"))
        check_choice("--concepts", self.concepts, ("sentence", "weighted"))
        check_choice("--sentence", self.sentence, SENTENCES)
        check_choice("--labels", self.labels, LABELS)
        for name in ("seeds", "epochs", "batch_size", "n_top"):
            check_range("--" + name.replace("_", "-"), getattr(self, name), 1, MANY)
        check_range("--learning-rate", self.learning_rate, 0, math.inf, open_low=True)
        check_range("--seed", self.seed, 0, 2**31)
        if not 0 < self.train_share < 1:
            raise ValueError(f"Expected argument `--train-share` to lie in (0, 1) but got {self.train_share}.")
        _ = self.questions
        self.torch_device()

    @property
    def questions(self) -> tuple[str, ...]:
        """The questions to train for."""
        return question_names(self.question)

    @property
    def settings(self) -> TrainingSettings:
        """Of the training."""
        return TrainingSettings(epochs=self.epochs, learning_rate=self.learning_rate, loss=self.loss)

    def torch_device(self) -> torch.device:
        """Return the device to run on."""
        return torch_device(self.device)
