"""Photographs of scikit-image and scikit-learn, and folders of crops of them: data of pages, without a download."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from skimage import data
from sklearn.datasets import load_sample_image

from quantus_concepts.datasets import PaintedObjects

#: Photographs (H, W, 3) of uint8 by name.
PHOTOGRAPHS = {
    "cat": data.chelsea(),
    "coffee": data.coffee(),
    "flower": load_sample_image("flower.jpg"),
    "temple": load_sample_image("china.jpg"),
    "bricks": np.repeat(data.brick()[..., None], 3, 2),
    "rocket": data.rocket(),
    "astronaut": data.astronaut(),
}


def crop(photograph: np.ndarray, size: int, rng: np.random.Generator) -> np.ndarray:
    """Return a random square (size, size, 3) of a photograph."""
    row, column = (rng.integers(0, side - size) for side in photograph.shape[:2])
    return photograph[row : row + size, column : column + size].copy()


def write_crops(
    root: str,
    sources: Mapping[str, Sequence[np.ndarray]],
    n: int,
    size: int,
    seed: int = 0,
) -> None:
    """Write `n` random crops of the photographs of each source into `root/name/*.png`."""
    rng = np.random.default_rng(seed)
    for name, photographs in sources.items():
        Path(root, name).mkdir(parents=True)
        for number in range(n):
            photograph = photographs[rng.integers(len(photographs))]
            Image.fromarray(crop(photograph, size, rng)).save(
                f"{root}/{name}/{number:02}.png"
            )


def write_concept_folders(root: str = "concepts") -> None:
    """Write folders of crops: fur, petals, bricks, nothing (all photographs), and five of random images."""
    photographs = PHOTOGRAPHS
    others = [photographs[name] for name in ("temple", "coffee", "rocket", "astronaut")]
    cat, flower, bricks = (photographs[name] for name in ("cat", "flower", "bricks"))
    sources = {
        "fur": [cat[:150, 100:320]],  # the head; the body is kept for pictures
        "petals": [flower[150:400, 200:420]],
        "bricks": [bricks],
        "nothing": [*others, cat, flower, bricks],
        **{f"random_{number}": others for number in range(5)},
    }
    write_crops(root, sources, 30, 64)


def write_classes(root: str = "photos", table: str = "concepts.csv") -> None:
    """Write `root/train` and `root/test`, a folder for each of four classes, and a table of their concepts."""
    names = ("cat", "coffee", "flower", "temple")
    halves: dict[str, dict[str, list[np.ndarray]]] = {"train": {}, "test": {}}
    for name in names:
        photograph = PHOTOGRAPHS[name]
        middle = photograph.shape[1] // 2
        halves["train"][name] = [photograph[:, :middle]]
        halves["test"][name] = [photograph[:, middle:]]
    write_crops(f"{root}/train", halves["train"], 40, 96)
    write_crops(f"{root}/test", halves["test"], 10, 96, seed=1)
    Path(table).write_text(
        "class,alive,fur,petals,round,man-made\n"
        "cat,1,1,0,0,0\ncoffee,0,0,0,1,1\nflower,1,0,1,0,0\ntemple,0,0,0,0,1\n",
        encoding="utf-8",
    )


def paste_bricks(
    n: int = 40, size: int = 128, seed: int = 0
) -> tuple[list[np.ndarray], np.ndarray]:
    """Return crops of photographs with a patch of the brick wall, and masks (n, 1, size, size) of the patches."""
    rng = np.random.default_rng(seed)
    others = [PHOTOGRAPHS[name] for name in ("temple", "coffee", "rocket", "astronaut")]
    images = [crop(others[rng.integers(len(others))], size, rng) for _ in range(n)]
    masks = np.zeros((n, 1, size, size), dtype=bool)
    for image, mask in zip(images, masks[:, 0], strict=True):
        row, column = rng.integers(0, size - 48, 2)
        image[row : row + 48, column : column + 48] = crop(
            PHOTOGRAPHS["bricks"], 48, rng
        )
        mask[row : row + 48, column : column + 48] = True
    return images, masks


def crops_of_classes(
    n: int = 50, size: int = 96, seed: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return `n` crops of each of four photographs (4 n, 3, size, size), in [0, 1], and their classes (4 n,)."""
    rng = np.random.default_rng(seed)
    names = ("bricks", "cat", "flower", "temple")
    crops = np.stack(
        [crop(PHOTOGRAPHS[name], size, rng) for name in names for _ in range(n)]
    )
    images = torch.tensor(crops).permute(0, 3, 1, 2).float() / 255
    return images, torch.arange(4).repeat_interleave(n)


def write_objects_and_scenes(objects: str = "objects", scenes: str = "scenes") -> None:
    """Write crops of four photographs, a folder each, and painted objects of four classes with their masks (RGBA)."""
    names = ("temple", "flower", "cat", "coffee")
    write_crops(scenes, {name: [PHOTOGRAPHS[name]] for name in names}, 40, 128)
    painted = PaintedObjects(30)
    for number in range(len(painted)):
        name = painted.class_names[painted.labels[number]]
        pixels, mask = painted[number]
        if name in ("car", "fish", "key", "umbrella"):
            folder = Path(objects, name)
            folder.mkdir(parents=True, exist_ok=True)
            pixels = np.dstack([pixels, 255 * mask.astype(np.uint8)])
            Image.fromarray(pixels).save(folder / f"{number:03}.png")
