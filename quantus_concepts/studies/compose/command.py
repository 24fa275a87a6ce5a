"""The command `compose`: objects on scenes, written to disk in the layout of BAM."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from quantus_concepts.studies._kit import options

if TYPE_CHECKING:
    from quantus_concepts.datasets import ObjectSource

PAINTED = "painted"
#: Written first; ``compose.json``, which `BAMFolder` reads, last.
SETTINGS = "settings.json"


def compose(
    *,
    objects: Annotated[
        str, typer.Option(help="painted, a folder of RGBA cut-outs by class, or with --annotations COCO's photographs.")
    ] = PAINTED,
    scenes: Annotated[str, typer.Option(help="painted, or a folder of scenes by class.")] = PAINTED,
    annotations: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="COCO's instances_*.json.")
    ] = None,
    n_per_pair: Annotated[int, typer.Option(min=2, help="Images of each pair of object and scene.")] = 100,
    image_size: Annotated[int, typer.Option(min=16, max=4096, help="Height and width in pixels.")] = 128,
    test_share: Annotated[
        float, typer.Option(min=0, max=1, help="Share of images, cut-outs and scenes for validation.")
    ] = 0.1,
    lossless: Annotated[bool, typer.Option("--lossless", help="PNG in place of JPEG.")] = False,
    object_classes: Annotated[
        str | None, typer.Option(help="Classes, with commas between; by default the ten of the paper's release.")
    ] = None,
    min_photographs: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Leave out classes with objects in fewer photographs; by default a class without any raises an error. "
            "2 or more suits a part of COCO.",
        ),
    ] = None,
    seed: options.Seed = 0,
    progress: options.Progress = True,
    out: options.Out = None,
) -> Path:
    """Compose objects on scenes and write them in the layout of the paper's release, which --data bam reads.

    Writes into a folder that is new or empty, or goes on there where the same command was interrupted.

    Example: quantus-concepts compose --n-per-pair 50 --out composed

    Example: quantus-concepts compose --objects cutouts --scenes photographs --image-size 224 --out composed
    """
    settings = options.given_settings(
        {**locals(), "objects": options.folder_or_word(objects), "scenes": options.folder_or_word(scenes)}
    )
    if annotations is None:
        reason = "without `--annotations`"
        options.refuse_without_effect(reason, object_classes=object_classes, min_photographs=min_photographs)
    elif objects == PAINTED:
        raise ValueError("Expected `--objects` to be the folder of COCO's photographs with `--annotations`.")

    for option, place in (("--objects", objects), ("--scenes", scenes)):
        if place != PAINTED and not Path(place).is_dir():
            raise ValueError(f"Expected `{option}` to be {PAINTED} or a folder but there is none at {place}.")

    # Loaded here: --help answers at once.
    from quantus_concepts.datasets import COCOObjects, CutoutFolder, PaintedObjects, PaintedScenes, SceneFolder
    from quantus_concepts.datasets.scenes.bam_writer import plan_composition
    from quantus_concepts.datasets.scenes.coco_objects import RELEASE_OBJECTS
    from quantus_concepts.studies._kit.folder import new_folder
    from quantus_concepts.studies._kit.image_set import ImageSet

    images = None if out is None else ImageSet(out, settings, SETTINGS)
    if annotations is not None:
        names = object_classes.split(",") if object_classes else RELEASE_OBJECTS
        chosen = [name.strip() for name in names]
        cutouts: ObjectSource = COCOObjects(annotations, objects, chosen, min_photographs=min_photographs)
    else:
        cutouts = PaintedObjects(seed=seed) if objects == PAINTED else CutoutFolder(objects)
    composition = plan_composition(
        cutouts,
        PaintedScenes(seed=seed) if scenes == PAINTED else SceneFolder(scenes),
        n_per_pair=n_per_pair,
        image_size=image_size,
        test_share=test_share,
        seed=seed,
        lossless=lossless,
    )
    images = images or ImageSet(new_folder("compose"), settings, SETTINGS)
    expected = {*composition.names(), SETTINGS}
    there = {path.relative_to(images.path).as_posix() for path in images.path.rglob("[!.]*") if not path.is_dir()}
    if foreign := sorted(there - expected):
        raise ValueError(f"{images.path / foreign[0]} is no file of this composition. Choose another folder (--out).")
    try:
        for name, content in composition.files(display_progressbar=progress):
            if not images.write(name, content) and (
                not images.has(name) or (images.path / name).read_bytes() != content
            ):
                raise ValueError(
                    f"{images.path / name} is not what this composition writes: its objects or scenes were others. "
                    "Choose another folder (--out)."
                )
    except KeyboardInterrupt:
        typer.echo(f"What is finished is kept: the same command with --out {images.path} goes on from there.", err=True)
        raise
    return images.path
