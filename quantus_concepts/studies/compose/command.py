"""The command `compose`: objects on scenes, written to disk in the layout of BAM."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quantus_concepts.studies._kit import options as kit
from quantus_concepts.studies._kit.study import Settings

if TYPE_CHECKING:
    from quantus_concepts.datasets import ObjectSource
    from quantus_concepts.datasets.scenes.bam_writer import Composition

PAINTED = "painted"
#: Written first; ``compose.json``, which `BAMFolder` reads, last.
SETTINGS = "settings.json"


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

    def execute(self) -> Path:
        """Write into a folder that is new, empty, or of an earlier run of the same settings."""
        from quantus_concepts.studies._kit.folder import new_folder
        from quantus_concepts.studies._kit.image_set import ImageSet

        listed = self.listed()
        images = None if self.out is None else ImageSet(self.out, listed, SETTINGS)
        composition = self._composition()
        images = images or ImageSet(new_folder("compose"), listed, SETTINGS)
        expected = {*composition.names(), SETTINGS}
        there = {path.relative_to(images.path).as_posix() for path in images.path.rglob("[!.]*") if not path.is_dir()}
        if foreign := sorted(there - expected):
            path = images.path / foreign[0]
            raise ValueError(f"{path} is no file of this composition. Choose another folder (--out).")
        try:
            for name, content in composition.files(display_progressbar=self.progress):
                if not images.write(name, content) and (
                    not images.has(name) or (images.path / name).read_bytes() != content
                ):
                    raise ValueError(
                        f"{images.path / name} is not what this composition writes: its objects or scenes were "
                        "others. Choose another folder (--out)."
                    )
        except KeyboardInterrupt:
            again = f"the same command with --out {images.path} goes on from there."
            typer.echo(f"What is finished is kept: {again}", err=True)
            raise
        return images.path

    def _composition(self) -> Composition:
        from quantus_concepts.datasets import COCOObjects, CutoutFolder, PaintedObjects, PaintedScenes, SceneFolder
        from quantus_concepts.datasets.scenes.bam_writer import plan_composition
        from quantus_concepts.datasets.scenes.coco_objects import RELEASE_OBJECTS

        cutouts: ObjectSource
        if self.annotations is not None:
            names = self.object_classes.split(",") if self.object_classes else RELEASE_OBJECTS
            chosen = [name.strip() for name in names]
            cutouts = COCOObjects(self.annotations, self.objects, chosen, min_photographs=self.min_photographs)
        else:
            cutouts = PaintedObjects(seed=self.seed) if self.objects == PAINTED else CutoutFolder(self.objects)
        return plan_composition(
            cutouts,
            PaintedScenes(seed=self.seed) if self.scenes == PAINTED else SceneFolder(self.scenes),
            n_per_pair=self.n_per_pair,
            image_size=self.image_size,
            test_share=self.test_share,
            seed=self.seed,
            lossless=self.lossless,
        )
