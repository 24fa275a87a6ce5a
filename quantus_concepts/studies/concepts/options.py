"""The options of `quantus-concepts benchmark concepts`, checked before any work."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from captum_concepts.cbm import VALUES
from captum_concepts.checks import check_choice, check_range
from captum_concepts.directions import METHODS
from quantus_concepts.functional.random_banks import N_BANKS
from quantus_concepts.studies.concepts.models import BankOptions
from quantus_concepts.studies.networks import RESNET18_CUB, SMALL, said_normalisation
from quantus_concepts.studies.option_values import AUTO, option_name, torch_device
from quantus_concepts.studies.training import STRIDE

PAINTED, CUB, FOLDER = "painted", "cub", "folder"
DATA = (PAINTED, CUB, FOLDER)
LABELS = ("image", "majority")
#: What takes part where the option is not given; for "folder" None says that the images keep their size.
DEFAULT_BACKBONE = {PAINTED: SMALL, CUB: RESNET18_CUB, FOLDER: "resnet18"}
DEFAULT_SEEDS = {PAINTED: 4, CUB: 1, FOLDER: 1}
MANY = 10_000_000


@dataclass(frozen=True)
class Options:
    """What one run is asked for; the fields are the options of the command, None where not given."""

    data: str = PAINTED
    root: Path | None = None
    concepts: Path | None = None
    parts: Path | None = None
    part_of_concept: Path | None = None
    labels: str = "image"
    n_train: int = 2400
    n_test: int = 600
    n_classes: int = 20
    n_concepts: int = 69
    correlation: float = 0.0
    deviation: float = 0.1
    epochs: int = 9
    backbone: str | None = None
    layer: str | None = None
    weights: str | None = None
    image_size: int | None = None
    mean: str | None = None
    std: str | None = None
    unnormalised: bool = False
    method: str = "svm"
    C: float = 1.0
    n_pos: int = 100
    n_neg: int = 100
    values: str = "margin"
    sweep: bool = True
    random_banks: int = N_BANKS
    device: str = AUTO
    batch_size: int = 64
    workers: int = 0
    seed: int = 0
    seeds: int | None = None
    out: Path | None = None
    overwrite: bool = False
    progress: bool = True

    def __post_init__(self) -> None:
        check_choice("--data", self.data, DATA)
        check_choice("--labels", self.labels, LABELS)
        check_choice("--method", self.method, METHODS)
        check_choice("--values", self.values, VALUES)
        for name in ("n_train", "n_test", "n_pos", "n_neg", "epochs", "batch_size"):
            check_range(option_name(name), getattr(self, name), 1, MANY)
        for name in ("n_train", "n_test") if self.data == PAINTED else ():
            # Each class has to occur.
            check_range(option_name(name), getattr(self, name), self.n_classes, MANY)
        # Fewer do not tell where 97.5 % of them lie.
        check_range("--random-banks", self.random_banks, N_BANKS, MANY)
        check_range("--workers", self.workers, 0, 256)
        check_range("--seed", self.seed, 0, 2**31)
        check_range("--seeds", self.n_seeds, 1, 1000)
        check_range("--C", self.C, 0, math.inf, open_low=True)
        if self.image_size is not None:
            check_range("--image-size", self.image_size, 8, 4096)
            if self.trains and self.image_size % STRIDE:
                raise ValueError(
                    f"Expected argument `--image-size` to be a multiple of {STRIDE}, the stride of the small network, "
                    f"but got {self.image_size}."
                )
        if self.trains and (self.layer is not None or self.weights is not None):
            raise ValueError(
                "Arguments `--layer` and `--weights` belong to a network of your own: name it with --backbone."
            )
        self._check_files()
        if self.normalisation["mean"] is None and self.unnormalised and self.trains:
            raise ValueError("Argument `--unnormalised` belongs to a network of your own: name it with --backbone.")
        self.torch_device()

    def _check_files(self) -> None:
        needed = {PAINTED: (), CUB: ("root",), FOLDER: ("root", "concepts")}[self.data]
        for name in needed:
            if getattr(self, name) is None:
                raise ValueError(f"Expected argument `--{name}` beside `--data {self.data}` but it is missing.")
        allowed = {PAINTED: (), CUB: ("root",), FOLDER: ("root", "concepts", "parts", "part_of_concept")}[self.data]
        for name in ("root", "concepts", "parts", "part_of_concept"):
            path = getattr(self, name)
            if path is None:
                continue
            if name not in allowed:
                raise ValueError(
                    f"Argument `{option_name(name)}` says nothing with `--data {self.data}`. Leave it out, or choose "
                    f"the data it belongs to: `--data {FOLDER}`."
                )
            kind, fits = ("folder", path.is_dir()) if name == "root" else ("file", path.is_file())
            if not fits:
                raise ValueError(
                    f"Expected argument `{option_name(name)}` to name a {kind} but there is none at {path}."
                )

    @property
    def backbone_name(self) -> str:
        """The backbone, or the one that belongs to the data."""
        return self.backbone if self.backbone is not None else DEFAULT_BACKBONE[self.data]

    @property
    def trains(self) -> bool:
        """Whether the small network is trained on the images, rather than another one used as it is."""
        return self.backbone_name == SMALL

    @property
    def n_seeds(self) -> int:
        """How many times everything that is drawn is drawn."""
        return self.seeds if self.seeds is not None else DEFAULT_SEEDS[self.data]

    @property
    def normalisation(self) -> dict[str, Any]:
        """What `--mean`, `--std` and `--unnormalised` say, as `load_network` takes it."""
        return said_normalisation(self.mean, self.std, self.unnormalised)

    @property
    def bank(self) -> BankOptions:
        """How the concept bank is fitted."""
        return BankOptions(self.method, self.C, self.n_pos, self.n_neg, self.values)

    def torch_device(self) -> torch.device:
        """Return the device of the models."""
        return torch_device(self.device)
