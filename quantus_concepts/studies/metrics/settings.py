"""The settings of `benchmark metrics`, which are its options."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from quantus_concepts.studies._kit import options as kit
from quantus_concepts.studies._kit.study import Settings

if TYPE_CHECKING:
    from quantus_concepts.studies.concepts.settings import Concepts

_data, _run = (partial(typer.Option, rich_help_panel=name) for name in ("Data", kit.RUN))
_CONCEPTS = "folder: CSV of concepts per image or per class. cub: names or patterns of concepts, with commas between."
_FEWER = "cub, folder: at most so many training and so many test images of each class, drawn with --seed."
_file = partial(_data, exists=True, dir_okay=False)
#: Options that painted birds have not.
_OF_IMAGES = ("root", "concepts", "parts", "part_of_concept", "images_per_class")
_OF_NETWORK = ("layer", "weights", "mean", "std", "unnormalised", "image_size")


@dataclass(frozen=True, kw_only=True)
class Metrics(Settings):
    """Try the metrics: damage concept models on purpose, and see which score would have noticed.

    With no option: a planted model that is right and post-hoc models trained on painted birds. Names, directions,
    polarity, head and maps are damaged step by step. The last line is the folder with report.html, results.csv, the
    table and the picture.

    Example: quantus-concepts benchmark metrics

    Example: quantus-concepts benchmark metrics --data cub --root CUB_200_2011 --backbone resnet18
    """

    words = "benchmark metrics"

    data: Annotated[Literal["painted", "cub", "folder"], _data(help="Which images.")] = "painted"
    root: Annotated[
        Path | None, _data(exists=True, file_okay=False, help="Folder of the images (cub: the official layout).")
    ] = None
    concepts: Annotated[str | None, _data(help=_CONCEPTS)] = None
    parts: Annotated[Path | None, _file(help="folder: CSV of part points, for CLM.")] = None
    part_of_concept: Annotated[Path | None, _file(help="folder: CSV of concept and part.")] = None
    images_per_class: Annotated[int | None, _data(min=1, max=kit.MANY, help=_FEWER)] = None
    backbone: kit.Backbone = None
    layer: kit.Layer = None
    weights: kit.Weights = None
    mean: kit.Mean = None
    std: kit.Std = None
    unnormalised: kit.Unnormalised = False
    image_size: kit.ImageSize = None
    worlds: Annotated[int, _run(min=2, max=1000, help="Number of damaged worlds; two more have no damage.")] = 3
    repetitions: Annotated[int, _run(min=1, max=1000, help="Draws of each damage in a world.")] = 1
    seed: kit.Seed = 0
    device: kit.Device = kit.AUTO
    batch_size: kit.BatchSize = 64
    readers: kit.Readers = 0
    progress: kit.Progress = True
    out: kit.Out = None
    overwrite: kit.Overwrite = False

    @cached_property
    def photographs(self) -> Concepts | None:
        """The settings of `benchmark concepts` for the same images and network; None for painted birds."""
        from quantus_concepts.studies.concepts.settings import Concepts

        if self.data == "painted":
            return None
        names = ("data", *_OF_IMAGES, *_OF_NETWORK, "seed", "device", "batch_size", "readers", "progress")
        own = {name: getattr(self, name) for name in names}
        # One bank: random directions are drawn by the damage.
        return Concepts(**own, backbone=None if self.backbone is None else [self.backbone], random_banks=1, seeds=1)

    def check(self) -> None:
        """Raise ValueError for options that do not go together, and for a network that cannot be loaded."""
        if self.photographs is not None:
            self.photographs.check()
            return
        names = (*_OF_IMAGES, "backbone", *_OF_NETWORK)
        kit.refuse_without_effect("with --data painted", **{name: getattr(self, name) for name in names})

    def idle(self) -> tuple[str, tuple[str, ...]]:
        """Return the options of a run of the network, which painted birds do not have."""
        names = ("batch_size", "readers", "device") if self.data == "painted" else ()
        return "with --data painted", names
