"""The command `compose`: objects on scenes, written to disk in the BAM layout."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from quantus_concepts.benchmark.output import OutputFolder
from quantus_concepts.datasets.bam_writer import check_out, write_bam
from quantus_concepts.datasets.coco_objects import COCOObjects
from quantus_concepts.datasets.image_folders import CutoutFolder, SceneFolder
from quantus_concepts.datasets.painted_objects import PaintedObjects
from quantus_concepts.datasets.painted_scenes import PaintedScenes
from quantus_concepts.datasets.sources import ObjectSource, SceneSource

PAINTED = "painted"


@dataclass(frozen=True)
class ComposeOptions:
    """What the command is given.

    Attributes
    ----------
    objects : str
        "painted", a folder of RGBA cut-outs by class, or with `annotations` the folder of COCO's photographs.
    scenes : str
        "painted", or a folder of scenes by class.
    out : Path or None
        The folder to write; None for a new one under ``reports``.
    n_per_pair : int
        Images of each pair of classes, both splits together.
    image_size : int
        Height and width in pixels.
    test_share : float
        Share of images, cut-outs and scenes for validation.
    seed : int
        Of every choice.
    annotations : Path or None
        COCO's ``instances_*.json``.
    lossless : bool
        Whether to write PNG instead of JPEG.
    overwrite : bool
        Whether `out` may be a data set written before, which is replaced.
    progress : bool
        Whether to show a progress bar.
    """

    objects: str = PAINTED
    scenes: str = PAINTED
    out: Path | None = None
    n_per_pair: int = 100
    image_size: int = 128
    test_share: float = 0.1
    seed: int = 0
    annotations: Path | None = None
    lossless: bool = False
    overwrite: bool = False
    progress: bool = True


def compose(options: ComposeOptions) -> Path:
    """Compose images and write them in the layout that `BAMFolder` reads.

    Parameters
    ----------
    options : ComposeOptions
        What and where.

    Returns
    -------
    Path
        The folder written.

    Raises
    ------
    FileNotFoundError
        If a source is missing.
    ValueError
        If an option, a source or the output folder cannot be worked with.
    """
    out = options.out
    if out is None:
        # Only its name is wanted: an empty folder goes away on leaving, and comes back complete.
        with OutputFolder("compose") as folder:
            out = folder.path
    check_out(out, options.overwrite)
    return write_bam(
        load_objects(options.objects, options.annotations, options.seed),
        load_scenes(options.scenes, options.seed),
        out,
        n_per_pair=options.n_per_pair,
        image_size=options.image_size,
        test_share=options.test_share,
        seed=options.seed,
        lossless=options.lossless,
        overwrite=options.overwrite,
        display_progressbar=options.progress,
    )


def load_objects(objects: str, annotations: Path | None = None, seed: int = 0) -> ObjectSource:
    """Open the source of objects that an option names.

    Parameters
    ----------
    objects : str
        "painted", a folder of RGBA cut-outs by class, or with `annotations` the folder of COCO's photographs.
    annotations : Path, optional
        COCO's ``instances_*.json``.
    seed : int
        Of painted objects.

    Returns
    -------
    ObjectSource
        The source.

    Raises
    ------
    FileNotFoundError
        If a file or folder is missing.
    ValueError
        If the source cannot be worked with, or `annotations` come with painted objects.
    """
    if objects == PAINTED:
        if annotations is not None:
            raise ValueError("Expected `--objects` to be the folder of COCO's photographs beside `--annotations`.")
        return PaintedObjects(seed=seed)
    _check_folder("--objects", objects)
    if annotations is None:
        return CutoutFolder(objects)
    try:
        return COCOObjects(annotations, objects)
    except ImportError as error:  # the command reports what is missing in one line, as it does other bad input
        raise ValueError(str(error)) from error


def load_scenes(scenes: str, seed: int = 0) -> SceneSource:
    """Open the source of scenes that an option names.

    Parameters
    ----------
    scenes : str
        "painted", or a folder of scenes by class.
    seed : int
        Of painted scenes.

    Returns
    -------
    SceneSource
        The source.

    Raises
    ------
    FileNotFoundError
        If the folder is missing.
    ValueError
        If the source cannot be worked with.
    """
    if scenes == PAINTED:
        return PaintedScenes(seed=seed)
    _check_folder("--scenes", scenes)
    return SceneFolder(scenes)


def _check_folder(option: str, value: str) -> None:
    if not Path(value).is_dir():
        raise FileNotFoundError(f"Expected `{option}` to be {PAINTED!r} or a folder but got {value!r}.")
