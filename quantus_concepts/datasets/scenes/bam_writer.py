"""Composing images to disk, in the layout of the BAM release."""

from __future__ import annotations

import io
import json
import shutil
import uuid
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import numpy as np
from PIL import Image

from captum_concepts.checks import check_whole
from captum_concepts.progress import progress
from quantus_concepts.datasets.base import SPLITS, check_test_share
from quantus_concepts.datasets.folders import some_names
from quantus_concepts.datasets.scenes.bam_layout import (
    FOLDERS,
    OBJ,
    SCENE,
    SCENE_ONLY,
    SETTINGS,
    SPLIT_FOLDERS,
    Layout,
    folder_names,
)
from quantus_concepts.datasets.scenes.objects_on_scenes import ObjectsOnScenes
from quantus_concepts.datasets.scenes.pasting import Pasted
from quantus_concepts.datasets.scenes.sources import ObjectSource, SceneSource

_PROGRAM = "quantus-concepts"
_QUALITY = 95


def write_bam(
    objects: ObjectSource,
    scenes: SceneSource,
    out: str | Path,
    *,
    n_per_pair: int = 1000,
    image_size: int = 128,
    test_share: float = 0.1,
    seed: int = 0,
    lossless: bool = False,
    overwrite: bool = False,
    display_progressbar: bool = True,
) -> Path:
    """Compose images of every class of objects on every class of scenes, and write them for `BAMFolder`.

    The folders, lists and names are those of the release (see `BAMFolder`); with its 1,000 images a pair and a tenth
    of them for validation, numbers 0000 to 0899 are for training and 0900 to 0999 for validation. Labels count the
    names of the classes in alphabetical order; "stop sign" becomes the folder ``stop_sign``. Masks are PNG files of
    the size of the images, for both splits. Images and places are those of `ObjectsOnScenes` with the same arguments.

    Images are JPEG of quality 95 without subsampled colours, as the release's are JPEG and a tenth of the size of
    PNG; `lossless` writes PNG, with which a scene is the same to the bit with and without its object. Everything is
    written to a hidden folder beside `out` that takes its name at the end: there is no half-written data set. An
    interrupted run starts again: it takes minutes, and the rest of it might be composed from other sources.

    Parameters
    ----------
    objects : ObjectSource
        The cut-outs.
    scenes : SceneSource
        The scenes.
    out : str or Path
        The folder to write; it must not exist, or be empty.
    n_per_pair : int
        Images of each pair of classes, both splits together, at least 2.
    image_size : int
        Height and width in pixels.
    test_share : float
        Share of the images, and of the cut-outs and scenes, for validation, in (0, 1).
    seed : int
        Of every choice.
    lossless : bool
        Whether to write PNG instead of JPEG.
    overwrite : bool
        Whether `out` may be a folder that this function wrote and that holds no other file; it is replaced.
    display_progressbar : bool
        Whether to show a progress bar.

    Returns
    -------
    Path
        `out`.

    Raises
    ------
    TypeError
        If a number of something is not a whole number.
    ValueError
        If `out` is a file, holds files that are not to be replaced, or cannot be written; if names of classes
        become the same as folders; and what `ObjectsOnScenes` raises.
    """
    # A link is written through, and even "." then has a name.
    target = Path(out).resolve()
    check_out(target, overwrite)
    check_whole("n_per_pair", n_per_pair, 2)
    check_test_share(test_share)
    n_test = min(max(round(n_per_pair * test_share), 1), n_per_pair - 1)
    layout = Layout(
        tuple(folder_names(objects.class_names)),
        tuple(folder_names(scenes.class_names)),
        n_per_pair - n_test,
        n_test,
        ".png" if lossless else ".jpg",
    )
    splits = [
        ObjectsOnScenes(
            objects, scenes, split=split, n_per_pair=count, image_size=image_size, test_share=test_share, seed=seed
        )
        for split, count in zip(SPLITS, (layout.n_train, layout.n_test), strict=True)
    ]
    temporary = target.with_name(f".{target.name}-{uuid.uuid4().hex}")
    try:
        temporary.mkdir(parents=True)
        _make_folders(temporary, layout)
        total = sum(len(dataset) for dataset in splits)
        with progress(description="composing", total=total, unit="image", show=display_progressbar) as bar:
            boxes = [_write_images(dataset, temporary, layout, bar) for dataset in splits]
        _write_lists(temporary, layout, splits, boxes)
        settings = {"program": _PROGRAM, "seed": seed, "image_size": image_size, "test_share": test_share}
        (temporary / SETTINGS).write_text(json.dumps(settings | asdict(layout), indent=1), encoding="utf-8")
        _take_place(temporary, target)
    except OSError as error:
        raise ValueError(
            f"The folder `{target}` cannot be written ({error.strerror or error}). Choose another one."
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return Path(out)


def check_out(out: Path, overwrite: bool) -> None:
    """Raise unless a data set may be written to a folder."""
    if out.exists() and not out.is_dir():
        raise ValueError(f"The output folder `{out}` is a file. Choose a folder.")
    present = (
        [path.relative_to(out) for path in out.rglob("*") if path.is_symlink() or not path.is_dir()]
        if out.is_dir()
        else []
    )
    if not present:
        return
    if not overwrite:
        raise ValueError(
            f"The output folder `{out}` already holds files ({some_names(present, 3)}). Choose another one, or "
            "replace an earlier data set with overwrite (--overwrite)."
        )
    foreign = sorted(set(present).difference(_read_layout(out)))
    if foreign:
        raise ValueError(
            f"The output folder `{out}` holds files that this program did not write ({some_names(foreign, 3)}). "
            "They are not overwritten: choose another folder."
        )


def _read_layout(out: Path) -> set[Path]:
    """Return the files of an earlier data set; none if that is no data set of ours."""
    try:
        settings = json.loads((out / SETTINGS).read_text(encoding="utf-8"))
        if settings["program"] != _PROGRAM:
            return set()
        objects, scenes = (tuple(str(name) for name in settings[key]) for key in ("objects", "scenes"))
        layout = Layout(objects, scenes, int(settings["n_train"]), int(settings["n_test"]), str(settings["suffix"]))
        return set(layout.paths())
    except (OSError, ValueError, KeyError, TypeError):
        return set()


def _make_folders(root: Path, layout: Layout) -> None:
    for folder in FOLDERS:
        (root / folder / SPLIT_FOLDERS["test"]).mkdir(parents=True)
        for name in layout.objects if folder == OBJ else layout.scenes:
            (root / folder / SPLIT_FOLDERS["train"] / name).mkdir(parents=True)
    for split in SPLITS:
        (root / layout.mask_path(split, "-")).parent.mkdir()


def _write_images(dataset: ObjectsOnScenes, root: Path, layout: Layout, bar: Any) -> dict[str, tuple[int, ...]]:
    """Write images and masks of one split, and return the boxes by name."""
    boxes: dict[str, tuple[int, ...]] = {}
    n_pairs = len(dataset.object_names) * len(dataset.scene_names)
    for index in range(len(dataset)):
        pasted = cast(Pasted, dataset.pasted(index))  # without a commonality every image has an object
        scene = dataset.scene(index)
        place = (int(dataset.object_labels[index]), int(dataset.scene_labels[index]), index // n_pairs)
        paths = layout.image_paths(dataset.split, *place)
        with_object = _encode(pasted.onto(scene), layout.suffix)
        (root / paths[OBJ]).write_bytes(with_object)
        (root / paths[SCENE]).write_bytes(with_object)
        (root / paths[SCENE_ONLY]).write_bytes(_encode(scene, layout.suffix))
        name = paths[OBJ].name
        mask = Image.fromarray(pasted.full_mask(dataset.image_size))
        mask.save(root / layout.mask_path(dataset.split, name), format="PNG")
        boxes[name] = pasted.box
        bar.update()
    return boxes


def _encode(pixels: np.ndarray, suffix: str) -> bytes:
    buffer = io.BytesIO()
    if suffix == ".png":
        Image.fromarray(pixels).save(buffer, format="PNG")
    else:
        Image.fromarray(pixels).save(buffer, format="JPEG", quality=_QUALITY, subsampling=0)
    return buffer.getvalue()


def _write_lists(
    root: Path, layout: Layout, splits: list[ObjectsOnScenes], boxes: list[dict[str, tuple[int, ...]]]
) -> None:
    test, (train_boxes, test_boxes) = splits[1], boxes
    ranks = {
        OBJ: {name: rank for rank, name in enumerate(sorted(layout.objects))},
        SCENE: {name: rank for rank, name in enumerate(sorted(layout.scenes))},
    }
    for folder in FOLDERS:
        labels, names, rank = (
            (test.object_labels, layout.objects, ranks[OBJ])
            if folder == OBJ
            else (test.scene_labels, layout.scenes, ranks[SCENE])
        )
        numbers = [rank[names[label]] for label in labels.tolist()]
        lines = sorted(f"{name} {number}\n" for name, number in zip(test_boxes, numbers, strict=True))
        (root / folder / "val.txt").write_text("".join(lines), encoding="utf-8")
        for file, listed in (("val_loc.txt", test_boxes), ("loc.txt", train_boxes | test_boxes)):
            lines = sorted(f"{name} {','.join(map(str, box))}\n" for name, box in listed.items())
            (root / folder / file).write_text("".join(lines), encoding="utf-8")


def _take_place(temporary: Path, target: Path) -> None:
    """Rename the finished folder; what it replaces stays until then."""
    old = temporary.with_name(f"{temporary.name}-old")
    if target.exists():
        target.rename(old)
    try:
        temporary.rename(target)
    except OSError:
        if old.exists():
            old.rename(target)
        raise
    shutil.rmtree(old, ignore_errors=True)
