"""What the command `compose` runs; loaded when it runs, so that --help answers at once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from quantus_concepts.studies.compose.settings import PAINTED

if TYPE_CHECKING:
    from quantus_concepts.datasets import ObjectSource
    from quantus_concepts.datasets.scenes.bam_writer import Composition
    from quantus_concepts.studies._kit.folder import RunFolder
    from quantus_concepts.studies.compose.settings import Compose

#: Written first; ``compose.json``, which `BAMFolder` reads, last.
SETTINGS = "settings.json"


def run(settings: Compose, folder: RunFolder) -> Path:
    """Write into a folder of images that is new, empty, or of an earlier run of the same settings."""
    from quantus_concepts.studies._kit.folder import new_folder
    from quantus_concepts.studies._kit.image_set import ImageSet

    listed = folder.settings
    images = None if settings.out is None else ImageSet(settings.out, listed, SETTINGS)
    composition = _composition(settings)
    images = images or ImageSet(new_folder("compose"), listed, SETTINGS)
    expected = {*composition.names(), SETTINGS}
    there = {path.relative_to(images.path).as_posix() for path in images.path.rglob("[!.]*") if not path.is_dir()}
    if foreign := sorted(there - expected):
        path = images.path / foreign[0]
        raise ValueError(f"{path} is no file of this composition. Choose another folder (--out).")
    try:
        for name, content in composition.files(display_progressbar=settings.progress):
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


def _composition(settings: Compose) -> Composition:
    from quantus_concepts.datasets import COCOObjects, CutoutFolder, PaintedObjects, PaintedScenes, SceneFolder
    from quantus_concepts.datasets.scenes.bam_writer import plan_composition
    from quantus_concepts.datasets.scenes.coco_objects import RELEASE_OBJECTS

    cutouts: ObjectSource
    if settings.annotations is not None:
        names = settings.object_classes.split(",") if settings.object_classes else RELEASE_OBJECTS
        chosen = [name.strip() for name in names]
        cutouts = COCOObjects(settings.annotations, settings.objects, chosen, min_photographs=settings.min_photographs)
    else:
        cutouts = PaintedObjects(seed=settings.seed) if settings.objects == PAINTED else CutoutFolder(settings.objects)
    return plan_composition(
        cutouts,
        PaintedScenes(seed=settings.seed) if settings.scenes == PAINTED else SceneFolder(settings.scenes),
        n_per_pair=settings.n_per_pair,
        image_size=settings.image_size,
        test_share=settings.test_share,
        seed=settings.seed,
        lossless=settings.lossless,
    )
