"""The command `compose`: objects on scenes, written to disk in the BAM layout."""

from __future__ import annotations

from pathlib import Path

from quantus_concepts.datasets.scenes.bam_writer import compose_files
from quantus_concepts.datasets.scenes.image_folders import CutoutFolder, SceneFolder
from quantus_concepts.datasets.scenes.painted_objects import PaintedObjects
from quantus_concepts.datasets.scenes.painted_scenes import PaintedScenes
from quantus_concepts.datasets.scenes.sources import ObjectSource, SceneSource
from quantus_concepts.studies._kit.output import OutputFolder
from quantus_concepts.studies._models.options import PAINTED
from quantus_concepts.studies.compose.options import ComposeOptions


def compose(options: ComposeOptions) -> Path:
    """Compose images and write them in the layout that `BAMFolder` reads."""
    with OutputFolder("compose", options.out, options.identity(), overwrite=options.overwrite) as folder:
        compose_files(
            load_objects(options),
            load_scenes(options.scenes, options.seed),
            folder.new,
            n_per_pair=options.n_per_pair,
            image_size=options.image_size,
            test_share=options.test_share,
            seed=options.seed,
            lossless=options.lossless,
            display_progressbar=options.progress,
        )
    return folder.path


def load_objects(options: ComposeOptions) -> ObjectSource:
    """Open the source of objects that the options name."""
    if options.objects == PAINTED:
        return PaintedObjects(seed=options.seed)
    if options.annotations is None:
        return CutoutFolder(options.objects)
    return options.coco_objects(options.annotations, options.objects)


def load_scenes(scenes: str, seed: int = 0) -> SceneSource:
    """Open the source of scenes that an option names."""
    if scenes == PAINTED:
        return PaintedScenes(seed=seed)
    return SceneFolder(scenes)
