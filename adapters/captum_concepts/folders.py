"""What lies in a folder of images: folders with names that can be shown, and images that can be opened."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from captum_concepts.reading import check_plain_file, quoted


def subfolders(root: Path) -> list[Path]:
    """Return the folders in a folder, hidden ones left out, in the order of their names."""
    found = sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))
    for path in found:
        # Where a byte is no UTF-8, Python has half a character, which can be neither drawn nor written.
        if any("\ud800" <= letter <= "\udfff" for letter in path.name):
            raise ValueError(f"Expected a folder of images to have a name in UTF-8 but got {quoted(str(path))}.")
    return found


def image_files(folder: Path, suffixes: Sequence[str]) -> list[Path]:
    """Return the images in a folder, hidden files left out, in the order of their names."""
    found = sorted(
        path for path in folder.iterdir() if path.suffix.lower() in suffixes and not path.name.startswith(".")
    )
    for path in found:
        check_plain_file(path, "Image")
    return found
