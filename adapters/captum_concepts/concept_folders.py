"""Folders of images that show a concept, and of random ones: found, checked, and read for a backbone."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from captum_concepts.checks import check_folder
from captum_concepts.folders import image_files, subfolders
from captum_concepts.images import image_size, load_image, load_pixels
from captum_concepts.reading import quoted, reason_of
from captum_concepts.running import warn_user

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff", ".ppm", ".gif")
_SIDES = ("positive", "negative")


class ConceptImages(NamedTuple):
    """The images with a concept and those without it; None where the random images are without it."""

    name: str
    positive: list[Path]
    negative: list[Path] | None


class ConceptFolders(NamedTuple):
    """What lies in a folder of concepts: their images, and the sets of random images by name."""

    concepts: list[ConceptImages]
    random_sets: dict[str, list[Path]]

    def paths(self) -> list[Path]:
        """Return each image that is needed once."""
        groups = [each.positive for each in self.concepts] + [each.negative or [] for each in self.concepts]
        return list(dict.fromkeys(path for group in (*groups, *self.random_sets.values()) for path in group))


def find_concept_folders(root: str | os.PathLike[str], random: str) -> ConceptFolders:
    """Return concepts and random sets below a folder, or raise where it is not laid out as said."""
    folder = check_folder("root", root, "a folder with one folder of images for each concept")
    if not isinstance(random, str) or not random or Path(random).name != random:
        raise ValueError(
            f"Expected argument `random` to be the name of a folder in `root`, 'random' for instance, but got "
            f"{quoted(random)}."
        )
    folders = subfolders(folder)
    if not {each.name for each in folders}.isdisjoint(_SIDES):
        raise ValueError(
            f"Expected argument `root` to hold one folder for each concept but {folder} holds `positive` or `negative` "
            "itself, as the folder of one concept does. Pass the folder above it."
        )
    # random, random0, random_0, random-0 and TCAV's random500_0; `random_texture` is a concept.
    is_random = re.compile(rf"{re.escape(random)}([-_]?\d+)*").fullmatch
    concepts = [_concept(each) for each in folders if not is_random(each.name)]
    if not concepts:
        raise ValueError(
            f"Expected argument `root` to hold one folder for each concept but {folder} holds no folder"
            + (f" beside those of random images ({folders[0].name})." if folders else ".")
        )
    _check_names([each.name for each in concepts], folder)
    alone = [each.name for each in concepts if each.negative is None]
    if not alone:
        return ConceptFolders(concepts, {})
    sets = [each for random_folder in folders if is_random(random_folder.name) for each in _sets(random_folder)]
    if not sets:
        raise ValueError(
            f"Expected images without the concept, as a folder {random!r} in {folder} that all concepts share, or as "
            f"`positive` and `negative` in the folder of each concept, but {quoted(alone[0])} has neither."
        )
    return ConceptFolders(concepts, {str(each.relative_to(folder)): _images(each) for each in sets})


def _concept(folder: Path) -> ConceptImages:
    inside = {each.name: each for each in subfolders(folder)}
    if inside.keys().isdisjoint(_SIDES):
        return ConceptImages(folder.name, _images(folder), None)
    if "positive" not in inside:
        raise ValueError(f"Expected a folder `positive` beside `negative` in {folder} but there is none.")
    if len(inside) > ("negative" in inside) + 1 or image_files(folder, SUFFIXES):
        raise ValueError(
            f"Expected nothing but the folders `positive` and `negative` in {folder} but there are other folders, or "
            "images, of which nobody knows on which side they are. Move them into one of the two."
        )
    negative = _images(inside["negative"]) if "negative" in inside else None
    return ConceptImages(folder.name, _images(inside["positive"]), negative)


def _sets(folder: Path) -> list[Path]:
    """Return the folders that hold the sets of a folder of random images: those in it, or itself."""
    return (not image_files(folder, SUFFIXES) and subfolders(folder)) or [folder]


def _images(folder: Path) -> list[Path]:
    """Return the images of one side of a concept, at least two."""
    found, inner = image_files(folder, SUFFIXES), subfolders(folder)
    if inner:
        raise ValueError(
            f"Expected images in {folder} but there is a folder {inner[0].name!r}. Put all images of a concept into "
            "one folder, or into `positive` and `negative`."
        )
    if not found:
        others = [path.name for path in folder.iterdir()]
        what = f"{len(others)} files of other kinds, {quoted(others[0])} for one" if others else "nothing"
        raise ValueError(
            f"Expected images ({', '.join(SUFFIXES)}) in {folder} but it holds {what}. Every folder is a concept, or "
            "a set of random images: fill it or remove it."
        )
    if len(found) < 2:
        raise ValueError(
            f"Expected at least 2 images in {folder}, one to fit a direction on and one to test it on, but there is "
            f"{len(found)}. Add images, or remove the folder."
        )
    return found


def _check_names(names: Sequence[str], root: Path) -> None:
    """Raise where two concepts have names that people, or another file system, take for the same."""
    seen: dict[str, str] = {}
    for name in names:
        key = unicodedata.normalize("NFC", name).casefold()
        if key in seen:
            raise ValueError(
                f"Expected concepts with different names in {root} but {quoted(seen[key])} and {quoted(name)} are one. "
                "Rename a folder, or put their images into one."
            )
        seen[key] = name


def warn_without_transform(backbone: Any) -> None:
    """Warn that images go into a network as they are, which is seldom what it was trained on."""
    # Where the normalisation is known, the images themselves are held against it.
    if getattr(backbone, "normalisation", None) is None:
        warn_user(
            "Without `transform` the network gets images as they are, in [0, 1]; what it was trained on is seldom "
            "that. Pass the preprocessing it was trained with, such as `weights.transforms()` of torchvision; if that "
            "is [0, 1], torchvision's `ToTensor()`."
        )


def image_loader(
    paths: Sequence[Path], transform: Callable[[Any], Any] | None, batch_size: int, num_workers: int
) -> DataLoader[Tensor]:
    """Return a loader of the images in files, each known to be one."""
    sizes = {image_size(path): path for path in reversed(paths)}
    if transform is None and len(sizes) > 1:
        (first, path), (second, other) = list(sizes.items())[-1:-3:-1]
        raise ValueError(
            f"Expected images of one size but {path} has (H, W) = {first} and {other} has {second}. Give a `transform` "
            "that makes them equal, the one with which the backbone was trained for instance."
        )
    return DataLoader(
        _ImageFiles(paths, transform), batch_size=batch_size, num_workers=num_workers, collate_fn=_of_one_size
    )


class _ImageFiles(Dataset[Tensor]):
    """Images in files, transformed."""

    def __init__(self, paths: Sequence[Path], transform: Callable[[Any], Any] | None) -> None:
        self.paths = paths
        self.transform = transform

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Tensor:
        path = self.paths[index]
        if self.transform is None:
            return load_image(path)
        image = Image.fromarray(load_pixels(path))
        try:
            given = self.transform(image)
        except Exception as error:  # whatever a user's function raises
            raise ValueError(
                f"Expected argument `transform` to take an RGB image of Pillow but it failed on {path} "
                f"({reason_of(error)})."
            ) from error
        if not isinstance(given, Tensor) or given.ndim != 3 or not given.is_floating_point():
            got = f"{given.dtype} of shape {tuple(given.shape)}" if isinstance(given, Tensor) else type(given).__name__
            told = ""
            if isinstance(given, Mapping):
                told = """ With a processor: lambda image: processor(image, return_tensors="pt")["pixel_values"][0]."""
            elif isinstance(given, Tensor) and given.ndim == 4 and len(given) == 1:
                told = " Of a batch of one image take the first, `[0]`."
            raise ValueError(
                f"Expected argument `transform` to give a tensor (C, H, W) of a floating-point type but got {got}."
                + told
            )
        return given


def _of_one_size(images: list[Tensor]) -> Tensor:
    shapes = sorted({tuple(image.shape) for image in images})
    if len(shapes) > 1:
        raise ValueError(
            f"Expected argument `transform` to give images of one size but got {shapes[0]} and {shapes[1]}. Crop or "
            "scale both sides: torchvision's `Resize(256)`, for one, keeps the proportions."
        )
    return torch.stack(images)
