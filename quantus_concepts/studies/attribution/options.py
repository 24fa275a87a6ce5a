"""The options of `quantus-concepts benchmark attribution`, checked before any work."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import torch

from captum_concepts.checks import check_choice, check_range
from quantus_concepts.metrics.patch_optimisation import ETA1, STEP_SIZE
from quantus_concepts.studies.attribution.premises import Limits
from quantus_concepts.studies.networks import SMALL, said_normalisation
from quantus_concepts.studies.option_values import AUTO, option_name, torch_device

PAINTED, COCO, FOLDERS, BAM = "painted", "coco-miniplaces", "folders", "bam"
DATA = (PAINTED, COCO, FOLDERS, BAM)
#: What each kind of data needs.
FILES: dict[str, tuple[str, ...]] = {
    PAINTED: (),
    COCO: ("objects", "annotations", "scenes"),
    FOLDERS: ("objects", "scenes"),
    BAM: ("root",),
}
MANY = 10_000_000
#: The small network's logits change so little with a pixel that the usual weight of the patch's size would outdo them.
SMALL_STEP_SIZE, SMALL_ETA1 = 5000.0, 0.001


@dataclass(frozen=True)
class Options:
    """What one run is asked for; the fields are the options of the command, None where not given."""

    data: str = PAINTED
    objects: Path | None = None
    annotations: Path | None = None
    scenes: Path | None = None
    root: Path | None = None
    image_size: int | None = None
    n_train: int = 60
    n_test: int = 8
    test_share: float = 0.1
    backbone: str = SMALL
    weights: str | None = None
    mean: str | None = None
    std: str | None = None
    unnormalised: bool = False
    epochs: int = 9
    train_batch_size: int = 64
    learning_rate: float | None = None
    augment: bool = False
    models: Path | None = None
    methods: str | None = None
    layer: str | None = None
    n_samples: int = 8
    n_steps: int = 16
    noise: float = 0.15
    n_images: int = 200
    n_patches: int = 100
    patch_steps: int = 300
    step_size: float | None = None
    eta1: float | None = None
    threshold: float = 0.1
    tolerance: float = 0.05
    relative: bool = False
    common_object: str | None = None
    target_scene: str | None = None
    n_relative: int = 100
    robustness: bool = False
    tcav: bool = True
    max_drop: float = Limits.drop
    min_remain: float = Limits.remain
    max_above_chance: float = Limits.above_chance
    device: str = AUTO
    batch_size: int = 64
    seed: int = 0
    out: Path | None = None
    overwrite: bool = False
    progress: bool = True

    def __post_init__(self) -> None:
        check_choice("--data", self.data, DATA)
        for name in (
            "n_train",
            "n_test",
            "epochs",
            "n_samples",
            "n_steps",
            "n_images",
            "n_patches",
            "patch_steps",
            "batch_size",
        ):
            check_range(option_name(name), getattr(self, name), 1, MANY)
        said_normalisation(self.mean, self.std, self.unnormalised)
        # Batch norm cannot learn from a single image.
        check_range("--train-batch-size", self.train_batch_size, 2, MANY)
        check_range("--n-relative", self.n_relative, 2, MANY)
        check_range("--noise", self.noise, 0, 10)
        check_range("--seed", self.seed, 0, 2**31)
        for name in ("threshold", "tolerance", "step_size", "learning_rate"):
            if getattr(self, name) is not None:
                check_range(option_name(name), getattr(self, name), 0, math.inf, open_low=True)
        if self.eta1 is not None:
            check_range("--eta1", self.eta1, 0, math.inf)
        if not 0 < self.test_share < 1:
            raise ValueError(f"Expected argument `--test-share` to lie in (0, 1) but got {self.test_share}.")
        if self.image_size is not None:
            check_range("--image-size", self.image_size, 16, 4096)
        if self.relative and self.data == BAM:
            raise ValueError(
                "Argument `--relative` needs images with the common feature in a share of the classes, which the BAM "
                f"layout does not hold. Compose them: --data {COCO} or --data {FOLDERS}."
            )
        if self.robustness and self.data == BAM:
            raise ValueError(
                "Argument `--robustness` needs images composed with objects of other sizes and at other places, which "
                f"the BAM layout does not hold. Compose them: --data {COCO} or --data {FOLDERS}."
            )
        self._check_files()
        for name in ("max_drop", "min_remain", "max_above_chance"):
            check_range(option_name(name), getattr(self, name), 0, 1)
        _ = self.method_names
        self.torch_device()

    def _check_files(self) -> None:
        needed = FILES[self.data]
        for name in ("objects", "annotations", "scenes", "root"):
            path = getattr(self, name)
            if path is None:
                if name in needed:
                    raise ValueError(f"Expected argument `--{name}` beside `--data {self.data}` but it is missing.")
                continue
            if name not in needed:
                raise ValueError(
                    f"Argument `--{name}` says nothing with `--data {self.data}`. Leave it out, or choose the data it "
                    f"belongs to: {', '.join(kind for kind in DATA if name in FILES[kind])}."
                )
            kind, fits = ("file", path.is_file()) if name == "annotations" else ("folder", path.is_dir())
            if not fits:
                raise ValueError(f"Expected argument `--{name}` to name a {kind} but there is none at {path}.")
        if self.models is not None and self.models.exists() and not self.models.is_dir():
            raise ValueError(f"Expected argument `--models` to name a folder but {self.models} is a file.")

    @property
    def limits(self) -> Limits:
        """When the ground truth counts as verified."""
        return Limits(self.max_drop, self.min_remain, self.max_above_chance)

    @property
    def patch_step_size(self) -> float:
        """Step size of the patches, on pixels of 0 to 255."""
        default = SMALL_STEP_SIZE if self.backbone == SMALL else STEP_SIZE
        return default if self.step_size is None else self.step_size

    @property
    def patch_eta1(self) -> float:
        """Weight of the patches' size."""
        default = SMALL_ETA1 if self.backbone == SMALL else ETA1
        return default if self.eta1 is None else self.eta1

    @property
    def method_names(self) -> list[str] | None:
        """The methods asked for; None for those of the paper and the controls."""
        if self.methods is None:
            return None
        names = [name.strip() for name in self.methods.split(",")]
        if not all(names):
            raise ValueError(
                f"Expected argument `--methods` to hold names with commas between them but got {self.methods!r}."
            )
        return names

    def torch_device(self) -> torch.device:
        """Return the device to run on."""
        return torch_device(self.device)
