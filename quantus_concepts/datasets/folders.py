"""Folders of images, one for each class, and the names in them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np


def class_folders(root: Path) -> list[Path]:
    """Return the folders in a folder, hidden ones left out, in the order of their names."""
    return sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))


def image_files(folder: Path, suffixes: Sequence[str]) -> list[Path]:
    """Return the images in a folder, hidden files left out, in the order of their names."""
    return sorted(
        path for path in folder.iterdir() if path.suffix.lower() in suffixes and not path.name.startswith(".")
    )


def list_classes(root: Path, suffixes: Sequence[str]) -> tuple[list[str], list[Path], np.ndarray]:
    """Return the names of the classes, the images, and the class of each."""
    if not root.is_dir():
        raise FileNotFoundError(f"Expected argument `root` to be a folder with one folder per class but got {root}.")
    folders = class_folders(root)
    if not folders:
        raise ValueError(f"Expected one folder per class in {root} but there is no folder.")
    found = [image_files(folder, suffixes) for folder in folders]
    for folder, paths in zip(folders, found, strict=True):
        if not paths:
            raise ValueError(
                f"Expected images ({', '.join(suffixes)}) in {folder} but there are none. Every folder is a class: "
                "fill it or remove it."
            )
    labels = np.repeat(np.arange(len(folders), dtype=np.int64), [len(paths) for paths in found])
    return [folder.name for folder in folders], [path for paths in found for path in paths], labels


def some_names(names: Sequence[str | Path], limit: int = 5) -> str:
    """Write out the first few."""
    shown = (name.as_posix() if isinstance(name, Path) else name for name in names[:limit])
    return ", ".join(shown) + (", ..." if len(names) > limit else "")
