"""The options of `quantus-concepts benchmark pasta`, checked before any work."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import torch

from captum_concepts.checks import check_range
from quantus_concepts.studies.option_values import AUTO, option_name, torch_device
from quantus_concepts.studies.pasta.embedded import EMBEDDED_SETTINGS
from quantus_concepts.studies.rating.train_options import ALL, MANY, question_names


@dataclass(frozen=True)
class Options:
    """What one run is asked for; the fields are the options of the command, None where not given."""

    n_images: int = 240
    n_per_image: int = 21
    image_size: int = 64
    question: str = ALL
    seeds: int = 5
    epochs: int = EMBEDDED_SETTINGS.epochs
    learning_rate: float = EMBEDDED_SETTINGS.learning_rate
    train_share: float = 0.7
    regressors: bool = False
    uses: bool = True
    n_explained: int = 48
    n_masks: int = 400
    classifier_epochs: int = 6
    device: str = AUTO
    batch_size: int = 64
    seed: int = 0
    out: Path | None = None
    overwrite: bool = False
    progress: bool = True

    def __post_init__(self) -> None:
        for name in ("n_images", "n_per_image", "seeds", "epochs", "n_explained", "n_masks", "classifier_epochs"):
            check_range(option_name(name), getattr(self, name), 1, MANY)
        check_range("--image-size", self.image_size, 32, 512)
        check_range("--batch-size", self.batch_size, 1, MANY)
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

    def torch_device(self) -> torch.device:
        """Return the device to run on."""
        return torch_device(self.device)
