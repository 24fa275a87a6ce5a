"""The command `compose`: objects on scenes, written to disk in the BAM layout; no library is loaded for its help."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from quantus_concepts.studies._kit.command import (
    MANY,
    OutOptions,
    ProgressOptions,
    SeedOptions,
    option,
    share,
)
from quantus_concepts.studies._models.options import PAINTED, COCOOptions

if TYPE_CHECKING:
    from quantus_concepts.datasets import ObjectSource

_SOURCES, _IMAGES = "Objects and scenes", "Images"


@dataclass(frozen=True, kw_only=True)
class ComposeOptions(COCOOptions, ProgressOptions, OutOptions, SeedOptions):
    """Compose objects on scenes and write them in the layout of the paper's release, which --data bam reads."""

    examples = (
        "compose --n-per-pair 50 --out composed",
        "compose --objects cutouts --scenes photographs --image-size 224 --out composed",
    )
    quick = "--n-per-pair 2 --image-size 32"

    objects: str = option(
        PAINTED,
        "painted, a folder of RGBA cut-outs by class, or with --annotations COCO's photographs.",
        panel=_SOURCES,
    )
    scenes: str = option(PAINTED, "painted, or a folder of scenes by class.", panel=_SOURCES)
    annotations: Path | None = option(None, "COCO's instances_*.json.", panel=_SOURCES, path="file")
    n_per_pair: int = option(100, "Images of each pair of object and scene.", panel=_IMAGES, bounds=(2, MANY))
    image_size: int = option(128, "Height and width in pixels.", panel=_IMAGES, bounds=(16, 4096))
    test_share: float = share(0.1, "Share of images, cut-outs and scenes for validation.", panel=_IMAGES)
    lossless: bool = option(False, "PNG in place of JPEG.", panel=_IMAGES)

    def __post_init__(self) -> None:
        from captum_concepts._support.checks import check_folder

        super().__post_init__()
        for name in ("objects", "scenes"):
            if (place := getattr(self, name)) != PAINTED:
                check_folder(f"--{name}", place, f"{PAINTED!r} or a folder")
        if self.annotations is None:
            self.refuse(("object_classes", "min_photographs"), "has no effect without `--annotations`. Leave it out.")
        elif self.objects == PAINTED:
            raise ValueError("Expected `--objects` to be the folder of COCO's photographs with `--annotations`.")


def compose(options: ComposeOptions) -> Path:
    """Compose images and write them in the layout that `BAMFolder` reads."""
    from quantus_concepts.datasets import CutoutFolder, PaintedObjects, PaintedScenes, SceneFolder
    from quantus_concepts.datasets.scenes.bam_writer import compose_files
    from quantus_concepts.studies._kit.output import OutputFolder

    with OutputFolder("compose", options.out, options.identity(), overwrite=options.overwrite) as folder:
        if options.objects == PAINTED:
            objects: ObjectSource = PaintedObjects(seed=options.seed)
        elif options.annotations is None:
            objects = CutoutFolder(options.objects)
        else:
            objects = options.coco_objects(options.annotations, options.objects)
        compose_files(
            objects,
            PaintedScenes(seed=options.seed) if options.scenes == PAINTED else SceneFolder(options.scenes),
            folder.new,
            n_per_pair=options.n_per_pair,
            image_size=options.image_size,
            test_share=options.test_share,
            seed=options.seed,
            lossless=options.lossless,
            display_progressbar=options.progress,
        )
    return folder.path
