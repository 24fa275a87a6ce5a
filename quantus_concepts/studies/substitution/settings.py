"""The settings of `benchmark substitution`, which are its options."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from quantus_concepts.studies._kit import options as kit
from quantus_concepts.studies._kit.painted import Painted, painted_option
from quantus_concepts.studies._kit.study import Settings

PAINTED_SIZE = 64
#: What is painted where nothing else is said.
BIRDS = Painted(n_train=1200, n_test=300, n_concepts=40)
_Folder = Annotated[Path | None, typer.Option(exists=True, file_okay=False, help="sub: folder of the Parquet files.")]
_CUB = Annotated[
    Path | None, typer.Option(exists=True, file_okay=False, help="sub: folder of CUB-200-2011, to train on and for T.")
]
_SAVED = "File of PostHocCBM.save with that backbone and CUB's concepts, to score too."
_ENCODERS = "Vision-language models to evaluate too, separated by commas; embedded is untrained (baseline)."


@dataclass(frozen=True, kw_only=True)
class Substitution(Settings):
    """Replace one attribute of a bird by another: does a concept model see it, or recite its class?

    With no option: birds are painted with and without the substitution, concept models of every kind are trained, and
    compared with an oracle, a model that recites the class, and random directions.

    Example: quantus-concepts benchmark substitution --seeds 3

    Example: quantus-concepts benchmark substitution --data sub --root SUB --cub-root CUB_200_2011 --backbone resnet18
    """

    words = "benchmark substitution"

    data: Annotated[Literal["painted", "sub"], typer.Option(help="Which images.")] = "painted"
    root: _Folder = None
    cub_root: _CUB = None
    per_pair: Annotated[int | None, typer.Option(min=1, help="sub: images of each pair; by default all.")] = None
    image_size: Annotated[
        int | None, typer.Option(min=32, max=4096, help=f"Height and width in pixels (painted: {PAINTED_SIZE}).")
    ] = None
    encoders: Annotated[str | None, typer.Option(help=_ENCODERS)] = None
    backbone: kit.Backbone = None
    cbm: Annotated[Path | None, typer.Option(exists=True, dir_okay=False, help=_SAVED)] = None
    layer: kit.Layer = None
    weights: kit.Weights = None
    mean: kit.Mean = None
    std: kit.Std = None
    unnormalised: kit.Unnormalised = False
    painted: Annotated[Painted | None, painted_option(BIRDS)] = None
    correlations: Annotated[str, typer.Option(help="Other correlations, of the curve; or none.")] = "0,0.5,1"
    epochs: kit.Epochs = 6
    random_banks: Annotated[int, typer.Option(min=39, help="Number of random banks (baseline).")] = 39
    seeds: kit.Seeds = 1
    seed: kit.Seed = 0
    device: kit.Device = kit.AUTO
    batch_size: kit.BatchSize = 64
    progress: kit.Progress = True
    out: kit.Out = None
    overwrite: kit.Overwrite = False

    @property
    def network(self) -> str:
        """The name of the network."""
        return self.backbone or (kit.SMALL if self.data == "painted" else "resnet18_cub")

    @property
    def normalised(self) -> kit.Normalisation:
        """How the images of the network are normalised."""
        return kit.normalisation(self.mean, self.std, self.unnormalised)

    @property
    def birds(self) -> Painted:
        """What is painted."""
        return self.painted or BIRDS

    @property
    def all_correlations(self) -> list[float]:
        """The correlation of the main table, and for painted birds those of the curve."""
        main = self.birds.correlation
        others = read_correlations(self.correlations) - {main} if self.data == "painted" else set[float]()
        return [main, *sorted(others)]

    @property
    def encoder_names(self) -> list[str]:
        """The vision-language models."""
        return [name.strip() for name in (self.encoders or "").split(",") if name.strip()]

    def check(self) -> None:
        """Raise ValueError for options that do not go together."""
        if self.data == "painted":
            of_sub = {"root": self.root, "cub_root": self.cub_root, "per_pair": self.per_pair}
            kit.refuse_without_effect("with `--data painted`", **of_sub, backbone=self.backbone)
            kit.check_birds(self.birds.n_classes, self.image_size)
        else:
            kit.require("with `--data sub`", root=self.root, cub_root=self.cub_root)
            kit.refuse_without_effect(
                "with `--data sub`, whose images are given", painted=self.painted, seeds=self.seeds > 1
            )
        if self.network == kit.SMALL:
            own: dict[str, object] = {"layer": self.layer, "weights": self.weights, "mean": self.mean, "cbm": self.cbm}
            own["unnormalised"] = self.unnormalised
            kit.refuse_without_effect("without a network of your own (`--backbone`)", **own)
            kit.check_stride(self.image_size)
        _ = self.normalised, self.all_correlations, self.place

    def idle(self) -> tuple[str, tuple[str, ...]]:
        """Return the option of the curve, which published images have not."""
        return "with `--data sub`, whose images are given", () if self.data == "painted" else ("correlations",)

    def listed(self) -> dict[str, str]:
        """Return the settings with the defaults that depend on the data."""
        own = {"painted": str(self.birds)} if self.data == "painted" else {"backbone": self.network}
        return super().listed() | own


def read_correlations(text: str) -> set[float]:
    """Return the numbers of `--correlations`; none for "none"."""
    try:
        values = set() if text == "none" else {float(part) for part in text.split(",")}
    except ValueError:
        values = {-1.0}
    if not all(0 <= value <= 1 for value in values):
        raise ValueError(f"Expected `--correlations` to be numbers from 0 to 1, 0,0.5,1, or none, but got {text!r}.")
    return values
