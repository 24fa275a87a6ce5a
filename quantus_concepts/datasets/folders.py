"""Folders of images, one for each class, and the names in them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePosixPath

import numpy as np

from captum_concepts._support.files import image_files, quoted, shortened, subfolders


def leads_out(name: str) -> bool:
    """Tell whether a path in a text may lead out of the folder it counts from; links in the folder may."""
    # Who lays out data with links knows where they lead; who wrote a text that came with the data does not say.
    parts = PurePosixPath(name).parts
    return not parts or ".." in parts or name.startswith("/") or "\\" in name or "\0" in name or bool(Path(name).anchor)


def inside(root: Path, name: object, place: str) -> Path:
    """Return the path in a folder that a text names; a ValueError with the place in the text if it leads out."""
    if not isinstance(name, str) or leads_out(name):
        raise ValueError(
            f"{place}: expected the path of a file inside {root}, with forward slashes, but got {quoted(name)}."
        )
    return root / name


def list_classes(root: Path, suffixes: Sequence[str]) -> tuple[list[str], list[Path], np.ndarray]:
    """Return the names of the classes, the images, and the class of each."""
    if not root.is_dir():
        raise FileNotFoundError(f"Expected argument `root` to be a folder with one folder per class but got {root}.")
    folders = subfolders(root)
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
    shown = (shortened(name.as_posix() if isinstance(name, Path) else name) for name in names[:limit])
    return ", ".join(shown) + (", ..." if len(names) > limit else "")
