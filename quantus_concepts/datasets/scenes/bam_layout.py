"""Names in the layout of the BAM release: folders, lists and image files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

from captum_concepts._support.files import quoted, read_text, shortened
from quantus_concepts.datasets.base import SPLITS

T = TypeVar("T")

OBJ, SCENE, SCENE_ONLY = "obj", "scene", "scene_only"
FOLDERS = (OBJ, SCENE, SCENE_ONLY)
#: What the release calls the two splits.
SPLIT_FOLDERS = {"train": "train", "test": "val"}
#: Written beside the folders: with what the images were composed, which determines the names of all files.
SETTINGS = "compose.json"
SUFFIXES = (".jpg", ".jpeg", ".png")
#: Masks of the release, by object and the last two digits of the name.
MASKS_PER_OBJECT = 100

#: Of labels and pixels: a label counts class names, and a list as long as the largest is made.
_DIGITS = 5
_NAME = re.compile(r"(?P<object>[^-]+)-(?P<scene>[^-]+)-(?P<number>\d+)")


class ImageName(NamedTuple):
    """What the name of an image tells."""

    object_name: str
    scene_name: str
    number: str


@dataclass(frozen=True)
class Layout:
    """What determines the names of all files."""

    objects: tuple[str, ...]
    scenes: tuple[str, ...]
    n_train: int
    n_test: int
    suffix: str

    def name(self, split: str, object_label: int, scene_label: int, number: int) -> str:
        """Return the name of an image, without its folder."""
        counted = number + (self.n_train if split == "test" else 0)
        width = max(4, len(str(self.n_train + self.n_test - 1)))
        return f"{self.objects[object_label]}-{self.scenes[scene_label]}-{counted:0{width}d}{self.suffix}"

    def image_paths(self, split: str, object_label: int, scene_label: int, number: int) -> dict[str, Path]:
        """Return where an image goes in each folder of the layout."""
        name = self.name(split, object_label, scene_label, number)
        sub = SPLIT_FOLDERS[split]
        if split == "test":
            return {folder: Path(folder, sub, name) for folder in FOLDERS}
        classes = {OBJ: self.objects[object_label]}
        return {folder: Path(folder, sub, classes.get(folder, self.scenes[scene_label]), name) for folder in FOLDERS}

    def mask_path(self, split: str, name: str) -> Path:
        """Return where a mask goes."""
        return Path(OBJ, f"{SPLIT_FOLDERS[split]}_mask", name).with_suffix(".png")

    def paths(self) -> Iterator[Path]:
        """Yield all files, the settings included."""
        yield Path(SETTINGS)
        for folder in FOLDERS:
            yield from (Path(folder, name) for name in ("val.txt", "val_loc.txt", "loc.txt"))
        for split, count in zip(SPLITS, (self.n_train, self.n_test), strict=True):
            for o in range(len(self.objects)):
                for s in range(len(self.scenes)):
                    for number in range(count):
                        yield from self.image_paths(split, o, s, number).values()
                        yield self.mask_path(split, self.name(split, o, s, number))


def parse_name(name: str) -> ImageName:
    """Read the name of an image file."""
    found = _NAME.fullmatch(Path(name).stem)
    if found is None:
        raise ValueError(
            f"Expected an image of BAM to be named object-scene-number, as dog-bedroom-0900.jpg, but got "
            f"{shortened(name)}."
        )
    return ImageName(found["object"], found["scene"], found["number"])


def folder_names(class_names: Sequence[str]) -> list[str]:
    """Make names of classes fit for the names of folders and files."""
    names = [re.sub(r"\W+", "_", name) for name in class_names]
    for number, name in enumerate(names):
        if name in names[:number] or not name:
            raise ValueError(f"Expected class names that stay different as names of folders but {name!r} is not one.")
    return names


def read_labels(path: Path) -> dict[str, int]:
    """Read a list of labels, ``val.txt``."""
    labels: dict[str, int] = {}
    for number, (name, value) in _lines(path):
        if not (value.isdecimal() and len(value) <= _DIGITS):
            raise ValueError(
                f"Expected line {number} of {path} to be 'name label' with a whole number but got {quoted(value)}."
            )
        _add(labels, name, int(value), path, number)
    return labels


def read_boxes(path: Path) -> dict[str, tuple[int, int, int, int]]:
    """Read a list of boxes, ``val_loc.txt``."""
    boxes: dict[str, tuple[int, int, int, int]] = {}
    for number, (name, value) in _lines(path):
        parts = value.split(",")
        numbers = [int(part) for part in parts if part.isdecimal() and len(part) <= _DIGITS]
        if len(parts) != 4 or len(numbers) != 4 or not (numbers[0] < numbers[2] and numbers[1] < numbers[3]):
            raise ValueError(
                f"Expected line {number} of {path} to be 'name row0,col0,row1,col1', the ends larger, "
                f"but got {quoted(value)}."
            )
        _add(boxes, name, (numbers[0], numbers[1], numbers[2], numbers[3]), path, number)
    return boxes


def _lines(path: Path) -> list[tuple[int, tuple[str, str]]]:
    if not path.is_file():
        raise FileNotFoundError(f"Expected the list {path} of the BAM layout but there is no such file.")
    found = []
    for number, line in enumerate(read_text(path, "List").splitlines(), start=1):
        parts = line.rsplit(maxsplit=1)
        if len(parts) == 1:
            raise ValueError(f"Expected line {number} of {path} to be a name and a value but got {quoted(line)}.")
        if parts:
            found.append((number, (parts[0], parts[1])))
    return found


def _add(table: dict[str, T], name: str, value: T, path: Path, number: int) -> None:
    if name in table:
        raise ValueError(f"Expected each image once in {path} but {shortened(name)} in line {number} comes again.")
    table[name] = value
