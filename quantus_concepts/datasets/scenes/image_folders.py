"""A user's own cut-outs and scenes: a folder of images per class."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from pathlib import Path

import numpy as np

from captum_concepts.support.checks import check_index, check_path
from captum_concepts.support.images import image_size, load_pixels, open_image
from quantus_concepts.datasets.folders import IMAGE_SUFFIXES, list_classes
from quantus_concepts.datasets.scenes.sources import Cutout, ObjectSource, SceneSource, cut_out

CUTOUT_SUFFIXES = (".png",)
_OPAQUE = 128


class CutoutFolder(ObjectSource):
    """Cut-out objects in ``root/CLASS/*.png``, with their background transparent.

    The object is where alpha is at least 128. Classes, and files within a class, are in lexicographic order of their
    names; files next to the class folders, hidden ones and other files in them are ignored. Images are read on access.

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
        If there are no class folders, one has no PNG file, or a file has no alpha channel. On access to a cut-out:
        if the file cannot be read, or all or nothing of it is transparent.

    Examples
    --------
    >>> from quantus_concepts.datasets import CutoutFolder
    >>> objects = CutoutFolder("cutouts")  # cutouts/leaf/*.png, cutouts/stone/*.png
    >>> objects.class_names
    ['leaf', 'stone']
    >>> pixels, mask = objects[0]
    >>> pixels.shape[:2] == mask.shape, mask.dtype
    (True, dtype('bool'))
    """

    def __init__(self, root: str | Path, group_of: Callable[[Path], Hashable] | None = None) -> None:
        self.root = check_path("root", root)
        self.class_names, self.paths, self.labels = list_classes(self.root, CUTOUT_SUFFIXES)
        for path in self.paths:
            _check_alpha(path)
        numbers: dict[Hashable, int] = {}
        keys: Sequence[Hashable] = self.paths if group_of is None else [group_of(path) for path in self.paths]
        self.groups = np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int64)

    def __getitem__(self, index: int) -> Cutout:
        """Return one cut-out, cropped to the object."""
        path = self.paths[check_index(index, len(self))]
        rgba = load_pixels(path, "RGBA", "Cut-out")
        mask = rgba[..., 3] >= _OPAQUE
        if mask.all() or not mask.any():
            kind = "opaque" if mask.all() else "transparent"
            raise ValueError(
                f"Expected cut-out {path} to show an object and to have a transparent background (alpha below "
                f"{_OPAQUE}) but all of it is {kind}."
            )
        return cut_out(rgba[..., :3], mask)


class SceneFolder(SceneSource):
    """Scenes in ``root/CLASS/*.jpg`` (or jpeg, png, webp, bmp, tif), of any size.

    Classes, and files within a class, are in lexicographic order of their names; files next to the class folders,
    hidden ones and other files in them are left alone. Images are read on access, as RGB.

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
        If there are no class folders, one has no image, or a file is no image. On access to a scene: if the
        file cannot be read.

    Examples
    --------
    >>> from quantus_concepts.datasets import SceneFolder
    >>> scenes = SceneFolder("scenes")  # scenes/beach/*.jpg, scenes/forest/*.jpg
    >>> scenes.class_names
    ['beach', 'forest']
    >>> len(scenes) == len(scenes.paths), scenes[0].shape[2]
    (True, 3)
    """

    def __init__(self, root: str | Path) -> None:
        self.root = check_path("root", root)
        self.class_names, self.paths, self.labels = list_classes(self.root, IMAGE_SUFFIXES)
        for path in self.paths:
            image_size(path)

    def __getitem__(self, index: int) -> np.ndarray:
        """Return one scene."""
        return load_pixels(self.paths[check_index(index, len(self))])


def _check_alpha(path: Path) -> None:
    with open_image(path) as image:
        opaque, mode = "A" not in image.getbands() and "transparency" not in image.info, image.mode
    if opaque:
        raise ValueError(
            f"Expected cut-out {path} to have an alpha channel but its mode is {mode!r}. Save it as RGBA with the "
            "background transparent."
        )
