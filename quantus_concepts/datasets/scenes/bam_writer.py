"""Composing images to disk, in the layout of the BAM release."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import cast

import numpy as np
from PIL import Image

from captum_concepts.support.checks import check_path, check_whole
from captum_concepts.support.running import progress
from quantus_concepts.datasets.base import SPLITS, n_for_testing
from quantus_concepts.datasets.scenes.bam_folder import (
    FOLDERS,
    OBJ,
    SCENE,
    SCENE_ONLY,
    SETTINGS,
    SPLIT_FOLDERS,
    UNFINISHED,
)
from quantus_concepts.datasets.scenes.objects_on_scenes import ObjectsOnScenes
from quantus_concepts.datasets.scenes.sources import ObjectSource, Pasted, SceneSource

_PROGRAM = "quantus-concepts"
_QUALITY = 95
#: Lists of the validation images, their boxes, and the boxes of all.
_LISTS = ("val.txt", "val_loc.txt", "loc.txt")


def write_bam(
    objects: ObjectSource,
    scenes: SceneSource,
    out: str | Path,
    *,
    n_per_pair: int = 1000,
    image_size: int | Sequence[int] = 128,
    test_share: float = 0.1,
    seed: int = 0,
    lossless: bool = False,
    display_progressbar: bool = True,
) -> Path:
    """Compose images of every class of objects on every class of scenes, and write them for `BAMFolder`.

    The folders, lists and names are those of the release (see `BAMFolder`); with its 1,000 images a pair and a tenth
    of them for validation, numbers 0000 to 0899 are for training and 0900 to 0999 for validation. Labels count the
    names of the classes in alphabetical order; "stop sign" becomes the folder ``stop_sign``. Masks are PNG files of
    the size of the images, for both splits. Images and places are those of `ObjectsOnScenes` with the same arguments.

    Images are JPEG of quality 95 without subsampled colours, as the release's are JPEG and a tenth of the size of
    PNG; `lossless` writes PNG, with which a scene is the same to the bit with and without its object. Until all is
    written, a file ``unfinished`` lies in the folder, which `BAMFolder` then refuses to read. After an interruption
    remove the folder and start again: it takes minutes, and the rest might be composed from other sources.

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
    image_size : int or (int, int)
        Height and width in pixels.
    test_share : float
        Share of the images, and of the cut-outs and scenes, for validation, in (0, 1).
    seed : int
        Random seed of every choice.
    lossless : bool
        Whether to write PNG instead of JPEG.
    display_progressbar : bool
        Whether to show a progress bar.

    Returns
    -------
    Path
        `out`.

    Raises
    ------
    ValueError
        If `out` is a file or holds files; if names of classes become the same as folders; and what `ObjectsOnScenes`
        raises.

    Examples
    --------
    >>> from quantus_concepts.datasets import CutoutFolder, SceneFolder, write_bam
    >>> objects, scenes = CutoutFolder("cutouts"), SceneFolder("scenes")
    >>> folder = write_bam(objects, scenes, "my_bam", n_per_pair=4, image_size=32)
    >>> sorted(path.name for path in folder.iterdir() if path.is_dir())
    ['obj', 'scene', 'scene_only']
    """
    folder = check_path("out", out)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        kind = "holds files" if folder.is_dir() else "is a file"
        raise ValueError(f"Expected argument `out` to name a new or empty folder but {folder} {kind}.")
    composition = plan_composition(
        objects,
        scenes,
        n_per_pair=n_per_pair,
        image_size=image_size,
        test_share=test_share,
        seed=seed,
        lossless=lossless,
    )
    for name, content in chain([(UNFINISHED, b"")], composition.files(display_progressbar=display_progressbar)):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    (folder / UNFINISHED).unlink()
    return folder


def plan_composition(
    objects: ObjectSource,
    scenes: SceneSource,
    *,
    n_per_pair: int,
    image_size: int | Sequence[int],
    test_share: float,
    seed: int,
    lossless: bool,
) -> Composition:
    """Return what `write_bam` writes."""
    check_whole("n_per_pair", n_per_pair, 2)
    n_test = n_for_testing(n_per_pair, test_share)
    splits = [
        ObjectsOnScenes(
            objects, scenes, split=split, n_per_pair=count, image_size=image_size, test_share=test_share, seed=seed
        )
        for split, count in zip(SPLITS, (n_per_pair - n_test, n_test), strict=True)
    ]
    object_names, scene_names = (folder_names(source.class_names) for source in (objects, scenes))
    return Composition(splits, object_names, scene_names, ".png" if lossless else ".jpg")


@dataclass(frozen=True)
class Composition:
    """The files of a data set in the layout of BAM, by name, before any is composed."""

    splits: list[ObjectsOnScenes]
    objects: list[str]
    scenes: list[str]
    suffix: str

    def names(self) -> list[str]:
        """Return the names of all files, in the order in which they are composed."""
        images = [name for split in self.splits for index in range(len(split)) for name in self._names(split, index)]
        return images + [f"{folder}/{file}" for folder in FOLDERS for file in _LISTS] + [SETTINGS]

    def files(self, *, display_progressbar: bool) -> Iterator[tuple[str, bytes]]:
        """Yield the name and the content of each file; the last is ``compose.json``."""
        boxes: list[dict[str, tuple[int, ...]]] = []
        total = sum(map(len, self.splits))
        with progress(description="composing", total=total, unit="image", show=display_progressbar) as bar:
            for split in self.splits:
                boxes.append({})
                for index in range(len(split)):
                    # Without a commonality every image has an object.
                    pasted, scene = cast(Pasted, split.pasted(index)), split.scene(index)
                    with_object = _encode(pasted.onto(scene), self.suffix)
                    mask = _encode(pasted.full_mask(split.image_size), ".png")
                    contents = (with_object, with_object, _encode(scene, self.suffix), mask)
                    names = self._names(split, index)
                    yield from zip(names, contents, strict=True)
                    boxes[-1][Path(names[0]).name] = pasted.box
                    bar.update()
        yield from self._lists(*boxes)
        train, test = self.splits
        settings = {
            "program": _PROGRAM,
            "seed": train.seed,
            "image_size": train.image_size,
            "test_share": train.test_share,
            "objects": self.objects,
            "scenes": self.scenes,
            "n_train": train.n_per_pair,
            "n_test": test.n_per_pair,
            "suffix": self.suffix,
        }
        yield SETTINGS, json.dumps(settings, indent=1).encode()

    def _names(self, split: ObjectsOnScenes, index: int) -> list[str]:
        """Return the names of an image in each folder of the layout, and of its mask."""
        folder = SPLIT_FOLDERS[split.split]
        n_train, n_test = (part.n_per_pair for part in self.splits)
        object_name = self.objects[int(split.object_labels[index])]
        scene_name = self.scenes[int(split.scene_labels[index])]
        number = index // (len(self.objects) * len(self.scenes)) + (n_train if split.split == "test" else 0)
        name = f"{object_name}-{scene_name}-{number:0{max(4, len(str(n_train + n_test - 1)))}d}"
        classes = {OBJ: object_name, SCENE: scene_name, SCENE_ONLY: scene_name}
        places = {kind: folder if split.split == "test" else f"{folder}/{classes[kind]}" for kind in FOLDERS}
        images = [f"{kind}/{places[kind]}/{name}{self.suffix}" for kind in FOLDERS]
        return [*images, f"{OBJ}/{folder}_mask/{name}.png"]

    def _lists(
        self, train_boxes: dict[str, tuple[int, ...]], test_boxes: dict[str, tuple[int, ...]]
    ) -> Iterator[tuple[str, bytes]]:
        test = self.splits[1]
        for folder in FOLDERS:
            labels, names = (test.object_labels, self.objects) if folder == OBJ else (test.scene_labels, self.scenes)
            rank = {name: number for number, name in enumerate(sorted(names))}
            numbers = [rank[names[label]] for label in labels.tolist()]
            lines = {"val.txt": [f"{name} {number}\n" for name, number in zip(test_boxes, numbers, strict=True)]}
            for file, listed in (("val_loc.txt", test_boxes), ("loc.txt", train_boxes | test_boxes)):
                lines[file] = [f"{name} {','.join(map(str, box))}\n" for name, box in listed.items()]
            yield from ((f"{folder}/{file}", "".join(sorted(lines[file])).encode()) for file in _LISTS)


def _encode(pixels: np.ndarray, suffix: str) -> bytes:
    buffer = io.BytesIO()
    if suffix == ".png":
        Image.fromarray(pixels).save(buffer, format="PNG")
    else:
        Image.fromarray(pixels).save(buffer, format="JPEG", quality=_QUALITY, subsampling=0)
    return buffer.getvalue()


def folder_names(class_names: Sequence[str]) -> list[str]:
    """Make names of classes fit for the names of folders and files."""
    names = [re.sub(r"\W+", "_", name) for name in class_names]
    for number, name in enumerate(names):
        if name in names[:number] or not name:
            raise ValueError(f"Expected class names that stay different as names of folders but {name!r} is not one.")
    return names
