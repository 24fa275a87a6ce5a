"""Concepts as folders of images, and the directions fitted on them."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from captum_concepts.backbones.embedding import embed_batches
from captum_concepts.backbones.pooling import Maps, Pool, resolve_stages
from captum_concepts.bank import directions
from captum_concepts.support.checks import check_folder
from captum_concepts.support.files import image_files, quote, subfolders
from captum_concepts.support.images import load_image, load_pixels
from captum_concepts.support.running import progress, warn_user

if TYPE_CHECKING:
    from captum_concepts.backbones.backbone import Backbone

#: From an upright RGB image of Pillow to a tensor (C, H, W).
Transform = Callable[[Any], Tensor]

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
        groups = [concept.positive for concept in self.concepts] + [concept.negative or [] for concept in self.concepts]
        return list(dict.fromkeys(path for group in (*groups, *self.random_sets.values()) for path in group))


def find_concept_folders(root: str | os.PathLike[str], random: str) -> ConceptFolders:
    """Return concepts and random sets below a folder, or raise where it is not laid out as said."""
    folder = Path(root)
    folders = subfolders(folder)
    if not {path.name for path in folders}.isdisjoint(_SIDES):
        raise ValueError(
            f"Expected argument `root` to hold one folder for each concept but {folder} holds `positive` or `negative` "
            "itself, as the folder of one concept does. Pass the folder above it."
        )
    # random, random0, random_0, random-0 and TCAV's random500_0; `random_texture` is a concept.
    is_random = re.compile(rf"{re.escape(random)}([-_]?\d+)*").fullmatch
    concepts = [_concept(path) for path in folders if not is_random(path.name)]
    if not concepts:
        raise ValueError(
            f"Expected argument `root` to hold one folder for each concept but {folder} holds no folder"
            + (f" besides those of random images ({folders[0].name})." if folders else ".")
        )
    alone = [concept.name for concept in concepts if concept.negative is None]
    if not alone:
        return ConceptFolders(concepts, {})
    sets = [path for random_folder in folders if is_random(random_folder.name) for path in _sets(random_folder)]
    if not sets:
        raise ValueError(
            f"Expected images without the concept, as a folder {random!r} in {folder} that all concepts share, or as "
            f"`positive` and `negative` in the folder of each concept, but {quote(alone[0])} has neither."
        )
    return ConceptFolders(concepts, {str(path.relative_to(folder)): _images(path) for path in sets})


def _concept(folder: Path) -> ConceptImages:
    sides = {side.name: side for side in subfolders(folder)}
    if sides.keys().isdisjoint(_SIDES):
        return ConceptImages(folder.name, _images(folder), None)
    if "positive" not in sides:
        raise ValueError(f"Expected a folder `positive` next to `negative` in {folder} but there is none.")
    if len(sides) > ("negative" in sides) + 1 or image_files(folder, SUFFIXES):
        raise ValueError(
            f"Expected nothing but the folders `positive` and `negative` in {folder} but there are other folders, or "
            "images, which belong to neither side. Move them into one of the two."
        )
    negative = _images(sides["negative"]) if "negative" in sides else None
    return ConceptImages(folder.name, _images(sides["positive"]), negative)


def _sets(folder: Path) -> list[Path]:
    """Return the folders that hold the sets of a folder of random images: those in it, or itself."""
    return (not image_files(folder, SUFFIXES) and subfolders(folder)) or [folder]


def _images(folder: Path) -> list[Path]:
    """Return the images of one side of a concept, at least two."""
    paths, inner = image_files(folder, SUFFIXES), subfolders(folder)
    if inner or len(paths) < 2:
        found = f"a folder {quote(inner[0].name)}" if inner else f"{len(paths)}"
        raise ValueError(
            f"Expected images in {folder}, at least 2 ({', '.join(SUFFIXES)}), and no folder, but there is {found}. "
            "Every folder is a concept, or a set of random images: fill it or remove it."
        )
    return paths


def warn_without_transform(backbone: nn.Module | Backbone) -> None:
    """Warn that images go into a network as they are, which is seldom what it was trained on."""
    # If the normalisation is known, `embed` compares the images themselves with it.
    if getattr(backbone, "normalisation", None) is None:
        warn_user(
            "Without `transform` the network gets images as they are, in [0, 1]; what it was trained on is seldom "
            "that. Pass the preprocessing it was trained with, such as `weights.transforms()` of torchvision; if that "
            "is [0, 1], torchvision's `ToTensor()`."
        )


def image_loader(
    paths: Sequence[Path], transform: Transform | None, batch_size: int, num_workers: int
) -> DataLoader[Tensor]:
    """Return a loader of image files."""
    return DataLoader(_ImageFiles(paths, transform), batch_size, num_workers=num_workers, collate_fn=_stack)


class _ImageFiles(Dataset[Tensor]):
    """Images in files, transformed."""

    def __init__(self, paths: Sequence[Path], transform: Transform | None) -> None:
        self.paths = paths
        self.transform = transform

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Tensor:
        path = self.paths[index]
        if self.transform is None:
            return load_image(path)
        tensor = self.transform(Image.fromarray(load_pixels(path)))
        if not isinstance(tensor, Tensor) or tensor.ndim != 3 or not tensor.is_floating_point():
            got = f"{tensor.dtype}, {tuple(tensor.shape)}" if isinstance(tensor, Tensor) else type(tensor).__name__
            raise ValueError(
                f"Expected argument `transform` to give a tensor (C, H, W) of a floating-point type but got {got}. "
                "Of a batch of one image take the first, `[0]`; of a processor's dict its pixel values."
            )
        return tensor


def _stack(images: list[Tensor]) -> Tensor:
    shapes = sorted({tuple(image.shape) for image in images})
    if len(shapes) > 1:
        raise ValueError(
            f"Expected images of one size but got {shapes[0]} and {shapes[1]}. Give a `transform` that makes them "
            "equal: crop or scale both sides, since torchvision's `Resize(256)`, for one, keeps the proportions."
        )
    return torch.stack(images)


#: Random sets below which the test of significance has almost no power: with three it passed a concept of held-out
#: accuracy .96 in one of six draws, with five in six of six.
LEAST_SETS = 5


def fit_folders(
    backbone: nn.Module | Backbone,
    root: str | os.PathLike[str],
    fitting: directions.Fitting,
    transform: Transform | None,
    pool: Pool,
    maps: Maps | None,
    random: str,
    batch_size: int,
    num_workers: int,
    display_progressbar: bool,
) -> dict[str, Any]:
    """Embed the images of all folders in one pass, and fit a direction for each concept."""
    root = check_folder("root", root, "a folder with one folder of images for each concept")
    module, pooling = resolve_stages(backbone, pool, maps, "backbone")
    folders = find_concept_folders(root, random)
    if transform is None:
        warn_without_transform(backbone)
    paths = folders.paths()
    loader = image_loader(paths, transform, batch_size, num_workers)
    features = directions.as_embeddings(embed_batches(module, pooling, loader, 1, display_progressbar).features)
    bad = [path for path, row in zip(paths, features.isfinite().all(1).tolist(), strict=True) if not row]
    if bad:
        raise ValueError(
            f"Expected argument `backbone` to give finite embeddings but it gives NaN or infinity for {len(bad)} of "
            f"{len(paths)} images, {bad[0]} for one. Is `transform` the one that it was trained with?"
        )
    rows = dict(zip(paths, features, strict=True))

    def stack_rows(members: list[Path]) -> Tensor:
        return torch.stack([rows[path] for path in members])

    sets = [stack_rows(members) for members in folders.random_sets.values()]
    names = [concept.name for concept in folders.concepts]
    positives = [stack_rows(concept.positive) for concept in folders.concepts]
    negatives = [
        torch.cat(sets) if concept.negative is None else stack_rows(concept.negative) for concept in folders.concepts
    ]
    if fitting.n_pos is not None or fitting.n_neg is not None:
        n_with, n_without = (np.array([len(side) for side in sides]) for sides in (positives, negatives))
        directions.warn_of_few_images(names, n_with, n_without, fitting)
    bar = progress(list(zip(positives, negatives, strict=True)), "Concepts", show=display_progressbar, leave=True)
    fitted = [_fit(positive, negative, fitting) for positive, negative in bar]
    tensors = directions.Directions(*(torch.cat(parts) for parts in zip(*fitted, strict=True)))._asdict()
    directions.warn_of_weak(tensors["test_accuracy"], names)

    settings = fitting.settings() | {"folder": root.resolve().name, "random": random, "random_sets": len(sets)}
    p_values = np.full(len(names), math.nan)
    if 0 < len(sets) < LEAST_SETS:
        warn_user(
            f"Expected at least {LEAST_SETS} folders of random images for p-values but got {len(sets)}: p-values are "
            "NaN, and no concept can pass a test. Add folders of random images."
        )
    if len(sets) > 1 and fitting.hold_back:
        among_sets = _score_sets(sets, fitting, display_progressbar)
        settings["random_accuracy"] = float(np.nanmean(among_sets))
        if len(sets) >= LEAST_SETS:
            shared = [j for j, concept in enumerate(folders.concepts) if concept.negative is None]
            accuracies = [
                [_fit(positives[j], random_set, fitting).test_accuracy.item() for random_set in sets]
                for j in progress(shared, "Concepts against each random set", show=display_progressbar, leave=True)
            ]
            p_values[shared] = set_p_values(np.array(accuracies), among_sets)
    return {**tensors, "p_values": torch.from_numpy(p_values), "names": names, "settings": settings}


def _fit(positive: Tensor, negative: Tensor, fitting: directions.Fitting) -> directions.Directions:
    """Fit the direction from some embeddings to others."""
    present = np.arange(len(positive) + len(negative))[:, None] < len(positive)
    return directions.fit_drawn(torch.cat([positive, negative]), present, fitting)


def _score_sets(sets: list[Tensor], fitting: directions.Fitting, display_progressbar: bool) -> np.ndarray:
    """Return the held-out accuracies (R, R) of random sets against each other, NaN on the diagonal."""
    table = np.full((len(sets), len(sets)), math.nan)
    pairs = list(combinations(range(len(sets)), 2))
    for i, j in progress(pairs, "Random sets against each other", show=display_progressbar, leave=True):
        table[i, j] = table[j, i] = _fit(sets[i], sets[j], fitting).test_accuracy.item()
    return table


def set_p_values(concepts: np.ndarray, among_sets: np.ndarray) -> np.ndarray:
    """Return one-sided p-values (L,) of accuracies (L, R) against R random sets, given those (R, R) among the sets."""
    # Each random set in turn takes the place of a concept. With a set's own part b_k in its accuracies, its mean over
    # the others varies by b_k (R - 2) / (R - 1), for b_k is also in theirs: undone, or p-values came out too small.
    # A concept that is a random set itself is one more draw, hence the prediction interval's 1 + 1 / R.
    n_sets = len(among_sets)
    if n_sets < 3:
        return np.full(len(concepts), math.nan)
    means = np.nanmean(among_sets, axis=1)
    spread = means.std(ddof=1) * (n_sets - 1) / (n_sets - 2) * math.sqrt(1 + 1 / n_sets)
    if not spread:
        return np.full(len(concepts), math.nan)
    # Imported here, like all that only fitting needs: it takes longer than the rest together.
    from scipy import stats

    distance = (concepts.mean(axis=1) - means.mean()) / spread
    return np.asarray(stats.t.sf(distance, n_sets - 1))
