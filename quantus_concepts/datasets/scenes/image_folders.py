"""A user's own cut-outs and scenes: a folder of images per class."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from quantus_concepts.datasets.images import image_head, image_size, load_image, turned
from quantus_concepts.datasets.scenes.pasting import tight_box
from quantus_concepts.datasets.scenes.sources import Cutout, ObjectSource, SceneSource

SCENE_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff")
CUTOUT_SUFFIXES = (".png",)
_OPAQUE = 128


class CutoutFolder(ObjectSource):
    """Cut-out objects in ``root/CLASS/*.png``, with their background transparent.

    Where alpha is at least 128 is the object. Classes, and files within a class, are in lexicographic order of their
    names; files beside the class folders, hidden ones and other files in them are left alone. Images are read when
    asked for.

    Parameters
    ----------
    root : str or Path
        Folder of the class folders.
    group_of : callable, optional
        From path to anything hashable: files with the same are cut out of one photograph and stay together when
        training and test are separated. None where each file is of another photograph.

    Attributes
    ----------
    paths : list of Path
        The n files.

    Raises
    ------
    FileNotFoundError
        If `root` is no folder.
    ValueError
        If there are no class folders, one has no PNG file, or a file has no alpha channel. When a cut-out is asked
        for: if the file cannot be read, or all or nothing of it is transparent.
    """

    def __init__(self, root: str | Path, group_of: Callable[[Path], Hashable] | None = None) -> None:
        self.root = Path(root)
        self.class_names, self.paths, self.labels = list_classes(self.root, CUTOUT_SUFFIXES)
        for path in self.paths:
            _check_alpha(path)
        numbers: dict[Hashable, int] = {}
        keys: Sequence[Hashable] = self.paths if group_of is None else [group_of(path) for path in self.paths]
        self.groups = np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int64)

    def __getitem__(self, index: int) -> Cutout:
        """Return one cut-out, cropped to the object."""
        path = self.paths[index]
        try:
            with Image.open(path) as image:
                rgba = turned(np.array(image.convert("RGBA")), image_head(path).orientation)
        except (OSError, SyntaxError, Image.DecompressionBombError) as error:
            raise ValueError(f"Cut-out {path} cannot be read ({error}). Replace it or leave it out.") from error
        mask = rgba[..., 3] >= _OPAQUE
        if not mask.any():
            raise ValueError(
                f"Expected cut-out {path} to show an object but all of it is transparent (alpha below {_OPAQUE}). "
                "Replace it or leave it out."
            )
        if mask.all():
            raise ValueError(
                f"Expected cut-out {path} to have a transparent background but all of it is opaque (alpha {_OPAQUE} or "
                "more): nothing is cut away. Cut the object out first."
            )
        row0, col0, row1, col1 = tight_box(mask)
        return Cutout(rgba[row0:row1, col0:col1, :3], mask[row0:row1, col0:col1])


class SceneFolder(SceneSource):
    """Scenes in ``root/CLASS/*.jpg`` (or jpeg, png, webp, bmp, tif), of any size.

    Classes, and files within a class, are in lexicographic order of their names; files beside the class folders,
    hidden ones and other files in them are left alone. Images are read when asked for, as RGB.

    Parameters
    ----------
    root : str or Path
        Folder of the class folders.

    Attributes
    ----------
    paths : list of Path
        The n files.

    Raises
    ------
    FileNotFoundError
        If `root` is no folder.
    ValueError
        If there are no class folders, one has no image, or a file is no image. When a scene is asked for: if the
        file cannot be read.
    """

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)
        self.class_names, self.paths, self.labels = list_classes(self.root, SCENE_SUFFIXES)
        for path in self.paths:
            image_size(path)

    def __getitem__(self, index: int) -> np.ndarray:
        """Return one scene."""
        return load_pixels(self.paths[index])


def load_pixels(path: Path) -> np.ndarray:
    """Read an image file as RGB."""
    return np.ascontiguousarray(load_image(path).mul_(255).round_().byte().permute(1, 2, 0).numpy())


def list_classes(root: Path, suffixes: Sequence[str]) -> tuple[list[str], list[Path], np.ndarray]:
    """Find the images of each class."""
    if not root.is_dir():
        raise FileNotFoundError(f"Expected argument `root` to be a folder with one folder per class but got {root}.")
    folders = sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))
    if not folders:
        raise ValueError(f"Expected one folder per class in {root} but there is no folder.")
    paths: list[Path] = []
    labels: list[int] = []
    for label, folder in enumerate(folders):
        mine = sorted(
            path for path in folder.iterdir() if path.suffix.lower() in suffixes and not path.name.startswith(".")
        )
        if not mine:
            raise ValueError(
                f"Expected images ({', '.join(suffixes)}) in {folder} but there are none. Every folder is a class: "
                "fill it or remove it."
            )
        paths += mine
        labels += [label] * len(mine)
    return [folder.name for folder in folders], paths, np.array(labels, dtype=np.int64)


def _check_alpha(path: Path) -> None:
    image_size(path)
    with Image.open(path) as image:
        if "A" not in image.getbands() and "transparency" not in image.info:
            raise ValueError(
                f"Expected cut-out {path} to have an alpha channel but its mode is {image.mode!r}. Save it as RGBA "
                "with the background transparent."
            )
