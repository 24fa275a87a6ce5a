"""The settings of `compose`, which are its options."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from quantus_concepts.studies._kit import options as kit
from quantus_concepts.studies._kit.study import Settings

PAINTED = "painted"


@dataclass(frozen=True, kw_only=True)
class Compose(Settings):
    """Compose objects on scenes and write them in the layout of the paper's release, which --data bam reads.

    Writes into a folder that is new or empty, or goes on there where the same command was interrupted.

    Example: quantus-concepts compose --n-per-pair 50 --out composed

    Example: quantus-concepts compose --objects cutouts --scenes photographs --image-size 224 --out composed
    """

    words = "compose"

    objects: Annotated[
        str, typer.Option(help="painted, a folder of RGBA cut-outs by class, or with --annotations COCO's photographs.")
    ] = PAINTED
    scenes: Annotated[str, typer.Option(help="painted, or a folder of scenes by class.")] = PAINTED
    annotations: Annotated[Path | None, typer.Option(exists=True, dir_okay=False, help="COCO's instances_*.json.")] = (
        None
    )
    n_per_pair: Annotated[int, typer.Option(min=2, help="Images of each pair of object and scene.")] = 100
    image_size: Annotated[int, typer.Option(min=16, max=4096, help="Height and width in pixels.")] = 128
    test_share: Annotated[
        float, typer.Option(min=0, max=1, help="Share of images, cut-outs and scenes for validation.")
    ] = 0.1
    lossless: Annotated[bool, typer.Option("--lossless", help="PNG in place of JPEG.")] = False
    object_classes: Annotated[
        str | None, typer.Option(help="Classes, with commas between; by default the ten of the paper's release.")
    ] = None
    min_photographs: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Leave out classes with objects in fewer photographs; by default a class without any raises an error. "
            "2 or more suits a part of COCO.",
        ),
    ] = None
    seed: kit.Seed = 0
    progress: kit.Progress = True
    out: kit.Out = None

    def check(self) -> None:
        """Raise ValueError for options that do not go together, and folders that are not there."""
        if self.annotations is None:
            reason, only = "without `--annotations`", {"object_classes": self.object_classes}
            kit.refuse_without_effect(reason, **only, min_photographs=self.min_photographs)
        elif self.objects == PAINTED:
            raise ValueError("Expected `--objects` to be the folder of COCO's photographs with `--annotations`.")
        for option, place in (("--objects", self.objects), ("--scenes", self.scenes)):
            if place != PAINTED and not Path(place).is_dir():
                raise ValueError(f"Expected `{option}` to be {PAINTED} or a folder but there is none at {place}.")

    def options(self) -> dict[str, Any]:
        """Return every option with its value; a folder is one, and no word."""
        named = {name: kit.folder_or_word(getattr(self, name)) for name in ("objects", "scenes")}
        return super().options() | named
